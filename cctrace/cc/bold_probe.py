"""The law of B3R as the oBBR paper describes it, on any stack: losses make the bandwidth probe less bold.

Mixed into a BBR: `b3r_paper` (Linux, bbr2016) and `quic_b3r_paper` (nginx-quic, as the paper built it). What the
description leaves open: see `b3r_paper`.

Sources: [Bi23] section 5.1, of [Singhania21].
"""

BOLDEST = 5  # steps of 0.05 above 1
MEEKEST = 1
STEPS_PER_UNIT = 20


class BoldProbe:
    """How bold the probe is; see the module's header."""

    boldness: int = BOLDEST  # of the probe: its gain is 1 + 0.05 * boldness
    loss_round: int = -1  # round of the last step down
    step_stamp: int = 0  # when the gain last changed, or a loss forbade it to grow

    def adapt_boldness(self, lost: int, now: int, min_rtt: int, round_cnt: int) -> None:  # [Bi23] §5.1
        """Take a step down in a round with loss, a step up after a min_rtt without."""
        if lost > 0:
            self.step_stamp = now
            if self.loss_round != round_cnt:
                self.loss_round = round_cnt
                self.boldness = max(self.boldness - 1, MEEKEST)
        elif now - self.step_stamp > min_rtt:
            self.step_stamp = now
            self.boldness = min(self.boldness + 1, BOLDEST)
