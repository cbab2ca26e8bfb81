"""Delay and throughput as the papers on variable paths plot them: normalised trace by trace, averaged over the traces.

[Yang22] section 5.2: on every trace the mean delay and its 95th percentile are divided by the least mean delay of
all systems, throughputs by the largest; then averaged over the traces. Ellipses are standard deviations over the runs.
"""


def scattered(result):
    """Return throughput and queueing delay of a run."""
    flow = result["flows"][0]
    return {
        "mbps": flow["goodput_bps"] / 1e6,
        "queue_ms": flow["queue_delay_mean_us"] / 1e3,
        "queue_p95_ms": flow["queue_delay_p95_us"] / 1e3,
        "retransmitted_pct": 100 * flow["retransmit_ratio"],
    }


def normalised(frame, by="trace"):
    """Add ``throughput``, ``delay`` and ``delay_p95``, normalised over the systems of each trace.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = {"mbps": [10.0, 20.0], "queue_ms": [4.0, 8.0], "queue_p95_ms": [6.0, 9.0]}
    >>> rows["trace"] = [1, 1]
    >>> normalised(pd.DataFrame(rows))[["throughput", "delay", "delay_p95"]].to_numpy().tolist()
    [[0.5, 1.0, 1.5], [1.0, 2.0, 2.25]]
    """
    groups = frame.groupby(by)
    most, least = groups["mbps"].transform("max"), groups["queue_ms"].transform("min")
    return frame.assign(
        throughput=frame.mbps / most,
        delay=frame.queue_ms / least,
        delay_p95=frame.queue_p95_ms / least,
    )


def over_runs(table):
    """Return a table as `cctrace.plot.ellipses` takes it: spreads are those of the runs."""
    return table.assign(delay_spread=table.delay_sd, throughput_spread=table.throughput_sd)
