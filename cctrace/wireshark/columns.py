"""State of a flow at each of its packets: controller, limits, reasons of retransmissions.

A packet of the sender has the state at its departure; an ACK has the state after the sender's TCP has processed it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cctrace.analysis.flow_analysis import FlowAnalysis
from cctrace.columns import Bools, Floats, Ints, Values
from cctrace.diagnosis.findings import LIMITS
from cctrace.flows.flow import Flow
from cctrace.plot.packets import in_file_order, packets_of
from cctrace.plot.states import modes_of
from cctrace.replaying.engine.stack import flight_of
from cctrace.schema import LINUX_EVENTS

UNKNOWN = -1  # of every number here
_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True)
class PacketColumns:
    """State at each packet of a flow, in file order; -1 is unknown."""

    flow: int  # its number in the capture
    controller: str  # name of the replayed controller; "" if none was
    states: tuple[str, ...]  # names of the controller's states
    sack: bool  # the receiver sends SACK, so that RACK detects losses
    first_ns: int  # time of the first of these packets, nanoseconds since the epoch
    frame: Ints  # number in the capture, from 1; shape (packets,)
    sent: Bools  # the sender's; else the receiver's
    data: Bools  # the sender's, with payload
    state: NDArray[np.int8]  # index into `states`
    tcp_state: NDArray[np.int8]  # index into `cctrace.schema.CA_STATES`
    limit: NDArray[np.int8]  # index into `cctrace.diagnosis.findings.LIMITS`: what limited the flow
    # cwnd, inflight: segments
    cwnd: Ints
    inflight: Ints
    # pacing_rate_bps, bw_bps: pacing rate and bandwidth estimate, bit/s
    pacing_rate_bps: Ints
    bw_bps: Ints
    # min_rtt_us, rtt_us: the controller's estimate, and the RTT sample of an ACK
    min_rtt_us: Ints
    rtt_us: Ints
    kind: NDArray[np.int8]  # index into `cctrace.plot.packets.KINDS` of data; 0 of everything else
    spurious: Bools  # a D-SACK later reported it as a duplicate
    window_left: Ints  # bytes of the receive window left after data of the sender

    def __len__(self) -> int:
        return len(self.frame)


def columns_of(flow: Flow, analysis: FlowAnalysis) -> PacketColumns:
    """Return the state at each packet of a captured flow.

    `flow`: from `through_fq.at_hand_over`. `analysis`: of this flow; what it lacks is unknown here.
    Raises `StreamError` if the flow cannot be reconstructed from its capture.
    """
    capture = flow.capture
    sent, received = packets_of(flow)
    clock_ns, rows, forth = in_file_order(flow)
    delay_ns = int(capture.params([flow.index])["ack_delay_ns"][0])  # until TCP has processed an ACK
    known_ns = clock_ns + np.where(forth, 0, delay_ns)
    data = _spread(forth, sent.size > 0, False)
    has_edge = (received.ack >= 0) & (received.window >= 0)
    edge = _spread(~forth, np.where(has_edge, received.ack + received.window, _NEVER), _NEVER)
    end = _spread(forth, sent.seq + sent.size, _NEVER)
    return PacketColumns(
        flow=flow.index,
        controller=analysis.replayed or "",
        sack=bool(flow.facts["sack_ok"]),
        first_ns=int(capture.packets["time_ns"][rows[0]]),
        frame=capture.packets["frame"][rows].astype(np.int64),
        sent=forth,
        data=data,
        limit=_limits(analysis, flow.seconds(clock_ns)),
        kind=_spread(forth, sent.kind.astype(np.int8), 0),
        spurious=_spread(forth, sent.spurious, False),
        window_left=_window_left(clock_ns, edge, end, data),
        **known_of_stream(flow, known_ns, forth),
        **_model(analysis, known_ns),
    )


def _spread(where: Bools, values: Values, other: Any) -> Values:
    """Return an array as long as `where` with these values where that is true, and another one elsewhere."""
    found = np.full(len(where), other, values.dtype)
    found[where] = values
    return found


def _limits(analysis: FlowAnalysis, time_s: Floats) -> NDArray[np.int8]:
    """Return what limited the flow at each time, as indices of `LIMITS`."""
    limits = analysis.diagnosis.limits if analysis.diagnosis else []
    starts = np.array([limit.start_s for limit in limits])
    codes = np.array([UNKNOWN, *(LIMITS.index(limit.name) for limit in limits)], np.int8)
    return codes[np.searchsorted(starts, time_s, side="right")]


def known_of_stream(flow: Flow, known_ns: Ints, forth: Bools) -> dict[str, Any]:
    """Return the event stream's columns at the time `known_ns` of each packet; those `forth` are the sender's."""
    events, sends = flow.events.rows, flow.events.sends
    row = np.searchsorted(events["time_ns"], known_ns, side="right") - 1
    last, began = np.maximum(row, 0), row >= 0
    after = np.minimum(row + 1, len(events) - 1)  # the state is noted before each call
    tcp_state = np.where(began, events["ca_state"][after].astype(np.int8), UNKNOWN)
    flying = flight_of(events.view(np.recarray))[last]
    # A first send that never was, so that there is one before every packet.
    sent_ns, after_it = np.append(_NEVER, sends["time_ns"]), np.append(0, sends["in_flight"].astype(np.int64))
    send = np.searchsorted(sent_ns, known_ns, side="right") - 1
    later = (send > 0) & (sent_ns[send] >= events["time_ns"][last])
    inflight = np.where(later, after_it[send], flying)
    ends = np.isin(events["event"][last], (LINUX_EVENTS["on_ack"], LINUX_EVENTS["cong_avoid"]))  # an ACK
    exact = ~forth & began & ends & (events["time_ns"][last] == known_ns)
    sample = events["rs_rtt_us"][last]
    rtt_us = np.where(exact & (sample >= 0), sample, UNKNOWN).astype(np.int64)
    inflight = np.where(began | later, inflight, UNKNOWN).astype(np.int64)
    return {"tcp_state": tcp_state, "inflight": inflight, "rtt_us": rtt_us}


def _model(analysis: FlowAnalysis, known_ns: Ints) -> dict[str, Any]:
    """Return the columns from the replayed controller, at the time of each packet."""
    model = analysis.view.model if analysis.view is not None else None
    nothing = np.full(len(known_ns), UNKNOWN)
    if model is None or not len(model["time_ns"]):
        unknown = dict.fromkeys(("cwnd", "pacing_rate_bps", "bw_bps", "min_rtt_us"), nothing)
        return {"states": (), "state": nothing.astype(np.int8), **unknown}
    row = np.searchsorted(model["time_ns"], known_ns, side="right") - 1
    last, began = np.maximum(row, 0), row >= 0
    names, codes = np.unique(modes_of(model).astype(str), return_inverse=True)

    def column(name: str, factor: int = 1) -> Ints:
        if name not in model:
            return nothing
        value = model[name][last] * factor
        return np.where(began & np.isfinite(value), np.nan_to_num(value, posinf=0.0), UNKNOWN).astype(np.int64)

    return {
        "states": tuple(names.tolist()),
        "state": np.where(began, codes[last], UNKNOWN).astype(np.int8),
        "cwnd": column("cwnd_segments"),
        "pacing_rate_bps": column("pacing_rate_Bps", 8),
        "bw_bps": column("bw_Bps", 8),
        "min_rtt_us": column("min_rtt_us"),
    }


def _window_left(time_ns: Ints, edge: Ints, end: Ints, data: Bools) -> Ints:
    """Return how much of the receive window data left open, given each ACK's right edge and each packet's last byte."""
    order = np.argsort(time_ns, kind="stable")
    highest = np.empty(len(edge), np.int64)
    highest[order] = np.maximum.accumulate(edge[order])
    return np.where(data & (highest > _NEVER), np.maximum(highest - np.maximum(end, 0), 0), UNKNOWN)
