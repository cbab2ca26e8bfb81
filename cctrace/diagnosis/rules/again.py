"""How much was sent again, where what is told first does not say so; how much was lost before the capture."""

from cctrace.diagnosis.findings import Verdict
from cctrace.units import format_count, format_share

MUCH = 0.05  # of the segments
FEWEST, SOME = 5, 0.001  # segments, and their share, that were lost before the capture, to be worth a word
TOLD = ("random_loss", "shallow_buffer")  # verdicts whose sentences say how much was lost


def verdicts(record, limits, found):
    """Return `heavy_retransmission`, if a twentieth or more of the segments was sent again and no verdict says so.

    Of a capture beyond the sender `lost_before_capture`: what it shows as sent again it had not seen before.
    """
    again = record.flow.retransmissions
    sent, many = int(record.flow.summary["segments_sent"]), len(again)
    if record.flow.taken_at in ("receiver", "middle") and many >= max(FEWEST, SOME * sent) and not record.lost.any():
        return [_upstream(many, sent, record)]
    if not sent or many < MUCH * sent or any(v.name in TOLD and v.confidence >= 0.5 for v in found):
        return []
    return [heavy(many, sent, int(again["spurious"].sum()), record.duration_s)]


def _upstream(many, sent, record):
    return Verdict(
        "lost_before_capture",
        0.6,
        0.0,
        record.duration_s,
        {"retransmitted_share": many / sent, "retransmitted_segments": many},
        f"{format_share(many / sent)} of the segments were lost before the capture ({format_count(many)} of "
        f"{format_count(sent)} were sent again): by chance or by a full queue, which only the sender's side shows.",
        "Capture at the sender, which sees what every packet met.",
        "Copies of these segments in the capture: then they were not lost.",
    )


def heavy(many, sent, needless, duration_s):
    """Return the verdict that `many` of `sent` segments were sent again, `needless` of them for nothing."""
    vain = f"; {format_count(needless)} of these had arrived before" if needless else ""
    return Verdict(
        "heavy_retransmission",
        0.9,
        0.0,
        duration_s,
        {"retransmitted_share": many / sent, "retransmitted_segments": many, "needless": needless},
        f"It sent {format_share(many / sent)} of its segments again ({format_count(many)} of "
        f"{format_count(sent)}){vain}.",
        "Mend what dropped them first; a controller that heeds losses (CUBIC, BBRv3) would lose fewer.",
        "D-SACKs for most of them: then few were lost.",
    )
