"""Delay and throughput as the papers on variable paths plot them: normalised trace by trace, averaged over the traces.

[Yang22] section 5.2: on every trace the mean delay, its 95th percentile and its spread are divided by the least mean
delay of all systems, throughputs by the largest; then averaged over the traces.
"""

import numpy as np


def scattered(result):
    """Return throughput and queueing delay of a sampled run, with their standard deviations over time."""
    flow, line = result["flows"][0], result["timeline"][0]
    rate = np.diff(line["delivered_segments"]) * 1448 * 8 / np.diff(line["time_s"]) / 1e6
    return {
        "mbps": flow["goodput_bps"] / 1e6,
        "mbps_spread": float(np.std(rate)),
        "queue_ms": flow["queue_delay_mean_us"] / 1e3,
        "queue_p95_ms": flow["queue_delay_p95_us"] / 1e3,
        "queue_spread_ms": float(np.std(line["queue_delay_us"])) / 1e3,
        "retransmitted_pct": 100 * flow["retransmit_ratio"],
    }


def normalised(frame, by="trace"):
    """Add ``throughput``, ``delay``, ``delay_p95`` and the spreads, normalised over the systems of each trace.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = {"mbps": [10.0, 20.0], "queue_ms": [4.0, 8.0], "queue_p95_ms": [6.0, 9.0]}
    >>> rows |= {"mbps_spread": [1.0, 1.0], "queue_spread_ms": [2.0, 2.0], "trace": [1, 1]}
    >>> normalised(pd.DataFrame(rows))[["throughput", "delay", "delay_p95"]].to_numpy().tolist()
    [[0.5, 1.0, 1.5], [1.0, 2.0, 2.25]]
    """
    groups = frame.groupby(by)
    most, least = groups["mbps"].transform("max"), groups["queue_ms"].transform("min")
    return frame.assign(
        throughput=frame.mbps / most,
        throughput_spread=frame.mbps_spread / most,
        delay=frame.queue_ms / least,
        delay_spread=frame.queue_spread_ms / least,
        delay_p95=frame.queue_p95_ms / least,
    )
