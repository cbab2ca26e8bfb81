"""The panels of a connection with counters only: no event stream, one point per poll."""

import numpy as np

from cctrace.columns import Floats, Table, Values
from cctrace.flows.counters import CounterFlow
from cctrace.plot.panels import Panel, Phases, Series, prefix_of, throughput_series

# Where a replay's columns are drawn: panel, column of `model_table`, label, colour, factor to the unit of the panel.
_REPLAYED = (
    ("rtt", "min_rtt_us", "min_rtt (replay)", "estimate", 1e-3),
    ("in_flight", "cwnd_segments", "cwnd (replay)", "bound", 1),
    ("rates", "bw_Bps", "bandwidth (replay)", "estimate", 8e-6),
)


def counter_panels(counters: CounterFlow, model: Table | None = None) -> list[Panel]:
    """Return the panels of a `cctrace.flows.counters.CounterFlow` for which it has data, a list of `Panel`.

    `model`: what a controller that was replayed over the coarse event stream held, see `replaying.model.model_table`.
    """
    panels = [make(counters) for make in (_progress, _throughput, _rtt, _window, _rates, _retransmissions)]
    for name, column, label, colour, factor in _REPLAYED:
        if model is not None and column in model:
            panel = next(panel for panel in panels if panel.name == name)
            seconds = (model["time_ns"] - counters.start_ns) / 1e9
            panel.series.append(Series(label, seconds, model[column] * factor, colour, "steps"))
    return [panel for panel in panels if panel.series]


def counter_phases(counters: CounterFlow) -> Phases:
    """Return BBR's modes over time as `Phases`, empty where there is none."""
    names = counters.phase_names()
    return Phases() if names is None else Phases.from_names(counters.seconds(), names)


def _series(
    counters: CounterFlow, label: str, values: Values, colour: str, kind: str = "steps", dashed: bool = False
) -> list[Series]:
    """Return the one series in a list; an empty list where nothing is known."""
    known = np.isfinite(values) & (values > 0)
    return [Series(label, counters.seconds(), values, colour, kind, dashed)] if known.any() else []


def _sampled(counters: CounterFlow, name: str) -> Floats:
    """Return a counter that is 0 before its first sample, with NaN in place of those zeros."""
    values = counters.values(name)
    return np.where(values > 0, values, np.nan)


def _progress(counters: CounterFlow) -> Panel:
    time_ns, acked = counters.acked()
    seconds = (time_ns - counters.start_ns) / 1e9
    scale, unit = prefix_of(acked.max() if len(acked) else 1e6, "B")
    series = [Series("acknowledged", seconds, acked / scale, "estimate")] if len(acked) else []
    text = "How much had arrived at each poll. The slope is the throughput."
    return Panel("progress", "Progress", text, f"Acknowledged ({unit})", series)


def _throughput(counters: CounterFlow) -> Panel:
    series = throughput_series(counters.throughput_columns(), (("acked_bps", "acknowledged", "estimate"),), 1e6)
    text = "How fast data were acknowledged from each poll to the next."
    return Panel("throughput", "Throughput over time", text, "Throughput (Mbit/s)", series)


def _rtt(counters: CounterFlow) -> Panel:
    series = _series(counters, "latest RTT", _sampled(counters, "latest_rtt_us") / 1e3, "observed", "points")
    series += _series(counters, "smoothed RTT", counters.rtt_us() / 1e3, "bound")
    series += _series(counters, "lowest RTT (sender)", _sampled(counters, "min_rtt") / 1e3, "observed", dashed=True)
    series += _series(counters, "min_rtt (BBR)", _sampled(counters, "bbr_min_rtt_us") / 1e3, "kernel", dashed=True)
    text = "The sender's smoothed round-trip time at each poll; what lies above the lowest is waiting or jitter."
    return Panel("rtt", "Round-trip time", text, "RTT (ms)", series)


def _window(counters: CounterFlow) -> Panel:
    flight = counters.outstanding() - np.nan_to_num(counters.values("sacked")) - np.nan_to_num(counters.values("lost"))
    series = _series(counters, "in flight", flight + np.nan_to_num(counters.values("retrans")), "observed")
    series += _series(counters, "cwnd", counters.values("snd_cwnd"), "window")
    text = "sent and not yet acknowledged or lost, against the congestion window."
    if not series and "bytes_in_flight" in counters.polls.extra:  # qlog
        series = _series(counters, "in flight", counters.values("bytes_in_flight") / 1e3, "observed")
        series += _series(counters, "cwnd", counters.values("congestion_window_bytes") / 1e3, "window")
        return Panel("in_flight", "Data in flight and window", f"Bytes {text}", "In flight (kB)", series)
    return Panel("in_flight", "Data in flight and window", f"Segments {text}", "Segments", series)


def _rates(counters: CounterFlow) -> Panel:
    series = _series(counters, "delivery rate", _sampled(counters, "delivery_rate_Bps") * 8e-6, "observed", "points")
    series += _series(counters, "pacing rate", _sampled(counters, "pacing_rate_Bps") * 8e-6, "pacing")
    series += _series(counters, "bandwidth (BBR)", _sampled(counters, "bbr_bw_Bps") * 8e-6, "kernel")
    text = "How fast data arrived lately, how fast the sender paces, and what BBR takes for the bandwidth of the path."
    return Panel("rates", "Rates", text, "Rate (Mbit/s)", series)


def _retransmissions(counters: CounterFlow) -> Panel:
    series = _series(counters, "retransmitted so far", counters.values("total_retrans"), "lost")
    text = "Segments retransmitted by each poll; a step is a loss, or what the sender took for one."
    return Panel("retransmitted", "Retransmissions", text, "Segments", series)
