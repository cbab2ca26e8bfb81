"""Chung et al., *BBRx*, Fig. 4: a download with BBRx and one with BBR over a live LTE network.

Section IV: 100 MB from a server with fq, beta = 0.5 and k = 6, against BBR of Linux 4.15 (`bbr2016`); the phone, with
Linux 3.18 at most, does not compress SACKs. The network cannot be had again: path presets instead. Of it the text gives
80 Mbit/s and more, and 110.2 of payload: in addition to the presets, one is run whose rates are scaled to a mean of 115
over the download. The text leaves open the buffer (the preset's; the 3 MB beyond which BBR's start-up grows; 6 MB,
which hold all of it) and how the phone acknowledges (every second segment; in slots of RTT/5, as uplink grants may make
it). These six readings were fixed before they were run; the seventh, single losses, was added after them.

Sources: [Chung18].
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from cctrace import plot
from cctrace.papers.bbrx import SEEDS, Chung18, K
from cctrace.papers.claims import Claim, Stated, listed
from cctrace.papers.figure import Drawn, Fields, Reproduction, measures
from cctrace.papers.measure import path_of
from cctrace.papers.runs import Result, Run
from cctrace.papers.traces import of_preset, scaled
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate
from cctrace.tcp.wire import MSS_BYTES
from cctrace.units import parse_time_ns

SYSTEMS = {"BBRx": f"bbrx:beta=0.5,k={K}", "BBR": "bbr2016"}
ACK = 1  # an event
STARTED_S = 3.0  # of Fig. 4's runs: by then start-up is over
DOWNLOAD, LONGEST = "100MB", "120s"
SCALED_MBPS, SCALED_S = 115.0, 10  # mean rate over the seconds that a download takes
BUFFERS: dict[str, Fields] = {"750 kB": {}, "3 MB": {"buffer": "3MB"}, "6 MB": {"buffer": "6MB"}}  # changes of the path
PHONES = {"an ACK per two segments": {}, "ACKs in slots of 10 ms": {"ack_slot": "10ms"}}
SCALED = {
    f"LTE at {SCALED_MBPS:g} Mbit/s, {buffer} of buffer, {phone}": (change, acks)
    for buffer, change in BUFFERS.items()
    for phone, acks in PHONES.items()
}
# Two of the 70,000 segments of a download, as many as the paper's BBR retransmits; where a link loses them is open.
SINGLE_LOSSES = f"LTE at {SCALED_MBPS:g} Mbit/s, 6 MB of buffer, 0.003 % of random loss"
SCALED[SINGLE_LOSSES] = (BUFFERS["6 MB"] | {"loss": "0.003%", "loss_behind": True}, {})


def lte(name: str, seed: int) -> Fields:
    """Return the fields of `Path` of an LTE preset, or of what is `SCALED`.

    >>> lte("LTE at 115 Mbit/s, 6 MB of buffer, an ACK per two segments", 1)["buffer"]
    '6MB'
    """
    if name not in SCALED:
        return of_preset(name, seed)
    fields = of_preset("lte_tmobile", seed)
    return fields | {"rate": scaled(fields["rate"][:SCALED_S], SCALED_MBPS)} | SCALED[name][0]


def downloaded(path: Fields, flow: Fields, seed: int) -> Result:
    """Return the figures of a download, its samples over time, and the share of its ACKs that are duplicates."""
    sim = simulate(path_of(path), Sender(**flow), LONGEST, seed, sample="50ms", trace=True, until=DOWNLOAD)
    events, line = sim.flow(0), sim.timeline
    assert line is not None  # there is a `sample`
    acked = events.columns["snd_una"][np.asarray(events.event) == ACK]
    columns = ("time_s", "in_flight_segments", "srtt_us", "queue_delay_us")
    return {
        "flow": sim.flows.select_dtypes("number").iloc[0].astype(float).to_dict(),
        "duplicates_pct": 100 * float((np.diff(acked.astype(np.int64)) == 0).mean()),
        "line": {name: line[name].astype(float).tolist() for name in columns},
    }


class Fig4(Chung18):
    """A download with BBRx and with BBR over LTE path presets."""

    varied = {"path": "paths", "system": "systems"}

    def run(self, at: Fields, p: Fields) -> Run:
        """One flow."""
        cc = SYSTEMS[at["system"]]
        acks = SCALED[at["path"]][1] if at["path"] in SCALED else {}
        flow = {"cc": cc, "fq": True, "ack_every": 2, "comp_sack_nr": 0} | acks
        return Run({"path": lte(at["path"], at["seed"]), "flow": flow, "seed": at["seed"]}, downloaded, (cc,))

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Throughput, RTT, retransmissions, duplicate ACKs, and the peaks of start-up."""
        flow, line = result["flow"], result["line"]
        base_ms = parse_time_ns(lte(labels["path"], labels["seed"])["rtt"]) / 1e6
        first = np.array(line["time_s"]) < STARTED_S
        return measures(flow, "goodput_mbps", "retransmitted_pct") | {
            "rtt_ms": flow["rtt_mean_us"] / 1e3,
            "rtt_p95_ms": flow["rtt_p95_us"] / 1e3,
            "retransmitted": flow["retransmitted"],
            "duplicates_pct": result["duplicates_pct"],
            "peak_mb": float(np.array(line["in_flight_segments"])[first].max() * MSS_BYTES / 1e6),
            "peak_rtt_ms": base_ms + float(np.array(line["queue_delay_us"])[first].max() / 1e3),
            "line": line,
        }

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section IV, over the presets and over what is scaled."""
        presets = made.table[~made.table.path.isin(SCALED)]
        for name, rows in [("presets", presets), *((name, made.rows(path=name)) for name in SCALED)]:
            if not len(rows):
                continue
            mean = rows.groupby("system")[[c for c in made.columns if c not in ("path", "system")]].mean()
            gain = mean.goodput_mbps["BBRx"] / mean.goodput_mbps["BBR"]
            yield Stated(
                "4",
                "BBRx has more throughput than BBR at a lower RTT and without retransmissions",
                "110.2 against 92.6 Mbit/s, a single trial over a live LTE network",
            ).judged(
                {
                    "more throughput": gain > 1,
                    "lower RTT": mean.rtt_ms["BBRx"] < mean.rtt_ms["BBR"],
                    "nothing retransmitted": mean.retransmitted["BBRx"] == 0,
                },
                f"{mean.goodput_mbps['BBRx']:.1f} against {mean.goodput_mbps['BBR']:.1f} Mbit/s, "
                f"RTT {mean.rtt_ms['BBRx']:.0f} and {mean.rtt_ms['BBR']:.0f} ms, "
                f"{listed(mean.retransmitted_pct)} % retransmitted (BBR/BBRx)",
                {"times": (110.2 / 92.6, gain)},
                reading=name,
            )
            if name in SCALED:
                yield from _starting(mean, name)

    def plot(self, made: Reproduction) -> Drawn:
        """In flight and smoothed RTT over time, a panel per path and system (first seed)."""
        series = {}
        for row in made.first_seed():
            line = row["line"]
            series[f"{row['path']}, {row['system']}"] = [
                (
                    line["time_s"],
                    [MSS_BYTES / 1e3 * n for n in line["in_flight_segments"]],
                    "in flight",
                    {"colour": "#1f6fb2"},
                ),
                (line["time_s"], [v / 1e3 for v in line["srtt_us"]], "srtt", {"right": True, "colour": "#333333"}),
            ]
        return plot.over_time(series, title=self.heading(made), ylabel="KB", right="srtt (ms)")


def _starting(mean: pd.DataFrame, name: str) -> Iterator[Claim]:
    """Section IV on how both start."""
    peak, spike, duplicates, retransmitted = (
        mean[c] for c in ("peak_mb", "peak_rtt_ms", "duplicates_pct", "retransmitted")
    )
    for figure, claim, paper, unit, size, ours, digits in (
        ("4a", "BBR's start-up grows to more than 3 MB", "> 3 MB", "MB", 3.0, peak, 2),
        (
            "4a",
            "around 14 % of the ACKs of the BBR flow are duplicates",
            "14 %, a burst at the end of start-up",
            "%",
            14.0,
            duplicates,
            1,
        ),
        ("4b", "the end of BBR's start-up makes RTTs of up to 350 ms", "350 ms", "ms", 350.0, spike, 0),
        ("4b", "BBR retransmits two segments", "two", "segments", 2.0, retransmitted, 0),
    ):
        if unit == "segments" and name == SINGLE_LOSSES:  # whose number is that of the losses that are set
            continue
        here = f"{ours['BBR']:.{digits}f} {unit}, BBRx {ours['BBRx']:.{digits}f}"
        yield Stated(figure, claim, paper).judged({}, here, {unit: (size, ours["BBR"])}, reading=name)
    yield Stated("4", "BBRx leaves its start-up gracefully, BBR with a burst", "no burst of duplicate ACKs").judged(
        {
            "a tenth less in flight": peak["BBRx"] <= 0.9 * peak["BBR"],
            "shorter RTTs": spike["BBRx"] < spike["BBR"],
            "a tenth of the duplicate ACKs": duplicates["BBRx"] <= 0.1 * duplicates["BBR"],
        },
        f"{peak['BBRx']:.2f} against {peak['BBR']:.2f} MB, {spike['BBRx']:.0f} against {spike['BBR']:.0f} ms, "
        f"{duplicates['BBRx']:.1f} against {duplicates['BBR']:.1f} % duplicates",
        reading=name,
    )


FIGURES = [
    Fig4("4", "downloads with BBRx and BBR over LTE presets",
         {"paths": ("lte_tmobile", "lte_verizon", "lte_att_driving", *SCALED), "systems": tuple(SYSTEMS),
          "seeds": SEEDS},
         {"paths": tuple(SCALED)[:3:2], "seeds": (1,)}, ("system", "path")),
]  # fmt: skip
