"""Graphs of one flow as tcptrace and Wireshark draw them: segment sizes, throughput, RTT, windows, one-way delays.

Each returns a `matplotlib.figure.Figure` that a notebook displays directly; ``savefig("x.pdf")`` writes vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.arguments import check_choice, number
from cctrace.path.transmissions import as_flow
from cctrace.plot.figure import BUCKETS, TIME, blank, finish, one_panel, title_of
from cctrace.plot.packets import KINDS, RETRANSMISSIONS, in_time, packets_of
from cctrace.plot.panels import COLOURS, decimate
from cctrace.schema import LINUX_EVENTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cctrace.columns import Values
    from cctrace.flows.flow import Flow

_POINTS = 1000  # of a curve over time


def segment_sizes(flow: Flow, *, title: str = "") -> Figure:
    """Draw the payload of every segment over time, and how often each size was sent.

    Segments as the capture shows them: at a sender whose device cuts them, super-packets of up to 64 kB.

    Parameters
    ----------
    flow : Flow
    title : str, optional

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> segment_sizes(flow).axes[0].get_ylabel()
    'Payload of a segment (B)'
    """
    flow = as_flow(flow)
    sent = packets_of(flow)[0]
    time_s, carries = flow.seconds(sent.time_ns), sent.size > 0
    drawing = blank((9.0, 3.8), title_of(title, flow))
    over_time, often = drawing.subplots(1, 2, sharey=True, width_ratios=(3, 1))
    for i, name in enumerate(KINDS):
        rows = np.flatnonzero(carries & (sent.kind == i))
        if len(rows):
            meaning, label = RETRANSMISSIONS.get(name, ("observed", "new data"))
            points = decimate(time_s[rows], sent.size[rows].astype(float), BUCKETS)
            over_time.plot(*points, ".", ms=3, color=COLOURS[meaning], label=label)
    sizes, counts = np.unique(sent.size[carries], return_counts=True)
    often.hlines(sizes, 0.5, counts, color=COLOURS["observed"], lw=1.6)
    often.set(xlabel="Segments", xscale="log", xlim=(0.5, None))
    over_time.set(xlabel=TIME, ylabel="Payload of a segment (B)", ylim=(0, None))
    finish(over_time, loc="lower right", markerscale=3, frameon=True)
    finish(often)
    return drawing


def throughput(flow: Flow, span_s: float | None = None, *, title: str = "") -> Figure:
    """Draw the throughput as a moving average: what was sent, what was acknowledged, and the mean since the start.

    Parameters
    ----------
    flow : Flow
    span_s : float, optional
        Of the average, back from each instant; default: 1 s, or a tenth of a flow shorter than 10 s.
    title : str, optional

    Raises
    ------
    ArgumentError
        If `span_s` is not positive.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> [line.get_label() for line in throughput(flow, 0.5).axes[0].lines]
    ['sent, with retransmissions', 'acknowledged', 'acknowledged, since the start']
    """
    flow = as_flow(flow)
    lasted = flow.row["duration_s"]
    span_s = min(1.0, lasted / 10) if span_s is None else number("span_s", span_s, "a number of seconds above 0", 0)
    sides = packets_of(flow)
    sent, received = in_time(sides[0]), in_time(sides[1])
    sends = flow.seconds(sent.time_ns), np.cumsum(sent.size)
    acks = _acknowledged(flow, received)
    at = np.linspace(0, lasted, _POINTS + 1)[1:]
    drawing, axes = one_panel((9.0, 3.8), title_of(title, flow))
    for (time_s, total), meaning, label in (
        (sends, "observed", "sent, with retransmissions"),
        (acks, "estimate", "acknowledged"),
    ):
        axes.plot(at, _mean_bps(time_s, total, at, span_s) / 1e6, color=COLOURS[meaning], lw=1.2, label=label)
    mean = _mean_bps(*acks, at, lasted) / 1e6
    axes.plot(at, mean, color=COLOURS["bound"], lw=1.2, ls="--", label="acknowledged, since the start")
    axes.set(xlabel=TIME, ylabel=f"Throughput, mean of {span_s:.3g} s (Mbit/s)", ylim=(0, None))
    finish(axes, loc="upper right")
    return drawing


def _mean_bps(time_s: Values, total: Values, at: Values, span_s: float) -> Values:
    """Return the mean rate of the last `span_s` before each of `at`; at the start, since the start."""
    total = np.concatenate(([0], total))
    since = np.maximum(at - span_s, 0.0)
    return 8 * (total[np.searchsorted(time_s, at, "right")] - total[np.searchsorted(time_s, since)]) / (at - since)


def _acknowledged(flow: Flow, received: Any) -> tuple[Values, Values]:
    """Return when the receiver's packets, in the order of time, arrived, and what they had acknowledged: s, bytes."""
    known = np.flatnonzero(received.ack >= 0)
    acked = np.maximum.accumulate(np.maximum(received.ack[known] - 1, 0))  # the SYN is not payload
    return flow.seconds(received.time_ns)[known], acked


def rtt(flow: Flow, over: str = "time", *, title: str = "") -> Figure:
    """Draw every RTT sample that the sender's TCP took, over time or over what was acknowledged.

    Parameters
    ----------
    flow : Flow
    over : {"time", "sequence"}
    title : str, optional

    Raises
    ------
    ArgumentError
        If `over` is something else.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> rtt(flow, over="sequence").axes[0].get_xlabel()
    'Acknowledged (MB)'
    """
    flow = as_flow(flow)
    check_choice("over", over, ("time", "sequence"))
    rows = flow.events.rows
    rows = rows[(rows["event"] == LINUX_EVENTS["pkts_acked"]) & (rows["rs_rtt_us"] >= 0)]
    x = (rows["time_ns"] - flow.row["start_ns"]) / 1e9 if over == "time" else rows["snd_una"] / 1e6
    drawing, axes = one_panel((9.0, 3.8), title_of(title, flow))
    points = decimate(x.astype(float), rows["rs_rtt_us"] / 1e3, BUCKETS)
    axes.plot(*points, ".", ms=2.5, color=COLOURS["observed"])
    axes.set(xlabel=TIME if over == "time" else "Acknowledged (MB)", ylabel="RTT (ms)", ylim=(0, None))
    finish(axes)
    return drawing


def windows(flow: Flow, *, title: str = "") -> Figure:
    """Draw the receiver's window and the bytes outstanding: sent and not yet acknowledged, losses included.

    Parameters
    ----------
    flow : Flow
    title : str, optional

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> [line.get_label() for line in windows(flow).axes[0].lines]
    ['receive window', 'bytes out']
    """
    flow = as_flow(flow)
    sides = packets_of(flow)
    sent, received = in_time(sides[0]), in_time(sides[1])
    drawing, axes = one_panel((9.0, 3.8), title_of(title, flow))
    known = np.flatnonzero((received.window >= 0) & (received.ack >= 0))
    if len(known):
        points = decimate(flow.seconds(received.time_ns)[known], received.window[known] / 1e3, BUCKETS)
        axes.step(*points, where="post", color=COLOURS["bound"], lw=1.2, label="receive window")
    time_s, top = flow.seconds(sent.time_ns), np.maximum.accumulate(sent.seq + sent.size)
    acked_s, acked = _acknowledged(flow, received)
    before = np.concatenate(([0], acked))[np.searchsorted(acked_s, time_s, "right")]
    out = decimate(time_s, np.maximum(top - 1 - before, 0) / 1e3, BUCKETS)
    axes.step(*out, where="post", color=COLOURS["observed"], lw=1.0, label="bytes out")
    axes.set(xlabel=TIME, ylabel="Window (kB)", ylim=(0, None))
    finish(axes, loc="center right")
    return drawing


def one_way_delays(flow: Flow, receiver: Flow, *, title: str = "") -> Figure:
    """Draw the one-way delay of each segment and each ACK, from captures at both ends.

    Parameters
    ----------
    flow : Flow
        Of the sender's capture.
    receiver : Flow
        The same connection, captured at the receiver.
    title : str, optional

    Returns
    -------
    matplotlib.figure.Figure
        Delays are corrected for the difference of the two clocks, as if the smallest of both directions were equal.

    Raises
    ------
    ArgumentError
        If these are two connections, or the captures do not overlap.

    Examples
    --------
    >>> import cctrace as cct
    >>> ends = (cct.datasets.path("loss_cubic_1pct", f"{end}.pcap.zst") for end in ("sender", "receiver"))
    >>> drawing = one_way_delays(*(cct.read(end).flow(0) for end in ends))
    >>> drawing.axes[0].get_ylabel()
    'One-way delay (ms)'
    """
    flow, receiver = as_flow(flow), as_flow(receiver)
    segments, acks = flow.join(receiver)
    offset_us = segments.attrs["clock_offset_us"]
    drawing, axes = one_panel((9.0, 3.8), title)
    for table, sign, meaning, label in ((segments, -1, "observed", "segments"), (acks, 1, "estimate", "ACKs")):
        time_s = flow.seconds(table["time_ns"])
        time_s = time_s - (offset_us / 1e6 if sign > 0 else 0.0)  # ACKs leave by the receiver's clock
        points = decimate(time_s, (table["delay_us"].to_numpy() + sign * offset_us) / 1e3, BUCKETS)
        axes.plot(*points, ".", ms=2.5, color=COLOURS[meaning], label=label)
    axes.set(xlabel=TIME, ylabel="One-way delay (ms)", ylim=(0, None))
    finish(axes, markerscale=3)
    return drawing
