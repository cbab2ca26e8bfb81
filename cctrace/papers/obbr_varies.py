"""oBBR, Fig. 9: a bandwidth that goes up and down.

Section 5.2.2: 40 and 10 Mbit/s in turn, 10 s each, 100 ms, 300 KB. The text does not say which mu
the oBBR of the figure has.
"""

from collections.abc import Iterator

import numpy as np

from cctrace import plot
from cctrace.papers import obbr as ob
from cctrace.papers.claims import Claim, Stated
from cctrace.papers.figure import Drawn, Fields, Reproduction
from cctrace.papers.obbr_drop import KEEP, RTT_MS, STATED9_KB, late_s, over_time_of
from cctrace.papers.runs import Result, Run
from cctrace.tcp.wire import QUIC_MSS_BYTES


class Fig9(ob.Bi23):
    """BBR and oBBR over a bandwidth that goes up and down."""

    varied = {"system": "systems", "buffer_kb": "buffers_kb", "client": "clients"}

    def run(self, at: Fields, p: Fields) -> Run:
        """One flow."""
        steps: ob.Steps = [(second, 40 if second % 20 == 0 else 10) for second in range(0, int(p["duration_s"]), 10)]
        client = ob.acks(at["client"], RTT_MS)
        path = ob.link(steps, RTT_MS, 1000 * at["buffer_kb"], client=at["client"])
        return ob.run_of([at["system"]], path, at["seed"], p["duration_s"], client, **KEEP)

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Delay until the estimate is right after a drop, RTT, goodput, retransmissions."""
        flow, line = result["flows"][0], result["timeline"][0]
        drops = range(10, int(p["duration_s"]), 20)
        drawn = over_time_of(line)
        return {
            "late_s": float(np.mean([late_s(line, at, 10, at + 10) for at in drops])),
            "rtt_max_ms": max(r for t, r in zip(drawn["time_s"], drawn["rtt_ms"], strict=True) if t > 10),
            **ob.measures(flow, "goodput_mbps", "retransmitted_pct"),
            "retransmitted_mb": flow["retransmitted"] * QUIC_MSS_BYTES / 1e6,
            "line": {name: values[:601] for name, values in drawn.items()},
        }

    def of_client(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.2.2."""
        for buffer_kb in made.each("buffer_kb"):
            slow, top = (made.value(c, system=ob.BBR, buffer_kb=buffer_kb) for c in ("late_s", "rtt_max_ms"))
            yield Stated(
                "9", "BBR has the right estimate only ~6 s after a drop, RTTs rise to ~600 ms", "~6 s, ~600 ms"
            ).judged(
                {},
                f"{slow:.1f} s, {top:.0f} ms",
                {"s": (6.0, slow), "ms": (600.0, top)},
                reading=f"buffer {buffer_kb} KB",
            )
            yield from (_timely(made, buffer_kb, system) for system in ob.OBBRS)

    def plot(self, made: Reproduction) -> Drawn:
        """Estimate and RTT over the first minute, stated buffer, first seed."""
        series = {}
        for row in made.first_seed(client=ob.LOOPBACK):
            if row["system"] not in (ob.BBR, ob.obbr(0.75), ob.obbr(0.75, ob.PAPER)):
                continue
            line, end = row["line"], row["line"]["time_s"][-1]
            at = [10 * k for k in range(int(end // 10) + 1)]
            series[f"{row['system']}, {row['buffer_kb']} KB"] = [
                (at, [40 if t % 20 == 0 else 10 for t in at], "link", {"step": True, "colour": "#c0392b"}),
                (line["time_s"], line["bw_mbps"], "bandwidth estimate", {"colour": "#1f6fb2"}),
                (line["time_s"], line["rtt_ms"], "RTT", {"right": True, "colour": "#333333"}),
            ]
        return plot.over_time(series, title=self.heading(made), ylabel="Mbit/s", right="RTT (ms)")


def _timely(made: Reproduction, buffer_kb: int, system: str) -> Claim:
    mine, plain = (
        {c: made.value(c, system=s, buffer_kb=buffer_kb) for c in ("late_s", "retransmitted_mb", "goodput_mbps")}
        for s in (system, ob.BBR)
    )
    ratio = plain["retransmitted_mb"] / max(mine["retransmitted_mb"], 1e-9)
    return Stated(
        "9",
        "oBBR follows in ~2 s, BBR spends 2.09 times as much on retransmissions, goodput is the same",
        "~2 s, 2.09 times, the same goodput",
    ).judged(
        {"earlier than BBR": mine["late_s"] < plain["late_s"], "BBR retransmits more": ratio > 1},
        f"{mine['late_s']:.1f} s (BBR {plain['late_s']:.1f}), {ratio:.2f} times, "
        f"{mine['goodput_mbps']:.1f} against {plain['goodput_mbps']:.1f} Mbit/s",
        {
            "s": (2.0, mine["late_s"]),
            "times": (2.09, ratio),
            "goodput (Mbit/s)": (plain["goodput_mbps"], mine["goodput_mbps"]),
        },
        reading=f"{system}; buffer {buffer_kb} KB",
    )


FIGURES = [
    Fig9("9", "bandwidth that varies between 40 and 10 Mbit/s",
         {"systems": (ob.BBR, *ob.OBBRS), "buffers_kb": (STATED9_KB,), "clients": ob.CLIENTS, "seeds": ob.OF_LAB,
          "duration_s": 320.0},
         {"clients": ob.CLIENTS[:1], "seeds": (1,), "duration_s": 60.0}),
]  # fmt: skip
