"""oBBR, Figs. 10 and 11 and Table 1 over a user's own logs: the four of the paper, or others.

Table 1 follows from the logs of the UCC dataset when a row counts as a second, the bandwidth is that of rows with any,
and a ping holds until the next (PINGAVG): 10/33/70/45 Mbit/s and 119/78/69/79 ms for its 10/32/70/45 and 118/78/69/80.
So Fig. 11 has the log's rate over time, as that of a token bucket of 100 KB on the loopback device (`papers.obbr`),
that RTT over time, and, as section 5.2.3 says, no random loss. R is the artifact's, one for each log.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pandas as pd

from cctrace.errors import ArgumentError
from cctrace.io.linktrace import LinkTrace
from cctrace.papers.claims import Claim, Stated
from cctrace.papers.figure import Fields
from cctrace.papers.obbr import BURST_KB, FEED, KB, both_ways
from cctrace.papers.traces import own, rates_of, read_trace

# Table 1: mean and deviation in Mbit/s and in ms, s; R; and when the log begins, by which it is recognised.
TABLE1 = {
    "static1": ((45, 62), (80, 47), 3137, 0.25, "2020.02.13_13.57.29"),
    "static2": ((70, 80), (69, 6), 3322, 0.5, "2020.01.16_10.43.34"),
    "car1": ((32, 64), (78, 18), 1645, 0.75, "2020.02.14_09.38.22"),
    "car2": ((10, 15), (118, 78), 1155, 1.0, "2019.12.14_10.16.30"),
}
OTHER_R = 0.5  # of a log that is not among these
RTT_COLUMN = "ping_avg_ms"
RTT_MS = 40.0  # of a trace without pings


def own_trace(file: str) -> tuple[Fields, Fields]:
    """Read a Mahimahi trace or UCC log: the columns of Table 1 with rate (bit/s) and RTT (ms) over time, and the path.

    ``trace`` is the table's name of the paper's logs, else the file's. Raises `ArgumentError` if the file is not a
    trace of a link, or its rate is always 0.
    """
    trace = read_trace(file)
    rtts, fields, over_time = np.array([RTT_MS]), {"rtt": f"{RTT_MS:g}ms"}, []
    rates = trace.rate(1000)[1] / 1e6
    if trace.format == "ucc5g":
        rates = trace["dl_bps"] / 1e6
        if "rtt" in trace.path_columns:
            at, values = trace.steps(RTT_COLUMN)
            rtts = values[np.searchsorted(at, trace["time_ns"] - trace["time_ns"][0], "right") - 1]
            fields, over_time = {"rtt_column": RTT_COLUMN}, list(zip(at / 1e9, values, strict=True))
    busy = rates[rates > 0]
    if not len(busy):
        raise ArgumentError(f"traces: {file} has no rate above 0")
    row = {
        "trace": _name(trace, file),
        "rate_mbps": float(busy.mean()),
        "deviation_mbps": float(busy.std()),
        "rtt_ms": float(rtts.mean()),
        "rtt_deviation_ms": float(rtts.std()),
        "seconds": float(len(rates)),
        "rates": rates_of(trace),
        "rtts": over_time,
    }
    return row, own(file, loss="0%", burst=f"{BURST_KB * KB}B", feed=FEED, **fields | both_ways(float(rtts.min())))


def _name(trace: LinkTrace, file: str) -> str:
    if trace.format == "ucc5g":
        begins = datetime.fromtimestamp(int(trace["time_ns"][0]) // 10**9, UTC).strftime("%Y.%m.%d_%H.%M.%S")
        for name, (*_, when) in TABLE1.items():
            if when == begins:
                return name
    return FilePath(file).name


def series_of(rows: pd.DataFrame) -> dict[str, list[tuple[Any, ...]]]:
    """Return rate and RTT over time of rows of `own_trace`, as `cctrace.plot.over_time` takes them."""
    out: dict[str, list[tuple[Any, ...]]] = {}
    for name, rates, rtts in zip(rows.trace, rows.rates, rows.rtts, strict=True):
        at, bps = zip(*rates, strict=True)
        out[name] = [(at, [r / 1e6 for r in bps], "rate", {"step": True})]
        if rtts:
            at, ms = zip(*rtts, strict=True)
            out[name].append((at, ms, "RTT", {"step": True, "right": True, "colour": "#c0392b"}))
    return out


def table1_claims(rows: list[Fields]) -> Iterator[Claim]:
    """Compare those logs with Table 1 that are the paper's. `rows`: of `own_trace`."""
    for row in rows:
        if row["trace"] not in TABLE1:
            continue
        (mbps, deviation), (rtt, rtt_deviation), seconds, *_ = TABLE1[row["trace"]]
        yield Stated(
            "Table 1",
            f"bandwidth, RTT and duration of {row['trace']}",
            f"{mbps}±{deviation} Mbit/s, {rtt}±{rtt_deviation} ms, {seconds} s",
        ).judged(
            {
                "mean bandwidth within 5 %": abs(row["rate_mbps"] / mbps - 1) <= 0.05,
                "mean RTT within 5 %": abs(row["rtt_ms"] / rtt - 1) <= 0.05,
                "duration within 1 %": abs(row["seconds"] / seconds - 1) <= 0.01,
            },
            f"{row['rate_mbps']:.1f}±{row['deviation_mbps']:.1f} Mbit/s, {row['rtt_ms']:.1f}±"
            f"{row['rtt_deviation_ms']:.1f} ms, {row['seconds']:.0f} rows",
        )
