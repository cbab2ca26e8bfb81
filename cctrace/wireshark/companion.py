"""The file beside an annotated capture: a line for every packet of the flows that were analysed, read by the plug-in.

Line 1 says what it is, and of which capture: number and time of its first packet here. Line 2 names the columns. The
others are numbers and names of ours, separated by tabs, in the order of the frames; what is not known is empty.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cctrace.columns import Values
from cctrace.diagnosis.findings import LIMITS
from cctrace.plot.packets import NEW
from cctrace.schema import CA_STATES
from cctrace.wireshark.columns import UNKNOWN, PacketColumns
from cctrace.wireshark.comments import resent

SUFFIX = ".cctrace.tsv"
MAGIC = "cctrace annotations 1"
# What the plug-in shows as cctrace.<name>; its table of fields is the same, a test compares them.
NAMES = (
    *("frame", "flow", "controller", "state", "tcp_state", "limit", "cwnd", "inflight", "pacing_rate_bps", "bw_bps"),
    *("min_rtt_us", "rtt_us", "resent", "spurious", "window_left"),
)
_LINE = "\t".join(["%s"] * len(NAMES)) + "\n"
_ROWS = 100_000  # formatted at a time


def write_companion(flows: Sequence[PacketColumns], file: str) -> int:
    """Write the columns of flows (at least one), in the order of their frames; return the number of packets' lines."""
    frames = np.concatenate([one.frame for one in flows])
    which = np.repeat(np.arange(len(flows)), [len(one) for one in flows])
    place = np.concatenate([np.arange(len(one)) for one in flows])
    order = np.argsort(frames, kind="stable")
    first = min(flows, key=lambda one: int(one.frame[0]))
    second, rest = divmod(first.first_ns, 10**9)
    with open(file, "w", encoding="ascii", newline="") as out:
        out.write(f"{MAGIC}\t{first.frame[0]}\t{second}.{rest:09}\n" + "\t".join(NAMES) + "\n")
        for begin in range(0, len(order), _ROWS):
            part = order[begin : begin + _ROWS]
            lines: list[str] = [""] * len(part)
            for k in np.unique(which[part]).tolist():
                mine = np.flatnonzero(which[part] == k)
                for line, text in zip(mine.tolist(), _lines(flows[k], place[part[mine]]), strict=True):
                    lines[line] = text
            out.write("".join(lines))
    return len(order)


def _lines(c: PacketColumns, rows: NDArray[np.intp]) -> Iterator[str]:
    names = {kind: short for kind, (short, _) in resent(c).items()} | {NEW: ""}
    kind = np.where(c.data[rows], c.kind[rows], NEW)
    cells = (
        c.frame[rows].tolist(),
        [c.flow] * len(rows),
        [c.controller] * len(rows),
        _named(c.states, c.state[rows]),
        _named(CA_STATES, c.tcp_state[rows]),
        _named(LIMITS, c.limit[rows]),
        *(_known(getattr(c, name)[rows]) for name in ("cwnd", "inflight", "pacing_rate_bps", "bw_bps")),
        *(_known(getattr(c, name)[rows]) for name in ("min_rtt_us", "rtt_us")),
        [names[one] for one in kind.tolist()],
        np.where(kind == NEW, "", np.where(c.spurious[rows], "1", "0")).tolist(),
        _known(c.window_left[rows]),
    )
    return map(_LINE.__mod__, zip(*cells, strict=True))


def _named(names: Sequence[str], codes: NDArray[np.int8]) -> list[str]:
    of = [*names, ""]  # the last one is that of UNKNOWN, -1
    return [of[code] for code in codes.tolist()]


def _known(values: Values) -> list[Any]:
    return ["" if value == UNKNOWN else value for value in values.tolist()]
