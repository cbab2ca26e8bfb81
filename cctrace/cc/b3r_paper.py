"""B3R as far as the oBBR paper describes it, on Linux BBR: losses make the bandwidth probe less bold.

Model:  probing gain of PROBE_BW:  1.25 --(round with loss: -0.05)--> ... --> 1.05
                                        <--(min_rtt without loss: +0.05)--

        modes: as in bbr2016.

The description is one sentence: B3R adjusts pacing_gain in PROBE_BW to lose less in shallow buffers. The probe is what
overfills such a buffer: it sends 25 % of a BDP too much in each cycle.

Left open by it, and chosen here: the range 1.25 to 1.05 and the step 0.05 are those of the released code;
one round takes at most one step down, however many of its packets were lost; the way back is one step for each min_rtt
without loss; a step acts at once, also on a probe under way. The gains 0.75 and 1 stay. The parent is bbr2016, the
"BBR" of the same paper.

Sources: [Bi23] section 5.1, of [Singhania21].   Differs from bbr2016 in: update_cycle_phase (adds adapt_probe),
advance_cycle_phase; from the released `b3r` in: the gain follows at once (there only on the next loss), the way back is
counted in time (there in ACKs), one step per round (there per ACK with loss).
"""

from cctrace.cc.ack import Ack
from cctrace.cc.bbr1_model import GAIN_UNIT, PROBE_BW
from cctrace.cc.bbr2016 import BBR2016
from cctrace.cc.bold_probe import STEPS_PER_UNIT, BoldProbe


class B3RPaper(BoldProbe, BBR2016):
    """B3R on Linux BBR; see the module's header."""

    params = {name: row for name, row in BBR2016.params.items() if name != "up_pacing_gain"}

    up_pacing_gain: float = 1.25  # until the adapted gain replaces it

    def update_cycle_phase(self, ack: Ack) -> None:  # [Bi23] §5.1
        """Adapt the probing gain, then cycle as BBR does."""
        self.adapt_boldness(ack.rs_losses, ack.now_us, self.min_rtt_us, self.rtt_cnt)
        if self.mode == PROBE_BW and self.pacing_gain > GAIN_UNIT:
            self.pacing_gain = self.probe_gain()
        super().update_cycle_phase(ack)

    def advance_cycle_phase(self, ack: Ack) -> None:  # [Bi23] §5.1
        """Enter the next phase, with the adapted gain if it probes."""
        super().advance_cycle_phase(ack)
        if self.pacing_gain > GAIN_UNIT:
            self.pacing_gain = self.probe_gain()

    def probe_gain(self) -> int:  # [Bi23] §5.1
        """Return the pacing gain of a probe, << 8."""
        return GAIN_UNIT * (STEPS_PER_UNIT + self.boldness) // STEPS_PER_UNIT
