"""Delay and throughput as the papers on variable paths plot them: normalised trace by trace, averaged over the traces.

[Yang22] section 5.2: on every trace the mean delay and its 95th percentile are divided by the least mean delay of
all systems, throughputs by the largest; then averaged over the traces. Ellipses are standard deviations over the runs.
"""

import pandas as pd

SCATTERED = ("goodput_mbps", "queue_ms", "queue_p95_ms", "retransmitted_pct")  # what `normalised` needs, and losses


def normalised(frame: pd.DataFrame, *by: str) -> pd.DataFrame:
    """Add ``throughput``, ``delay`` and ``delay_p95``, normalised over the systems of each combination of `by`.

    >>> rows = {"goodput_mbps": [10.0, 20.0], "queue_ms": [4.0, 8.0], "queue_p95_ms": [6.0, 9.0]}
    >>> rows["trace"] = [1, 1]
    >>> normalised(pd.DataFrame(rows), "trace")[["throughput", "delay", "delay_p95"]].to_numpy().tolist()
    [[0.5, 1.0, 1.5], [1.0, 2.0, 2.25]]
    """
    groups = frame.groupby(list(by))
    most, least = groups["goodput_mbps"].transform("max"), groups["queue_ms"].transform("min")
    return frame.assign(
        throughput=frame.goodput_mbps / most, delay=frame.queue_ms / least, delay_p95=frame.queue_p95_ms / least
    )


def over_runs(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table as `cctrace.plot.ellipses` takes it: spreads are those of the runs."""
    return table.assign(delay_spread=table.delay_sd, throughput_spread=table.throughput_sd)
