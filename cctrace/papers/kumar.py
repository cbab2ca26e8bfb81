"""Kumar et al., *TCP BBR for Ultra-Low Latency Networking* (IFIP Networking 2019): Figs. 1 to 4.

Figures 1, 3 and 4 are diagrams in the paper; here they measure what its text says about them.

Set-up (section II): 1 Gbit/s, 1,000 packets of buffer, 75 us of propagation; netem adds a normal delay of mean 5 ms
and standard deviation 0 to 1.5 ms at an emulator in front of the router (Fig. 1); one flow, 90 s; Linux 4.12
(`bbr2016`) and 5.1-rc3 (`bbr2019`). Figs. 5 to 7, which compare the model with the testbed, are in `kumar_model`,
Fig. 8 in `kumar_given`.

Chosen here, because the paper does not say: the receiver (Ubuntu 18.04, Linux 4.15) acknowledges every other
segment and does not compress SACKs, which came with 4.18; HZ is 250, Ubuntu's. The figure `testbed` varies all of
it. netem draws a delay per packet and lets packets overtake each other ("reordering"); the paper's i.i.d. delays
without overtaking are "in order"; jitter slower than a packet is "slots". A "collapse" has two readings: below half
of the link, and below nine tenths of it, where the text's "close to the link capacity" ends.

Sources: [Kumar19].
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from cctrace.cc.bbr1_model import STARTUP
from cctrace.cc.bbr2_model import BW_UNIT
from cctrace.papers import kumar_unpaced
from cctrace.papers.claims import Claim, Stated, listed
from cctrace.papers.figure import Fields, Figure, Reproduction, chosen, drawing, measures
from cctrace.papers.lifecycle import RTT_PROBE, SHARE, Lifecycle
from cctrace.papers.runs import Result, Run
from cctrace.tcp.wire import MSS_BYTES, PACKET_BYTES, WIRE_PER_PAYLOAD

RATE = "1Gbit"
BUFFER = "1000packets"
FLOOR_US = 75  # propagation: the delay where netem's draw is cut at zero
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
CLUMPED = {"ack_slot": "2ms"}  # ACKs as an interrupt-driven receiver may send them
SMALL_BUFFER = {"send_buffer": "1.4MB"}  # less than the 1.9 MB that STARTUP's window holds
# Readings of a collapse: column of the runs, share of the link below which a run counts as collapsed.
COLLAPSED = {"collapsed": 0.5, "degraded": 0.9}
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
            **measures(flow, "goodput_mbps"),
            "bw_mbps": mean["bw_v"] / BW_UNIT * MSS_BYTES * 8,  # of payload; the estimate is in segments/us << 24
            "min_rtt_ms": mean["min_rtt_us"] / 1e3,
            "cwnd_segments": mean["cwnd_segments"],
            "rtt_ms": (flow["rtt_mean_us"] or np.nan) / 1e3,
            "srtt_ms": mean["srtt_us"] / 1e3,
            "queue_before_ms": np.nan if before["queue_delay_us"] is None else before["queue_delay_us"] / 1e3,
            "window_used": mean["in_flight_segments"] / mean["cwnd_segments"],
            "paced_share": flow["goodput_bps"] * WIRE_PER_PAYLOAD / 8 / mean["pacing_rate_Bps"],
            "startup_share": float(mean["mode"] == STARTUP),
            **{name: float(flow["goodput_bps"] < share * LINK_BPS) for name, share in COLLAPSED.items()},
            "dropped": flow["dropped"],
        } | measures(flow, "queue_ms", "retransmitted_pct")


class OverJitter(OverTestbed):
    """Controllers over the jitter, for each process of the jitter."""

    drawn = drawing("lines", "sd_ms",
                    [("bw_mbps", "bandwidth estimate (Mbit/s)"),
                     ("min_rtt_ms", "min_rtt (ms)", {"level": UCAV_US / 2e3}),
                     ("cwnd_segments", "cwnd (segments)", {"level": BDP_SEGMENTS}),
                     ("goodput_mbps", "throughput (Mbit/s)"), ("queue_ms", "queueing delay (ms)")], "cc",
                    panel_by="jitter", xlabel=OVER_JITTER)  # fmt: skip

    def runs(self, p: Fields) -> list[tuple[Fields, Run]]:
        """One run per controller, process of jitter and what else its name says, standard deviation and seed."""
        out = []
        for cc, (jitter, (duration, seeds)) in itertools.product(p["cc"], p["jitter"].items()):
            if jitter == UNPACED and cc not in kumar_unpaced.UNPACED:
                continue
            sds = p["sd_ms"][:2] if jitter in STARTING else p["sd_ms"]
            for sd, seed in itertools.product(sds, range(1, seeds + 1)):
                run = run_of(cc, sd, seed, duration, jitter.partition(",")[0], sender=SENDERS.get(jitter))
                run = replace(run, function=kumar_unpaced.simulation) if jitter == UNPACED else run
                out.append(({"cc": cc, "jitter": jitter, "sd_ms": sd, "seed": seed}, run))
        return out

    def over(self, made: Reproduction, column: str, cc: str, jitter: str = "reordering") -> dict[float, float]:
        """Return {standard deviation: mean of a column} of a controller."""
        return made.means(column, "sd_ms", cc=cc, jitter=jitter)


SDS_MS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
# Process of the jitter: length of the runs, number of seeds. Fig. 2 shows the effect of 90 s, the paper's length.
LONG, CLUMPS, BUFFERED = "reordering, 90 s", "reordering, ACKs in slots of 2 ms", "reordering, send buffer 1.4 MB"
UNPACED = "reordering, no fq, so that nothing paces"
STARTING = (BUFFERED, UNPACED)  # readings of how the flow starts: the first two jitters are enough
SENDERS = {CLUMPS: CLUMPED, BUFFERED: SMALL_BUFFER}
SHORTER = {"reordering": ("30s", 5), "in order": ("10s", 3)}
READ = {CLUMPS: ("10s", 2), BUFFERED: ("10s", 2), UNPACED: ("10s", 2)}
FULL: Fields = {"sd_ms": SDS_MS, "jitter": SHORTER | READ | {LONG: ("90s", 2)}}
QUICK: Fields = {
    "sd_ms": (0.0, 0.75, 1.5),
    "jitter": {"reordering": ("3s", 1), "in order": ("2s", 1), **dict.fromkeys(READ, ("2s", 1))},
}


class Fig2(OverJitter):
    """Bandwidth estimate, min_rtt, cwnd and throughput of both kernels."""

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """What section II says of Fig. 2."""
        if LONG in set(made.table.jitter):
            yield self._length(made)
        yield from self._throughput(made)
        for fell, share in COLLAPSED.items():
            reading = f"collapse: below {share:.0%} of the link"
            for jitter in [kind for kind in ("reordering", LONG, CLUMPS) if kind in made.each("jitter")]:
                yield from _where(made, fell, jitter, reading if jitter == "reordering" else f"{reading}; {jitter}")
        bw, got = (self.over(made, column, "bbr2016") for column in ("bw_mbps", "goodput_mbps"))
        half = LINK_MBPS / 2
        yield Stated("2a", "the bandwidth estimate collapses along with the throughput", "similar collapse").judged(
            {"below half the link at the same jitters": all((bw[s] < half) == (got[s] < half) for s in bw)},
            f"estimate {three(bw.values())}, throughput {three(got.values())} Mbit/s",
        )
        yield from never_leaves(made, "2c", "bbr2016")
        yield from _more_window(made)

    def _throughput(self, made: Reproduction) -> Iterator[Claim]:
        old, new = (self.over(made, "goodput_mbps", cc) for cc in ("bbr2016", "bbr2019"))
        sds, most = list(old), max(old)
        texts = [listed(rates.values(), "{:.0f}") for rates in (old, new)]
        lost = 100 * (1 - new[most] / new[0.0])
        estimates = [self.over(made, "bw_mbps", cc)[most] for cc in ("bbr2016", "bbr2019")]
        yield Stated(
            "2d",
            "throughput close to the link at small jitter, collapsing to very little as jitter grows (BBR 2016)",
            "near 1 Gbit/s, then very small",
        ).judged(
            {
                "at least 90 % of the link up to 0.5 ms": min(old[s] for s in sds if s <= 0.5) >= 0.9 * LINK_MBPS,
                f"at most 10 % at {most:g} ms": old[most] <= 0.1 * LINK_MBPS,
            },
            f"{texts[0]} Mbit/s at {listed(sds, '{:g}')} ms of reordering jitter; "
            f"in order {self.over(made, 'goodput_mbps', 'bbr2016', 'in order')[most]:.0f} at {most:g} ms",
            recording="Linux 6.18, 300 Mbit/s, sd 1.5 of 5 ms, reordering: 39 and 54 Mbit/s (docs/simulation.md)",
        )
        yield Stated("2d", "BBR 2019 still loses around 95 % of its throughput at high jitter", "95 % lost").judged(
            {"most is lost": lost > 50},
            f"{lost:.0f} % lost at {most:g} ms ({texts[1]} Mbit/s)",
            {"lost (%)": (95.0, lost)},
        )
        yield Stated("2d", "BBR 2019 loses less than BBR 2016", "2019 above 2016, in throughput and estimate").judged(
            {
                "no less at any jitter (to 2 %)": all(new[s] >= 0.98 * old[s] for s in sds),
                f"more at {most:g} ms": new[most] > old[most],
                f"a higher bandwidth estimate at {most:g} ms": estimates[1] > estimates[0],
            },
            f"{texts[1]} against {texts[0]} Mbit/s; estimates {listed(estimates[::-1], '{:.0f}')} at {most:g} ms",
        )

    def _length(self, made: Reproduction) -> Claim:
        short, long = (self.over(made, "goodput_mbps", "bbr2016", jitter) for jitter in ("reordering", LONG))
        half = LINK_MBPS / 2
        return Stated("2", "runs of 30 s show what those of 90 s, the paper's length, show", "90 s").judged(
            {
                "the same jitters below half the link": all((short[s] < half) == (long[s] < half) for s in short),
                "within 10 % where there is no collapse": all(
                    abs(long[s] / short[s] - 1) <= 0.1 for s in short if short[s] >= half
                ),
            },
            f"{three(short.values())} in 30 s, {three(long.values())} Mbit/s in 90 s, at {three(short)} ms",
            ours=True,
        )


def _where(made: Reproduction, fell: str, jitter: str, reading: str) -> Iterator[Claim]:
    """Whether runs collapse where the window, or min_rtt, falls below what the text says."""
    cwnd, min_rtt = (
        made.means(column, "sd_ms", cc="bbr2016", jitter=jitter) for column in ("cwnd_segments", "min_rtt_ms")
    )
    yield Stated("2c", "the collapse comes where cwnd falls below the BDP", "BDP about 450 segments").judged(
        _same_side(made, "cwnd_segments", BDP_SEGMENTS, fell, jitter),
        f"BDP {BDP_SEGMENTS:.0f}; cwnd {listed(cwnd.values(), '{:.0f}')}",
        reading=reading,
    )
    yield Stated("2b", "the collapse comes where min_rtt is less than half the mean RTT", "min_rtt below half").judged(
        _same_side(made, "min_rtt_ms", UCAV_US / 2e3, fell, jitter),
        f"min_rtt {listed(min_rtt.values())} ms, half the RTT {UCAV_US / 2e3:.2f}",
        reading=reading,
    )


def _same_side(made: Reproduction, column: str, level: float, fell: str, jitter: str) -> dict[str, bool]:
    """Conditions: collapsed runs lie below the level, the others above it, both kernels."""
    out = {}
    for cc in ("bbr2016", "bbr2019"):
        rows = chosen(made.runs[made.runs.sd_ms > 0], cc=cc, jitter=jitter)
        down = rows[rows[fell] == 1]
        out[f"{cc}: collapsed runs below"] = bool((down[column] < level).all()) and len(down) > 0
        out[f"{cc}: the others above"] = bool((rows[rows[fell] == 0][column] >= level).all())
    return out


def never_leaves(made: Reproduction, figure: str, cc: str) -> Iterator[Claim]:
    """Whether a controller stays in STARTUP without jitter, and only there, by what limits the sender."""
    for jitter in ("reordering", CLUMPS, *STARTING):
        if jitter not in made.each("jitter"):
            continue
        stays, cwnd = (
            made.means(column, "sd_ms", cc=cc, jitter=jitter) for column in ("startup_share", "cwnd_segments")
        )
        none, *more = stays
        yield Stated(
            figure, f"{cc} never leaves STARTUP without jitter", "gains stay 2/ln 2, cwnd significantly higher"
        ).judged(
            {"STARTUP for the whole run": stays[none] == 1, "not with jitter": all(stays[sd] == 0 for sd in more)},
            f"in STARTUP {three(stays.values())} of the runs, cwnd {three(cwnd.values())} at {three(stays)} ms",
            reading=jitter,
        )


WINDOW = "cwnd of BBR 2019 is about 200 MSS higher for most jitter values"


def _more_window(made: Reproduction) -> Iterator[Claim]:
    for jitter in [kind for kind in made.each("jitter") if kind not in STARTING]:
        rows = made.rows(jitter=jitter)
        rows = rows[(rows.sd_ms > 0) & (rows.groupby("sd_ms").collapsed.transform("max") == 0)]
        cwnd = rows.pivot_table(index="sd_ms", columns="cc", values="cwnd_segments")
        if len(cwnd):
            gain = cwnd["bbr2019"] - cwnd["bbr2016"]
            yield Stated("2c", WINDOW, "+200 MSS").judged(
                {"higher": gain.mean() > 0},
                f"{three(gain)} MSS at {three(gain.index)} ms (jitters without collapse)",
                {"MSS": (200.0, float(gain.mean()))},
                reading=jitter,
            )


class Fig1(OverJitter):
    """What the router drops of the testbed's flows."""

    drawn = drawing("lines", "sd_ms", [("dropped", "packets dropped at the router")], "cc", xlabel=OVER_JITTER)

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section II: the buffer."""
        yield Stated("1", "1,000 packets of buffer avoid drops in all settings", "sufficiently large").judged(
            {"none dropped": made.runs.dropped.max() == 0},
            f"at most {made.runs.dropped.max():.0f} packets dropped in {len(made.runs)} runs",
        )


class Fig3(OverJitter):
    """Exhaustion of cwnd: how much of it is in flight, and how much of the pacing rate is sent."""

    drawn = drawing("lines", "sd_ms",
                    [("window_used", "in flight / cwnd", {"top": 1.05}),
                     ("paced_share", "throughput / pacing rate", {"top": 1.05})], "cc",
                    xlabel=OVER_JITTER)  # fmt: skip

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section II: what keeps a flow below its pacing rate."""
        rows = made.table.assign(short=made.table.cwnd_segments < BDP_SEGMENTS)
        short, wide = rows[rows.short], rows[~rows.short]
        yield Stated(
            "3",
            "where cwnd is below the BDP it is exhausted, and the flow cannot send at its pacing rate",
            "cwnd exhaustion",
        ).judged(
            {
                "nine tenths of cwnd in flight there": len(short) > 0 and short.window_used.min() >= 0.9,
                "less of it elsewhere": wide.window_used.max() < short.window_used.min(),
                "less of the pacing rate sent there than elsewhere": short.paced_share.max() < wide.paced_share.min(),
            },
            f"in flight / cwnd {listed(rows.window_used)}, throughput / pacing rate {listed(rows.paced_share)}",
        )


def three(values: Any) -> str:
    """Write numbers with three digits.

    >>> three([1234.5, 0.5])
    '1.23e+03/0.5'
    """
    return listed(values, "{:.3g}")


BY = ("cc", "jitter", "sd_ms")
_ONE = {"sd_ms": SDS_MS, "cc": ("bbr2016", "bbr2019"), "jitter": {"reordering": SHORTER["reordering"]}}
_ONE_QUICK = {"sd_ms": QUICK["sd_ms"], "jitter": {"reordering": QUICK["jitter"]["reordering"]}}
FIGURES = [
    Fig1("1", "the testbed: packets dropped at the router", _ONE, _ONE_QUICK, BY),
    Fig2("2", "estimates, cwnd and throughput over the jitter", FULL | {"cc": ("bbr2016", "bbr2019")}, QUICK, BY),
    Fig3("3", "exhaustion of cwnd", _ONE | {"cc": ("bbr2016",)}, _ONE_QUICK, BY),
    Lifecycle("4", "the phases of BBR over the testbed, jitter of 0.25 ms", {"seeds": (1, 2), "duration": "40s"},
              {"seeds": (1,), "duration": "13s"},
              systems={"bbr2016": (run_of("bbr2016", 0.25, 1, "40s"), ("PROBE_BW",) * 8)},
              statements={("4", "BBR spends 98 % of the time in PROBE_BW, and 200 ms at a time in PROBE_RTT"):
                              (("bbr2016",), {("PROBE_BW", SHARE): 98.0} | RTT_PROBE)}),
]  # fmt: skip
