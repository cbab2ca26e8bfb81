"""B3R as far as the oBBR paper describes it, on the QUIC stack that the paper built it in.

Model:  that of `b3r_paper` (docs there), in place of Linux's BBR on the BBR of nginx-quic (`quic_bbr`).

        modes: as in quic_bbr.

Left open by the description, and chosen here as in `b3r_paper`, besides:

* a loss is what the stack declares lost with an ACK; a min_rtt is counted in whole milliseconds.

Sources: [Bi23] section 5.1, of [Singhania21]; [ngx_bbr].
Differs from quic_bbr in: update_cycle_phase (adds adapt_boldness),
cycle_gain. Differs from the released `b3r` as `b3r_paper` does.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.bold_probe import STEPS_PER_UNIT, BoldProbe
from cctrace.cc.cmath import f32
from cctrace.cc.quic_bbr import PROBE_BW, QuicBBR


class QuicB3RPaper(BoldProbe, QuicBBR):
    """B3R's probe on the BBR of nginx-quic; see the module's header."""

    params = {name: row for name, row in QuicBBR.params.items() if name != "up_pacing_gain"}

    up_pacing_gain: float = 1.25  # until the adapted gain replaces it

    def update_cycle_phase(self, ack: Ack) -> None:  # [Bi23] §5.1
        """Adapt the probing gain, then cycle as BBR does."""
        self.adapt_boldness(ack.smp_loss, ack.now_ms, self.min_rtt_ms, self.round_cnt)
        if self.mode == PROBE_BW and self.pacing_gain > f32(1.0):
            self.pacing_gain = self.cycle_gain()
        super().update_cycle_phase(ack)

    def cycle_gain(self) -> f32:  # [Bi23] §5.1
        """Return the pacing gain of this phase of PROBE_BW, the adapted one where it probes."""
        if self.cycle_idx == 0:
            return f32((STEPS_PER_UNIT + self.boldness) / STEPS_PER_UNIT)
        return super().cycle_gain()
