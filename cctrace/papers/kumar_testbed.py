"""Kumar et al.: the testbed of section II varied, detail by detail, around the collapse of BBR 2016 and 2019.

Details that the paper does not give (or that Linux has changed since), and their effect: ACKs per segment, ACKs in
clumps, compressed SACKs, ticks, netem's table of the normal distribution (cut at four deviations), order, stack.
"""

from collections.abc import Iterator

import pandas as pd

from cctrace.papers.claims import Claim, Stated, listed
from cctrace.papers.figure import Fields, Reproduction, drawing
from cctrace.papers.kumar import CLUMPED, FLOOR_US, JITTER, MEAN_US, WINDOW, OverTestbed, run_of
from cctrace.papers.netem import table
from cctrace.papers.runs import Run
from cctrace.papers.varied import AS_CHOSEN

# Name: (what of the path is changed, see `_path`; changes of the sender).
VARIATIONS: dict[str, tuple[str, Fields]] = {
    AS_CHOSEN: ("", {}),
    "an ACK per segment": ("", {"ack_every": 1}),
    "an ACK per 8 segments": ("", {"ack_every": 8}),
    "ACKs in slots of 1 ms": ("", {"ack_slot": "1ms"}),
    "ACKs in slots of 2 ms": ("", CLUMPED),
    "the fq qdisc": ("", {"fq": True}),
    "compressed SACKs (Linux 4.18)": ("", {"comp_sack_nr": 44}),
    "HZ 1000": ("", {"hz": 1000}),
    "stack of the golden vectors": ("", {"profile": "reference", "ack_every": 1}),
    "netem's table, cut at 4 sd": ("netem", {}),
    "jitter behind the queue": ("behind", {}),
    "in order": ("in order", {}),
    "slots of 5 ms": ("slots", {}),
}


class Details(OverTestbed):
    """Throughput and window under each variation."""

    varied = {"variation": "variations", "cc": "cc", "sd_ms": "sd_ms"}
    drawn = drawing("bars", "variation", "goodput_mbps", "line", ylabel="throughput (Mbit/s)")

    def run(self, at: Fields, p: Fields) -> Run:
        """One flow, with the detail varied."""
        path, sender = VARIATIONS[at["variation"]]
        fields = _path(path, at["sd_ms"])
        return run_of(at["cc"], at["sd_ms"], at["seed"], p["duration"], path=fields, sender=sender)

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """A line per controller and jitter."""
        return made.table.assign(line=made.table.cc + ", " + made.table.sd_ms.map("{:g} ms".format))

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """How far the details move the result, and which of them makes cwnd grow from 2016 to 2019."""
        sds = sorted(made.each("sd_ms"))
        low, high = sds[0], sds[-1]
        old, new = (made.means("cwnd_segments", "variation", cc=cc, sd_ms=low) for cc in ("bbr2016", "bbr2019"))
        gain = {name: new[name] - old[name] for name in old}
        rates = {
            name: listed(made.means("goodput_mbps", "sd_ms", variation=name, cc="bbr2016").values(), "{:.0f}")
            for name in gain
        }
        down = made.means("collapsed", "variation", cc="bbr2016", sd_ms=high)
        for name, more in gain.items():
            yield Stated("2c", WINDOW, "+200 MSS").judged(
                {"higher": more > 0, f"BBR 2016 collapses all the same, at {high:g} ms": down[name] > 0.5},
                f"{more:+.0f} MSS at {low:g} ms",
                {"MSS": (200.0, more)},
                reading=name,
            )
        yield Stated("2d", "BBR 2016 collapses whatever the details of the testbed", "one testbed").judged(
            {f"{name}: below half the link at {high:g} ms": share > 0.5 for name, share in down.items()},
            "; ".join(f"{name} {x}" for name, x in rates.items()) + f" Mbit/s at {'/'.join(map(str, sds))} ms",
            ours=True,
        )


def _path(name: str, sd_ms: float) -> Fields:
    if name == "netem":  # the whole delay is drawn; what remains is the propagation
        return {"jitter_before": table(MEAN_US, 1e3 * sd_ms, True), "rtt": f"{FLOOR_US}us"}
    if name == "behind":
        return {"jitter": JITTER["reordering"].format(sd=round(1000 * sd_ms)), "jitter_before": None}
    return {"jitter_before": JITTER[name].format(sd=round(1000 * sd_ms))} if name else {}


FIGURES = [
    Details("testbed", "details of the testbed varied",
            {"variations": tuple(VARIATIONS), "cc": ("bbr2016", "bbr2019"), "sd_ms": (0.5, 1.0, 1.5),
             "seeds": (1, 2, 3), "duration": "10s"},
            {"cc": ("bbr2016", "bbr2019"), "sd_ms": (0.5, 1.5), "seeds": (1,), "duration": "1s"}),
]  # fmt: skip
