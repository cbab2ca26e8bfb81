"""BBR as released in Linux 6.1 (2022), and unchanged in the 6.18 of the recordings.

Model:  every ACK updates  bw = max(delivery rate, 10 rounds)  and  min_rtt = min(RTT, 10 s);
        pace at pacing_gain * bw,  keep at most cwnd_gain * bw * min_rtt (+ aggregation) in flight.

        STARTUP --(bw plateau, 3 rounds)--> DRAIN --(inflight <= BDP)--> PROBE_BW
                                                                           |  ^
                                              (min_rtt 10 s old, always) v    | (200 ms at 4 packets)
                                                                         PROBE_RTT

Sources: [Linux61] net/ipv4/tcp_bbr.c.   Differs from bbr2019:

* only a strictly smaller RTT renews min_rtt: on a path of constant RTT the estimate now expires, so PROBE_RTT happens;
* the first round begins at the current `delivered`, not at 0: it lasts a whole round trip;
* a delivery rate's interval may exceed 32 bits.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.bbr1_model import BW_UNIT
from cctrace.cc.bbr2019 import BBR2019


class BBR2022(BBR2019):
    """BBR of Linux 6.1; see the module's header."""

    def init(self, ack: Ack) -> None:
        """[Linux61] bbr_init."""
        super().init(ack)
        self.next_rtt_delivered = ack.delivered

    def takes_rtt(self, ack: Ack, expired: bool) -> bool:
        """Strictly smaller [Linux61] bbr_update_min_rtt."""
        if ack.rs_rtt_us < 0:
            return False
        return ack.rs_rtt_us < self.min_rtt_us or (expired and ack.rs_is_ack_delayed == 0)

    def delivery_rate(self, ack: Ack) -> int:
        """Segments/us << 24 [Linux61] bbr_update_bw."""
        return ack.rs_delivered * BW_UNIT // ack.rs_interval_us
