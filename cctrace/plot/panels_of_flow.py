"""The panels that explain one bulk flow: progress, RTT, data in flight, rates, and the replay against the kernel."""

from dataclasses import replace
from typing import Any

import numpy as np

from cctrace.analysis.flow_view import FlowView
from cctrace.arguments import check_argument
from cctrace.columns import Values
from cctrace.flows.events import AckRows
from cctrace.plot.packets import in_time
from cctrace.plot.panels import Panel, Phases, Series, changes, prefix_of, throughput_series
from cctrace.replaying.words import UNBOUNDED
from cctrace.schema import MISSING
from cctrace.units import format_time

# The controller's bounds on data in flight: column, label, colour, dashed.
_BOUNDS = (
    ("ssthresh_segments", "ssthresh", "ssthresh", True),
    ("inflight_hi_segments", "inflight_hi", "limit", False),
    ("inflight_lo_segments", "inflight_lo", "limit", True),
)
_AGAINST = (
    " Where the replay's curve lies on what the sender's kernel reported at each poll, the replay decided what the "
    "kernel did."
)


def flow_panels(view: FlowView, packets: Any | None = None, progress: bool = True) -> list[Panel]:
    """Return the panels of a flow.

    Parameters
    ----------
    view : FlowView
        The flow, and a replay of it if there is one.
    packets : optional
        As of `cctrace.plot.packets.packets_of`; adds the receiver's window.
    progress : bool
        Whether the first one is wanted, which a graph of the packets shows, too.

    Returns
    -------
    list of Panel
        Those for which the flow has data.

    Examples
    --------
    >>> import cctrace as cct
    >>> from cctrace.analysis.flow_view import FlowView
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> [panel.title for panel in flow_panels(FlowView.of(flow))][:2]
    ['Progress: sequence numbers over time', 'Throughput over time']
    """
    _check_view(view)
    panels: list[Panel | None] = [_progress(view)] if progress else []
    panels += [_throughput(view), _rtt(view), _in_flight(view, packets), _rates(view), _marks(view), _gains(view)]
    return [panel for panel in panels if panel is not None]


def flow_phases(view: FlowView) -> Phases:
    """Return the phases of the replayed controller (none without a model that has phases).

    Examples
    --------
    >>> import cctrace as cct
    >>> from cctrace.analysis.flow_view import FlowView
    >>> flow = cct.read(cct.datasets.path("single_bbr_1bdp", "sender.pcap.zst")).flow(0)
    >>> run = cct.replay(flow, "bbr2022", record="all")
    >>> [name for _, _, name in flow_phases(FlowView.of(flow, run)).spans][:2]
    ['STARTUP', 'DRAIN']
    """
    _check_view(view)
    if view.model is None or "phase" not in view.model:
        return Phases()
    time_s, state = view.steps("phase")
    return Phases.from_names(time_s, state["phase"])


def _check_view(view: FlowView) -> None:
    check_argument(isinstance(view, FlowView), "view", view, "a FlowView: FlowView.of(flow)")


def _progress(view: FlowView) -> Panel:
    events, time_s = view.events, view.seconds(view.events)
    scale, unit = prefix_of(events["snd_nxt"].max(), "B")
    series = [
        Series("sent", time_s, _numbers(events, "snd_nxt") / scale, "observed", "steps"),
        Series("acknowledged", time_s, _numbers(events, "snd_una") / scale, "estimate", "steps"),
    ]
    if view.retransmissions is not None and len(view.retransmissions["seq"]):
        table = view.retransmissions
        series.append(Series("retransmitted", view.seconds(table), _numbers(table, "seq") / scale, "lost", "points"))
    return Panel(
        "progress",
        "Progress: sequence numbers over time",
        "How far the transfer had come. The slope is the throughput; the vertical distance between “sent” and "
        "“acknowledged” is the data in flight (zoom in to see it); a dot is a retransmitted segment.",
        f"Sequence number ({unit})",
        series,
        from_zero=False,
    )


def _throughput(view: FlowView) -> Panel | None:
    if view.throughput is None or not len(view.throughput["span_s"]):
        return None
    table = view.throughput
    columns = (("sent_bps", "sent, with retransmissions", "observed"), ("acked_bps", "acknowledged", "estimate"))
    scale, unit = prefix_of(max(table[name].max() for name, _, _ in columns), "bit/s")
    return Panel(
        "throughput",
        "Throughput over time",
        f"Payload sent and acknowledged in each {format_time(table['span_s'][0] * 1e9)}. What was sent and not "
        "acknowledged soon after was lost and retransmitted, or waited in a queue.",
        f"Throughput ({unit})",
        throughput_series(table, columns, scale),
    )


def _rtt(view: FlowView) -> Panel:
    samples = _numbers(view.acks, "rs_rtt_us", missing=-1) / 1e3
    srtt = _numbers(view.acks, "srtt_us8", missing=0) / 8e3
    series = [
        Series("RTT samples", view.ack_s, samples, "observed", "points"),
        Series("smoothed RTT", view.ack_s, srtt, "bound", "steps"),
    ]
    series += _model_series(view, "min_rtt_us", "min_rtt estimate (replay)", "estimate", 1e3)
    series += _kernel_series(view, "bbr_min_rtt_us", "min_rtt (kernel)", 1e3, missing=0)
    return Panel(
        "rtt",
        "Round-trip time",
        "Each dot is the time from sending data to their acknowledgement. The floor is the length of the path; what "
        "lies above it is waiting in queues (or jitter, or acknowledgements held back). A model-based controller "
        "takes its min_rtt estimate for the length of the path: if the estimate is wrong, so is the window.",
        "RTT (ms)",
        series,
    )


def _in_flight(view: FlowView, packets: Any) -> Panel:
    acks = view.acks
    mss = float(view.events["mss"].max())
    in_flight = mss * _numbers(acks, "rs_prior_in_flight")
    window = _model_series(view, "cwnd_segments", "cwnd (replay)", "window", 1 / mss)
    window += _kernel_series(view, "snd_cwnd", "cwnd (kernel)", 1 / mss)
    window += _bounds(view, mss) + _receive_window(view, packets)
    bdp = _bdp(view)
    scale, unit = prefix_of(
        max(np.nanmax(values, initial=0) for values in (in_flight, *(s.value for s in window if s.stretches))), "B"
    )
    series = [Series("in flight", view.ack_s, in_flight, "observed", "steps"), bdp, *window]
    return Panel(
        "in_flight",
        "Data in flight, window and path",
        "Data sent and not yet acknowledged, against the limit the controller set (cwnd) and what the path itself "
        "holds (the bandwidth-delay product, BDP). Above the BDP, data wait in the bottleneck's queue; below it, the "
        "path is not full. In flight well under cwnd: something else limits (application, receiver, pacing). What lies "
        "far above what was in flight (a large receive window, an ssthresh) is drawn where the axis reaches it.",
        f"In flight ({unit})",
        [replace(s, value=s.value / scale) for s in series],
    )


def _bounds(view: FlowView, mss: float) -> list[Series]:
    """Return the controller's bounds on data in flight besides cwnd; none while it is unlimited."""
    found = []
    for column, label, colour, dashed in _BOUNDS:
        series = _model_series(view, column, f"{label} (replay)", colour, 1 / mss)
        found += [replace(one, dashed=dashed) for one in series]
    if view.model is None:
        found += _kernel_series(view, "snd_ssthresh", "ssthresh (kernel)", 1 / mss, colour="ssthresh")
    bounded = (replace(one, value=np.where(one.value >= UNBOUNDED * mss, np.nan, one.value)) for one in found)
    return [replace(one, stretches=False) for one in bounded if np.isfinite(one.value).any()]


def _receive_window(view: FlowView, packets: Any) -> list[Series]:
    if packets is None or not len(packets[1]):
        return []
    received = in_time(packets[1])
    known = (received.window >= 0) & (received.ack >= 0)
    if not known.any():
        return []
    time_s = (received.time_ns[known] - view.start_ns) / 1e9
    window = received.window[known].astype(np.float64)
    return [Series("receive window", time_s, window, "bound", "steps", stretches=False)]


def _bdp(view: FlowView) -> Series:
    """Return the bandwidth-delay product in bytes: the model's where there is one, else one figure for the flow."""
    if view.model is not None and "bw_Bps" in view.model:
        time_s, state = view.steps("bw_Bps", "min_rtt_us")
        values = _numbers(state, "bw_Bps") * _numbers(state, "min_rtt_us") / 1e6
        return Series("BDP (bandwidth x min_rtt)", *changes(time_s, values), "estimate", "steps", dashed=True)
    rate_bps, time_s = delivery_rate_bps(view.acks), view.ack_s
    rtt_us = _numbers(view.acks, "rs_rtt_us", missing=-1)
    known = np.isfinite(rate_bps).any() and np.isfinite(rtt_us).any()
    bdp = np.nanquantile(rate_bps, 0.95) / 8 * np.nanmin(rtt_us) / 1e6 if known else np.nan
    ends = time_s[[0, -1]] if len(time_s) else np.zeros(0)
    return Series("BDP (95 % rate x lowest RTT)", ends, np.full(len(ends), bdp), "estimate", dashed=True)


def delivery_rate_bps(acks: AckRows) -> Values:
    """Return the delivery-rate sample of each ACK in bits per second, NaN where there is none."""
    rate_bps = _numbers(acks, "rs_delivered", missing=-1)
    rate_bps *= _numbers(acks, "mss")
    rate_bps *= 8e6
    interval_us = _numbers(acks, "rs_interval_us", missing=-1)
    interval_us[interval_us <= 0] = np.nan
    rate_bps /= interval_us
    return rate_bps


def _rates(view: FlowView) -> Panel:
    rate = delivery_rate_bps(view.acks)
    finite = rate[np.isfinite(rate)]
    scale, unit = prefix_of(np.quantile(finite, 0.95, overwrite_input=True) if finite.size else 1, "bit/s")
    series = [Series("delivery-rate samples", view.ack_s, rate / scale, "observed", "points")]
    series += _model_series(view, "pacing_rate_Bps", "pacing rate (replay)", "pacing", scale / 8)
    series += _model_series(view, "bw_Bps", "bandwidth estimate (replay)", "estimate", scale / 8)
    series += _kernel_series(view, "bbr_bw_Bps", "bandwidth (kernel)", scale / 8, missing=0)
    if view.model is None:
        series += _kernel_series(view, "pacing_rate_Bps", "pacing rate (kernel)", scale / 8, colour="pacing")
    return Panel(
        "rates",
        "Delivery rate",
        "Each dot is how fast data arrived over about one round trip. A model-based controller keeps the highest of "
        "the recent samples as its bandwidth estimate, and sends at the pacing rate: a little above the estimate to "
        "probe for more, then below it to drain what the probe queued.",
        f"Rate ({unit})",
        series,
    )


def _marks(view: FlowView) -> Panel | None:
    if view.ecn is None:
        return None
    table = view.ecn
    time_s, is_counted = table["time_s"].to_numpy(), table["alpha"].notna().any()
    label = "marked" if is_counted else "acknowledged with ECE"
    series = [Series(label, time_s, 100 * _numbers(table, "ce_share"), "limit", "points")]
    if is_counted:
        series.append(Series("alpha (DCTCP’s average)", time_s, 100 * _numbers(table, "alpha"), "estimate", "steps"))
    about = "alpha is their moving average over round trips, by which DCTCP and Prague shrink their window."
    if not is_counted:
        about = "Classic feedback repeats a mark until the sender has answered: it counts round trips, not packets."
    return Panel(
        "marks",
        "Marks (ECN)",
        f"The share of the delivered segments that the receiver reported as marked instead of dropped. {about}",
        "Share (%)",
        series,
    )


def _gains(view: FlowView) -> Panel | None:
    if view.model is None or "pacing_gain" not in view.model:
        return None
    series = _model_series(view, "pacing_gain", "pacing gain (replay)", "pacing", 1)
    kernel = _kernel_series(view, "bbr_pacing_gain", "pacing gain (kernel)", 256)
    if "cwnd_gain" in view.model:
        series += _model_series(view, "cwnd_gain", "cwnd gain (replay)", "window", 1)
    return Panel(
        "gains",
        "The replay against the kernel: gains" if kernel else "Gains of the replayed controller",
        "What the replayed controller multiplies its model with: above 1, the pacing gain probes for more, below 1 it "
        "drains what that queued." + (_AGAINST if kernel else ""),
        "Gain",
        [*series, *kernel],
    )


def _model_series(view: FlowView, column: str, label: str, colour: str, scale: float) -> list[Series]:
    if view.model is None or column not in view.model:
        return []
    time_s, state = view.steps(column)
    return [Series(label, *changes(time_s, _numbers(state, column) / scale), colour, "steps")]


def _kernel_series(
    view: FlowView, column: str, label: str, scale: float, missing: float | None = None, colour: str = "kernel"
) -> list[Series]:
    if view.kernel is None or column not in view.kernel:
        return []
    known = _numbers(view.kernel, column)
    if np.isnan(known).all():
        return []
    values = (known if missing is None else np.where(known == missing, np.nan, known)) / scale
    return [Series(label, view.seconds(view.kernel), values, colour, "steps", dashed=True)]


def _numbers(table: Any, column: str, missing: float | None = None) -> Values:
    """Return a column as float64, NaN where it is missing."""
    values = np.asarray(table[column])  # of a frame, too
    numbers = values.astype(np.float64)
    if values.dtype == np.int64:
        numbers[values == MISSING] = np.nan
    if missing is not None:
        numbers[numbers == missing] = np.nan
    return numbers
