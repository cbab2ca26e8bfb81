"""Agreement with the kernel: reconstruction from a capture compared with the tcp_info of the sender's kernel.

A recording is a folder with `sender.pcap.zst`, `tcpinfo.csv.zst` (or other spellings), `scenario.json` and, if the
path was emulated, `queue.csv.gz`. A value *agrees at a poll* if it agrees at some instant between the poll's two
time stamps, during which the reconstruction may pass through several states. Polls inside an interval whose
`late_max_us` exceeds 4 ms are excluded and counted: the emulator itself stalled there.

Counters of a capture that starts in mid-flow are compared as differences from its first poll; `min_rtt` is not
compared there, because the kernel's minimum predates the capture.
"""

import contextlib
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from cctrace.cc import KERNEL_NAMES, REGISTRY
from cctrace.columns import Bools, Ints, Values
from cctrace.display import Jsonable, Public, endpoint
from cctrace.documents import json_file, of_shape
from cctrace.errors import ArgumentError, FormatError, StreamError
from cctrace.flows.capture import read
from cctrace.flows.flow import Flow
from cctrace.identification.identify import identify
from cctrace.identification.named import controller_name, leaves_open, sender
from cctrace.io.source import open_source
from cctrace.replaying.agreement import Comparison
from cctrace.replaying.run import replay

STALL_US = 4_000
NON_OPEN_SHARE = 0.02  # recovery is compared separately if at least this share of the polls is not Open
ESTABLISHED = 1


class Figure(NamedTuple):
    """One figure of agreement: share, number of polls, and target."""

    name: str
    share: float
    polls: int
    need: float

    @classmethod
    def of(cls, name: str, agrees: Bools, need: float) -> Self:
        """Return the figure of polls, whether each agrees."""
        return cls(name, float(agrees.mean()), len(agrees), need)

    @property
    def met(self) -> bool:
        """Whether the figure reaches its target."""
        return self.share >= self.need


def _equal(got: Values, want: Values) -> Bools:
    return np.asarray(got == want)


def _relative(tolerance: float, floor: float = 0.0) -> Callable[[Values, Values], Bools]:
    return lambda got, want: np.asarray(np.abs(got - want) <= np.maximum(tolerance * want, floor))


_Wanted = tuple[str, str, float, dict[str, Any]]  # name, quantity, needed share, options of `Comparison.agrees`


class _Compared(NamedTuple):
    """A quantity that is compared at each poll."""

    need: float  # share of the polls that have to agree
    column: str  # of tcp_info
    compare: Callable[[Values, Values], Bools] = _equal  # of the reconstructed and the kernel's values
    grows_from_0: bool = False  # a counter


_COMPARED = {
    "total_retrans": _Compared(1.0, "total_retrans", grows_from_0=True),
    "delivered": _Compared(0.995, "delivered", grows_from_0=True),
    "bytes_acked": _Compared(0.995, "bytes_acked", grows_from_0=True),
    "unacked": _Compared(0.995, "unacked"),
    "rtt": _Compared(0.95, "rtt", _relative(0.005)),
    "rttvar": _Compared(0.95, "rttvar", _relative(0.02, 1.0)),  # the kernel reports whole microseconds
    "min_rtt": _Compared(0.95, "min_rtt", _relative(0.01)),
    "delivery_rate": _Compared(0.95, "delivery_rate_Bps", _relative(0.01)),
    "app_limited": _Compared(0.97, "delivery_rate_app_limited"),
    "busy_time": _Compared(0.95, "busy_time_us", _relative(0.05), grows_from_0=True),
    "rwnd_limited": _Compared(0.95, "rwnd_limited_us", _relative(0.05, 8_000), grows_from_0=True),
}
_OF_A_WINDOW: tuple[_Wanted, ...] = (("cwnd", "cwnd", 0.95, {"absolute": 2.0}), ("ssthresh", "ssthresh", 0.95, {}))
# Of BBRv2 and v3, whose kernel logs them.
_OF_BOUNDS: tuple[_Wanted, ...] = (
    ("mode", "mode", 0.95, {"slack_polls": 1}),
    ("inflight_hi", "inflight_hi", 0.95, {}),
    ("inflight_lo", "inflight_lo", 0.95, {}),
    ("bw_lo_1%", "bw_lo", 0.95, {"rel": 1e-2}),
)
_RECOVERY = (("sacked", 0.9), ("lost", 0.9), ("retrans", 0.9))


class Agreement(Public, Jsonable):
    """The reconstruction of one flow, which has tcp_info attached, against its polls.

    `stalls`: intervals to set aside, ns, shape (n, 2). `cc`: the kernel's name of the sender's congestion control; BBR
    and its version are recognised by its counters, or by what was sent where they leave that open.

    Attributes are `polls` (rows of the flow's tcp_info that are compared), `set_aside` (polls inside stalls), `states`
    (`state.SNAP` records, whose `poll` indexes `polls`), `replay` (the `Comparison` of the sender's own controller with
    the kernel's log; None if unknown) and `figures` (list of `Figure`).
    """

    def __init__(self, flow: Flow, stalls: Ints | None = None, cc: str | None = None) -> None:
        self.flow = flow
        info = flow.tcpinfo
        if info is None:
            raise ArgumentError("flow: has no counters attached; use flow.attach(cct.read(file))")
        self.cc, variant = _sender(flow, cc)
        begin = flow.row["start_ns"]
        end = int(flow.capture.connections.sides["last_ns"][flow.index].max())
        compared = (info["state"] == ESTABLISHED) & (info["time_ns"] > begin) & (info["time_after_ns"] < end)
        stalled = _inside(info["time_ns"], np.zeros((0, 2), np.int64) if stalls is None else stalls)
        self.set_aside = int((compared & stalled).sum())
        self.polls = np.flatnonzero(compared & ~stalled)
        self.kernel = {name: column[self.polls] for name, column in info.columns.items()}
        # Events with the poll's own time stamp may precede or follow it: a coarse clock leaves that open.
        times = np.column_stack([self.kernel["time_ns"] - 1, self.kernel["time_after_ns"]])
        self._run = replay(flow, variant) if variant and len(times) else None
        if self._run and isinstance(self._run.source, Flow):  # the replay inferred how the flow was sent
            flow = self.flow = self._run.source
        decided = (self._run.decided, self._run.marked) if self._run else ()
        self.states = flow.answers(times, *decided)
        self.replay: Comparison | None = None
        self.figures = self._figures() + self._replay_figures() if len(self.polls) else []

    @property
    def _is_bbr(self) -> bool:
        return self._run is not None and "pacing_gain" in self._run.decisions

    def agrees(self, name: str) -> Bools:
        """Return for each poll whether the value named as in `figures` (or `ca_state`, `rto`, ...) agrees."""
        _, column, compare, grows_from_0 = _COMPARED.get(name, _Compared(0.0, name))
        got, want = self.values(column), self.kernel[column][self.states["poll"]]
        if grows_from_0 and not self.flow.facts["complete"]:
            got, want = got - got[0], want - want[0]
        agrees = np.zeros(len(self.polls), bool)
        matches = compare(got.astype(np.float64) if compare is not _equal else got, want)
        np.logical_or.at(agrees, self.states["poll"], matches)
        return agrees

    def values(self, column: str) -> Values:
        """Return the reconstructed values of a tcp_info column, one for each of `states`."""
        if column == "delivery_rate_Bps":
            interval = np.maximum(self.states["rate_interval_us"], 1)
            rate = self.states["rate_delivered"] * self.flow.facts["mss"] * 1_000_000 // interval
            return np.where(self.states["rate_interval_us"] > 0, rate, 0)
        return self.states[column]

    def _figures(self) -> list[Figure]:
        out = []
        for name, compared in _COMPARED.items():
            known = self.kernel[compared.column] >= 0
            if known.any() and (name != "min_rtt" or self.flow.facts["complete"]):
                out.append(Figure.of(name, self.agrees(name)[known], compared.need))
        disturbed = self.kernel["ca_state"] != 0
        if disturbed.mean() >= NON_OPEN_SHARE:
            state = self.agrees("ca_state")
            out += [Figure.of("ca_state", state, 0.95), Figure.of("ca_state_not_open", state[disturbed], 0.9)]
            for name, need in _RECOVERY:
                present = self.kernel[name] > 0
                if present.any():
                    out.append(Figure.of(name, self.agrees(name)[present], need))
        return out

    def _replay_figures(self) -> list[Figure]:
        if self._run is None:
            return []
        try:
            replayed = self.replay = self._run.compare()
        except ArgumentError:  # a flow too short to be compared
            return []
        common = np.isin(replayed.polls, self.polls)
        if not common.any():
            return []
        # Losses hide samples by the capture's order against the kernel's: nothing exact is asked for then.
        lossless = self.kernel["total_retrans"][-1] == self.kernel["total_retrans"][0]
        wanted = (
            ("bw_0.1%", "bw", 0.95 if lossless else 0.0, {"rel": 1e-3}),
            ("bw_1%", "bw", 0.95, {"rel": 1e-2}),
            ("min_rtt", "min_rtt", 0.98, {"rel": 1e-2}),
            ("pacing_gain", "pacing_gain", 0.95, {"absolute": 1e-6, "slack_polls": 1}),
            ("cwnd_gain", "cwnd_gain", 0.95, {"absolute": 1e-6, "slack_polls": 1}),
            *(_OF_A_WINDOW if not self._is_bbr else ()),
            *(_OF_BOUNDS if self._is_bbr else ()),
        )
        figures = []
        for label, quantity, need, how in wanted:
            if quantity in replayed.quantities:
                agrees = replayed.agrees(quantity, **how)
                parts = (
                    (label, common & ~replayed.startup, need),
                    (f"{label}_startup", common & replayed.startup, 0.0),
                )
                figures += [Figure.of(f"replay_{n}", agrees[p], least) for n, p, least in parts if p.any()]
        return figures

    def to_dict(self) -> dict[str, Any]:
        """Return the result for JSON: flow, polls compared and set aside, quality, figures by name."""
        src, sport, dst, dport = self.flow.key
        quality = self.flow.quality()
        return {
            "flow": f"{endpoint(src, sport)} -> {endpoint(dst, dport)}",
            "polls": len(self.polls),
            "polls_in_stalls": self.set_aside,
            "unexplained_retransmissions": quality["unexplained_retransmissions"],
            "replayed": self.replay.run.controller.__name__ if self.replay else None,
            "phase_locked": None if self.replay is None or np.isnan(self.replay.locked) else self.replay.locked,
            "figures": {
                f.name: {"share": f.share, "polls": f.polls, "need": f.need, "met": f.met} for f in self.figures
            },
        }


def _sender(flow: Flow, named: str | None) -> tuple[str | None, str | None]:
    """Return the kernel's name and the variant of a flow's sender; None for what is not known, or not replayed."""
    named = controller_name(flow.tcpinfo) or named
    group: tuple[str, ...] = ()
    if named is not None and leaves_open(flow.tcpinfo, named):
        with contextlib.suppress(StreamError):
            group = identify(flow, KERNEL_NAMES[named]).group
    kernels, variant = sender(flow.tcpinfo, named, *group)
    return kernels, variant if variant in REGISTRY else None


def _inside(times: Ints, intervals: Ints) -> Bools:
    """Return which times lie in one of the (sorted, disjoint) intervals (start, end]."""
    if len(intervals) == 0:
        return np.zeros(len(times), bool)
    at = np.searchsorted(intervals[:, 0], times, side="left") - 1
    return (at >= 0) & (times <= intervals[np.maximum(at, 0), 1])


def stalls(folder: str | Path) -> Ints:
    """Return the intervals (start, end], ns, in which the emulator of a recording was late by more than 4 ms."""
    path = Path(folder) / "queue.csv.gz"
    if not path.exists():
        return np.zeros((0, 2), np.int64)
    with open_source(path) as source, of_shape(source.name, "a recording's queue"):
        rows = list(csv.DictReader(source.lines()))
        if not rows or "late_max_us" not in rows[0]:
            return np.zeros((0, 2), np.int64)
        times = np.array([int(row["time_ns"]) for row in rows], np.int64)
        late = np.array([float(row["late_max_us"]) > STALL_US for row in rows])
    before = np.concatenate([times[:1] - 10_000_000, times[:-1]])
    return np.column_stack([before, times])[late]


def load(folder: str | Path) -> list[Flow]:
    """Read a recording.

    Returns
    -------
    list of Flow
        Each flow that the recording's tcp_info covers, with it attached.

    Raises
    ------
    FormatError
        If the folder lacks the sender's capture or tcp_info.
    """
    folder = Path(folder)
    capture = read(_only_file(folder, "sender.pcap*"))
    info = read(_only_file(folder, "tcpinfo.csv*"))
    ports = {number: port for number, (port, _) in _described(folder).items()}
    flows = []
    for index, connection in enumerate(info.connections):
        sport = connection.get("sport", ports.get(connection.get("flow_id")))
        for row, port in enumerate(capture.flows["sport"]):
            if (sport is None and len(info.connections) == 1) or port == sport:
                flows.append(type(capture.flow(row))(capture, row, info.select(index)))
                break
    return flows


def _only_file(folder: Path, pattern: str) -> Path:
    matches = sorted(folder.glob(pattern))
    if not matches:
        raise FormatError(f"{folder}: no {pattern}; a recording holds sender.pcap.zst and tcpinfo.csv.zst")
    return matches[0]


def _described(folder: str | Path) -> dict[int, tuple[int, str]]:
    """Return {flow id: (port, controller)} of the recording's scenario; empty without one."""
    path = Path(folder) / "scenario.json"
    if not path.exists():
        return {}
    with json_file(path, "a recording's scenario") as scenario:
        return {int(flow["id"]): (int(flow["sport"]), str(flow["cc"])) for flow in scenario["parameters"]["flows"]}


def validate(folder: str | Path) -> list[Agreement]:
    """Return the `Agreement` of every flow of one recording; see `load` for the errors."""
    controllers, aside = dict(_described(folder).values()), stalls(folder)
    return [Agreement(flow, aside, controllers.get(flow.key[1])) for flow in load(folder)]
