"""The view of a controller: the event stream on its stack's own clocks and units, one row per call.

A recorded flow, a simulated flow and a golden vector all become a `View`, the only input of `cctrace.replaying`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cctrace import schema
from cctrace.cc.quic import MAX_ACK_DELAY_MS, PERSISTENT_CONGESTION
from cctrace.columns import Columns, Ints, Values, last_true
from cctrace.errors import StreamError
from cctrace.flows.events import Events
from cctrace.lang.fields import VIEW_COLUMNS
from cctrace.units import format_counted

CARRIED = {"linux": schema.LINUX_CARRIED, "quic": schema.QUIC_CARRIED}
_TIME = {"linux": ("now_us", 1_000), "quic": ("now_ms", 1_000_000)}


class View:
    """The calls of a controller and everything that it can read in them.

    `kind`: "linux" or "quic", the stack whose columns these are (`schema.LINUX_VIEW`, `schema.QUIC_VIEW`). Arrays have
    a value per call. `event`: codes of `schema.EVENT_CODES`. `columns`: of the schema; one that is missing was not
    recorded, and a controller that reads it is refused. `carried`: observed values of the fields in
    `schema.LINUX_CARRIED` or `schema.QUIC_CARRIED`, set on the controller before each call; without them its own
    outputs carry over. `unknown`: columns that hold a neutral value because they were not observed. `time_ns`: time of
    each call on the capture's clock; default: the stack's own clock. Raises `StreamError` if a column is not in the
    schema, has another length, or holds NaN or a fraction.

    >>> View("linux", [0, 1], {"now_us": [1_000_000, 1_040_000]}).time_ns
    array([1000000000, 1040000000])
    """

    def __init__(
        self,
        kind: str,
        event: ArrayLike,
        columns: Mapping[str, ArrayLike],
        carried: Mapping[str, ArrayLike] | None = None,
        unknown: Iterable[str] = (),
        time_ns: ArrayLike | None = None,
    ) -> None:
        if kind not in VIEW_COLUMNS:
            raise StreamError(f"a view is 'linux' or 'quic', not {kind!r}")
        self.kind = kind
        self.event = np.ascontiguousarray(event, dtype=np.uint8)
        if self.event.size and self.event.max() >= len(schema.EVENT_CODES):
            row = int(self.event.argmax())
            raise StreamError(f"event code {self.event[row]} in row {row} is not one of schema.EVENT_CODES")
        carried = carried or {}
        self.columns = {name: self._own(k, name, columns[name], VIEW_COLUMNS[kind]) for k, name in enumerate(columns)}
        allowed = CARRIED[kind].values()
        self.carried = {
            name: self._own(len(columns) + k, name, carried[name], allowed) for k, name in enumerate(carried)
        }
        self.unknown = frozenset(unknown)
        self._time_ns = None if time_ns is None else np.asarray(time_ns, np.int64)

    def __len__(self) -> int:
        return len(self.event)

    def __repr__(self) -> str:
        calls = format_counted(len(self), "call", "calls")
        return f"<View: {calls} of a {self.kind} controller, {format_counted(len(self.columns), 'column', 'columns')}>"

    @property
    def time_ns(self) -> Ints:
        """Time of each call, ns, on the capture's clock if the view has it, else the stack's; int64, shape (n,)."""
        if self._time_ns is not None:
            return self._time_ns
        name, factor = _TIME[self.kind]
        if name not in self.columns:
            raise StreamError(f"this stream lacks column {name!r}, the time of each call")
        return self.columns[name] * factor

    def view(self, kind: str) -> View:
        """Return itself: a view can stand wherever a flow can; raise `StreamError` if it is of the other stack."""
        if kind != self.kind:
            raise StreamError(f"this stream has the columns of a {self.kind} controller, not of a {kind} one")
        return self

    def _own(self, place: int, name: str, values: ArrayLike, allowed: Iterable[str]) -> Ints:
        values = np.asarray(values)
        if name not in allowed:
            raise StreamError(f"{name!r} is not a column of the {self.kind} view")
        if values.shape != self.event.shape:
            raise StreamError(f"column {name!r} has shape {values.shape}, the events {self.event.shape}")
        if values.dtype.kind == "f":
            bad = np.flatnonzero(~(np.isfinite(values) & (values == np.floor(values))))
            if bad.size:
                raise StreamError(f"column {name!r}, row {bad[0]}: {values[bad[0]]} is not an integer")
        elif values.dtype.kind not in "iub":
            raise StreamError(f"column {name!r} holds {values.dtype}, not integers")
        column = staggered(len(values), place)
        column[:] = values
        return column


def staggered(rows: int, place: int) -> Ints:
    """Return an uninitialised int64 array that starts in another cache line of a page than those of other places.

    A replay reads some thirty columns at once. Large arrays all start at the same place of a page, so the current
    rows of all columns would compete for the same few cache lines: half the speed.
    """
    page, line = 4096, 64
    room = np.empty(rows * 8 + 2 * page, dtype=np.uint8)
    start = -room.ctypes.data % page + place * 3 * line % page
    return room[start : start + rows * 8].view(np.int64)


def of_events(events: Events, kind: str) -> View:
    """Return the view of an event stream for one stack's controllers; see `quic_view`.

    Raises `StreamError` for Linux controllers: their inputs in a recorded flow depend on their earlier decisions,
    so there is no such table (`cctrace.replaying.engine.follow` makes it row by row).
    """
    if kind == "quic":
        return quic_view(events)
    raise StreamError(f"a view of an event stream is 'quic', not {kind!r}; replay the flow itself")


def quic_view(events: Events) -> View:
    """Return a TCP event stream as the controllers of nginx-quic would have sampled it, in milliseconds and bytes.

    `events`: of a recorded or simulated TCP flow. Returns View: of kind "quic". `rand0` ... are unknown and 0;
    `app_limited` is carried by the controller.

    ==================  ==============================================================================================
    call                when
    ==================  ==============================================================================================
    init                the handshake is complete; the sampler is empty
    on_lost             the sender's TCP marks a segment lost; `arg` is when it was sent
    reset_cwnd          the losses that one ACK reveals span the duration of persistent congestion [RFC9002] 7.6
    on_ack              an ACK completes a rate sample that is no shorter than the minimum RTT
    restart_from_idle   sending starts with nothing in flight, and the last sample was app-limited
    ==================  ==============================================================================================

    Segments count as MSS bytes, without the SYN; clocks are cut to whole milliseconds *before* they are subtracted,
    as in the source, so that an RTT of 40.2 ms is 40 or 41. An RTT holds until the next. The smoothed RTT is TCP's, of
    finer resolution than nginx's. Losses are those that TCP's rules detected: a timeout marks all that is in flight,
    where QUIC would have waited for the next ACK.

    An event stream does not show when a lost or retransmitted segment was sent, only how much had been delivered by
    then: it counts as sent when that was reached, at most one ACK interval too early.
    """
    columns, sent_ms = _quic_columns(events)
    kind, code = events["event"], schema.LINUX_EVENTS
    sampled = (kind == code["on_ack"]) & (events["rs_interval_us"] > 0)
    sampled &= columns["smp_interval_ms"] >= columns["smp_min_rtt_ms"]
    last_limited = np.zeros(len(events), np.int64)
    last_limited[1:] = _latest(columns["smp_is_app_limited"], sampled, 0)[:-1]
    starts = (kind == code["cwnd_event"]) & (events["arg"] == schema.CWND_EVENTS.index("TX_START"))
    lost = np.flatnonzero(kind == code["skb_marked_lost"])  # each of its segments is a packet of QUIC's
    calls = {
        "init": np.flatnonzero(kind == code["init"]),
        "on_lost": np.repeat(lost, events["skb_segments"][lost]),
        "on_ack": np.flatnonzero(sampled),
        "restart_from_idle": np.flatnonzero(starts & (last_limited != 0)),
    }
    calls["reset_cwnd"] = _persistent_congestion(events, sent_ms, calls["on_lost"], calls["on_ack"])
    row = np.concatenate(list(calls.values()))
    event = np.concatenate([np.full(len(rows), schema.QUIC_EVENTS[name]) for name, rows in calls.items()])
    order = np.argsort(row, kind="stable")  # a reset follows the loss it is placed at
    row, event = row[order], event[order]
    taken = {name: values[row] for name, values in columns.items()}
    taken["arg"] = np.select(
        [event == schema.QUIC_EVENTS["on_lost"], event == schema.QUIC_EVENTS["restart_from_idle"]],
        [sent_ms[row], taken["cg_delivered"]],
    )
    for name in taken:
        if name.startswith("smp_"):
            taken[name][event == schema.QUIC_EVENTS["init"]] = 0
    unknown = [name for name in VIEW_COLUMNS["quic"] if name.startswith("rand")]
    columns = taken | dict.fromkeys(unknown, np.zeros(len(row), np.int64))
    return View("quic", event, columns, unknown=unknown, time_ns=events["time_ns"][row])


def _quic_columns(events: Events) -> tuple[Columns, Values]:
    """Return the QUIC columns of every row of the stream, and the send time (ms) of the row's segment."""
    now_us = events.now_us
    now_ms = now_us // 1000
    mss, segments = events["mss"].astype(np.int64), _nonnegative(events)
    in_flight = segments["packets_out"] - segments["sacked_out"] - segments["lost_out"] + segments["retrans_out"]
    delivered, prior = segments["delivered"] - 1, np.maximum(segments["rs_prior_delivered"] - 1, 0)
    is_loss = events["event"] == schema.LINUX_EVENTS["skb_marked_lost"]
    has_rtt = ~is_loss & (events["rs_rtt_us"] >= 0)
    # Without an RTT, a segment was sent no earlier than what had been delivered by then.
    reached = np.where(is_loss, segments["skb_tx_delivered"], segments["rs_prior_delivered"])
    place = np.minimum(np.searchsorted(segments["delivered"], reached), len(events) - 1)
    sent_ms = np.where(has_rtt, now_us - events["rs_rtt_us"], now_us[place]) // 1000
    handshake_ms = max(events.meta["handshake_rtt_us"], 0) // 1000
    rtt_ms = _latest(now_ms - sent_ms, has_rtt, handshake_ms)
    lowest = np.minimum.accumulate(np.where(has_rtt, rtt_ms, np.iinfo(np.int64).max))
    columns = {
        "now_ms": now_ms,
        "smp_now": now_ms,
        "smp_prior_delivered": prior * mss,
        "smp_interval_ms": now_ms - (now_us - np.maximum(events["rs_interval_us"], 0)) // 1000,
        "smp_delivered": segments["rs_delivered"] * mss,
        "smp_acked": segments["rs_acked_sacked"] * mss,
        "smp_in_flight": in_flight * mss,
        "smp_prior_inflight": segments["rs_prior_in_flight"] * mss,
        "smp_rtt_ms": rtt_ms,
        "smp_is_app_limited": segments["rs_is_app_limited"],
        "smp_loss": segments["rs_losses"] * mss,
        "smp_total_acked": delivered * mss,
        "smp_total_loss": segments["lost"] * mss,
        "smp_srtt_ms": segments["srtt_us8"] // 8000,
        "smp_min_rtt_ms": np.minimum(lowest, handshake_ms) if handshake_ms else np.where(lowest < 1 << 62, lowest, 0),
        "smp_po_sent_time": sent_ms,
        "smp_tx_in_flight": segments["rs_tx_in_flight"] * mss,
        "smp_lost_pkts": segments["rs_lost"] * mss,
        "cg_in_flight": in_flight * mss,
        "cg_delivered": delivered * mss,
        # The sampled segment itself is in flight after its send.
        "cg_po_sent": np.maximum(prior + segments["rs_tx_in_flight"] - 1 + segments["rs_prior_lost"], 0) * mss,
        "cg_start_time": np.full(len(events), now_ms[0] if len(events) else 0),
        "loss_timer": np.maximum.accumulate(np.where(is_loss, now_ms, 0)),
    }
    return columns, sent_ms


def _nonnegative(events: Events) -> Columns:
    """Return the columns of counts as int64, what was not observed as 0."""
    names = "packets_out sacked_out lost_out retrans_out delivered lost srtt_us8 skb_tx_delivered rs_prior_delivered "
    names += "rs_delivered rs_acked_sacked rs_prior_in_flight rs_is_app_limited rs_losses rs_tx_in_flight rs_lost "
    names += "rs_prior_lost"
    return {name: np.maximum(events[name].astype(np.int64), 0) for name in names.split()}


def _latest(values: Values, known: Any, before: int) -> Values:
    """Return, for each row, the value of the last row so far where `known`; `before` the first of them."""
    last = last_true(known)
    return np.where(last >= 0, values[last], before)


def _persistent_congestion(events: Events, sent_ms: Values, lost: Values, acks: Values) -> Ints:
    """Return the last lost row of each ACK whose losses establish persistent congestion [RFC9002] 7.6.2."""
    if not len(lost) or not len(acks):
        return np.zeros(0, np.int64)
    time = events["time_ns"]
    first = np.flatnonzero(np.diff(time[lost], prepend=-1))
    last = lost[np.append(first[1:], len(lost)) - 1]
    oldest, newest = np.minimum.reduceat(sent_ms[lost], first), np.maximum.reduceat(sent_ms[lost], first)
    srtt_ms, var_ms = events["srtt_us8"][last] // 8000, events["mdev_us4"][last] // 4000
    duration = PERSISTENT_CONGESTION * (srtt_ms + np.maximum(4 * var_ms, 1) + MAX_ACK_DELAY_MS)
    ack = acks[np.minimum(np.searchsorted(acks, last), len(acks) - 1)]
    revealed = time[ack] == time[last]  # by an ACK, not by a timer
    between = (sent_ms[ack] >= oldest) & (sent_ms[ack] <= newest)
    return last[revealed & ~between & (newest - oldest > duration)]
