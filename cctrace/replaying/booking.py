"""The book of a replay at its start: how its controller is called, and what is known of the recorded sender."""

from collections.abc import Callable
from typing import Any

import numpy as np

from cctrace import schema
from cctrace.cc.base import Controller
from cctrace.columns import Ints, Values
from cctrace.flows.events import Events
from cctrace.lang.fields import fields_of
from cctrace.replaying import book as bk
from cctrace.replaying import midflow
from cctrace.replaying.calls import CompiledCalls, InterpretedCalls
from cctrace.replaying.waiting import is_ack_clocked

BLUR_ELSEWHERE = 20  # for captures not taken at the sender: departure times come from time stamps of 1 ms


def booked(
    cls: type[Controller],
    params: dict[str, Any],
    events: Events,
    sends: Values,
    machine: CompiledCalls | InterpretedCalls,
    slot: Callable[[str], int],
) -> Ints:
    """Return the book, see `book`. `slot`: of a scalar field of the controller."""
    meta, fields = events.meta, fields_of(cls)
    elsewhere = "start_ns" in meta.get("inferred", ())
    own_stamp = not elsewhere and "min_rtt" not in meta.get("inferred", ())
    dips = midflow.probe_rtts(events, params) if cls.has_on_ack and not own_stamp else ()
    book = np.zeros(bk.BOOK_SIZE + len(dips), np.int64)
    book[bk.BOOK_SIZE :], book[bk.DIPS] = dips, len(dips)
    stamps = [name for name in ("probe_rtt_min_stamp", "min_rtt_stamp") if name in fields]
    book[bk.STAMP_SLOT] = slot(stamps[0]) if stamps and not own_stamp else -1
    book[bk.ADDRESS] = machine.address
    book[bk.ACK] = machine.ack.ctypes.data
    entries = machine.entries
    book[bk.ENTRIES] = sum(1 << schema.LINUX_EVENTS[name] for name in entries)
    book[bk.RETURNS] = sum(1 << schema.LINUX_EVENTS[name] for name in entries if entries[name])
    book[bk.REDUCES] = not cls.has_on_ack
    for place, column in {bk.READ_NOW: "jiffies", bk.READ_LSNDTIME: "lsndtime"}.items():
        read = {name for name, columns in machine.reads.items() if column in columns} | {"cwnd_event"}  # `stack`'s own
        book[place] = sum(1 << schema.LINUX_EVENTS[name] for name in read)
    book[bk.START_NS] = meta["start_ns"]
    slots = {bk.GAIN_SLOT: "pacing_gain", bk.CYCLE_SLOT: "cycle_mstamp", bk.MIN_RTT_SLOT: "min_rtt_us"}
    slots[bk.DONE_SLOT] = "probe_rtt_done_stamp"
    for place, name in slots.items():
        book[place] = slot(name) if name in fields else -1
    if not cls.probe_draws:  # a phase of v1 has no fixed length, and its cycle is kept in step separately
        book[bk.CYCLE_SLOT] = -1
    book[bk.ECN_OK], book[bk.HANDS_OVER] = int(meta["ecn_ok"]), int(meta.get("through_fq", False))
    book[bk.WATCH_SLOT], book[bk.OBSERVED], book[bk.BLUR] = -1, -1, BLUR_ELSEWHERE if elsewhere else 1
    book[bk.DRAINS_END] = "pacing_gain" in fields and (elsewhere or meta.get("hand_over_unknown", False))
    book[bk.ACK_CLOCKED] = not elsewhere and is_ack_clocked(events, sends)
    book[bk.PACED] = 1 if cls.sets_pacing_rate and not book[bk.REDUCES] else 0
    of_stack = book[bk.REDUCES] and not cls.sets_pacing_rate and "paced" in fields
    book[bk.PACED_SLOT] = slot("paced") if of_stack else -1
    book[bk.MAX_RATE_SLOT] = slot("max_pacing_rate") if of_stack else -1
    book[bk.OWN_MIN_RTT] = slot("min_rtt_us") if cls.bursts_by_min_rtt else -1
    book[bk.OVERHEAD] = cls.pacing_overhead_bytes
    book[bk.SLOW_BURST] = cls.slow_burst_segments
    book[bk.PARTS_AS_V2], book[bk.BY_ACKS] = cls.parts_as_v2, cls.app_limited_by_acks
    return book
