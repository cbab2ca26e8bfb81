"""What figures of papers measure of a streaming session: plain values in, plain values out, as in `measure`."""

from typing import Any

from cctrace.papers.measure import path_of
from cctrace.sim.sender import Sender
from cctrace.streaming import Video, play


def streamed(path: dict[str, Any], cc: str, seed: int, minutes: float, rule: str, ack: str) -> dict[str, Any]:
    """Stream a video over a path, and return the session's metrics, what was sent, and each segment's quality.

    `path`: fields of `cctrace.Path`. `minutes`: of video. `rule`: of `cctrace.streaming.Settings`. `ack`: the
    client's policy.
    """
    session = play(path_of(path), Sender(cc, ack=ack), Video.of(minutes=minutes), seed, rule=rule)
    assert session.simulation is not None  # that of `play`
    flow = session.simulation.flows.iloc[0]
    return session.to_dict() | {
        "qualities": session.segments.quality.tolist(),
        "sent": int(flow.sent),
        "retransmitted": int(flow.retransmitted),
        "seconds": session.simulation.duration_s,
    }
