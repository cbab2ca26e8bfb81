"""Facts of a captured flow from its packets, group by group."""

from collections.abc import Callable
from typing import Any

import numpy as np

from cctrace.diagnosis.facts import PACKETS, Facts
from cctrace.diagnosis.findings import Limit
from cctrace.diagnosis.packets import acks, capture, delays, ends, losses, marks, policing, rates, sharing
from cctrace.diagnosis.record import Record
from cctrace.refusals import Attempt

DESPITE = "no queue grew, hardly anything was lost, and neither end held it back"


def facts_of(record: Record, limits: list[Limit], lacks: list[str]) -> Facts:
    """Return the facts of a captured flow; those that cannot be computed are noted in `lacks`."""
    short, cut = capture.too_short(record), record.cut
    blind = record.flow.taken_at == "unknown" or (bool(short) and not record.flow.facts["complete"])
    known: dict[str, Any] = {
        "why_nothing": short,
        "is_blind": blind,
        "despite": DESPITE if record.path.bottleneck is not None else "",
        "is_model_based": record.is_model_based,
        "controller": record.controller,
        "rtt_us": record.path.median_rtt_us,
        "least_rtt_us": record.path.least_rtt_us,
        "has_counters": bool(record.flow.tcpinfo),
        "lacks_sacks": cut.lacks_all_blocks,
        "lacks_scale": cut.scale,
        "has_ecn": record.flow.ecn.feedback in ("classic", "accurate"),
    }
    families = ["the capture's quality"]
    if not blind:
        families += ["endpoints", "retransmissions"]
    if not blind and record.path.bottleneck is not None:
        families += ["policing", "sharing", "losses"]
        if not short:
            families += ["pacing", "rates", "delays"]
    for name in families:
        with Attempt(f"judgement of {name}", lacks):
            known |= _losses(record, known) if name == "losses" else _FAMILIES[name](record, limits)
    return Facts(PACKETS, record.duration_s, record.goodput_bps, **known)


def _of_ends(record: Record, limits: list[Limit]) -> dict[str, Any]:
    buffer = ends.send_buffer(record, limits)
    idle = ends.idle(record, limits, buffer)
    return {
        "window": ends.receiver_window(record),
        "short_transfer": ends.short_transfer(record, limits),
        "send_buffer": buffer,
        "receiver_pauses": ends.receiver_pauses(record),
        "stalls": ends.stalls(record, limits),
        "socket_limit": ends.of_socket(record),
        "idle": idle,
        "writes": ends.writes(record, idle.application_share),
        "app_limited_samples": ends.app_limited_samples(record, limits),
    }


def _losses(record: Record, known: dict[str, Any]) -> dict[str, Any]:
    """Return the losses; nothing where flows share a link, but their delays do not show which queue dropped them."""
    fair, sharing = known.get("fair_queueing"), known.get("sharing")
    if (fair is not None and not fair.is_own) or (sharing is not None and np.isnan(sharing.explained_better_by)):
        return {}
    return {"losses": losses.losses(record, sharing is not None, fair is not None)}


_FAMILIES: dict[str, Callable[[Record, list[Limit]], dict[str, Any]]] = {
    "the capture's quality": lambda record, _: {
        "artefact": capture.artefact(record),
        "elsewhere": capture.elsewhere(record.flow),
    },
    "endpoints": _of_ends,
    "retransmissions": lambda record, _: {
        "retransmissions": losses.retransmissions(record),
        "ecn_marks": marks.ecn_marks(record),
    },
    "policing": lambda record, _: {"policer": policing.policer(record)},
    "sharing": lambda record, _: sharing.others(record),
    "pacing": lambda record, limits: {"bursts": losses.bursts(record), "even_sends": ends.even_sends(record, limits)},
    "rates": lambda record, limits: {
        "rates": rates.rate_changes(record, limits),
        "queue": rates.queue(record),
        "was_empty": losses.was_empty(record),
        "first_rtts": rates.first_rtts(record),
        "shaper": rates.shaper(record),
        "largest_flights": rates.largest_flights(record),
        "growing_window": rates.growing_window(record, limits),
    },
    "delays": lambda record, limits: {
        "reordering": delays.reordering(record),
        "min_rtt": delays.min_rtt(record, limits),
        "jitter": delays.jitter(record),
        "inflated_min_rtt": delays.inflated_min_rtt(record),
        "bunches": acks.ack_bunches(record),
        "batches": acks.ack_batches(record),
        "ack_counts": acks.ack_counts(record),
        "ack_path": acks.ack_path(record),
    },
}
