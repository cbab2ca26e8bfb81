"""A TCP flow as the qlog of its sender: packets, RTTs, cwnd, bytes in flight, pacing rate and congestion states.

Version 0.3 of the main schema as a JSON text sequence, which is the version that tools such as qvis read. TCP's
segments are packets of the type 1RTT, numbered in the order they left: a retransmission gets a number of its own.
An ACK frame names the packets that it acknowledges for the first time; the receive window is a MAX_DATA frame.
Events that QUIC has no name for are in the namespace `cctrace`.

Sources: draft-ietf-quic-qlog-main-schema-02 to -06; draft-ietf-quic-qlog-quic-events-01 to -05; RFC 7464 (JSON text
sequences).
"""

import heapq
import json
import os
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cctrace
from cctrace.cc import controller as resolve
from cctrace.cc.base import Controller
from cctrace.columns import Columns, Floats, Ints, Values
from cctrace.errors import ArgumentError
from cctrace.exporting.acked import Acked
from cctrace.files import replacing
from cctrace.flows.flow import Flow
from cctrace.identification.identify import identify
from cctrace.plot.packets import KINDS, in_file_order, packets_of
from cctrace.plot.states import modes_of
from cctrace.refusals import Attempt
from cctrace.replaying.engine.stack import flight_of
from cctrace.replaying.inference.through_fq import at_hand_over
from cctrace.replaying.model import model_fields, model_of
from cctrace.replaying.run import Run, replay
from cctrace.replaying.words import UNBOUNDED
from cctrace.schema import CA_STATES, LINUX_EVENTS, U32_MAX

Event = tuple[int, str, dict[str, Any]]  # time (ns since the first packet), name, data


VERSION, FORMAT, PACKET_TYPE = "0.3", "JSON-SEQ", "1RTT"
# Why data was retransmitted (`packets.KINDS`), in the schema's terms.
TRIGGERS = {"fast": "retransmit_reordering", "probe": "pto_probe", "timeout": "retransmit_timeout"}
_RECORD = "\x1e"


def write_qlog(
    source: Flow | Run, target: str | os.PathLike[str], controller: str | type[Controller] | None = None
) -> int:
    """Write a flow as the qlog of its sender; return the number of events written.

    `source`: a flow of a capture, recorded or simulated (`Simulation.capture`); or the replay of a Linux controller
    over one, with ``record="all"``. `target`: by convention its name ends in .sqlog. `controller`: the Linux controller
    whose decisions are written; default: the one that sent the flow, as `identify` finds; if nothing tells, cwnd,
    pacing rate and states are left out. Raises `ArgumentError` if the source is neither, `StreamError` if the flow
    cannot be reconstructed from its capture.

    >>> import tempfile
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     events = write_qlog(flow, f"{folder}/flow.sqlog", "cubic6")
    ...     back = cct.read(f"{folder}/flow.sqlog")
    >>> int(back["min_rtt"].min()) == int(flow.rtt["rtt_us"].min())
    True
    """
    run = source if isinstance(source, Run) else None
    flow = run.source if run else source
    if not isinstance(flow, Flow):
        raise ArgumentError(
            f"cannot write {type(flow).__name__!r} as qlog: use a flow of a capture, or a replay over one"
        )
    flow = at_hand_over(flow)
    run = run or _replayed(flow, controller)
    count = 0
    with replacing(target) as file, open(file, "w", encoding="utf-8", newline="") as out:
        out.write(_record(_header(flow, run)))
        parts = (_packets(flow), _lost(flow), _metrics(flow, run))
        for time_ns, name, data in heapq.merge(*parts, key=itemgetter(0)):
            out.write(_record({"time": round(time_ns / 1e6, 6), "name": name, "data": data}))
            count += 1
    return count


def _replayed(flow: Flow, controller: str | type[Controller] | None) -> Run | None:
    """Return the replay of the controller that sent a flow; None if that is not known."""
    if controller is None:
        with Attempt("identification"):
            found = identify(flow)
            controller = None if found.name == "unknown" else found.name
    if controller is None:
        return None
    cls = resolve(controller)[0]
    if cls.view != "linux":
        raise ArgumentError(
            f"controller {controller!r} is of the QUIC stack: it cannot be replayed over a capture of TCP"
        )
    return replay(flow, controller, record=model_fields(cls))


def _record(value: dict[str, Any]) -> str:
    return f"{_RECORD}{json.dumps(value, separators=(',', ':'), allow_nan=False)}\n"


def _header(flow: Flow, run: Run | None) -> dict[str, Any]:
    """Return the first record; the flow's endpoints are in no field, since a qlog is meant to be passed on."""
    role = "server" if flow.facts["passive"] else "client"
    decided = f"; {run.controller.__name__} replayed over it" if run else ""
    about = f"TCP flow reconstructed from a capture (taken at: {flow.taken_at}){decided}"
    start_ns = int(flow.row["start_ns"])
    trace = {
        "title": f"TCP flow {flow.index}",
        "description": about,
        "configuration": {"time_offset": 0.0, "original_uris": []},
        "common_fields": {"protocol_type": ["TCP"], "time_format": "relative", "reference_time": start_ns // 10**6},
        "vantage_point": {"name": f"cctrace {cctrace.__version__}", "type": role},
    }
    return {"qlog_version": VERSION, "qlog_format": FORMAT, "title": "cctrace", "trace": trace}


def _since(flow: Flow, time_ns: Ints) -> Ints:
    """Return times in nanoseconds since the reference time, which is a multiple of a millisecond."""
    return np.asarray(time_ns, np.int64) - int(flow.row["start_ns"]) // 10**6 * 10**6


def _packets(flow: Flow) -> Iterator[Event]:
    """Yield the packets, in the order in which the sender sent and received them."""
    sent, received = packets_of(flow)
    clock_ns, rows, forth = in_file_order(flow)
    known = np.argsort(clock_ns, kind="stable")
    place = np.where(forth, np.cumsum(forth), np.cumsum(~forth)) - 1
    ip_header = 40 if ":" in str(flow.key[0]) else 20
    size = (flow.capture.packets["ip_len"][rows].astype(np.int64) - ip_header).tolist()
    time_ns = _since(flow, clock_ns).tolist()
    kind, seq, payload = sent.kind.tolist(), sent.seq.tolist(), sent.size.tolist()
    edges = list(zip(received.left.tolist(), received.right.tolist(), strict=True))
    counts, ends = received.blocks.tolist(), np.cumsum(received.blocks).tolist()
    blocks = [edges[end - count : end] for end, count in zip(ends, counts, strict=True)]  # of every packet, SACK's
    ack, window = received.ack.tolist(), received.window.tolist()
    account, number, heard = Acked(), 0, 0
    for i, mine, at in zip(known.tolist(), forth[known].tolist(), place[known].tolist(), strict=True):
        raw = {"length": size[i]}
        if mine and payload[at]:
            account.sent(number, seq[at], seq[at] + payload[at])
            frame = {"frame_type": "stream", "stream_id": 0, "offset": seq[at] - 1, "length": payload[at]}
            data = _packet(number, raw | {"payload_length": payload[at]}, [frame])
            if KINDS[kind[at]] in TRIGGERS:
                data["trigger"] = TRIGGERS[KINDS[kind[at]]]
            yield time_ns[i], "transport:packet_sent", data
            number += 1
        elif not mine and ack[at] >= 0:
            frames: list[dict[str, Any]] = []
            if ranges := account.acked(ack[at], blocks[at]):
                frames.append({"frame_type": "ack", "acked_ranges": ranges})
            if window[at] >= 0:
                frames.append({"frame_type": "max_data", "maximum": max(ack[at] + window[at] - 1, 0)})
            yield time_ns[i], "transport:packet_received", _packet(heard, raw, frames)
            heard += 1


def _packet(number: int, raw: dict[str, int], frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {"header": {"packet_type": PACKET_TYPE, "packet_number": number}, "raw": raw, "frames": frames}


def _lost(flow: Flow) -> Iterator[Event]:
    """Yield what the sender's TCP marked as lost; a super-packet has one event."""
    events = flow.events.rows
    marked = events[events["event"] == LINUX_EVENTS["skb_marked_lost"]]
    marked = marked[marked["rs_send"] >= 0]
    numbers = _numbers(flow)[marked["rs_send"]].tolist()
    for time_ns, number in zip(_since(flow, marked["time_ns"]).tolist(), numbers, strict=True):
        yield time_ns, "recovery:packet_lost", {"header": {"packet_type": PACKET_TYPE, "packet_number": number}}


def _numbers(flow: Flow) -> NDArray[np.intp]:
    """Return the number that `_packets` gives each packet of `Events.sends`, which lacks a mirror port's copies."""
    capture = flow.capture
    time_ns, rows, forth = capture.seen_by_sender(flow.index)
    data = forth & (capture.packets["payload"][rows] > 0)
    time_ns, left_ns = np.sort(time_ns[data], kind="stable"), flow.events.sends["time_ns"]
    after = np.arange(len(left_ns)) - np.searchsorted(left_ns, left_ns)  # those of one time follow each other
    return np.searchsorted(time_ns, left_ns) + after


def _metrics(flow: Flow, run: Run | None) -> Iterator[Event]:
    """Yield what changed with each ACK: metrics, the controller's state, its bandwidth estimate, TCP's own state."""
    events = flow.events.rows
    last = np.flatnonzero(np.diff(events["time_ns"], append=-1))  # the calls of an ACK have one time
    after = events["ca_state"][np.minimum(last + 1, len(events) - 1)]  # the state is noted before each call
    decided, model, state = _decided(run, last, after, int(flow.facts["mss"])) if run is not None else ({}, {}, [])
    updates = {"recovery:metrics_updated": _measured(events, last) | decided, "cctrace:model_updated": model}
    states = {
        "recovery:congestion_state_updated": state,
        "cctrace:tcp_state_updated": [CA_STATES[code] for code in after.tolist()],
    }
    noted: dict[str, Any] = {}
    for i, time_ns in enumerate(_since(flow, events["time_ns"][last]).tolist()):
        for name, columns in updates.items():
            now = {key: values[i] for key, values in columns.items()}
            changed = {key: value for key, value in now.items() if value is not None and value != noted.get(key)}
            if changed:
                noted |= changed
                yield time_ns, name, changed
        for name, names in states.items():
            if names and names[i] != noted.get(name):
                yield time_ns, name, ({"old": noted[name]} if name in noted else {}) | {"new": names[i]}
                noted[name] = names[i]


def _decided(
    run: Run, last: NDArray[np.intp], ca_state: NDArray[np.uint8], mss: int
) -> tuple[dict[str, list[Any]], dict[str, list[Any]], list[str]]:
    """Return the controller's metrics, those that the schema has no name for, and its state, after each ACK."""
    table = {name: column[last] for name, column in model_of(run).items()}
    ssthresh = table["ssthresh_segments"]
    metrics = {
        "congestion_window": _integers(table["cwnd_segments"] * mss),
        "ssthresh": _integers(np.where(ssthresh < UNBOUNDED, ssthresh * mss, np.nan)),
    }
    if "pacing_rate_Bps" in table:
        metrics["pacing_rate"] = _integers(table["pacing_rate_Bps"] * 8)
    model = {"bandwidth_estimate": _integers(table["bw_Bps"] * 8)} if "bw_Bps" in table else {}
    return metrics, model, _states(table, ca_state)


def _measured(events: Values, last: NDArray[np.intp]) -> dict[str, list[Any]]:
    """Return what the sender measured: RTTs in ms, in flight in bytes and packets; None where unknown."""
    row = events[last]
    flying = flight_of(row.view(np.recarray))
    least = np.where(row["tcp_min_rtt_us"] == U32_MAX, np.nan, row["tcp_min_rtt_us"])
    smoothed = np.where(row["srtt_us8"] > 0, row["srtt_us8"] >> 3, np.nan)
    return {
        "min_rtt": _milliseconds(least),
        "smoothed_rtt": _milliseconds(smoothed),
        "latest_rtt": _milliseconds(np.where(row["rs_rtt_us"] >= 0, row["rs_rtt_us"], np.nan)),
        "rtt_variance": _milliseconds(np.where(row["srtt_us8"] > 0, row["mdev_us4"] >> 2, np.nan)),
        "bytes_in_flight": (flying * row["mss"].astype(np.int64)).tolist(),
        "packets_in_flight": flying.tolist(),
    }


def _milliseconds(us: Floats) -> list[float | None]:
    return [None if value != value else round(value / 1000, 3) for value in us.tolist()]


def _integers(values: Floats) -> list[int | None]:
    return [round(value) if np.isfinite(value) else None for value in values.tolist()]


def _states(table: Columns, ca_state: NDArray[np.uint8]) -> list[str]:
    """Return the congestion state after each ACK, as the schema spells it."""
    names = [str(one).lower().replace(" ", "_") for one in modes_of(table)]
    if "phase" in table:
        return names
    return np.where(ca_state >= CA_STATES.index("CWR"), "recovery", names).tolist()
