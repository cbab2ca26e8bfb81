"""When BBRv2 measures the least RTT anew.

    probe_rtt_min_us   least RTT of 5 s: no lower or equal one for so long calls for PROBE_RTT
    min_rtt_us         least RTT of 10 s, that of the BDP

PROBE_RTT holds half a BDP for 200 ms and a round, counted from when the flight is down to it.

Sources: [BBRv2alpha] google/bbr, branch v2alpha, net/ipv4/tcp_bbr2.c. Function names in comments are that file's.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.bbr2_bounds import ACKS_PROBE_STOPPING, BBR2Bounds
from cctrace.cc.bbr2_model import PROBE_RTT, STARTUP
from cctrace.cc.cmath import u32
from cctrace.cc.linux import before, msecs_to_jiffies

PROBE_RTT_MODE_MS = 200


class BBR2ProbeRtt(BBR2Bounds):
    """Least RTT and PROBE_RTT of BBRv2 and its descendants; see the module's header."""

    probe_rtt_done_stamp: int = 0
    probe_rtt_round_done: bool = False
    idle_restart: bool = False

    def update_min_rtt(self, ack: Ack) -> None:
        """Track the least RTT of 5 s and 10 s; dip when the former expires [BBRv2alpha] bbr_update_min_rtt."""
        window = msecs_to_jiffies(min(self.probe_rtt_win_ms, self.min_rtt_win_sec * 1000), self.hz)
        expired = before(self.probe_rtt_min_stamp + window, ack.jiffies)
        if ack.rs_rtt_us >= 0 and (self.is_lower_rtt(ack.rs_rtt_us) or (expired and not ack.rs_is_ack_delayed)):
            self.probe_rtt_min_us = u32(ack.rs_rtt_us)
            self.probe_rtt_min_stamp = ack.jiffies
        min_rtt_expired = before(self.min_rtt_stamp + self.min_rtt_win_sec * self.hz, ack.jiffies)
        if self.probe_rtt_min_us <= self.min_rtt_us or min_rtt_expired:
            self.min_rtt_us = self.probe_rtt_min_us
            self.min_rtt_stamp = self.probe_rtt_min_stamp
        if expired and not self.idle_restart and self.mode != PROBE_RTT:
            self.enter_probe_rtt(ack)
        if self.mode == PROBE_RTT:
            self.stay_in_probe_rtt(ack)
        if ack.rs_delivered > 0:
            self.idle_restart = False

    def is_lower_rtt(self, rtt_us: int) -> bool:
        """An equal RTT refreshes the estimate too [BBRv2alpha] bbr_update_min_rtt."""
        return rtt_us <= self.probe_rtt_min_us

    def enter_probe_rtt(self, ack: Ack) -> None:
        """[BBRv2alpha] bbr_update_min_rtt."""
        self.mode = PROBE_RTT
        self.save_cwnd()
        self.probe_rtt_done_stamp = 0
        self.ack_phase = ACKS_PROBE_STOPPING
        self.next_rtt_delivered = ack.delivered

    def stay_in_probe_rtt(self, ack: Ack) -> None:
        """Count 200 ms and one round from the moment the flight is down to half a BDP [BBRv2alpha] same."""
        in_flight = self.packets_in_flight(ack)
        self.app_limited = max(u32(ack.delivered + in_flight), 1)  # these samples must not lower the bandwidth
        if not self.probe_rtt_done_stamp and in_flight <= self.probe_rtt_cwnd():
            self.probe_rtt_done_stamp = u32(ack.jiffies + msecs_to_jiffies(PROBE_RTT_MODE_MS, self.hz))
            self.probe_rtt_round_done = False
            self.next_rtt_delivered = ack.delivered
        elif self.probe_rtt_done_stamp:
            if self.round_start:
                self.probe_rtt_round_done = True
            if self.probe_rtt_round_done:
                self.check_probe_rtt_done(ack)

    def check_probe_rtt_done(self, ack: Ack) -> None:
        """[BBRv2alpha] bbr_check_probe_rtt_done."""
        if self.probe_rtt_done_stamp and before(self.probe_rtt_done_stamp, ack.jiffies):
            self.probe_rtt_min_stamp = ack.jiffies
            self.snd_cwnd = max(self.snd_cwnd, self.prior_cwnd)
            self.exit_probe_rtt(ack)

    def exit_probe_rtt(self, ack: Ack) -> None:
        """To CRUISE, the flight being low; to STARTUP if the pipe was never full [BBRv2alpha] bbr2_exit_probe_rtt."""
        self.reset_lower_bounds()
        if self.full_bw_reached:
            self.enter_probe_bw_after_dip(ack)
        else:
            self.mode = STARTUP

    def enter_probe_bw_after_dip(self, ack: Ack) -> None:
        """Go on probing, in the class that has the phases."""
