"""Data of one flow from capture, replay and counters, for drawing and tables."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.arguments import check_argument
from cctrace.columns import Columns, Floats, Held, Table
from cctrace.display import Public
from cctrace.flows.events import AckRows
from cctrace.flows.flow import Flow
from cctrace.flows.packed import EventColumns
from cctrace.flows.throughput import throughput_columns
from cctrace.replaying.model import model_of
from cctrace.replaying.run import Run

if TYPE_CHECKING:
    import pandas as pd

_BINS = 200  # of the drawn throughput; more would show the bursts of single round trips


@dataclass(frozen=True)
class FlowView(Public):
    """Data of one flow, ready to draw."""

    events: EventColumns  # columns of `schema.EVENTS`
    # State of the replayed controller after each event, in common units: `time_ns`, `cwnd_segments`, `pacing_rate_Bps`,
    # `bw_Bps`, `min_rtt_us`, `pacing_gain`, `phase` (str); NaN if unset. A loss-based controller has no `bw_Bps`,
    # `min_rtt_us`, `pacing_gain` and `phase`.
    model: Table | None = None
    kernel: Columns | None = None  # of `schema.TCP_INFO`; missing values of int64 are `MISSING`
    retransmissions: Columns | None = None  # `time_ns` and `seq` (unwrapped, bytes) of each segment
    first_ns: int | None = None  # time of the connection's first packet
    taken_at: str = "sender"  # where it was captured, see `cctrace.flows.vantage`
    throughput: Columns | None = None  # of `Flow.throughput`
    reverse: dict[str, Any] | None = None  # `Flow.reverse`
    ecn: pd.DataFrame | None = None  # `cctrace.flows.ecn.Ecn.frame`; None for a flow without marks

    @classmethod
    def of(cls, flow: Flow, run: Run | None = None) -> FlowView:
        """Return the view of a captured flow; its counters are those attached to it.

        `run`: a replay of the flow that recorded what `model_fields` names. Raises `StreamError` if the flow cannot be
        reconstructed from its capture.
        """
        check_argument(run is None or isinstance(run, Run), "run", run, "what cctrace.replay returned")
        if run is not None and isinstance(run.source, Flow):  # if sent through fq, the flow that it was replayed over
            flow = run.source
        kernel = None if flow.tcpinfo is None else flow.tcpinfo.table()
        model = None if run is None else model_of(run)
        again = {name: flow.retransmission_log[name] for name in ("time_ns", "seq")}
        seen = throughput_columns(flow, _bin_s(flow)), flow.reverse()
        marks = flow.ecn.frame(_BINS) if flow.ecn.delivered_ce else None
        return cls(flow.events.stream, model, kernel, again, int(flow.row["start_ns"]), flow.taken_at, *seen, marks)

    @functools.cached_property
    def acks(self) -> AckRows:
        """The rows of `events` that end an ACK."""
        return AckRows(self.events)

    @functools.cached_property
    def ack_s(self) -> Floats:
        """Their times, seconds since the start of the flow."""
        return self.seconds(self.acks)

    @property
    def start_ns(self) -> int:
        """Return the time of the first packet (or of the first event, if unknown), the origin of every axis."""
        return int(self.events["time_ns"][0]) if self.first_ns is None else self.first_ns

    def seconds(self, table: Any) -> Floats:
        """Return the times of a table in seconds since the start of the flow."""
        # Subtract as integers first: epoch nanoseconds do not fit a float64.
        return (np.asarray(table["time_ns"], np.int64) - self.start_ns) / 1e9

    def steps(self, *names: str) -> tuple[Floats, Columns]:
        """Return the times, in seconds, and columns of `model` at those of its rows that suffice to draw them."""
        model = self.model
        assert model is not None
        if not isinstance(model, Held):
            return self.seconds(model), {name: model[name] for name in names}
        rows = model.changes(*names)
        return self.seconds({"time_ns": model.at("time_ns", rows)}), {name: model.at(name, rows) for name in names}


def _bin_s(flow: Flow) -> float:
    """Return the bin width for drawing the throughput: 1, 2 or 5 of a decade, at least two round trips."""
    rtt_us = flow.row["rtt_median_us"]
    least = max(flow.row["duration_s"] / _BINS, 2e-6 * (rtt_us or 0.0), 1e-6)
    decade = 10.0 ** np.floor(np.log10(least))
    return float(next(decade * step for step in (1, 2, 5, 10) if decade * step >= least * (1 - 1e-9)))
