"""BBR as released in Linux 5.4 (2019): Kumar's BBR2019.

Model and states are those of `bbr2016`, plus an estimate of ACK aggregation (Wi-Fi, cellular, offload):

    epoch    |<-- ACKs faster than bw ----------------------->|  ends when the ACKed fall to bw * elapsed
    extra_acked = acked in the epoch - bw * elapsed,  maximum over 5 to 10 rounds (two slots of 5)
    cwnd        = 2 * BDP + min(extra_acked, 100 ms * bw) + 3 bursts (+ 2 while probing)

so that sending goes on through the silences between aggregated ACKs.

Sources: [Linux54] net/ipv4/tcp_bbr.c.   Differs from bbr2016:

* paces payload bytes, 1 % below the estimate, and waits for an RTT before it trusts the initial rate;
* the pacing clock: what earliest-departure-time pacing holds back is not in flight;
* gains are set at the end of the ACK, from the mode (so a transition acts on the *next* phase decision);
* a full pipe stays full through an undo, which restarts the plateau search and the policer's;
* cwnd is restored within the ACK that ends PROBE_RTT; ACKs that deliver nothing still apply PROBE_RTT's
  cap;
* a delayed ACK does not replace an expired min_rtt; an idle restart lasts until data are delivered and can end
  PROBE_RTT;
* the policer's clock counts ms, not jiffies; the cycle goes on at a policer's rate;
* ssthresh is written once, on entering DRAIN, for others to see.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import Param, ints
from cctrace.cc.bbr1_model import (
    BW_SCALE,
    BW_UNIT,
    CYCLE_LEN,
    DRAIN,
    GAIN_SCALE,
    GAIN_UNIT,
    MAX_GAIN,
    PROBE_BW,
    PROBE_RTT,
    STARTUP,
)
from cctrace.cc.bbr2016 import BBR2016, CYCLE_RAND
from cctrace.cc.cmath import U32_MAX, s32, u16, u32, u64, u64_lt, u64_shr
from cctrace.cc.linux import (
    NSEC_PER_USEC,
    TCP_INFINITE_SSTHRESH,
    USEC_PER_MSEC,
    USEC_PER_SEC,
    before,
    in_256ths,
    socket_rate,
)

PACING_MARGIN_PERCENT = 1  # below the estimate on average, so that queues shrink
EXTRA_ACKED_WIN_ROUNDS_MAX = 0x1F  # a field of 5 bits
EXTRA_ACKED_MAX_US = 100_000
ACK_EPOCH_ACKED_MAX = 0xFFFFF  # a field of 20 bits
ACK_EPOCH_ACKED_RESET = 1 << 20


class BBR2019(BBR2016):
    """BBR of Linux 5.4; see the module's header."""

    params = BBR2016.params | {
        "extra_acked_win_rtts": Param(
            5, 1, EXTRA_ACKED_WIN_ROUNDS_MAX, "each of two slots of extra_acked, rounds", "bbr_extra_acked_win_rtts"
        ),
        "extra_acked_gain": Param(1.0, 0.0, MAX_GAIN, "share of extra_acked that cwnd has on top of its BDPs"),
    }
    pacing_overhead_bytes = 0  # 4.13 and later pace the payload
    golden_names = BBR2016.golden_names | {"s_extra_acked0": "extra_acked[0]", "s_extra_acked1": "extra_acked[1]"}

    has_seen_rtt: int = 0
    extra_acked = ints(2)
    extra_acked_win_rtts: int = 0
    extra_acked_win_idx: int = 0
    ack_epoch_acked: int = 0
    ack_epoch_mstamp: int = 0

    # ---- entry points ----------------------------------------------------------------------------------------------

    def init(self, ack: Ack) -> None:
        """[Linux54] bbr_init."""
        self.snd_ssthresh = TCP_INFINITE_SSTHRESH
        super().init(ack)
        self.ack_epoch_mstamp = ack.now_us

    def on_ack(self, ack: Ack) -> None:
        """Update the model, then decide [Linux54] bbr_main."""
        self.update_model(ack)
        bw = self.bw()
        self.set_pacing_rate(ack, bw, self.pacing_gain)
        self.set_cwnd(ack, bw)

    def update_model(self, ack: Ack) -> None:
        """Learn from one ACK, in this order [Linux54] bbr_update_model."""
        self.update_bw(ack)
        self.update_ack_aggregation(ack)
        self.update_cycle_phase(ack)
        self.check_full_bw_reached(ack)
        self.check_drain(ack)
        self.update_min_rtt(ack)
        self.update_gains()

    def ssthresh(self, ack: Ack) -> int:
        """Save cwnd, leave ssthresh unchanged [Linux54] bbr_ssthresh."""
        self.save_cwnd()
        return self.snd_ssthresh

    def undo_cwnd(self, ack: Ack) -> int:
        """The loss was spurious: restart the search for the plateau and the policer [Linux54] bbr_undo_cwnd."""
        self.full_bw = 0
        self.full_bw_cnt = 0
        self.reset_lt_bw_sampling(ack)
        return self.snd_cwnd

    def restart_from_idle(self, ack: Ack) -> None:
        """Silence is no aggregation; and PROBE_RTT may have passed meanwhile [Linux54] bbr_cwnd_event."""
        self.ack_epoch_mstamp = ack.now_us
        self.ack_epoch_acked = 0
        super().restart_from_idle(ack)
        if self.mode == PROBE_RTT:
            self.check_probe_rtt_done(ack)

    # ---- rates and windows -----------------------------------------------------------------------------------------

    def rate_bytes_per_sec(self, ack: Ack, rate: int, gain: int) -> int:
        """Segments/us << 24 to bytes/s of payload, less the margin; wraps at 64 bits [Linux54] same name."""
        scaled = (rate * ack.mss * gain) >> GAIN_SCALE
        return u64_shr(u64(scaled * (USEC_PER_SEC // 100 * (100 - PACING_MARGIN_PERCENT))), BW_SCALE)

    def init_pacing_rate(self, ack: Ack) -> None:
        """Pace cwnd over the RTT, or over 1 ms until there is one [Linux54] bbr_init_pacing_rate_from_rtt."""
        rtt_us = USEC_PER_MSEC
        if ack.srtt_us8 != 0:
            rtt_us = max(ack.srtt_us8 >> 3, 1)
            self.has_seen_rtt = 1
        bw = u32(self.snd_cwnd * BW_UNIT // rtt_us)
        rate = self.rate_bytes_per_sec(ack, bw, in_256ths(self.high_gain))
        self.pacing_rate = socket_rate(rate, self.max_pacing_rate)

    def set_pacing_rate(self, ack: Ack, bw: int, gain: int) -> None:
        """Pace at gain * bw; never slower than before until the pipe is full [Linux54] bbr_set_pacing_rate."""
        rate = socket_rate(self.rate_bytes_per_sec(ack, bw, gain), self.max_pacing_rate)
        if self.has_seen_rtt == 0 and ack.srtt_us8 != 0:
            self.init_pacing_rate(ack)
        if self.full_bw_reached != 0 or u64_lt(self.pacing_rate, rate):
            self.pacing_rate = rate

    def quantization_budget(self, ack: Ack, cwnd: int) -> int:
        """Three bursts, even, and 2 more while probing, lest 5/4 of a small BDP round to no probe.

        [Linux54] bbr_quantization_budget.
        """
        cwnd = u32(cwnd + 3 * self.tso_segs(ack))
        cwnd = u32(cwnd + 1) & ~1
        if self.mode == PROBE_BW and self.cycle_idx == 0:
            cwnd = u32(cwnd + 2)
        return cwnd

    def inflight(self, ack: Ack, bw: int, gain: int) -> int:
        """Segments in flight that make gain * BDP, with the budget [Linux54] bbr_inflight."""
        return self.quantization_budget(ack, self.bdp(bw, gain))

    def target_cwnd(self, ack: Ack, bw: int) -> int:
        """BDP, aggregation and budget [Linux54] bbr_set_cwnd."""
        target = u32(self.bdp(bw, self.cwnd_gain) + self.ack_aggregation_cwnd())
        return self.quantization_budget(ack, target)

    def ack_aggregation_cwnd(self) -> int:
        """Segments to send on while ACKs are held back, at most 100 ms' worth [Linux54] same name."""
        if self.full_bw_reached == 0:
            return 0
        extra = in_256ths(self.extra_acked_gain) * max(self.extra_acked[0], self.extra_acked[1]) >> GAIN_SCALE
        return min(extra, u32(self.bw() * EXTRA_ACKED_MAX_US // BW_UNIT))

    def in_flight_at_departure(self, ack: Ack, in_flight: int) -> int:
        """What will be in the network when the next segment departs [Linux54] bbr_packets_in_net_at_edt.

        Pacing has given departure times to segments that count as in flight already. When raising the queue the burst
        about to leave counts too; when draining it does not.
        """
        held_us = (max(ack.wstamp_ns, ack.clock_ns) - ack.clock_ns) // NSEC_PER_USEC
        delivered = u32(u64_shr(u64(self.bw() * held_us), BW_SCALE))
        if self.pacing_gain > GAIN_UNIT:
            in_flight = u32(in_flight + self.tso_segs(ack))
        if delivered >= in_flight:
            return 0
        return in_flight - delivered

    def set_cwnd(self, ack: Ack, bw: int) -> None:
        """As the parent, but an ACK of nothing applies PROBE_RTT's cap too [Linux54] bbr_set_cwnd."""
        super().set_cwnd(ack, bw)
        if self.mode == PROBE_RTT:
            self.snd_cwnd = min(self.snd_cwnd, self.cwnd_min_target)

    # ---- modes -----------------------------------------------------------------------------------------------------

    def update_cycle_phase(self, ack: Ack) -> None:
        """Cycle the gain, at a policer's rate too [Linux54] bbr_update_cycle_phase."""
        if self.mode == PROBE_BW and self.is_next_cycle_phase(ack):
            self.advance_cycle_phase(ack)

    def phase_length_us(self, ack: Ack) -> int:
        """Time since the phase began, as a u32: it wraps after 71 minutes [Linux54] tcp_stamp_us_delta."""
        return u32(max(ack.delivered_mstamp_us - self.cycle_mstamp, 0))

    def advance_cycle_phase(self, ack: Ack) -> None:
        """Enter the next phase; its gain follows in `update_gains` [Linux54] bbr_advance_cycle_phase."""
        self.cycle_idx = (self.cycle_idx + 1) & (CYCLE_LEN - 1)
        self.cycle_mstamp = ack.delivered_mstamp_us

    def enter_startup(self, ack: Ack) -> None:
        """[Linux54] bbr_reset_startup_mode."""
        self.mode = STARTUP

    def enter_drain(self, ack: Ack) -> None:
        """Publish one BDP as ssthresh [Linux54] bbr_check_drain."""
        self.mode = DRAIN
        self.snd_ssthresh = self.inflight(ack, self.max_bw(), GAIN_UNIT)

    def enter_probe_bw(self, ack: Ack) -> None:
        """Begin the gain cycle at a random phase [Linux54] bbr_reset_probe_bw_mode."""
        self.mode = PROBE_BW
        self.cycle_idx = CYCLE_LEN - 1 - self.random_below(ack, CYCLE_RAND)
        self.advance_cycle_phase(ack)

    def enter_probe_rtt(self, ack: Ack) -> None:
        """[Linux54] bbr_update_min_rtt."""
        self.mode = PROBE_RTT

    def update_gains(self) -> None:
        """Gains of the mode [Linux54] bbr_update_gains."""
        if self.mode == STARTUP:
            self.pacing_gain = in_256ths(self.high_gain)
            self.cwnd_gain = in_256ths(self.high_gain)
        elif self.mode == DRAIN:
            self.pacing_gain = in_256ths(self.drain_gain)
            self.cwnd_gain = in_256ths(self.high_gain)
        elif self.mode == PROBE_BW:
            self.pacing_gain = self.phase_pacing_gain()
            if self.lt_use_bw != 0:
                self.pacing_gain = GAIN_UNIT
            self.cwnd_gain = in_256ths(self.bbr_cwnd_gain)
        else:
            self.pacing_gain = GAIN_UNIT
            self.cwnd_gain = GAIN_UNIT

    # ---- min_rtt and PROBE_RTT -------------------------------------------------------------------------------------

    def takes_rtt(self, ack: Ack, expired: bool) -> bool:
        """As the parent, but a delayed ACK does not replace an expired minimum [Linux54] bbr_update_min_rtt."""
        if ack.rs_rtt_us < 0:
            return False
        return ack.rs_rtt_us <= self.min_rtt_us or (expired and ack.rs_is_ack_delayed == 0)

    def check_probe_rtt_done(self, ack: Ack) -> None:
        """Leave PROBE_RTT once its time is up; asked on restart from idle as well [Linux54] same name."""
        if self.probe_rtt_done_stamp == 0 or not before(self.probe_rtt_done_stamp, ack.jiffies):
            return
        self.min_rtt_stamp = ack.jiffies
        self.snd_cwnd = max(self.snd_cwnd, self.prior_cwnd)
        self.leave_probe_rtt(ack)

    def end_idle_restart(self, ack: Ack) -> None:
        """Only data delivered end it [Linux54] bbr_update_min_rtt."""
        if ack.rs_delivered > 0:
            self.idle_restart = 0

    # ---- ACK aggregation -------------------------------------------------------------------------------------------

    def update_ack_aggregation(self, ack: Ack) -> None:
        """Maximum of what was ACKed beyond bw * elapsed [Linux54] bbr_update_ack_aggregation."""
        if ack.rs_acked_sacked == 0 or ack.rs_delivered < 0 or ack.rs_interval_us <= 0:
            return
        if self.round_start != 0:
            self.advance_extra_acked_window()
        elapsed_us = max(ack.delivered_mstamp_us - self.ack_epoch_mstamp, 0)
        expected = u32(u64_shr(u64(self.bw() * u32(elapsed_us)), BW_SCALE))
        # A new epoch where ACKs fell behind bw, or the count is about to overflow.
        if self.ack_epoch_acked <= expected or u32(self.ack_epoch_acked + ack.rs_acked_sacked) >= ACK_EPOCH_ACKED_RESET:
            self.ack_epoch_acked = 0
            self.ack_epoch_mstamp = ack.delivered_mstamp_us
            expected = 0
        self.ack_epoch_acked = min(ACK_EPOCH_ACKED_MAX, u32(self.ack_epoch_acked + ack.rs_acked_sacked))
        extra = min(u32(self.ack_epoch_acked - expected), self.snd_cwnd)
        if extra > self.extra_acked[self.extra_acked_win_idx]:
            self.extra_acked[self.extra_acked_win_idx] = u16(extra)  # 16 bits: wraps for windows above 65535

    def advance_extra_acked_window(self) -> None:
        """Every few rounds forget the older of the two slots [Linux54] bbr_update_ack_aggregation."""
        self.extra_acked_win_rtts = min(EXTRA_ACKED_WIN_ROUNDS_MAX, self.extra_acked_win_rtts + 1)
        if self.extra_acked_win_rtts >= self.bbr_extra_acked_win_rtts:
            self.extra_acked_win_rtts = 0
            self.extra_acked_win_idx = 1 - self.extra_acked_win_idx
            self.extra_acked[self.extra_acked_win_idx] = 0

    # ---- policer ---------------------------------------------------------------------------------------------------

    def lt_stamp(self, ack: Ack) -> int:
        """Clock of the long-term intervals: ms, a u32 [Linux54] bbr_reset_lt_bw_sampling_interval."""
        return u32(ack.delivered_mstamp_us // USEC_PER_MSEC)

    def close_lt_interval(self, ack: Ack, delivered: int) -> None:
        """Compute the interval's rate [Linux54] bbr_lt_bw_sampling."""
        interval_ms = u32(self.lt_stamp(ack) - self.lt_last_stamp)
        if s32(interval_ms) < 1:
            return
        if interval_ms >= U32_MAX // USEC_PER_MSEC:  # us would not fit a u32
            self.reset_lt_bw_sampling(ack)
            return
        self.lt_bw_interval_done(ack, u32(delivered * BW_UNIT // (interval_ms * USEC_PER_MSEC)))
