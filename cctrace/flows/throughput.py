"""How fast a flow sent, and how fast it was acknowledged, per bin of time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from cctrace.arguments import short_repr
from cctrace.columns import frame_of
from cctrace.errors import ArgumentError

if TYPE_CHECKING:
    import pandas as pd

    from cctrace.columns import Floats, Values
    from cctrace.flows.flow import Flow

_LONGEST_BIN_S, _MIN_BINS = 1.0, 10
_MAX_BINS = 1_000_000  # of 32 bytes; a mistaken unit (ms for s) asks for more


def throughput(flow: Flow, bin_s: float | None = None) -> pd.DataFrame:
    """Return the throughput of a flow over time.

    Parameters
    ----------
    flow : Flow
    bin_s : float, optional
        Length of a bin, seconds; default: 1 s, or a tenth of a flow shorter than 10 s.

    Returns
    -------
    DataFrame
        One row per bin: ``time_s``, where it begins, seconds since the flow's first packet; ``span_s``, its length (the
        last bin ends with the flow: half to one and a half of `bin_s`); ``sent_bps``, payload sent, retransmissions
        included, and ``acked_bps``, payload cumulatively acknowledged, both in bits per second.

    Raises
    ------
    ArgumentError
        If `bin_s` is not positive, or makes more than a million bins.
    StreamError
        If the capture lacks the data or the acknowledgements of this connection.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> table = flow.throughput(bin_s=5)
    >>> table["time_s"].tolist(), (table["acked_bps"] / 1e6).round(1).tolist()
    ([0.0, 5.0, 10.0, 15.0], [3.8, 2.8, 2.9, 3.3])
    """
    return frame_of(throughput_columns(flow, bin_s))


def throughput_columns(flow: Flow, bin_s: float | None = None) -> dict[str, Floats]:
    """Return the columns of `throughput` without pandas."""
    lasted_s = float(flow.row["duration_s"])
    edges_s = edges(lasted_s, bin_s)
    rows = flow.events
    sent_ns, payload = rows.sent["time_ns"], rows.sent["payload"]
    order = np.argsort(sent_ns, kind="stable")
    sent = flow.seconds(sent_ns[order]), np.cumsum(payload[order].astype(np.int64))
    acked = flow.seconds(rows["time_ns"]), np.maximum.accumulate(np.maximum(rows["snd_una"] - 1, 0))  # no byte: the SYN
    table = {"time_s": edges_s[:-1], "span_s": np.diff(edges_s)}
    return table | {"sent_bps": rate_bps(*sent, edges_s), "acked_bps": rate_bps(*acked, edges_s)}


def edges(lasted_s: float, bin_s: float | None = None) -> Floats:
    """Return the edges of bins of equal length; a remainder of less than half a bin belongs to the last one.

    Raises `ArgumentError` if `bin_s` is not positive, or so short that there are more than a million.

    >>> edges(1.0, 0.3).tolist()
    [0.0, 0.3, 0.6, 1.0]
    """
    if bin_s is None:
        bin_s = min(_LONGEST_BIN_S, lasted_s / _MIN_BINS) or _LONGEST_BIN_S
    if not isinstance(bin_s, int | float | np.number) or not 0 < bin_s < math.inf or lasted_s / bin_s > _MAX_BINS:
        least = f"at least a millionth of the flow's {lasted_s:.3g} s"
        raise ArgumentError(f"bin_s={short_repr(bin_s)}: must be above 0, in seconds, and {least}")
    bin_s = float(bin_s)
    bins = max(1, round(lasted_s / bin_s))
    return np.append(np.arange(bins) * bin_s, max(lasted_s, (bins - 1) * bin_s + bin_s / 2))


def rate_bps(time_s: Values, total_bytes: Values, edges_s: Values) -> Floats:
    """Return the mean rates between edges of a cumulative count.

    Neither `time_s` nor `total_bytes` decreases. Bytes that arrive at an edge belong to the bin that ends there; those
    before the first edge count for the first bin.

    >>> rate_bps(np.array([0.5, 1.0, 1.5]), np.array([1000, 2000, 3000]), np.array([0.0, 1.0, 2.0])).tolist()
    [16000.0, 8000.0]
    """
    reached = np.concatenate(([0], total_bytes))[np.searchsorted(time_s, edges_s[1:], side="right")]
    return np.diff(reached, prepend=0) * 8 / np.diff(edges_s)
