"""What the capture itself does not allow to say: packets it lacks, where it was taken, how short it is."""

from cctrace.explain.findings import Verdict
from cctrace.units import format_rate, format_share, format_time

UNSEEN = 0.01  # share of what was sent that the capture may lack before it distorts counts of losses and windows
FEWEST_RTTS = 3


def verdicts(record, limits, found):
    """Return `capture_artefact` and `vantage_point`, where they hold."""
    flow, out = record.flow, []
    quality = flow.quality()
    sent = max(flow.summary["segments_sent"], 1)
    missing = quality["unseen_segments"] / sent
    if missing > UNSEEN:
        out.append(
            Verdict(
                "capture_artefact",
                min(0.99, 0.5 + missing),
                0.0,
                record.duration_s,
                {"unseen_share": missing, "unseen_segments": quality["unseen_segments"]},
                f"The capture lacks {format_share(missing)} of what was sent (acknowledged, but never shown), so that "
                "losses and windows are uncertain.",
                "Capture with a larger buffer (tcpdump -B), a shorter snapshot, or fewer bytes.",
                "An interface that counted no packet dropped by the kernel while capturing.",
            )
        )
    if flow.taken_at not in ("sender", "unknown"):
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
