"""A capture and its flows: the façade over table, re-enactment and views.

cap = cct.read("sender.pcap.zst")
cap.flows                      one row per connection
flow = cap.flow(0)             one connection, seen from its bulk sender
flow.events                    what the sender's TCP learned and did
flow.quality()                 what the capture lacks
"""

import functools

import numpy as np

from cctrace.errors import ArgumentError, StreamError
from cctrace.flows import reaction, sender
from cctrace.flows.align import align, best_alignment
from cctrace.flows.events import Events
from cctrace.flows.state import CLOCK_START_US, DSACK, PARAM, PSH, RS, UNEXPLAINED
from cctrace.flows.table import Connections
from cctrace.schema import LINUX_EVENTS

DEFAULT_HZ = 250  # of most distributions' kernels; the capture shows only time stamps, whose clock is 1 kHz for any HZ


def read(source, format=None, hz=None, chunk=None, **options):
    """Read any supported file.

    Parameters
    ----------
    source : str, path or binary file
    format : str, optional
        Skips the guessing; see `cctrace.io.FORMATS`.
    hz : int, optional
        CONFIG_HZ of the sender, 250 if not given.
    chunk : int, optional
        For captures larger than memory: packets per part of an iterator over them, see `cctrace.io.stream`.
    options
        `limit`, `decapsulate` of `cctrace.io.read_file`.

    Returns
    -------
    Capture
        For packet captures.
    iterator of Packets
        With `chunk`.
    CounterTable
        For polls of tcp_info and the like, a `TcpInfo` whose connections are flows, too.

    Raises
    ------
    FormatError
        If the file cannot be read; names file, offset and reason.
    """
    from cctrace.flows.counters import CounterTable
    from cctrace.io import read_file, stream
    from cctrace.io.packets import Packets
    from cctrace.io.tcpinfo import TcpInfo

    if chunk is not None:
        return stream(source, chunk, format, **options)
    data = read_file(source, format, **options)
    if isinstance(data, TcpInfo):
        return CounterTable.of(data)
    return Capture(data, hz) if isinstance(data, Packets) else data


class Capture:
    """The TCP connections of one packet capture.

    Parameters
    ----------
    packets : Packets
    hz : int, optional
        CONFIG_HZ of the senders, 250 if not given.
    """

    def __init__(self, packets, hz=None):
        if hz is not None and not (isinstance(hz, int) and 24 <= hz <= 10_000):
            raise ArgumentError(f"hz={hz!r}: CONFIG_HZ is an integer from 24 to 10000, usually 100, 250, 300 or 1000")
        self.packets = packets
        self.hz = hz or DEFAULT_HZ
        self.warnings = list(packets.warnings)

    def __len__(self):
        return len(self.connections)

    def __repr__(self):
        return f"<Capture {self.packets.source}: {len(self.packets)} packets, {len(self)} connections>"

    @functools.cached_property
    def connections(self):
        """The statistics behind `flows`, a `Connections`."""
        return Connections(lambda: [self.packets])

    @functools.cached_property
    def flows(self):
        """One row per connection, bulk sender first; a DataFrame (see `cctrace flows --json` for the columns)."""
        return self.connections.frame()

    def flow(self, which=0):
        """Return one connection.

        Parameters
        ----------
        which : int or tuple
            Row of `flows`, or (src, sport, dst, dport) in either direction.

        Raises
        ------
        ArgumentError
            If there is no such connection.
        """
        if isinstance(which, tuple):
            return Flow(self, self._find(which))
        if isinstance(which, bool) or not isinstance(which, int | np.integer):
            raise ArgumentError(f"which={which!r}: a row number or (src, sport, dst, dport)")
        if not -len(self) <= which < len(self):
            raise ArgumentError(f"which={which}: the capture has {len(self)} connections")
        return Flow(self, int(which) % len(self))

    def bulk(self, at_least=100_000):
        """Return the flows that carried at least `at_least` bytes, largest first."""
        sent = self.flows["bytes_sent"].to_numpy()
        return [self.flow(int(i)) for i in np.argsort(-sent, kind="stable") if sent[i] >= at_least]

    def _find(self, key):
        table = self.packets.connections
        for i in range(len(self)):
            a = (table["src"][i], table["sport"][i])
            b = (table["dst"][i], table["dport"][i])
            if key in ((*a, *b), (*b, *a)):
                return i
        raise ArgumentError(f"which={key!r}: no such connection in {self.packets.source}")

    def params(self, rows):
        """Return the parameters of the re-enactment for connections `rows` (`state.PARAM`)."""
        c, table = self.connections, self.packets.connections
        rows = np.asarray(rows)
        s = c.sender[rows]
        mine, other = c.sides[rows, s], c.sides[rows, 1 - s]
        p = np.zeros(len(rows), PARAM)
        p["sender"], p["mss"] = s, c.mss[rows]
        wscale = np.where(s == 0, table["wscale_b"][rows], table["wscale_a"][rows])
        # Scaling needs both SYNs to carry it. Without them, the largest scale: no window is then mistaken for a limit.
        both = (table["wscale_a"][rows] >= 0) & (table["wscale_b"][rows] >= 0)
        p["wscale"] = np.where(both, wscale, np.where(mine["syn"] > 0, 0, 14))
        p["sack_ok"] = np.where(table["sack_ok"][rows] == 0, 0, 1)
        p["ts_ok"] = mine["ts_count"] > 0
        p["ecn_ok"] = (mine["ecn_syn"] > 0) & (other["ecn_syn"] > 0)
        p["has_syn"], p["passive"] = mine["syn"], mine["syn_ack"]
        # Mid-flow, the first acknowledgement may ask for data older than the first captured.
        early = np.where((mine["syn"] == 0) & (mine["has_ack"] > 0), np.minimum(mine["first_ack"] - 1, 0), 0)
        p["isn"] = (mine["base"] + early) & 0xFFFFFFFF
        p["peer_isn"] = other["base"]
        # The opening packet is the sender's own unless it opened passively.
        away = np.where(mine["syn_ack"] > 0, -1, 1) * (self.connections.sender_side_ns[rows] // 2)
        p["start_ns"] = c.clock[c.order[c.first[rows]]] - np.maximum(away, 0)
        p["hz"] = self.hz
        p["ack_delay_ns"] = p["tx_delay_ns"] = self._reactions(rows) // 2
        p["ts_tick_us"] = _ticks(mine)
        phase = mine["ts_phase_us"] - self.connections.sender_side_ns[rows] // 2000
        p["ts_offset_us"] = p["tx_delay_ns"] // 1000 - (phase - p["start_ns"] // 1000 + CLOCK_START_US)
        return p

    def _reactions(self, rows):
        """Return how long the senders of connections `rows` take to answer, ns; see `reaction`."""
        c = self.connections
        took_ns = np.full(len(rows), reaction.TYPICAL_NS)
        measurable = (c.first[rows + 1] - c.first[rows] > 2 * reaction.ENOUGH) & (c.sender_side_ns[rows] == 0)
        for i in np.flatnonzero(measurable):
            mine = c.order[c.first[rows[i]] : c.first[rows[i] + 1]]
            sent = self.packets["direction"][mine] == c.sender[rows[i]]
            took_ns[i] = reaction.reaction_ns(c.clock[mine], sent, self.packets["payload"][mine] > 0)
        return took_ns

    def reenact(self, rows, polls=None, decided=None):
        """Re-enact the senders of the given connections in one compiled pass.

        Parameters
        ----------
        rows : sequence of int
        polls : ndarray of int64, shape (n, 2), optional
            Intervals (capture clock, ns) at which to answer as TCP_INFO would; only for a single connection.
        decided : ndarray of int64, shape (n, 4), optional
            As for `Flow.answers`; only for a single connection.

        Returns
        -------
        rows, log, ends, snapshots, finals
            Event rows and retransmission log (`state.LOG`) of all connections; where each connection's end in them,
            shape (connections, 2); `state.SNAP` records; final `state.TP` records.
        """
        rows = np.asarray(rows, np.int64)
        clock, order, first = self.at_the_sender(rows)
        names = ("direction", "flags", "seq", "ack", "window", "payload")
        names += ("tsval", "tsecr", "options", "sack_row", "sack_count")
        columns = (clock, *(self.packets[name] for name in names))
        sacks = (self.packets.sacks["left"], self.packets.sacks["right"])
        polls = np.zeros((0, 2), np.int64) if polls is None else np.ascontiguousarray(polls, np.int64)
        decided = np.zeros((0, 4), np.int64) if decided is None else np.ascontiguousarray(decided, np.int64)
        return sender.run(columns, sacks, order, first, self.params(rows), polls, decided, np.zeros(1, RS))

    def at_the_sender(self, rows):
        """Return times and order of the packets of connections `rows` as at their senders, and where each begins.

        The times are those of all packets, and only those of `rows` are the sender's.

        Half the time from the capture to the sender and back is taken off its segments and added to the ACKs. What a
        queue before the capture added to a segment shows in its time stamp, to half a millisecond.
        """
        c = self.connections
        first = np.concatenate([[0], np.cumsum(c.first[rows + 1] - c.first[rows])])
        order = c.order if len(rows) == len(c) else np.concatenate([c.order[c.first[i] : c.first[i + 1]] for i in rows])
        clock, away = c.clock, c.sender_side_ns[rows]
        if not away.any():
            return clock, order, first
        clock, order = clock.copy(), order.copy()
        for i in np.flatnonzero(away):
            mine = order[first[i] : first[i + 1]]
            side = c.sides[rows[i], c.sender[rows[i]]]
            sent = self.packets["direction"][mine] == c.sender[rows[i]]
            there = clock[mine] - away[i] // 2
            if _ticks(side[None])[0] == 1000 and side["ts_last"] >= side["ts_first"] and side["ts_count"]:
                tick = (side["ts_phase_us"] + self.packets["tsval"][mine].astype(np.int64) * 1000) * 1000 - away[i] // 2
                there = np.minimum(there, tick + 500_000)
            clock[mine] = np.where(sent, there, clock[mine] + away[i] - away[i] // 2)
            order[first[i] : first[i + 1]] = mine[np.argsort(clock[mine], kind="stable")]
        return clock, order, first


def _ticks(side):
    """Return the period of the sender's time-stamp clock, us: 1 kHz unless the capture clearly shows another."""
    span = side["ts_last_ns"] - side["ts_first_ns"]
    ticks = (side["ts_last"] - side["ts_first"]) & 0xFFFFFFFF
    period = np.where((span > 2e9) & (ticks > 0), span / 1000 / np.maximum(ticks, 1), 1000)
    known = np.array([1, 1000, 3333, 4000, 10_000])
    nearest = known[np.argmin(np.abs(np.log(np.maximum(period, 1e-3)[:, None] / known)), axis=1)]
    return np.where(np.abs(period / nearest - 1) < 0.05, nearest, 1000)


class Flow:
    """One connection, seen from the endpoint that sent more payload.

    Attributes
    ----------
    capture : Capture
    index : int
        Row of `Capture.flows`.
    tcpinfo : TcpInfo or None
        The kernel's own account, see `attach`.
    alignment : cctrace.flows.align.Alignment or None
        How its clock was related to the capture's.
    """

    def __init__(self, capture, index, tcpinfo=None, alignment=None):
        self.capture, self.index, self.tcpinfo, self.alignment = capture, index, tcpinfo, alignment

    @functools.cached_property
    def summary(self):
        """This flow's row of `Capture.flows`, a dict."""
        return self.capture.flows.iloc[self.index].to_dict()

    @property
    def key(self):
        """(src, sport, dst, dport), bulk sender first."""
        return tuple(self.summary[name] for name in ("src", "sport", "dst", "dport"))

    def __repr__(self):
        src, sport, dst, dport = self.key
        return f"<Flow {src}:{sport} -> {dst}:{dport}, {self.summary['bytes_sent']} bytes>"

    @functools.cached_property
    def _reenacted(self):
        self._require_both_directions()
        rows, log, _, _, finals = self.capture.reenact([self.index])
        return rows, log, finals[0]

    def _require_both_directions(self):
        c = self.capture.connections
        mine, other = c.sides[self.index, c.sender[self.index]], c.sides[self.index, 1 - c.sender[self.index]]
        name = self.capture.packets.source
        if mine["distinct_bytes"] == 0:
            missing = max(mine["ack_span"], other["ack_span"]) > 3  # more than SYN and FIN was acknowledged
            why = (
                "only acknowledgements were captured, the data direction is missing" if missing else "it has no payload"
            )
            raise StreamError(f"{name}: connection {self.index}: nothing to reconstruct: {why}")
        if not mine["has_ack"] or other["packets"] == 0:
            raise StreamError(
                f"{name}: connection {self.index}: nothing to reconstruct: the acknowledgements are missing; "
                "capture both directions"
            )

    @functools.cached_property
    def events(self):
        """The event stream, an `Events`.

        Raises
        ------
        StreamError
            If the capture lacks the data or the acknowledgements of this connection.
        """
        rows = self._reenacted[0]
        return Events(rows, self.facts)

    @functools.cached_property
    def facts(self):
        """What holds for the whole connection; the `meta` of `events`."""
        rows = self._reenacted[0]
        p = self.capture.params([self.index])[0]
        complete = bool(p["has_syn"])
        acks = rows[rows["event"] == LINUX_EVENTS["on_ack"]]
        first = int(acks["rs_prior_in_flight"][0]) if complete and len(acks) else -1
        begin = rows[:1]
        return {
            "mss": int(p["mss"]),
            "hz": int(p["hz"]),
            "isn": int(p["isn"]),
            "start_ns": int(p["start_ns"]),
            "handshake_rtt_us": int(begin["srtt_us8"][0]) >> 3 if complete and len(begin) else -1,
            "initial_cwnd": first,
            "wscale": int(p["wscale"]),
            "sack_ok": bool(p["sack_ok"]),
            "timestamps": bool(p["ts_ok"]),
            "ecn_ok": bool(p["ecn_ok"]),
            "passive": bool(p["passive"]),
            "complete": complete,
            "inferred": self._inferred(complete),
        }

    def _inferred(self, complete):
        names = ["hz"] if self.capture.hz == DEFAULT_HZ else []
        if not complete:
            names += ["isn", "wscale", "sack_ok", "ecn_ok", "initial_cwnd", "handshake_rtt_us"]
        if self.capture.connections.sender_side_ns[self.index]:
            names.append("start_ns")
        if not self.capture.connections.mss_known[self.index]:
            names.append("mss")
        return tuple(names)

    def attach(self, tcpinfo):
        """Return this flow with the kernel's own account of it.

        Parameters
        ----------
        tcpinfo : TcpInfo
            Polls of one or several connections; those of this one are selected by addresses and ports, by their
            progress where the source does not name them.

        Returns
        -------
        Flow
            Its `tcpinfo` is on the capture's clock; `alignment` says how the clocks differed and how sure that is.

        Raises
        ------
        ArgumentError
            If no connection of `tcpinfo` can be this one, whatever its clock.
        """
        return Flow(self.capture, self.index, *_matching(self, tcpinfo))

    def view(self, kind, **params):
        """Return what controllers of one stack read, a `cctrace.flows.views.View` of `events`; `kind` linux or quic."""
        from cctrace.flows import views

        return views.of_events(self.events, kind, self.sends["time_ns"].to_numpy(), params.get("hz"))

    @property
    def hz(self):
        """Ticks per second of the sender's kernel."""
        return self.facts["hz"]

    @functools.cached_property
    def sends(self):
        """What the sender sent, in time order: DataFrame of time_ns, payload (bytes) and psh, one row per packet."""
        import pandas as pd

        c, packets = self.capture.connections, self.capture.packets
        order = c.order[c.first[self.index] : c.first[self.index + 1]]
        data = order[(packets["direction"][order] == c.sender[self.index]) & (packets["payload"][order] > 0)]
        time_ns = np.maximum.accumulate(c.clock[data])
        psh = (packets["flags"][data] & PSH) != 0
        return pd.DataFrame({"time_ns": time_ns, "payload": packets["payload"][data], "psh": psh})

    @property
    def rtt(self):
        """The RTT samples that the sender took: DataFrame of time_ns and rtt_us, one row per sample."""
        import pandas as pd

        rows = self.events.rows
        taken = rows[(rows["event"] == LINUX_EVENTS["pkts_acked"]) & (rows["rs_rtt_us"] >= 0)]
        return pd.DataFrame({"time_ns": taken["time_ns"], "rtt_us": taken["rs_rtt_us"]})

    @property
    def account(self):
        """(time with data outstanding, time in which the receiver's window kept data back), us, as re-enacted."""
        final = self._reenacted[2]
        return tuple(
            float(final[f"{name}_us"] + (final["now_us"] - final[f"{name}_since_us"]) * bool(final[f"{name}_since_us"]))
            for name in ("busy", "rwnd")  # and what still went on when the capture ended
        )

    @functools.cached_property
    def retransmissions(self):
        """Every segment that was sent again; DataFrame, one row per segment and transmission.

        ``time_ns``, ``seq``, ``end_seq`` (unwrapped), ``why`` (fast: loss detection marked it; probe: tail-loss probe;
        timeout: the retransmission timer or what followed it; unexplained), ``spurious`` (a D-SACK reported it as a
        duplicate later on).
        """
        import pandas as pd

        log = self._reenacted[1]
        again, reports = log[log["why"] != DSACK], log[log["why"] == DSACK]
        needless = np.zeros(len(again), bool)
        for report in reports:
            before = np.searchsorted(again["time_ns"], report["time_ns"], side="right")
            recent = again[:before]
            hit = np.flatnonzero((recent["seq"] < report["end_seq"]) & (recent["end_seq"] > report["seq"]))
            _, last = np.unique(recent["seq"][hit][::-1], return_index=True)  # the latest transmission of each segment
            needless[hit[::-1][last]] = True
        why = pd.Categorical.from_codes(again["why"], ["fast", "probe", "timeout", "unexplained"])
        columns = {name: np.ascontiguousarray(again[name]) for name in ("time_ns", "seq", "end_seq")}
        return pd.DataFrame({**columns, "why": why, "spurious": needless})

    def nstat(self):
        """Return what `nstat` on the sender would have counted for this connection; see `nstat.nstat`."""
        from cctrace.flows.nstat import nstat

        return nstat(*self._reenacted)

    def quality(self):
        """Return what the capture lacks and what had to be assumed, a dict.

        ``complete`` (the handshake is there), ``taken_at`` (sender, path or receiver) and ``sender_side_us`` (from the
        capture to the sender and back; where it is not 0 all times are estimates, RTTs to half a millisecond at best),
        ``unseen_segments`` (sent, but not captured), ``out_of_order``, ``unexplained_retransmissions`` (no rule says
        why the kernel sent them), ``time_steps_back`` (records older than their predecessor), ``inferred`` (facts that
        are guesses), ``warnings`` (those of `Capture.flows` and of the file).
        """
        _, log, final = self._reenacted
        side = self.capture.connections.sides[self.index, self.capture.connections.sender[self.index]]
        near = int(self.capture.connections.sender_side_ns[self.index]) // 1000
        far = int(self.capture.connections.rtt[self.index, 0])
        place = "sender" if near == 0 else "receiver" if far < near // 20 else "path"
        return {
            "complete": self.facts["complete"],
            "taken_at": place,
            "sender_side_us": near,
            "unseen_segments": int(final["unseen"]),
            "out_of_order": int(side["out_of_order"]),
            "unexplained_retransmissions": int((log["why"] == UNEXPLAINED).sum()),
            "time_steps_back": int(self.capture.packets.counters.get("back_steps", 0)),
            "inferred": self.facts["inferred"],
            "warnings": [*self.summary["warnings"], *self.capture.warnings],
        }

    def join(self, receiver):
        """Return one-way delays and true losses from this flow and its capture at the receiver; see `join.join`."""
        from cctrace.flows.join import join

        return join(self, receiver)

    def answers(self, polls, decided=None):
        """Return what TCP_INFO would have answered in the given intervals, from the capture alone.

        Parameters
        ----------
        polls : array_like of int64, shape (n, 2)
            Start and end of each poll, capture clock, ns; ascending.
        decided : array_like of int64, shape (n, 4), optional
            What a replay of the sender's controller decided: when (ns), pacing rate (Bps, 0 if it is not paced), cwnd
            (segments), whether it was in PROBE_RTT. Rate and cwnd tell since when the receive window has held the
            sender back: the kernel asks them first, and the capture itself gives a rough idea of them only. PROBE_RTT
            has what is sent marked application-limited.

        Returns
        -------
        structured ndarray
            `state.SNAP` records, one for every state that held at some instant of a poll; `poll` indexes `polls`.
        """
        self._require_both_directions()
        return self.capture.reenact([self.index], polls, decided)[3]


def _matching(flow, tcpinfo):
    """Return the polls of `tcpinfo` that belong to `flow`, on its clock, and their `align.Alignment`."""
    src, sport, dst, dport = flow.key
    for index, known in enumerate(tcpinfo.connections):
        if (known.get("src"), known.get("sport"), known.get("dst"), known.get("dport")) == (src, sport, dst, dport):
            return align(flow, tcpinfo.select(index))
    # Sources that do not name the endpoints: the polls whose progress is this flow's.
    anonymous = [index for index, known in enumerate(tcpinfo.connections) if known.get("src") is None]
    if not anonymous:
        raise ArgumentError(f"no polls of {src}:{sport} -> {dst}:{dport} in {tcpinfo.source}")
    found, refused = [], []
    for index in anonymous:
        try:
            found.append(align(flow, tcpinfo.select(index)))
        except ArgumentError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return best_alignment(found)
