"""Kumar et al., *TCP BBR for Ultra-Low Latency Networking* (IFIP Networking 2019): Figs. 2 and 8, the testbed.

Set-up (section II): 1 Gbit/s, 1,000 packets of buffer, 75 us of propagation; netem adds a normal delay of mean 5 ms and
standard deviation 0 to 1.5 ms at an emulator in front of the router (Fig. 1); one flow, 90 s; Linux 4.12 (`bbr2016`)
and 5.1-rc3 (`bbr2019`). Figs. 5 to 7, where the model meets the testbed, are in `kumar_model`.

Chosen here, for the paper does not say: the receiver (Ubuntu 18.04, Linux 4.15) acknowledges every other segment and
does not compress SACKs, which came with 4.18; HZ is 250, Ubuntu's. The figure `testbed` varies all of it. netem draws a
delay per packet and lets packets overtake each other ("reordering"); the paper's i.i.d. delays without overtaking are
"in order", jitter slower than a packet is "slots".

Sources: [Kumar19].
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from cctrace.cc.bbr2_model import BW_UNIT
from cctrace.papers.claims import Claim, judge, listed
from cctrace.papers.figure import Fields, Figure, Reproduction, chosen, drawing, measures
from cctrace.papers.runs import Result, Run
from cctrace.tcp.wire import MSS_BYTES, PACKET_BYTES, WIRE_PER_PAYLOAD

RATE = "1Gbit"
BUFFER = "1000packets"
FLOOR_US = 75  # propagation: what is left when netem's draw is cut at zero
MEAN_US = 5000
UCAV_US = MEAN_US + FLOOR_US  # RTT_UCAV
LINK_BPS = 1e9 / WIRE_PER_PAYLOAD  # payload
LINK_MBPS = LINK_BPS / 1e6
BDP_SEGMENTS = 1e9 / 8 / PACKET_BYTES * UCAV_US / 1e6
JITTER = {
    "reordering": "normal:sd={sd}us,reorder",
    "in order": "normal:sd={sd}us",
    "slots": "normal:sd={sd}us,per=slot:5ms",
}
STARTUP = 0
WATCH = ("min_rtt_us", "bw_v", "mode")
OVER_JITTER = "standard deviation of the delay (ms)"


def run_of(
    cc: str,
    sd_ms: float,
    seed: int,
    duration: str,
    jitter: str = "reordering",
    path: Fields | None = None,
    sender: Fields | None = None,
) -> Run:
    """Return the `Run` of one flow over the paper's testbed, with some fields of `Path` or `Sender` changed."""
    fields = {"rate": RATE, "rtt": f"{UCAV_US}us", "reverse": f"{FLOOR_US}us", "buffer": BUFFER}
    if sd_ms > 0:
        fields["jitter_before"] = JITTER[jitter].format(sd=round(sd_ms * 1000))
    flow = {"cc": cc, "ack_every": 2, "comp_sack_nr": 0, "hz": 250} | (sender or {})
    arguments = {"path": fields | (path or {}), "flows": [flow], "duration": duration, "seed": seed}
    return Run(arguments | {"sample": "100ms", "watch": list(WATCH)})


class OverTestbed(Figure):
    """A figure of single flows over the testbed."""

    paper = "Kumar"

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """What the paper plots of a run: throughput, and the means over time of BBR's estimates."""
        flow, mean, before = result["flows"][0], result["means"][0], result["before"][0]
        return {
            "throughput_mbps": flow["goodput_bps"] / 1e6,
            "bw_mbps": mean["bw_v"] / BW_UNIT * MSS_BYTES * 8,  # of payload; the estimate is in segments/us << 24
            "min_rtt_ms": mean["min_rtt_us"] / 1e3,
            "cwnd_segments": mean["cwnd_segments"],
            "rtt_ms": (flow["rtt_mean_us"] or np.nan) / 1e3,
            "srtt_ms": mean["srtt_us"] / 1e3,
            "queue_before_ms": np.nan if before["queue_delay_us"] is None else before["queue_delay_us"] / 1e3,
            "startup_share": float(mean["mode"] == STARTUP),
            "collapsed": float(flow["goodput_bps"] < LINK_BPS / 2),
        } | measures(flow, "queue_ms", "retransmitted_pct")


class _OverJitter(OverTestbed):
    """Controllers over the jitter, for each process of the jitter."""

    drawn = drawing(
        "lines",
        "sd_ms",
        [
            ("bw_mbps", "bandwidth estimate (Mbit/s)"),
            ("min_rtt_ms", "min_rtt (ms)", {"level": UCAV_US / 2e3}),
            ("cwnd_segments", "cwnd (segments)", {"level": BDP_SEGMENTS}),
            ("throughput_mbps", "throughput (Mbit/s)"),
            ("queue_ms", "queueing delay (ms)"),
        ],
        "cc",
        panel_by="jitter",
        xlabel=OVER_JITTER,
    )

    def runs(self, p: Fields) -> list[tuple[Fields, Run]]:
        """One run per controller, process of jitter, standard deviation and seed."""
        return [
            (
                {"cc": cc, "jitter": jitter, "sd_ms": sd, "seed": seed},
                run_of(cc, sd, seed, duration, jitter.partition(",")[0]),
            )
            for cc in p["cc"]
            for jitter, (duration, seeds) in p["jitter"].items()
            for sd in p["sd_ms"]
            for seed in range(1, seeds + 1)
        ]

    def over(self, made: Reproduction, column: str, cc: str, jitter: str = "reordering") -> dict[float, float]:
        """Return {standard deviation: mean of a column} of a controller."""
        return made.means(column, "sd_ms", cc=cc, jitter=jitter)


SDS_MS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
# Process of the jitter: length of the runs, number of seeds. Fig. 2 shows what 90 s, the paper's length, change.
SHORTER = {"reordering": ("30s", 5), "in order": ("10s", 3), "slots": ("10s", 3)}
FEWER = {"reordering": ("30s", 2), "in order": ("10s", 1), "slots": ("10s", 1)}
LONG = "reordering, 90 s"
FULL: Fields = {"sd_ms": SDS_MS, "jitter": SHORTER | {LONG: ("90s", 2)}}
QUICK: Fields = {"sd_ms": (0.0, 0.75, 1.5), "jitter": {"reordering": ("3s", 1), "in order": ("2s", 1)}}


class Fig2(_OverJitter):
    """Bandwidth estimate, min_rtt, cwnd and throughput of both kernels."""

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """What section II says of Fig. 2."""
        if LONG in set(made.table.jitter):
            yield self._length(made)
        yield from self._throughput(made)
        cwnd, min_rtt = (self.over(made, column, "bbr2016") for column in ("cwnd_segments", "min_rtt_ms"))
        yield judge(
            "2c",
            "the collapse comes where cwnd falls below the BDP",
            _same_side(made, "cwnd_segments", BDP_SEGMENTS),
            paper="BDP about 450 segments",
            here=f"BDP {BDP_SEGMENTS:.0f}; cwnd {listed(cwnd.values(), '{:.0f}')}",
            mechanism="the cwnd here is the mean over a run, which collapses somewhere within it",
        )
        yield judge(
            "2b",
            "the collapse comes where min_rtt is less than half the mean RTT",
            _same_side(made, "min_rtt_ms", UCAV_US / 2e3),
            paper="min_rtt below half",
            here=f"min_rtt {listed(min_rtt.values())} ms, half the RTT {UCAV_US / 2e3:.2f}",
            mechanism="the window also holds three bursts and the estimate exceeds the throughput by 10 to 30 %, "
            "so min_rtt has to fall further than to one half (docs/models.md)",
        )
        stays = self.over(made, "startup_share", "bbr2016")[0.0]
        yield judge(
            "2c",
            "BBR 2016 never leaves STARTUP without jitter",
            {"STARTUP for the whole run": stays == 1},
            paper="gains stay 2/ln 2",
            here=f"cwnd {cwnd[0.0]:.0f} segments, STARTUP for the whole run in {stays:.0%}",
            mechanism="the released code of 4.12 leaves STARTUP after three rounds without growth; nothing in it "
            "depends on jitter. Something of the testbed must keep the estimate growing, or limit the application",
        )
        yield from _more_window(made)

    def _throughput(self, made: Reproduction) -> Iterator[Claim]:
        """The claims on Fig. 2d."""
        old, new = (self.over(made, "throughput_mbps", cc) for cc in ("bbr2016", "bbr2019"))
        sds, most = list(old), max(old)
        texts = [listed(rates.values(), "{:.0f}") for rates in (old, new)]
        lost = 100 * (1 - new[most] / new[0.0])
        yield judge(
            "2d",
            "throughput close to the link at small jitter, collapsing to very little as jitter grows (BBR 2016)",
            {
                "at least 90 % of the link up to 0.5 ms": min(old[s] for s in sds if s <= 0.5) >= 0.9 * LINK_MBPS,
                f"at most 10 % at {most:g} ms": old[most] <= 0.1 * LINK_MBPS,
            },
            paper="near 1 Gbit/s, then very small",
            here=f"{texts[0]} Mbit/s at {listed(sds, '{:g}')} ms of reordering jitter; "
            f"in order {self.over(made, 'throughput_mbps', 'bbr2016', 'in order')[most]:.0f} at {most:g} ms",
            mechanism="min_rtt catches the least of all draws; once it is below half the mean RTT the window no "
            "longer covers the path. Only where packets overtake does the least draw show: in order a packet waits "
            "for its predecessor, and at 83 packets/ms nearly all RTTs are near the running maximum",
            recording="Linux 6.18, 300 Mbit/s, sd 1.5 of 5 ms, reordering: 39 and 54 Mbit/s (docs/simulation.md)",
        )
        yield judge(
            "2d",
            "BBR 2019 still loses around 95 % of its throughput at high jitter",
            {"most is lost": lost > 50},
            paper="95 % lost",
            here=f"{lost:.0f} % lost at {most:g} ms ({texts[1]} Mbit/s)",
            sizes={"lost (%)": (95.0, lost)},
            mechanism="extra_acked and three bursts are added to a window that is short by a factor, not by a sum",
        )
        yield judge(
            "2d",
            "BBR 2019 loses less than BBR 2016",
            {
                "no less at any jitter (to 2 %)": all(new[s] >= 0.98 * old[s] for s in sds),
                f"more at {most:g} ms": new[most] > old[most],
            },
            paper="2019 above 2016",
            here=f"{texts[1]} against {texts[0]} Mbit/s",
            mechanism="extra_acked widens the window as long as ACKs arrive with jitter",
        )

    def _length(self, made: Reproduction) -> Claim:
        short, long = (self.over(made, "throughput_mbps", "bbr2016", jitter) for jitter in ("reordering", LONG))
        half = LINK_MBPS / 2
        return judge(
            "2",
            "runs of 30 s show what those of 90 s, the paper's length, show",
            {
                "the same jitters below half the link": all((short[s] < half) == (long[s] < half) for s in short),
                "within 10 % where there is no collapse": all(
                    abs(long[s] / short[s] - 1) <= 0.1 for s in short if short[s] >= half
                ),
            },
            paper="90 s",
            here=f"{_three(short.values())} in 30 s, {_three(long.values())} Mbit/s in 90 s, at {_three(short)} ms",
            mechanism="near the threshold a longer run has more time in which to collapse",
            ours=True,
        )


def _same_side(made: Reproduction, column: str, level: float) -> dict[str, bool]:
    """Conditions: runs below half the link lie below the level, the others above it, both kernels, reordering."""
    out = {}
    for cc in ("bbr2016", "bbr2019"):
        rows = chosen(made.runs[made.runs.sd_ms > 0], cc=cc, jitter="reordering")
        down = rows[rows.collapsed == 1]
        out[f"{cc}: collapsed runs below"] = bool((down[column] < level).all()) and len(down) > 0
        out[f"{cc}: the others above"] = bool((rows[rows.collapsed == 0][column] >= level).all())
    return out


WINDOW = "cwnd of BBR 2019 is about 200 MSS higher for most jitter values"


def _more_window(made: Reproduction) -> Iterator[Claim]:
    for jitter in made.each("jitter"):
        rows = made.rows(jitter=jitter)
        rows = rows[(rows.sd_ms > 0) & (rows.groupby("sd_ms").collapsed.transform("max") == 0)]
        held = rows.pivot_table(index="sd_ms", columns="cc", values="cwnd_segments")
        if len(held):
            gain = held["bbr2019"] - held["bbr2016"]
            yield judge(
                "2c",
                WINDOW,
                {"higher": gain.mean() > 0},
                paper="+200 MSS",
                here=f"{_three(gain)} MSS at {_three(gain.index)} ms (jitters without collapse)",
                sizes={"MSS": (200.0, float(gain.mean()))},
                reading=f"jitter: {jitter}",
            )


class Fig8(_OverJitter):
    """The two fixes in both kernels: the bandwidth given (cbe), the RTT given (cmrt)."""

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """What section IV says of Fig. 8."""
        for base in ("bbr2016", "bbr2019"):
            yield from self._given(made, base)
        flat = list(self.over(made, "srtt_ms", "bbr2019_cmrt").values())
        stays = self.over(made, "startup_share", "bbr2016_cmrt")[0.0]
        cbe, plain = (self.over(made, "cwnd_segments", cc) for cc in ("bbr2019_cbe", "bbr2019"))
        more = float(np.mean([cbe[s] - plain[s] for s in plain if s > 0]))
        yield judge(
            "8d",
            "the smoothed RTT of bbr2019 with the RTT given is almost constant over the jitter",
            {},
            sizes={"largest over smallest": (1.0, max(flat) / min(flat))},
            paper="almost constant",
            here=f"{_three(flat)} ms",
        )
        yield judge(
            "8e",
            "bbr2016 with the RTT given never leaves STARTUP without jitter",
            {"STARTUP for the whole run": stays == 1},
            paper="as plain BBR 2016 in Fig. 2",
            here=f"in STARTUP at {stays:.0%} of the runs",
            mechanism="as for Fig. 2c",
        )
        yield judge(
            "8e",
            "cwnd of bbr2019 with the bandwidth given is about 120 MSS higher",
            {"higher": more > 0},
            paper="+120 MSS",
            here=f"{more:+.0f} MSS (mean over the jitters)",
            sizes={"MSS": (120.0, more)},
        )

    def _given(self, made: Reproduction, base: str) -> Iterator[Claim]:
        """The claims on one kernel."""
        plain, cbe, cmrt = (self.over(made, "throughput_mbps", base + tail) for tail in ("", "_cbe", "_cmrt"))
        rtt, rtt_cbe = (self.over(made, "rtt_ms", base + tail) for tail in ("", "_cbe"))
        jittered = [s for s in plain if s > 0]
        most = jittered[-1]
        longer = [rtt_cbe[s] - rtt[s] for s in jittered]
        yield judge(
            "8a",
            f"with the bandwidth given, {base} gets more, and still collapses at high jitter",
            {
                "no less at any jitter (to 5 %)": all(cbe[s] >= 0.95 * plain[s] for s in jittered),
                f"more at {most:g} ms": cbe[most] > 1.1 * plain[most],
                f"below half the link at {most:g} ms": cbe[most] < LINK_MBPS / 2,
            },
            paper="softens",
            here=f"{listed(cbe.values(), '{:.0f}')} against {listed(plain.values(), '{:.0f}')} Mbit/s",
            mechanism="bandwidth no longer feeds back on itself, so the window is short by min_rtt's error "
            "once, not by its power. Near the threshold it has less queue, meets lower RTTs, and collapses earlier",
        )
        yield judge(
            "8a",
            f"with the RTT given, {base} does not collapse",
            {"at least 90 % of the link at every jitter": min(cmrt.values()) >= 0.9 * LINK_MBPS},
            paper="close to the link",
            here=listed(cmrt.values(), "{:.0f}") + " Mbit/s",
            mechanism="the window covers the path whatever the draws; what is lacking at high jitter is lost "
            "to reordering taken for loss",
        )
        yield judge(
            "8d",
            f"{base} with the bandwidth given adds little delay (around 2 ms)",
            {"longer": max(longer) > 0},
            paper="+2 ms",
            here="mean RTT " + ", ".join(f"{x:+.1f}" for x in longer) + f" ms at {_three(jittered)} ms",
            sizes={"ms": (2.0, max(longer))},
        )


def _three(values: Any) -> str:
    """Write numbers with three digits."""
    return listed(values, "{:.3g}")


CONTROLLERS = ("bbr2016", "bbr2016_cbe", "bbr2016_cmrt", "bbr2019", "bbr2019_cbe", "bbr2019_cmrt")
_BY = ("cc", "jitter", "sd_ms")
FIGURES = [
    Fig2("2", "estimates, cwnd and throughput over the jitter", FULL | {"cc": ("bbr2016", "bbr2019")}, QUICK, _BY),
    Fig8("8", "the bandwidth or the RTT given", FULL | {"cc": CONTROLLERS, "jitter": FEWER}, QUICK, _BY),
]
