"""One connection of a capture: its event stream, kernel counters, views, retransmissions, quality."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.columns import Columns, Floats, Ints, Values, frame_of
from cctrace.display import Card, Carded, connection, endpoint
from cctrace.errors import ArgumentError, StreamError
from cctrace.flows.align import matching
from cctrace.flows.ecn import Ecn, ecn_of, feedback_of, misses_marks
from cctrace.flows.events import Events, first_ack
from cctrace.flows.packed import EventColumns, Records
from cctrace.flows.quality import not_reconstructed, quality
from cctrace.flows.state import DIRECTLY, DSACK, SLOWEST_HZ, THROUGH_FQ, UNEXPLAINED
from cctrace.flows.table import retransmitted_share
from cctrace.flows.vantage import PLACES
from cctrace.io.counters.tcpinfo import TcpInfo
from cctrace.schema import ENDS, LINUX_EVENTS
from cctrace.units import format_rate, format_rtt, format_share, format_size, format_time

if TYPE_CHECKING:
    import pandas as pd
    import xarray
    from numpy.typing import ArrayLike, NDArray

    from cctrace.flows.capture import Capture
    from cctrace.flows.offset import Alignment
    from cctrace.flows.sender.reenact import Pass
    from cctrace.flows.views import View


class Flow(Carded):
    """One connection, from the point of view of the endpoint that sent more payload.

    Attributes
    ----------
    capture : Capture
    index : int
        Row of `Capture.flows`.
    tcpinfo : TcpInfo or None
        Kernel counters, see `attach`.
    alignment : cctrace.flows.offset.Alignment or None
        Relation of the counters' clock to the capture's.
    through_fq : bool or None
        Whether its packets passed fq before the capture point; None if not yet inferred, see
        `cctrace.replaying.inference.through_fq`.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> flow.key, flow.taken_at, int(flow.row["retransmitted_segments"])
    (('10.99.0.1', 40001, '10.99.0.2', 5001), 'sender', 57)
    >>> float(flow.rtt["rtt_us"].min()) / 1e3
    40.0
    """

    def __init__(
        self, capture: Capture, index: int, tcpinfo: TcpInfo | None = None, alignment: Alignment | None = None
    ) -> None:
        self.capture, self.index, self.tcpinfo, self.alignment = capture, index, tcpinfo, alignment
        self.through_fq, self._left, self._decided, self._most, self._hz = None, DIRECTLY, None, None, capture.hz
        self._due, self.is_missing_marks = None, misses_marks(tcpinfo)  # what its kernel does, see there
        self._kept: dict[object, Any] = {}  # cached results of other packages

    def _like(self, **changes: Any) -> Flow:
        other = Flow(self.capture, self.index)
        mine, enacted = vars(self), ("_left", "_decided", "_most", "_hz", "_due", "is_missing_marks")
        kept = ("tcpinfo", "alignment", "through_fq", "_kept", "row", *enacted)
        vars(other).update({name: mine[name] for name in kept if name in mine} | changes)
        if "_reenacted" in mine and all(getattr(other, name) is mine[name] for name in enacted):
            same = self.tcpinfo is other.tcpinfo and bool(self.through_fq) == bool(other.through_fq)
            alike = {"_reenacted", "events"} if same else {"_reenacted"}  # they depend on nothing else
            vars(other).update({name: mine[name] for name in alike & mine.keys()})
        return other

    @functools.cached_property
    def row(self) -> dict[str, Any]:
        """This flow's row of `Capture.flows`, a dict; an RTT without a sample is None."""
        return self.capture.connections.rows(slice(self.index, self.index + 1))[0]

    @property
    def key(self) -> tuple[Any, ...]:
        """(src, sport, dst, dport), bulk sender first."""
        return tuple(self.row[name] for name in ENDS)

    def __repr__(self) -> str:
        return f"<Flow {endpoint(*self.key[:2])} -> {endpoint(*self.key[2:])}, {self.row['bytes_sent']} bytes>"

    def _card(self) -> Card:
        row = self.row
        rtts = ", ".join(format_rtt(row[f"rtt_{which}_us"]) for which in ("min", "median", "p95"))
        rows: list[tuple[str, object]] = [
            ("sent", f"{format_size(row['bytes_sent'])} in {row['segments_sent']} segments"),
            ("goodput", format_rate(row["goodput_bps"])),
            ("RTT min, median, p95", rtts),
            ("retransmitted", f"{row['retransmitted_segments']} segments ({format_share(retransmitted_share(row))})"),
            ("duration", format_time(row["duration_s"] * 1e9)),
            ("captured at", self.taken_at),
            ("counters", "none attached" if self.tcpinfo is None else f"{len(self.tcpinfo)} polls"),
        ]
        return f"Flow {connection(*self.key)}", rows, row["warnings"]

    @property
    def taken_at(self) -> str:
        """Place of capture: sender, middle, receiver or unknown; see `vantage`."""
        return PLACES[int(self.capture.connections.vantage[0][self.index])]

    @functools.cached_property
    def _reenacted(self) -> tuple[EventColumns, Values, Records, Any]:
        self.require_both_directions()
        rows, log, sent, _, _, finals = self._pass().run()
        self._require("" if rows.count else "no ACK follows its data")
        return rows, log, Records(sent), finals[0]

    def _pass(self, polls: Any = None, decided: Any = None, marked: Any = None) -> Pass:
        how = self._left, self._most, self.is_missing_marks, self._hz, self._due
        decided = self._decided if decided is None else decided
        return self.capture.reenactment([self.index], polls, decided, marked, *how)

    def reenactment(self, how: int) -> Pass:
        """Return a re-enactment of this flow, whose packets left as `how` says (`state`), ready to run: `Pass`."""
        return self._like(_left=how, _decided=None)._pass()

    def missing_marks(self) -> Flow:
        """Return this flow as sent by a kernel that misses marks, see `cctrace.flows.ecn.misses_marks`."""
        return self._like(is_missing_marks=True, _kept={})

    def require_both_directions(self) -> None:
        """Raise `StreamError` if the capture lacks the data or the acknowledgements of this connection."""
        self._require(not_reconstructed(self))

    def _require(self, why: str) -> None:
        if why:
            raise StreamError(f"{self.capture.packets.source}: connection {self.index}: nothing to reconstruct: {why}")

    @functools.cached_property
    def events(self) -> Events:
        """The event stream, an `Events`.

        Raises
        ------
        StreamError
            If the capture lacks the data or the acknowledgements of this connection.
        """
        rows, _, sent, _ = self._reenacted
        facts = self.facts | ({"through_fq": True} if self.through_fq else {})
        return Events(rows, facts, sent, int(self.row["start_ns"]))

    def seconds(self, time_ns: ArrayLike) -> Floats:
        """Return times of the capture's clock in seconds since the flow's first packet, the zero of every plot.

        Parameters
        ----------
        time_ns : array_like of int64
            For example a column ``time_ns`` of any table here, the attached counters' included.

        Returns
        -------
        ndarray of float64, shape of `time_ns`
        """
        return (np.asarray(time_ns, np.int64) - int(self.row["start_ns"])) / 1e9  # epoch ns do not fit a float64

    def throughput(self, bin_s: float | None = None) -> pd.DataFrame:
        """Return sent and acknowledged rates in time bins; see `throughput.throughput`."""
        from cctrace.flows.throughput import throughput

        return throughput(self, bin_s)

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """Attributes of the entire connection; the `meta` of `events`."""
        stream, table = self._reenacted[0], self.capture.connections
        p = self.capture.params([self.index], hz=self._hz)[0]
        complete = bool(p["has_syn"])
        first = first_ack(stream) if complete else stream.count
        return {
            "mss": int(p["mss"]),
            "hz": int(p["hz"]),
            "isn": int(p["isn"]),
            "start_ns": int(p["start_ns"]),
            "handshake_rtt_us": int(stream.at("srtt_us8", [0])[0]) >> 3 if complete and stream.count else -1,
            "initial_cwnd": int(stream.at("rs_prior_in_flight", [first])[0]) if first < stream.count else -1,
            "lost_syns": max(0, int(table.sides["syn_count"][self.index, table.sender[self.index]]) - 1),
            "wscale": int(p["wscale"]),
            "sack_ok": bool(p["sack_ok"]),
            "timestamps": bool(p["ts_ok"]),
            "ecn_ok": bool(p["ecn"] > 0),
            "ecn": feedback_of(self),
            "passive": bool(p["passive"]),
            "complete": complete,
            "inferred": self._inferred(complete),
        }

    def _inferred(self, complete: bool) -> tuple[str, ...]:
        table, i = self.capture.connections, self.index
        guessed = {"hz": not self.capture.hz_given}
        guessed |= dict.fromkeys(("ecn_ok", "initial_cwnd", "handshake_rtt_us"), not complete)
        guessed |= {"isn": table.sides["syn"][i, table.sender[i]] == 0}
        guessed |= {"wscale": not table.wscale_known[i] and self.capture.shown_scale(i) is None}
        guessed |= {"sack_ok": table.packets.connections["sack_ok"][i] < 0}
        guessed |= {"start_ns": table.sender_side_ns[i] > 0, "mss": not table.mss_known[i]}
        return tuple(name for name, is_guess in guessed.items() if is_guess)

    def attach(self, tcpinfo: TcpInfo) -> Flow:
        """Return this flow with kernel counters attached.

        Parameters
        ----------
        tcpinfo : TcpInfo
            Polls of one or several connections; those of this one are selected by addresses and ports or, if the
            source lacks them, by their progress.

        Returns
        -------
        Flow
            Its `tcpinfo` is on the capture's clock; `alignment` has the clock offset and its uncertainty.

        Raises
        ------
        ArgumentError
            If it holds no counters, or none of its connections can be this one, whatever its clock.
        """
        if not isinstance(tcpinfo, TcpInfo):
            raise ArgumentError(f"cannot attach {type(tcpinfo).__name__!r}: use counters, as cctrace.read returns them")
        polls, alignment = matching(self, tcpinfo)
        return self._like(tcpinfo=polls, alignment=alignment, is_missing_marks=misses_marks(polls))

    def paced_by(self, how: int, decided: Ints | None = None) -> Flow:
        """Return this flow, assuming that packets left as `how` says (`state`: DIRECTLY, THROUGH_FQ, LATE_TIMER).

        `decided`, as of `answers`: rate and cwnd determine when TCP handed packets over (None: cwnd was no limit).
        """
        return self._like(through_fq=how == THROUGH_FQ, _left=how, _decided=decided)

    def by_echoes(self) -> Flow:
        """Return this flow, known to have fq: echoes of time stamps, and writes on a clock, date its hand-overs."""
        if (key := ("due", self._most)) not in self._kept:
            self._kept[key] = self.events.due
        return self._like(_due=self._kept[key])

    def first(self, packets: int) -> Flow:
        """Return this flow, limited to its first packets."""
        return self._like(_most=packets)

    def at_hz(self, hz: int) -> Flow:
        """Return this flow as sent by a kernel of another HZ; both share their events unless a timer depends on it."""
        other, known = self._like(_hz=hz), vars(self).get("_reenacted")
        same = known and min(hz, self._hz) >= SLOWEST_HZ and not known[3]["ticks_matter"]
        if known and (same or other._pass().is_like(known[0], known[1], known[2].records) is not None):
            vars(other)["_reenacted"] = known
        return other

    @property
    def is_beginning(self) -> bool:
        """Whether this flow is limited to its first packets, see `first`."""
        return self._most is not None

    def view(self, kind: str) -> View:
        """Return what QUIC controllers read of `events` (`kind` is "quic"), else a `StreamError`: replay the flow."""
        from cctrace.flows import views

        return views.of_events(self.events, kind)

    def reverse(self) -> dict[str, Any]:
        """Return statistics of the other end's packets and of the response times; see `reverse.reverse`."""
        from cctrace.flows.reverse import reverse

        return reverse(self)

    @property
    def caveats(self) -> tuple[str, ...]:
        """Caveats of results computed from `events`; for a capture only those of `quality`."""
        return ()

    @property
    def hz(self) -> int:
        """Ticks per second of the sender's kernel."""
        return self.facts["hz"]

    @functools.cached_property
    def sends(self) -> pd.DataFrame:
        """The sender's packets, in the order of `events`: DataFrame, time_s and `schema.SENDS`, one row per packet."""
        sent = self.events.sends
        columns = {name: np.ascontiguousarray(sent[name]) for name in sent.dtype.names}
        return frame_of({"time_s": self.seconds(sent["time_ns"]), **columns})

    @property
    def rtt(self) -> pd.DataFrame:
        """The sender's RTT samples: DataFrame of time_s, time_ns and rtt_us, one row per sample."""
        return frame_of(self.rtt_samples)

    @property
    def rtt_samples(self) -> Columns:
        """The columns of `rtt` without pandas."""
        event, time_ns, rtt_us = (self.events[name] for name in ("event", "time_ns", "rs_rtt_us"))
        taken = np.flatnonzero((event == LINUX_EVENTS["pkts_acked"]) & (rtt_us >= 0))
        return {"time_s": self.seconds(time_ns[taken]), "time_ns": time_ns[taken], "rtt_us": rtt_us[taken]}

    def to_xarray(self) -> xarray.Dataset:
        """Return the event stream with units and meanings, and the flow's identity; see `Events.to_xarray`."""
        return self.events.to_xarray().assign_attrs(zip(ENDS, self.key, strict=True))

    @property
    def account(self) -> tuple[float, ...]:
        """(time with data outstanding, time limited by the receive window), us, from the re-enactment."""
        final, account = self._reenacted[3], list[float]()
        for total, since in (("busy_time_us", "busy_since_us"), ("rwnd_limited_us", "rwnd_since_us")):
            since_us = final[since]  # of what continued (or, paced, was to start) at the capture's end
            account.append(float(final[total] + (max(0, final["now_us"] - since_us) if since_us else 0)))
        return tuple(account)

    @functools.cached_property
    def retransmission_log(self) -> Columns:
        """The columns of `retransmissions` without pandas; `why` holds its codes of `state`."""
        log = self._reenacted[1]
        retransmitted, reports = log[log["why"] != DSACK], log[log["why"] == DSACK]
        needless = np.zeros(len(retransmitted), bool)
        for report in reports:
            recent = retransmitted[: np.searchsorted(retransmitted["time_ns"], report["time_ns"], side="right")]
            hit = np.flatnonzero((recent["seq"] < report["end_seq"]) & (recent["end_seq"] > report["seq"]))
            _, last = np.unique(recent["seq"][hit][::-1], return_index=True)  # the latest transmission of each segment
            needless[hit[::-1][last]] = True
        columns = {name: np.ascontiguousarray(retransmitted[name]) for name in ("time_ns", "seq", "end_seq", "why")}
        return {"time_s": self.seconds(columns["time_ns"]), **columns, "spurious": needless}

    @functools.cached_property
    def retransmissions(self) -> pd.DataFrame:
        """Every retransmission; DataFrame, one row per segment and transmission.

        ``time_s`` (since the flow's first packet), ``time_ns``, ``seq``, ``end_seq`` (unwrapped), ``why`` (fast:
        loss detection marked it; probe: tail-loss probe; timeout: the retransmission timer or what followed it;
        unexplained), ``spurious`` (a D-SACK later reported it as a duplicate).
        """
        import pandas as pd

        log, kinds = self.retransmission_log, pd.CategoricalDtype(["fast", "probe", "timeout", "unexplained"])
        return pd.DataFrame(log | {"why": pd.Categorical.from_codes(log["why"], dtype=kinds)})

    @functools.cached_property
    def ecn(self) -> Ecn:
        """ECN negotiation, ECN-capable packets and marks: `ecn.Ecn`."""
        return ecn_of(self)

    def nstat(self) -> dict[str, int]:
        """Return what `nstat` on the sender would have counted for this connection; see `nstat.nstat`."""
        from cctrace.flows.nstat import nstat

        rows, log, _, final = self._reenacted
        return nstat(rows, log, final)

    def quality(self) -> dict[str, Any]:
        """Return what the capture lacks and what was assumed, a dict.

        ``complete`` (includes the handshake), ``taken_at`` (sender, middle, receiver or unknown) with its
        confidence (``taken_at_confidence``, see `vantage`), ``sender_side_us`` (round trip from the capture point
        to the sender; unless it is 0, all times are estimates, RTTs to half a millisecond at best),
        ``uncaptured_segments`` (acknowledged but not captured, of those sent during the capture), ``out_of_order``,
        ``unexplained_retransmissions`` (by no rule of the kernel), ``not_counted`` (packets that other programs
        count as retransmissions: mirror-port copies, repeated SYNs and FINs, keep-alive packets and window probes),
        ``options_cut`` (by a small snaplen, see `cut_options`), ``time_steps_back`` (records older than their
        predecessor), ``inferred`` (attributes that are guesses), ``warnings`` (of `Capture.flows`, of the file).
        """
        log, final = self._reenacted[1], self._reenacted[3]
        return quality(self, int((log["why"] == UNEXPLAINED).sum()), int(final["uncaptured"]))

    def join(self, receiver: Flow) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return one-way delays and true losses from this flow and its capture at the receiver; see `join.join`."""
        from cctrace.flows.join import join

        return join(self, receiver)

    def answers(self, polls: ArrayLike, decided: Ints | None = None, marked: NDArray[np.uint8] | None = None) -> Values:
        """Return what TCP_INFO would have answered in the given intervals, from the capture alone.

        Parameters
        ----------
        polls : array_like of int64, shape (n, 2)
            Start and end of each poll, capture clock, ns; ascending.
        decided : array_like of int64, shape (n, 4) or (n, 6), optional
            Decisions of a replayed controller: time (ns), pacing rate (Bps, 0 if unpaced), cwnd (segments), whether
            it was in PROBE_RTT (its sends are application-limited); segments of a super-packet, bytes that an skb
            takes besides its data (0: not known). Rate and cwnd determine since when the receive window was the
            limit, because the kernel checks them first, and the capture gives only a rough idea of them. What a flow
            was handed over to fq with stands.
        marked : array_like of uint8, shape (sends,), optional
            Which packets were application-limited according to that replay (`Run.marked`); without it, the
            capture's rows decide.

        Returns
        -------
        structured ndarray
            `state.SNAP` records, one for every state that held at some instant of a poll; `poll` indexes `polls`.
        """
        self.require_both_directions()
        return self._pass(polls, decided if self._decided is None else None, marked).run()[4]
