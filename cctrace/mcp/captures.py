"""Tools about recorded flows: senders, limits, events, packets."""

import functools
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cctrace.analysis.flow_analysis import FlowAnalysis
from cctrace.analysis.inputs import Counters
from cctrace.analysis.one_flow import of_capture, of_counters
from cctrace.arguments import check_choice
from cctrace.cc import canonical, own
from cctrace.cc import controller as resolve
from cctrace.diagnosis.findings import LIMITS, shares
from cctrace.errors import ArgumentError
from cctrace.flows.capture import Capture, read
from cctrace.flows.counters import CounterTable
from cctrace.flows.flow import Flow
from cctrace.flows.large import largest_row
from cctrace.io.counters.tcpinfo import TcpInfo
from cctrace.mcp.answers import answer, some
from cctrace.mcp.files import Files
from cctrace.path.evidence import forget
from cctrace.plot.packets import KINDS, NEW, packets_of
from cctrace.replaying.engine.stack import flight_of
from cctrace.replaying.inference.through_fq import at_hand_over
from cctrace.replaying.model import model_fields, model_of
from cctrace.replaying.run import replay
from cctrace.schema import CA_STATES, ENDS
from cctrace.wireshark.columns import UNKNOWN, PacketColumns, columns_of
from cctrace.wireshark.comments import resent

CACHED = 3  # files, and analyses of flows, in memory
_ROW = (
    *ENDS,
    "packets",
    "bytes_sent",
    "segments_sent",
    "retransmitted_segments",
    *("goodput_bps", "duration_s", "rtt_min_us", "rtt_median_us", "rtt_p95_us"),
)
KINDS_OF_PACKETS = ("all", "data", "acks", "resent")


class Version(NamedTuple):
    """A file as it is: what is remembered of it holds until it changes."""

    path: Path
    changed_ns: int
    size: int


class Captures:
    """Answers queries about the files below a folder; recent files and analyses are cached."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._read, self._analysed, self._columns = (
            functools.lru_cache(CACHED)(make) for make in (self._read_file, self._analyse, self._make_columns)
        )

    def list_captures(self, folder: str = ".") -> dict[str, Any]:
        """List the captures and the files of counters below a folder: name, kind, format and size."""
        found, more = self._files.listed(folder)
        return answer({"files": found, "more": more})

    def flows(self, file: str, limit: int = 50) -> dict[str, Any]:
        """List the TCP connections of a capture, or of counters: ends, bytes, goodput, RTTs, retransmissions.

        The number of a connection is what the other tools take as `flow`.
        """
        data = self.data(file)
        table = data.flows[[name for name in _ROW if name in data.flows]]
        found: dict[str, Any] = some([{"flow": i} | row for i, row in enumerate(table.to_dict("records"))], limit)
        return answer({"file": file} | found | {"warnings": list(data.warnings)[:20]})

    def explain(self, file: str, flow: int | None = None, tcpinfo: str | None = None) -> dict[str, Any]:
        """Say why a flow went as it did: its controller, the verdicts with evidence and advice, what limited it.

        Without `flow` the one that sent most is explained. `tcpinfo` names a file with the kernel's counters of it.
        """
        found = self._analysis(file, flow, tcpinfo)
        diagnosis = found.diagnosis
        verdicts = [verdict.to_dict() for verdict in diagnosis.verdicts[:8]] if diagnosis else []
        result: dict[str, Any] = {"flow": self._index(file, flow), "ends": found.title, "summary": found.sentence}
        result |= {"cause": diagnosis.cause if diagnosis else None, "verdicts": verdicts}
        result |= {"controller": found.controller or found.variant, "variant": found.variant}
        result |= {
            "limits": shares(diagnosis.limits) if diagnosis else {},
            "taken_at": found.view and found.view.taken_at,
        }
        result |= {name: found.row.get(name) for name in _ROW[4:]}
        return answer(result | {"notes": list(found.notes)[:20]})

    def limits(
        self, file: str, flow: int | None = None, from_s: float = 0.0, to_s: float | None = None, limit: int = 100
    ) -> dict[str, Any]:
        """Say what limited a flow when: the shares of the time, and the spans between two times.

        Times are seconds since the flow's first packet. Limits: rto_stall, receive_window, send_buffer, application,
        probe_rtt, recovery, marks, startup, cwnd, pacing, unknown.
        """
        diagnosis = self._diagnosis(file, flow)
        end = np.inf if to_s is None else to_s
        spans = [
            {"limit": one.name, "start_s": one.start_s, "end_s": one.end_s}
            for one in diagnosis.limits
            if one.end_s > from_s and one.start_s < end
        ]
        return answer({"shares": shares(diagnosis.limits)} | some(spans, limit))

    def events(
        self, file: str, flow: int | None = None, around_s: float | None = None, within_s: float = 1.0, limit: int = 50
    ) -> dict[str, Any]:
        """List what happened to a flow, in sentences with numbers: losses, timeouts, stalls, changes of rate and RTT.

        With `around_s` only what happened within `within_s` seconds of that time.
        """
        found = self._diagnosis(file, flow).events
        if around_s is not None:
            found = [one for one in found if one.start_s <= around_s + within_s and one.end_s >= around_s - within_s]
        rows = [
            {"name": one.name, "start_s": one.start_s, "end_s": one.end_s, "text": one.text, "evidence": one.evidence}
            for one in found
        ]
        by_name = Counter(sorted(one.name for one in found))
        return answer({"by_name": by_name} | some(rows, limit))

    def packets(
        self,
        file: str,
        flow: int | None = None,
        from_s: float = 0.0,
        to_s: float | None = None,
        kind: str = "all",
        limit: int = 50,
    ) -> dict[str, Any]:
        """List packets of a flow with their numbers in Wireshark, and what the sender's TCP held at each.

        `kind` is all, data, acks or resent (retransmitted data, and why). `count` is of all that match, also
        beyond `limit`; `by_reason` counts retransmissions among them.
        """
        check_choice("kind", kind, KINDS_OF_PACKETS)
        one = self.flow(file, flow)
        c: PacketColumns = self._columns(file, self._version(file), self._index(file, flow))
        sent, received = packets_of(one)
        time_s = np.empty(len(c))
        time_s[c.sent], time_s[~c.sent] = one.seconds(sent.time_ns), one.seconds(received.time_ns)
        retransmitted = (c.kind != NEW) & c.data
        wanted = {"all": np.ones(len(c), bool), "data": c.data, "acks": ~c.sent, "resent": retransmitted}[kind]
        rows = np.flatnonzero(wanted & (time_s >= from_s) & (time_s <= (np.inf if to_s is None else to_s)))
        place = np.where(c.sent, np.cumsum(c.sent), np.cumsum(~c.sent)) - 1
        words = resent(c)
        reasons = Counter(sorted(words[int(code)][0] for code in c.kind[rows[retransmitted[rows]]]))
        found = some(rows.tolist(), limit)
        found["rows"] = [_packet(c, i, time_s[i], sent, received, int(place[i]), words) for i in found["rows"]]
        return answer({"by_reason": reasons} | found)

    def state_at(
        self, file: str, time_s: float, flow: int | None = None, controller: str | None = None
    ) -> dict[str, Any]:
        """Say what the sender's controller held at a time: cwnd, in flight, pacing rate, bandwidth, min_rtt, state.

        The controller is the one that sent the flow, or `controller` replayed over the same ACKs: what it would have
        decided, not what would have happened. `time_s` counts from the flow's first packet.
        """
        one = at_hand_over(self.flow(file, flow))
        name = own_controller(controller) if controller else self._analysis(file, flow).replayed
        if name is None:
            raise ArgumentError(f"file {file!r}: which controller sent this flow is unknown; give controller=")
        cls = resolve(name)[0]
        if cls.view != "linux":
            raise ArgumentError(f"controller={name!r} is of the QUIC stack; replayed are Linux controllers")
        run = replay(one, name, record=model_fields(cls))
        model, events = model_of(run), one.events.rows
        row = int(np.searchsorted(one.seconds(events["time_ns"]), time_s, side="right")) - 1
        if row < 0 or time_s > float(one.row["duration_s"]) + 1:
            raise ArgumentError(f"time_s={time_s:g}: the flow lasts from 0 to {float(one.row['duration_s']):.3f} s")
        state = {name: column[row : row + 1].tolist()[0] for name, column in model.items() if name != "time_ns"}
        event = events.view(np.recarray)[row]
        state |= {"in_flight_segments": int(flight_of(event)), "srtt_us": int(event.srtt_us8) >> 3}
        state |= {"tcp_state": CA_STATES[int(events["ca_state"][min(row + 1, len(events) - 1)])]}
        return answer({"controller": name, "last_event_s": float(one.seconds(event.time_ns))} | state)

    def identify(self, file: str, flow: int | None = None) -> dict[str, Any]:
        """Say which congestion control sent a flow, by what was sent alone: candidates with probabilities."""
        from cctrace.identification.identify import identify

        found = identify(self.any_flow(file, flow))
        result = {"name": found.name, "group": list(found.group), "paced": found.paced, "reason": found.reason}
        return answer(result | {"candidates": [one._asdict() for one in found.candidates]})

    # What the tools share.

    def data(self, file: str) -> Capture | CounterTable:
        """Return a capture, or counters; read once as long as the file does not change."""
        found = self._read(self._version(file))
        if isinstance(found, TcpInfo) and not isinstance(found, CounterTable):
            found = CounterTable.of(found)
        if not isinstance(found, Capture | CounterTable):
            raise ArgumentError(f"file {file!r} holds neither packets nor counters of connections")
        return found

    def any_flow(self, file: str, flow: int | None) -> Any:
        """Return a connection of a file, of a capture or of counters."""
        return self.data(file).flow(self._index(file, flow))

    def flow(self, file: str, flow: int | None) -> Flow:
        """Return a flow of a capture; `ArgumentError` if the file holds counters."""
        if not isinstance(self.data(file), Capture):
            raise ArgumentError(f"file {file!r} holds counters, and this asks for packets: give a capture")
        found = self.any_flow(file, flow)
        assert isinstance(found, Flow)
        return found

    def _index(self, file: str, flow: int | None) -> int:
        sent = self.data(file).flows["bytes_sent"].to_numpy(float)
        if flow is None:
            return largest_row(sent)
        if not 0 <= flow < len(sent):
            raise ArgumentError(f"flow={flow}: {file} has flows 0 to {len(sent) - 1}")
        return flow

    def _analysis(self, file: str, flow: int | None, tcpinfo: str | None = None) -> FlowAnalysis:
        beside = self._version(tcpinfo) if tcpinfo else None
        return self._analysed(file, self._version(file), self._index(file, flow), beside)

    def _analyse(self, file: str, version: Version, index: int, beside: Version | None) -> FlowAnalysis:
        flow = self.any_flow(file, index)
        if not isinstance(flow, Flow):
            return of_counters(file, flow)
        tables = [read(beside.path)] if beside else []
        if beside and not isinstance(tables[0], TcpInfo):
            raise ArgumentError(f"tcpinfo={beside.path.name!r} holds no counters")
        counters = Counters(tables)
        found = of_capture(file, *counters.attach(flow))
        counters.require_used()
        forget(flow)
        return found

    def _diagnosis(self, file: str, flow: int | None) -> Any:
        found = self._analysis(file, flow)
        if found.diagnosis is None:
            raise ArgumentError(f"file {file!r}: {'; '.join(found.notes[:1]) or 'nothing is known of this flow'}")
        return found.diagnosis

    def _make_columns(self, file: str, version: Version, index: int) -> PacketColumns:
        return columns_of(at_hand_over(self.flow(file, index)), self._analysis(file, index))

    def _read_file(self, version: Version) -> Any:
        return read(version.path)

    def _version(self, file: str) -> Version:
        path = self._files.path(file)
        status = path.stat()
        return Version(path, status.st_mtime_ns, status.st_size)


def own_controller(name: str) -> str:
    """Return the registered name of a controller of cctrace's own: a class in a file would be run."""
    if own.file_of(name):
        raise ArgumentError(f"controller={name!r}: the server runs no files; name a controller that cctrace has")
    return canonical(name)


def _packet(
    c: PacketColumns, i: int, time_s: float, sent: Any, received: Any, at: int, words: dict[int, tuple[str, str]]
) -> dict[str, Any]:
    found: dict[str, Any] = {"frame": int(c.frame[i]), "time_s": round(float(time_s), 9)}
    if c.sent[i]:
        found |= {"from": "sender", "seq": int(sent.seq[at]), "bytes": int(sent.size[at])}
        if KINDS[c.kind[i]] != KINDS[NEW] and c.data[i]:
            found |= {"resent": words[int(c.kind[i])][0], "spurious": bool(c.spurious[i])}
    else:
        found |= {"from": "receiver", "ack": int(received.ack[at]), "window_bytes": int(received.window[at])}
    for name in ("cwnd", "inflight", "pacing_rate_bps", "bw_bps", "min_rtt_us", "rtt_us", "window_left"):
        if (value := int(getattr(c, name)[i])) != UNKNOWN:
            found[name] = value
    if c.state[i] != UNKNOWN:
        found["state"] = c.states[c.state[i]]
    if c.tcp_state[i] != UNKNOWN:
        found["tcp_state"] = CA_STATES[c.tcp_state[i]]
    if c.limit[i] != UNKNOWN:
        found["limit"] = LIMITS[c.limit[i]]
    return found
