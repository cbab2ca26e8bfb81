"""The law of the oBBR paper, for any stack: a cap on what is in flight, and a bandwidth that may fall.

Mixed into a BBR: `obbr_paper` (Linux, bbr2016) and `quic_obbr_paper` (nginx-quic, as the paper built it). Times and
sizes are in the parent's units, which only have to agree with each other. What the law is, and what the paper leaves
open: see `obbr_paper`.

Sources: [Bi23] sections 4.1, 4.2.
"""

from cctrace.cc.base import Param, ints
from cctrace.cc.cmath import s32

MAX_SAMPLES = 200
LOW_BW = 0.75  # of bw
HIGH_RTT_MARGIN = 0.5  # of min_rtt, above g_max
UNACKED_WEIGHT = 10
PROBE_CAP = 1.25  # the cap must not undo the probe's pacing gain

WATCHING = 0
FIRST_INTERVAL = 1
SECOND_INTERVAL = 2

PARAMS = {
    "mu": Param(0.5, 0.0, 1.0, "share of a shallow buffer that the flow may fill [Bi23] §4.1"),
    "g_max": Param(2.0, 1.0, 10.0, "largest cap, BDP [Bi23] §4.1"),
    "alpha": Param(0.01, 0.0, 1.0, "recovery of the cap, BDP per BDP acknowledged [Bi23] §4.1"),
    "k": Param(30, 1, MAX_SAMPLES, "samples in a row that show a bandwidth drop [Bi23] §4.2"),
    "interval_ms": Param(200, 1, 60_000, "T, interval of a score, ms [Bi23] §4.2"),
}


class OBBRLaw:
    """Cap and bandwidth drops of oBBR; see the module's header."""

    mu: float  # parameters
    g_max: float
    alpha: float
    k: int
    g: float = 0.0  # the cap, BDP; 0 before the first ACK
    recent_bw = ints(MAX_SAMPLES)  # ring of the last k samples of PROBE_BW
    recent_place: int = 0
    recent_count: int = 0
    low_bw_count: int = 0  # consecutive
    high_rtt_count: int = 0
    # Scores.
    trial: int = WATCHING
    old_bw: int = 0
    interval_start: int = 0
    sent_before: int = 0  # sent, and delivered, before the interval
    delivered_before: int = 0
    score: int = 0  # of the last interval
    previous_score: int = 0  # of the one before it
    scores: int = 0  # intervals scored, up to 2
    score_before_update: int = 0  # sum of two

    def adapt_cap(self, lost: int, acked: int, bdp: int, rtt: int, min_rtt: int) -> None:  # [Bi23] §4.1
        """Scale g to a shallow buffer on loss, let it recover otherwise; a `min_rtt` of 0 is not known yet."""
        if self.g == 0.0:
            self.g = self.g_max
        if min_rtt == 0:
            return
        if lost > 0:
            queueing = (rtt - min_rtt) / min_rtt  # buffer over BDP
            if 1.0 + queueing < self.g:
                self.g = min(1.0 + self.mu * max(queueing, 0.0), self.g_max)
            return
        if self.g < self.g_max:
            self.g = min(self.g + self.alpha * acked / max(bdp, 1), self.g_max)

    def cap(self, probing: bool) -> float:
        """Return what may be in flight, BDP."""
        return max(self.g, PROBE_CAP) if probing else self.g

    # ---- bandwidth drops -------------------------------------------------------------------------------------------

    def note_rtt(self, rtt: int, min_rtt: int) -> None:  # [Bi23] §4.2
        """Count high RTTs of PROBE_BW."""
        high = rtt > (self.g_max + HIGH_RTT_MARGIN) * min_rtt
        self.high_rtt_count = self.high_rtt_count + 1 if high else 0

    def note_rate(self, bw: int, best_bw: int) -> None:  # [Bi23] §4.2
        """Count low bandwidth samples of PROBE_BW, and keep the last k."""
        self.low_bw_count = self.low_bw_count + 1 if bw < LOW_BW * best_bw else 0
        self.recent_bw[self.recent_place] = bw
        self.recent_place = self.recent_place + 1 if self.recent_place + 1 < self.k else 0
        self.recent_count = min(self.recent_count + 1, self.k)

    def bw_fell(self) -> bool:  # [Bi23] §4.2
        """Whether bw is to fall to the mean of the last k samples."""
        suspected = self.low_bw_count >= self.k or self.high_rtt_count >= self.k
        return suspected and self.trial == WATCHING and self.recent_count >= self.k

    def begin_trial(self, old_bw: int) -> None:  # [Bi23] §4.2
        """Note that bw fell, from `old_bw`; with two intervals before it, it is on trial for two."""
        self.old_bw = old_bw
        self.low_bw_count = 0
        self.high_rtt_count = 0
        if self.scores == 2:
            self.score_before_update = self.score + self.previous_score
            self.trial = FIRST_INTERVAL
            self.interval_start = 0

    def mean_recent_bw(self) -> int:
        """Return the mean of the last k samples."""
        total = 0
        for i in range(self.k):
            total = total + self.recent_bw[i]
        return total // self.k

    def score_interval(self, now: int, interval: int, sent: int, total_delivered: int) -> bool:  # [Bi23] §4.2
        """Score U over each interval; return whether the trial that ends restores the old bw.

        `interval` 0 restarts the interval.
        """
        old_was_better = False
        if self.interval_start != 0 and interval != 0:
            if now - self.interval_start < interval:
                return False
            delivered = s32(total_delivered - self.delivered_before)
            unacked = s32(sent - self.sent_before) - delivered
            self.previous_score = self.score
            self.score = delivered - UNACKED_WEIGHT * unacked
            self.scores = min(self.scores + 1, 2)
            old_was_better = self.advance_trial()
        self.interval_start = now
        self.sent_before = sent
        self.delivered_before = total_delivered
        return old_was_better

    def advance_trial(self) -> bool:  # [Bi23] §4.2
        """Return whether, after the second interval, the flow fared better with the old bw."""
        if self.trial == FIRST_INTERVAL:
            self.trial = SECOND_INTERVAL
        elif self.trial == SECOND_INTERVAL:
            self.trial = WATCHING
            return self.score + self.previous_score < self.score_before_update
        return False
