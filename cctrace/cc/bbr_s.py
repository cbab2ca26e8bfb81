"""BBR-S as oBBR's authors wrote it: QUIC BBR that paces at a high percentile of its samples, not at their maximum.

Model:  bw = the 15th largest of the last 100 delivery-rate samples (their 85th percentile, about).

        modes: as in quic_bbr.

The maximum of many noisy samples overestimates, more so behind routers that send bursts; the percentile avoids that.
Samples are counted per ACK, so 100 of them are some rounds on a thin path and a fraction of one on a fat one.

Quirks, kept because decisions depend on them: until 100 samples were seen the maximum filter is used; *afterwards too*
for the BDP (`target_cwnd`), so the window follows the maximum while the rate follows the percentile. In the source, the
samples belong to the process, not to the connection.

The source searches all 100 samples 15 times for each ACK. Here they are also kept in order (`sorted_bw`), so that an
ACK moves one sample past its neighbours; the answer is the same, equal samples counting one by one.

Sources: [ngx_bbr] bpq233/oBBR nginx-quic/src/event/quic/ngx_bbr.c, commit 3ae3fc9 (`-C BBR-S`);
[Vargas21] through [Bi23].
Differs from quic_bbr in: update_bandwidth (adds take_percentile), max_bw.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import ints
from cctrace.cc.cmath import s32
from cctrace.cc.filters import place_of
from cctrace.cc.quic import delivery_rate
from cctrace.cc.quic_bbr import BBR_S_COLUMNS, QuicBBR

SAMPLES = 100
RANK = 15  # from the top


class BBRS(QuicBBR):
    """BBR-S of oBBR's nginx-quic (`-C BBR-S`)."""

    golden_absent = {c: why for c, why in QuicBBR.golden_absent.items() if c not in BBR_S_COLUMNS}

    recent_bw = ints(SAMPLES)  # ring of samples, bytes/s (C int)
    sorted_bw = ints(SAMPLES)  # the same in ascending order
    bbrs_tot: int = 0  # place of the next sample in the ring
    bbrs_flag: bool = False  # the ring has been filled once

    def max_bw(self) -> int:  # [ngx_bbr] ngx_bbr_max_bw
        """Return the bandwidth estimate, bytes/s."""
        if self.bbrs_flag:
            return self.bw
        return super().max_bw()

    def update_bandwidth(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_update_bandwidth
        """Take the sample into the maximum filter and into the percentile."""
        super().update_bandwidth(ack)
        if ack.smp_interval_ms == 0:
            return
        bw = delivery_rate(ack.smp_delivered, ack.smp_interval_ms)
        if ack.smp_is_app_limited and bw < self.max_bw():
            return
        self.replace_sample(s32(bw))
        if self.bbrs_flag:
            self.bw = max(self.sorted_bw[SAMPLES - RANK], 0)

    def replace_sample(self, bw: int) -> None:
        """Put `bw` in the place of the oldest sample."""
        oldest = self.recent_bw[self.bbrs_tot]
        self.recent_bw[self.bbrs_tot] = bw
        self.bbrs_tot = self.bbrs_tot + 1
        if self.bbrs_tot >= SAMPLES:
            self.bbrs_flag = True
            self.bbrs_tot = 0
        place = place_of(self.sorted_bw, SAMPLES, oldest)
        while place > 0 and self.sorted_bw[place - 1] > bw:
            self.sorted_bw[place] = self.sorted_bw[place - 1]
            place = place - 1
        while place < SAMPLES - 1 and self.sorted_bw[place + 1] < bw:
            self.sorted_bw[place] = self.sorted_bw[place + 1]
            place = place + 1
        self.sorted_bw[place] = bw
