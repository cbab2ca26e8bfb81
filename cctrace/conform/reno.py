"""NewReno: RFC 5681 and RFC 9002, section 7, checked on the sender's window."""

from functools import partial

from cctrace.conform.requirements import MUST, SHOULD, Found, Spec, Table, at_least, at_most, of_parts
from cctrace.conform.trace import Trace
from cctrace.conform.windows import CASES, CELLS, common, cut_to, epochs
from cctrace.conform.wire import of_windows

requirement = Table()
common(
    requirement,
    {
        "slow_start.growth": "RFC 5681 3.1, RFC 9002 7.3.1",
        "slow_start.doubles": "RFC 9002 7.3.1",
        "window.limited": "RFC 9002 7.8",
        "slow_start.limited": "RFC 9002 7.8",
        "loss.floor": "RFC 5681 3.1 (4), RFC 9002 7.2",
        "timeout.window": "RFC 5681 3.1",
        "recovery.window": "RFC 5681 3.2 (6), RFC 9002 7.3.2",
    },
)
cut_to(requirement, "loss.half", "RFC 5681 3.1 (4), RFC 9002 7.3.2", 0.5, MUST)


def _growth(r: Trace, most: bool) -> Found:
    """Return whether cwnd has grown since the epoch began by at most, or at least, a segment per window acked."""
    parts = ((epoch.rows, r.before["snd_cwnd"][epoch.rows], epoch.reno(r)) for epoch in epochs(r))
    return (at_most if most else at_least)(*of_parts(len(r), parts), within=2)


requirement("avoidance.at_most", "RFC 5681 3.1, RFC 9002 7.3.3", "In congestion avoidance cwnd grows by at most one "
            "segment per window acknowledged.")(partial(_growth, most=True))  # fmt: skip
requirement("avoidance.at_least", "RFC 5681 3.1", "In congestion avoidance cwnd grows by at least a segment per window "
            "acknowledged while it limits the sender.", level=SHOULD)(partial(_growth, most=False))  # fmt: skip

on_the_wire = Table()
of_windows(on_the_wire, 0.5, ("RFC 5681 3.1", "RFC 5681 3.2"))
TITLE = "NewReno (RFC 5681, RFC 9002 section 7)"
SPEC = Spec("reno", TITLE, tuple(requirement.rows), ("reno",), tuple(on_the_wire.rows), cells=CELLS, cases=CASES)
