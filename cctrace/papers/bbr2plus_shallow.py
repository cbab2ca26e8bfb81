"""BBRv2+, Figs. 6, 7 and 21: retransmissions and throughput over rate and RTT, buffers of 100 kB and 10 MB.

One flow, 30 s (section 3.3). The paper's text puts BBRv2 13 to 16 % below BBR; its Eq. 2 divides by BBRv2's throughput,
which makes the same figures a gain of BBR of 15 to 19 %. Both are given.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from cctrace.analytic.metrics import throughput_gain
from cctrace.columns import Floats
from cctrace.papers.bbr2plus import BBR, BBR2, PLUS_18, PLUS_19, TRYING, Yang22, run_of
from cctrace.papers.claims import Claim, Stated
from cctrace.papers.figure import Drawing, Fields, Reproduction, drawing, measures
from cctrace.papers.runs import Result, Run
from cctrace.papers.varied import AS_CHOSEN

RATES_MBPS = (10, 50, 100, 250, 500, 750)
RTTS_MS = (5, 10, 25, 50, 75, 100, 150)
SHALLOW, DEEP = "100kB", "10MB"
ALPHAS = (*TRYING, PLUS_19, PLUS_18)  # of Fig. 21: section 5 sets 20 %; and the effect of less
LARGE_BDP_KB = 400  # above it BBRv2 answers losses, says the text
LESS = "above 400 kB of BDP and with 100 kB of buffer, BBRv2 has 13 to 16 % less than BBR (Eq. 2: 15 to 19 %)"


def _squares_drawn(column: str, label: str, by: str, **options: float) -> Drawing:
    axes = {"xlabel": "rate (Mbit/s)", "ylabel": "RTT (ms)"}
    return drawing("heatmap", "rtt_ms", "rate_mbps", column, by=by, label=label, **axes, **options)


class _OverRateAndRtt(Yang22):
    """One flow for every system, buffer, rate and RTT: a square each."""

    varied = {"system": "systems", "buffer": "buffers", "rate_mbps": "rates_mbps", "rtt_ms": "rtts_ms"}
    drawn = _squares_drawn("retransmitted_pct", "retransmitted (%)", "system")

    def run(self, at: Fields, p: Fields) -> Run:
        """One flow."""
        path = {"rate": f"{at['rate_mbps']}Mbit", "rtt": f"{at['rtt_ms']}ms", "buffer": at["buffer"]}
        return run_of([at["system"]], at["seed"], p["duration"], path)

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Throughput, retransmissions, and the BDP."""
        bdp_kb = labels["rate_mbps"] * labels["rtt_ms"] / 8
        return measures(result["flows"][0], "goodput_mbps", "retransmitted_pct") | {"bdp_kb": bdp_kb}


def _squares(made: Reproduction, system: str, buffer: str, column: str, large: bool = True) -> Floats:
    """Return the means of a column where the BDP is large (or is not), in the table's order."""
    rows = made.rows(system=system, buffer=buffer)
    return rows[(rows.bdp_kb > LARGE_BDP_KB) == large][column].to_numpy()


class Fig6(_OverRateAndRtt):
    """Retransmissions of BBR and BBRv2."""

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 3.3."""
        old, new = (_squares(made, s, SHALLOW, "retransmitted_pct") for s in (BBR, BBR2))
        less = old - new
        yield Stated(
            "6", "BBRv2 retransmits much less than BBR where the BDP is above 400 kB", "significantly reduced"
        ).judged(
            {"less in every square": (less > 0).all(), "at most half on average": new.mean() <= old.mean() / 2},
            f"{new.mean():.2f} % against {old.mean():.2f} % (means of {len(new)} squares; least difference "
            f"{less.min():.2f} points)",
        )


class Fig7(_OverRateAndRtt):
    """Throughput gain of BBR over BBRv2 (Eq. 2)."""

    drawn = _squares_drawn("gain", "Eq. 2 (%)", "buffer", centre=0.0)

    def gains(self, made: Reproduction, buffer: str, large: bool) -> tuple[Floats, Floats]:
        """Return (Eq. 2, percent; BBRv2 below BBR, percent of BBR) of the squares."""
        old, new = (_squares(made, s, buffer, "goodput_mbps", large) for s in (BBR, BBR2))
        return 100 * throughput_gain(old, new), 100 * (1 - new / old)

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 3.3."""
        gain, below = self.gains(made, SHALLOW, True)
        within = float(np.mean((gain >= 13) & (gain <= 21)))
        yield Stated("7a", LESS, "13 to 16 % less; Eq. 2 15 to 19 %").judged(
            {"less on average": below.mean() > 0},
            f"{below.mean():.1f} % less ({below.min():.1f} to {below.max():.1f}); Eq. 2 {gain.mean():.1f} % "
            f"({gain.min():.1f} to {gain.max():.1f}), 13 to 21 % in {within:.0%} of the squares",
            {"% less": (14.5, below.mean()), "Eq. 2 (%)": (17.0, gain.mean())},
            reading=AS_CHOSEN,
        )
        if DEEP not in made.each("buffer"):
            return
        deep = np.concatenate([self.gains(made, DEEP, large)[0] for large in (True, False)])
        yield Stated("7b", "with 10 MB of buffer the difference is marginal", "marginal").judged(
            {"within 5 % in nine of ten squares": np.mean(abs(deep) <= 5) >= 0.9},
            f"Eq. 2 {deep.mean():.1f} % ({deep.min():.1f} to {deep.max():.1f})",
        )

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """Eq. 2 in both buffers."""
        wide = made.table.pivot_table(index=["buffer", "rate_mbps", "rtt_ms"], columns="system", values="goodput_mbps")
        return wide.assign(gain=100 * throughput_gain(wide[BBR], wide[BBR2])).reset_index()


class Fig21(_OverRateAndRtt):
    """Retransmissions of BBRv2+."""

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.6, for every form."""
        old, new = (_squares(made, s, SHALLOW, "retransmitted_pct") for s in (BBR, BBR2))
        for plus in ALPHAS:
            here = _squares(made, plus, SHALLOW, "retransmitted_pct")
            means = f"{here.mean():.2f} % against BBR's {old.mean():.2f} and BBRv2's {new.mean():.2f} %"
            text = f"{means} (means of the {len(here)} squares above 400 kB of BDP; at most {here.max():.1f} %)"
            yield Stated(
                "21", "BBRv2+ retransmits far less than BBR in shallow buffers", "significantly reduced"
            ).judged(
                {
                    "at most half of BBR's, on average": here.mean() <= old.mean() / 2,
                    "less than BBR in nine of ten squares": np.mean(here < old) >= 0.9,
                },
                text,
                reading=plus,
            )
            yield Stated("21", "BBRv2+ retransmits more than BBRv2 in extremely shallow buffers", "more").judged(
                {"more on average": here.mean() > new.mean()}, text, reading=plus
            )


_FULL = {"rates_mbps": RATES_MBPS, "rtts_ms": RTTS_MS, "seeds": (1, 2), "duration": "30s"}
_QUICK = {"rates_mbps": (10, 100), "rtts_ms": (10, 75), "seeds": (1,), "duration": "6s"}
_TWO = (BBR, BBR2)
FIGURES = [
    Fig6("6", "retransmissions, buffer 100 kB", _FULL | {"systems": _TWO, "buffers": (SHALLOW,)}, _QUICK),
    Fig7("7", "throughput gain of BBR over BBRv2", _FULL | {"systems": _TWO, "buffers": (SHALLOW, DEEP)}, _QUICK),
    Fig21("21", "retransmissions of BBRv2+, buffer 100 kB",
          _FULL | {"systems": (*_TWO, *ALPHAS), "buffers": (SHALLOW,), "seeds": (1,)}, _QUICK),
]  # fmt: skip
