"""oBBR, Figs. 4 and 5: a bandwidth that drops permanently.

Fig. 4 (section 3.2): 20 Mbit/s, 100 ms, 200 KB of buffer, 5 or 2 Mbit/s after 10 s. 200 KB at 5 Mbit/s are 320 ms,
which give the stated RTT of some 700 ms only if data and ACKs wait in that queue. Fig. 5 (section 4.2): the caption
says 5 and 2 Mbit/s, the text 10 and 5; all three are run. Samples are those of PROBE_BW that the application does not
limit, which the released module logs, and their runs count from the first or after 5 s. The text names neither buffer
nor burst: buffers of Figs. 4 and 9, and the artifact's 500 KB; the artifact's burst of 10 KB in both figures. Samples
count payload; "the realistic bandwidth" by which they are divided is what the link carries of it, tc's rate, which
counts headers too (3 % more), or tc's rate with a Mbit of 2^20 bits, as the artifact's plots have it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from cctrace import plot
from cctrace.cc.quic_bbr import PROBE_BW
from cctrace.columns import longest_run
from cctrace.papers import obbr as ob
from cctrace.papers.claims import Claim, Stated
from cctrace.papers.figure import Drawn, Fields, Reproduction
from cctrace.papers.measure import path_of
from cctrace.papers.runs import Result, Run
from cctrace.plot.figure import blank
from cctrace.replaying.run import replay
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate

RTT_MS, BEFORE_MBPS, DROP_S = 100, 20, 10
STATED_KB, STATED9_KB, ARTIFACT_KB = 200, 300, 500  # buffers of Figs. 4 and 9, and of the artifact's Fig. 5
BURST_KB = 10
FIRST_MS, ACK = 1000, 1  # of a simulation's trace: when it begins, an event
BELOW = (0.5, 0.65, 0.75, 0.85, 0.95)  # of the estimate
ABOVE = (1.25, 1.5, 2.0, 2.5, 3.0)  # RTprops
SETTLED_S = 5  # from here on the samples of STARTUP and of the bucket's first burst have expired
READINGS = ("from the first", "after 5 s")
NORMS = {
    "of the payload's rate": 1.0,
    "of tc's rate": ob.PAYLOAD,
    "of tc's rate, Mbit of 2^20 bits": ob.PAYLOAD * 1e6 / 2**20,
}
RTT_RUNS = {10: 373.0, 5: 328.0}  # by the rate after the drop, of RTTs above 2.5 RTprop
NEAR = 1.3  # an estimate is right again when at most this factor above the rate


def late_s(line: Fields, at_s: float, mbps: float, until_s: float) -> float:
    """Return seconds from a drop until the estimate is first right, or until the next change if it never is.

    Later it may be too high again: PROBE_RTT leaves the bucket full, and its burst passes at the 1 Gbit/s that
    feeds it.
    """
    time_s, bw = np.array(line["time_s"]), np.array(line["bw_Bps"], float) * 8 / 1e6
    right = time_s[(time_s > at_s) & (time_s <= until_s) & (bw <= NEAR * mbps)]
    return float((right[0] if len(right) else until_s) - at_s)


def over_time_of(line: Fields) -> Fields:
    """Return the series drawn for a run: time, smoothed RTT, estimate, flight, retransmitted data."""
    return {
        "time_s": line["time_s"],
        "rtt_ms": [us / 1e3 for us in line["srtt_us"]],
        "bw_mbps": [8 * (b or 0.0) / 1e6 for b in line["bw_Bps"]],
        "flight_kb": [1.252 * n for n in line["in_flight_segments"]],
        "lost_kb": [1.252 * n for n in line["retransmitted_segments"]],
    }


KEEP: dict[str, Any] = {
    "sample": "100ms",
    "keep": ["time_s", "srtt_us", "bw_Bps", "in_flight_segments", "retransmitted_segments"],
}


def _dropping(at: Fields) -> Fields:
    """Return the path whose rate drops after 10 s, or stays."""
    after = at["after_mbps"]
    rate: float | ob.Steps = BEFORE_MBPS if after == BEFORE_MBPS else [(0, BEFORE_MBPS), (DROP_S, after)]
    return ob.link(rate, RTT_MS, 1000 * at["buffer_kb"], client=at["client"], burst_kb=BURST_KB)


class Fig4(ob.Bi23):
    """What BBR does after a permanent drop of the bandwidth."""

    varied = {"buffer_kb": "buffers_kb", "after_mbps": "after_mbps", "client": "clients"}

    def run(self, at: Fields, p: Fields) -> Run:
        """A flow of BBR whose link gets slower."""
        return ob.run_of([ob.BBR], _dropping(at), at["seed"], p["duration_s"], ob.acks(at["client"], RTT_MS), **KEEP)

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Largest RTT after the drop, delay until the estimate is right, flight before and after, retransmissions."""
        line = over_time_of(result["timeline"][0])
        at, flight, lost = (np.array(line[n]) for n in ("time_s", "flight_kb", "lost_kb"))
        late = late_s(result["timeline"][0], DROP_S, labels["after_mbps"], p["duration_s"])
        stale = (at > DROP_S) & (at <= DROP_S + max(late, 1.0))
        steady = (at > DROP_S - 5) & (at <= DROP_S)
        return {
            "rtt_max_ms": float(np.array(line["rtt_ms"])[at > DROP_S].max()),
            "late_s": late,
            "flight_before_kb": float(np.median(flight[steady])),
            "flight_stale_kb": float(np.median(flight[stale])),
            "lost_kb": float(lost[-1] - lost[at <= DROP_S][-1]),
            "line": line,
        }

    def of_client(self, made: Reproduction) -> Iterator[Claim]:
        """Section 3.2."""
        for row in made.table.to_dict("records"):
            rtt, late = {5: (700, 7), 2: (1500, 15)}[row["after_mbps"]]
            yield Stated(
                "4",
                f"after a drop to {row['after_mbps']} Mbit/s BBR goes on too fast for 10 ever longer RTTs",
                f"~{rtt} ms, ~{late} s, the same in flight",
            ).judged(
                {"loses meanwhile": row["lost_kb"] > 0},
                f"{row['rtt_max_ms']:.0f} ms, {row['late_s']:.1f} s, {row['flight_before_kb']:.0f} then "
                f"{row['flight_stale_kb']:.0f} KB in flight, {row['lost_kb']:.0f} KB retransmitted",
                {
                    "RTT (ms)": (rtt, row["rtt_max_ms"]),
                    "estimate right after (s)": (late, row["late_s"]),
                    "in flight (KB)": (row["flight_before_kb"], row["flight_stale_kb"]),
                },
                reading=f"buffer {row['buffer_kb']} KB",
            )

    def plot(self, made: Reproduction) -> Drawn:
        """RTT, flight and losses over time, a panel per buffer and rate (first seed and client)."""
        series = {}
        for row in made.first_seed(client=ob.LOOPBACK):
            line = row["line"]
            series[f"to {row['after_mbps']} Mbit/s, {row['buffer_kb']} KB"] = [
                (line["time_s"], line["rtt_ms"], "RTT (ms)", {"colour": "#333333"}),
                (line["time_s"], line["flight_kb"], "in flight (KB)", {"right": True, "colour": "#1f6fb2"}),
                (line["time_s"], line["lost_kb"], "retransmitted (KB)", {"right": True, "colour": "#b3541e"}),
            ]
        return plot.over_time(series, title=self.heading(made), ylabel="RTT (ms)", right="KB")


def samples(path: Fields, cc: str, duration: str, seed: int, rates_mbps: list[float], client: Fields) -> Result:
    """Return statistics of a flow's bandwidth and RTT samples in PROBE_BW.

    ``quantiles`` of samples over the rate (1 to 99 %); ``low``: by norm, shares below 0.95 and 0.85 of it; ``below``
    and ``above``: by reading, longest runs of samples below `BELOW` of the estimate, and of RTTs above `ABOVE` RTprops.
    """
    events = simulate(path_of(path), Sender(cc, **client), duration, seed, trace=True).flow(0)
    state, columns = replay(events, cc).decisions, events.columns
    counted = (np.asarray(events.event) == ACK) & (columns["smp_interval_ms"] > 0)
    counted &= (columns["smp_is_app_limited"] == 0) & (state["mode"].to_numpy() == PROBE_BW)
    rate = columns["smp_delivered"] / np.maximum(columns["smp_interval_ms"], 1) * 1e3
    time_s = (columns["now_ms"] - FIRST_MS) / 1e3
    before, after = rates_mbps
    now = np.where(time_s < DROP_S, before, after) * 1e6 / 8 * ob.PAYLOAD
    found: Result = {"below": {}, "above": {}}
    for name, rows in zip(READINGS, (counted, counted & (time_s >= SETTLED_S)), strict=True):
        share = rate[rows] / state["bw"].to_numpy()[rows]
        found["below"][name] = [longest_run(share < level) for level in BELOW]
        times = columns["smp_rtt_ms"][rows] / np.maximum(state["min_rtt_ms"].to_numpy()[rows], 1)
        found["above"][name] = [longest_run(times > level) for level in ABOVE]
    share = rate[counted] / now[counted]
    found["quantiles"] = np.quantile(share, np.arange(1, 100) / 100).round(4).tolist()
    found["low"] = {n: [float((norm * share < x).mean()) for x in (0.95, 0.85)] for n, norm in NORMS.items()}
    return found


class Fig5(ob.Bi23):
    """Bandwidth and RTT samples of BBR, on a constant link and after drops."""

    varied = {"after_mbps": "after_mbps", "buffer_kb": "buffers_kb", "client": "clients"}

    def run(self, at: Fields, p: Fields) -> Run:
        """The samples of a flow of BBR whose link gets slower, or not."""
        arguments = {
            "path": _dropping(at),
            "cc": ob.SYSTEMS[ob.BBR],
            "duration": f"{p['duration_s']:g}s",
            "seed": at["seed"],
            "rates_mbps": [BEFORE_MBPS, at["after_mbps"]],
            "client": ob.acks(at["client"], RTT_MS),
        }
        return Run(arguments, samples, (ob.SYSTEMS[ob.BBR],))

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Shares of low samples, and the longest runs at the thresholds that oBBR uses."""
        at, over = BELOW.index(0.75), ABOVE.index(2.5)
        row: Fields = {"found": result}
        for name, shares in result["low"].items():
            row |= {f"below {x}, {name}": 100 * share for x, share in zip((0.95, 0.85), shares, strict=True)}
        row |= {f"low_run, {name}": float(runs[at]) for name, runs in result["below"].items()}
        return row | {f"high_run, {name}": float(runs[over]) for name, runs in result["above"].items()}

    def of_client(self, made: Reproduction) -> Iterator[Claim]:
        """Section 4.2."""
        for row in made.rows(after_mbps=BEFORE_MBPS).to_dict("records"):
            for norm in NORMS:
                low, lower = (row[f"below {x}, {norm}"] for x in (0.95, 0.85))
                yield Stated(
                    "5", "many samples lie below the bandwidth of a constant link", "59 % below 0.95, 24 % below 0.85"
                ).judged(
                    {},
                    f"{low:.0f} % and {lower:.0f} %",
                    {"below 0.95 (%)": (59.0, low), "below 0.85 (%)": (24.0, lower)},
                    reading=f"{norm}; buffer {row['buffer_kb']} KB",
                )
        columns = [c for c in made.columns if c.startswith(("low_run", "high_run")) and not c.endswith("_sd")]
        for buffer_kb in made.each("buffer_kb"):
            yield from (_streaks(made, buffer_kb, column) for column in columns)

    def plot(self, made: Reproduction) -> Drawn:
        """The samples' distribution, and the longest runs over the thresholds (first seed, stated buffer)."""
        drawing = blank((13.0, 3.8), f"oBBR, Fig. 5: {self.title}, {STATED_KB} KB, {READINGS[1]}")
        grid = drawing.subplots(1, 3)
        for row in made.first_seed(client=ob.LOOPBACK, buffer_kb=STATED_KB):
            name = "constant" if row["after_mbps"] == BEFORE_MBPS else f"to {row['after_mbps']} Mbit/s"
            found = row["found"]
            grid[0].plot(found["quantiles"], np.arange(1, 100), label=name)
            grid[1].plot(BELOW, found["below"][READINGS[1]], "o-")
            grid[2].plot(ABOVE, found["above"][READINGS[1]], "o-")
        grid[0].set(xlabel="sample / bandwidth", ylabel="samples (%)", xlim=(0, 2))
        grid[1].set(xlabel="x estimate", ylabel="longest run below", yscale="symlog")
        grid[2].set(xlabel="x RTprop", ylabel="longest run of RTTs above", yscale="symlog")
        for axes in grid[1:]:
            axes.axhline(30, color="#888", ls=":", lw=1)
        drawing.legend(loc="outside lower left", ncols=4, frameon=False, fontsize=8)
        return drawing


def _streaks(made: Reproduction, buffer_kb: float, column: str) -> Claim:
    """Judge whether the longest run distinguishes a drop from a constant link."""
    kind, _, reading = column.partition(", ")
    low = kind == "low_run"
    rates = sorted(set(made.table.after_mbps), reverse=True)
    got = {a: made.value(column, after_mbps=a, buffer_kb=buffer_kb) for a in rates}
    drops = [v for a, v in got.items() if a != BEFORE_MBPS]
    what = "samples below 0.75 of the estimate" if low else "RTTs above 2.5 RTprop"
    most = 22 if low else 15
    is_reached = RTT_MS + buffer_kb * 8 / BEFORE_MBPS > 2.5 * RTT_MS  # by RTTs before the drop, if the buffer is full
    return Stated(
        "5",
        f"the longest run of {what} distinguishes a drop from a constant link",
        ("at most 22" if low else "at most 15")
        + ("; clear after drops" if low else "; 373 and 328 after drops to 10 and 5 Mbit/s"),
    ).judged(
        {"more than k = 30 after every drop": min(drops) > 30}
        | ({f"at most {most} on the constant link": got[BEFORE_MBPS] <= most} if low or is_reached else {}),
        ", ".join(f"{v:.0f} at {a}" for a, v in got.items()) + " Mbit/s",
        {f"after the drop to {a}": (n, got[a]) for a, n in RTT_RUNS.items() if a in got and not low},
        reading=f"{reading}; buffer {buffer_kb} KB",
    )


FIGURES = [
    Fig4("4", "BBR when the bandwidth drops",
         {"buffers_kb": (STATED_KB,), "after_mbps": (5, 2), "clients": ob.CLIENTS, "seeds": ob.OF_LAB,
          "duration_s": 40.0},
         {"seeds": (1,)}),
    Fig5("5", "samples of bandwidth and RTT",
         {"after_mbps": (20, 10, 5, 2), "buffers_kb": (STATED_KB, STATED9_KB, ARTIFACT_KB), "clients": ob.CLIENTS,
          "seeds": ob.OF_LAB, "duration_s": 40.0},
         {"seeds": (1,), "duration_s": 25.0}),
]  # fmt: skip
