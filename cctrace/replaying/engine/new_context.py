"""The context of a replay at its start: how its controller is called, and what is known of the recorded sender."""

from collections.abc import Callable
from typing import Any

import numpy as np

from cctrace import schema
from cctrace.cc.base import Controller
from cctrace.columns import Ints, Values
from cctrace.flows.events import Events
from cctrace.lang.fields import fields_of
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import midflow
from cctrace.replaying.engine.calls import CompiledCalls, InterpretedCalls
from cctrace.replaying.engine.waiting import is_ack_clocked

TIME_ERROR_ELSEWHERE = 20  # for captures not taken at the sender: departure times come from time stamps of 1 ms


def new_context(
    cls: type[Controller],
    params: dict[str, Any],
    events: Events,
    sends: Values,
    machine: CompiledCalls | InterpretedCalls,
    slot: Callable[[str], int],
) -> Ints:
    """Return the context of a replay, see `context`. `slot`: of a scalar field of the controller."""
    meta, fields = events.meta, fields_of(cls)
    elsewhere = "start_ns" in meta.get("inferred", ())
    own_stamp = not elsewhere and "min_rtt" not in meta.get("inferred", ())
    dips = midflow.probe_rtts(events, params) if cls.has_on_ack and not own_stamp else ()
    ctx = np.zeros(cx.CONTEXT_SIZE + len(dips), np.int64)
    ctx[cx.CONTEXT_SIZE :], ctx[cx.PROBE_RTTS] = dips, len(dips)
    stamps = [name for name in ("probe_rtt_min_stamp", "min_rtt_stamp") if name in fields]
    ctx[cx.STAMP_SLOT] = slot(stamps[0]) if stamps and not own_stamp else -1
    ctx[cx.ADDRESS] = machine.address
    ctx[cx.ACK] = machine.ack.ctypes.data
    entries = machine.entries
    ctx[cx.ENTRIES] = sum(1 << schema.LINUX_EVENTS[name] for name in entries)
    ctx[cx.RETURNS] = sum(1 << schema.LINUX_EVENTS[name] for name in entries if entries[name])
    ctx[cx.REDUCES] = not cls.has_on_ack
    for place, column in {cx.READ_NOW: "jiffies", cx.READ_LSNDTIME: "lsndtime"}.items():
        read = {name for name, columns in machine.reads.items() if column in columns} | {"cwnd_event"}  # `stack`'s own
        ctx[place] = sum(1 << schema.LINUX_EVENTS[name] for name in read)
    ctx[cx.START_NS] = meta["start_ns"]
    slots = {cx.GAIN_SLOT: "pacing_gain", cx.CYCLE_SLOT: "cycle_mstamp", cx.MIN_RTT_SLOT: "min_rtt_us"}
    slots[cx.DONE_SLOT] = "probe_rtt_done_stamp"
    for place, name in slots.items():
        ctx[place] = slot(name) if name in fields else -1
    if not cls.probe_draws:  # a phase of v1 has no fixed length, and its cycle is kept in step separately
        ctx[cx.CYCLE_SLOT] = -1
    ctx[cx.ECN_OK], ctx[cx.HANDS_OVER] = int(meta["ecn_ok"]), int(meta.get("through_fq", False))
    ctx[cx.WATCH_SLOT], ctx[cx.OBSERVED], ctx[cx.TIME_ERROR] = -1, -1, TIME_ERROR_ELSEWHERE if elsewhere else 1
    ctx[cx.DRAINS_END] = "pacing_gain" in fields and (elsewhere or meta.get("hand_over_unknown", False))
    ctx[cx.ACK_CLOCKED] = not elsewhere and is_ack_clocked(events, sends)
    ctx[cx.PACED] = 1 if cls.sets_pacing_rate and not ctx[cx.REDUCES] else 0
    of_stack = ctx[cx.REDUCES] and not cls.sets_pacing_rate and "paced" in fields
    ctx[cx.PACED_SLOT] = slot("paced") if of_stack else -1
    ctx[cx.MAX_RATE_SLOT] = slot("max_pacing_rate") if of_stack else -1
    ctx[cx.OWN_MIN_RTT] = slot("min_rtt_us") if cls.bursts_by_min_rtt else -1
    ctx[cx.OVERHEAD] = cls.pacing_overhead_bytes
    ctx[cx.SLOW_BURST] = cls.slow_burst_segments
    ctx[cx.PARTS_AS_V2], ctx[cx.BY_ACKS] = cls.parts_as_v2, cls.app_limited_by_acks
    return ctx
