"""What the capture itself does not allow to say: packets it lacks, where it was taken, how short it is."""

import itertools
from dataclasses import replace

import numpy as np

from cctrace.diagnosis.findings import Verdict
from cctrace.path.stamps import clock_set, held_us, stamps_of
from cctrace.units import format_rate, format_share, format_time

UNSEEN = 0.01  # share of what was sent that the capture may lack before it distorts counts of losses and windows
FEWEST_RTTS = 3
HELD_US = 1000.0  # beyond two ticks of the stamps, from which on packets were held before the capture
HELD_RTTS = 0.1  # and of the RTT
HERE_US = 300  # to the sender and back: no further than its own reaction takes
REPEATED = 0.05  # share of what was sent that was "sent again" for no reason, beside copies: more copies
UNSURE = 0.4  # how sure a verdict may be whose times or counts are the capture's doing


def verdicts(record, limits, found):
    """Return `capture_artefact` and `vantage_point`, where they hold."""
    flow = record.flow
    quality = flow.quality()
    asked = (_clock(record, quality), _copies(record, quality), _held(record, quality), _missing(record, quality))
    out = list(itertools.islice(itertools.chain(*asked), 1))
    if is_elsewhere(flow):
        out.append(
            Verdict(
                "vantage_point",
                0.9 if quality["taken_at_confidence"] == "measured" else 0.6,
                0.0,
                record.duration_s,
                {"sender_side_us": quality["sender_side_us"]},
                f"It was captured {format_time(quality['sender_side_us'] * 1000)} (there and back) "
                "from the sender: what "
                "the sender saw is an estimate.",
                "Capture at the sender.",
                "A sender's capture in which the same packets leave at other times.",
            )
        )
    return out


def is_elsewhere(flow):
    """Return whether a capture was taken further from its sender than the sender's own reaction takes."""
    return bool(flow.capture.connections.sender_side_ns[flow.index] > HERE_US * 1000)


def tempered(found):
    """Return verdicts of which none is sure but those on the capture, if times or counts are the capture's doing."""
    if not any(verdict.name == "capture_artefact" for verdict in found):
        return found
    own = ("capture_artefact", "vantage_point")
    return [v if v.name in own else replace(v, confidence=min(v.confidence, UNSURE)) for v in found]


def _clock(record, quality):
    """The clock of the capture was set while it ran."""
    if (found := clock_set(record.flow)) is None:
        return
    at_s, by_us = found
    way = "forward" if by_us > 0 else "back"
    yield _artefact(
        record,
        0.95,
        {"at_s": at_s, "clock_set_us": by_us},
        f"The capture's clock was set {way} by {format_time(abs(by_us) * 1000)} at {at_s:.1f} s (the time stamps of "
        "both ends went on): RTTs, rates and pauses about that time are the clock's doing.",
        "Judge the parts before and after by themselves; capture with a clock that is slewed, not set (chrony, ntpd).",
        "Time stamps of the two ends that changed by different amounts.",
    )


def _held(record, quality):
    """Something before the capture holds what the sender's TCP has sent: a shaper on the interface itself."""
    if is_elsewhere(record.flow) or record.flow.taken_at == "receiver":
        return
    stamps = stamps_of(record.flow)
    held = held_us(stamps)
    if held < 2 * stamps.tick_us + HELD_US or held < HELD_RTTS * np.nan_to_num(record.flow.summary["rtt_median_us"]):
        return
    rtt = format_time(record.flow.summary["rtt_median_us"] * 1000)
    yield _artefact(
        record,
        0.95,
        {"held_us": held, "captured_rtt_us": record.flow.summary["rtt_median_us"], "tick_us": stamps.tick_us},
        f"Packets had been held for {format_time(held * 1000)}, typically, between the sender's TCP and the capture "
        "(its time stamps tell): a queue before the capture, such as a shaper on the captured interface, limits what "
        f"leaves. RTTs as captured (typically {rtt}), and what is in flight, lack that queue.",
        "Look at `tc -s qdisc` of the sender's interface; capture where TCP hands packets over (before the shaper), or "
        "take the kernel's counters (`ss -tin`, given with --tcpinfo), whose RTT has that queue in it.",
        "Time stamps that are as old as the capture when packets pass it.",
    )


def _copies(record, quality):
    """The capture holds packets several times, and not all copies could be told from what was sent again."""
    sent = max(record.flow.summary["segments_sent"], 1)
    copies = record.flow.capture.packets.counters.get("duplicates", 0)
    repeated = quality["unexplained_retransmissions"] / sent
    if not copies or repeated < REPEATED:
        return
    yield _artefact(
        record,
        0.95,
        {"repeated_share": repeated, "copies": copies},
        f"Packets were captured at several interfaces: {copies} copies were left out, and {format_share(repeated)} of "
        "what was sent appears again for no reason, changed or too late to be told from what a sender repeats.",
        "Capture on one interface (not -i any), or one direction of each.",
        "D-SACKs for what appears twice: then it was sent twice.",
    )


def _missing(record, quality):
    unseen = quality["unseen_segments"]
    missing = unseen / max(unseen + record.flow.summary["segments_sent"], 1)
    if missing <= UNSEEN:
        return
    yield _artefact(
        record,
        min(0.99, 0.5 + missing),
        {"unseen_share": missing, "unseen_segments": unseen},
        f"The capture lacks {format_share(missing)} of what was sent (acknowledged, but never shown), so that "
        "losses and windows are uncertain.",
        "Capture with a larger buffer (tcpdump -B), a shorter snapshot, or fewer bytes.",
        "An interface that counted no packet dropped by the kernel while capturing.",
    )


def _artefact(record, confidence, evidence, text, advice, refuted_by):
    return Verdict("capture_artefact", confidence, 0.0, record.duration_s, evidence, text, advice, refuted_by)


def too_short(record):
    """Return why the capture tells nothing of the path, or ""."""
    if record.flow.taken_at == "unknown":
        return "Where it was captured cannot be told"
    if record.duration_s * 1e6 < FEWEST_RTTS * record.median_rtt_us:
        return (
            f"A capture of {format_time(record.duration_s * 1e9)} cannot tell what happens in RTTs of "
            f"{format_time(record.median_rtt_us * 1000)}"
        )
    return ""


def unknown(record):
    """Return the verdict of a flow of which nothing tells what limited it."""
    why = too_short(record)
    begin = f"{why}, and so not what" if why else "Nothing in the record tells what"
    bottleneck = record.bottleneck
    evidence = {"goodput_bps": record.goodput_bps, "rtt_least_us": record.least_rtt_us}
    told = ""
    if bottleneck is not None and not why:
        told = ": no queue grew, hardly anything was lost, and neither end held it back"
    return Verdict(
        "unknown",
        0.0,
        0.0,
        record.duration_s,
        evidence,
        f"{begin} limited it to {format_rate(record.goodput_bps)}{told}.",
        "The kernel's counters (`ss -tin` while it runs, given with --tcpinfo) would tell.",
        "",
    )
