"""A capture as an annotated pcapng, with the companion file that the plug-in of Wireshark reads."""

import heapq
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import Any, Self, cast

import cctrace
from cctrace.analysis.inputs import Counters
from cctrace.analysis.one_flow import of_capture
from cctrace.display import Jsonable, Progress, Summarized, connection, silent, visible
from cctrace.errors import ArgumentError, StreamError
from cctrace.files import replacing
from cctrace.flows.counters import CounterFlow
from cctrace.flows.flow import Flow
from cctrace.flows.large import batches_of_file, in_processes
from cctrace.io import CAPTURES, sniff
from cctrace.io.captures.annotated import Comment, is_annotated, write_annotated
from cctrace.io.source import open_source
from cctrace.path.evidence import forget
from cctrace.refusals import KILLED, Attempt
from cctrace.replaying.inference.through_fq import at_hand_over
from cctrace.units import format_counted
from cctrace.wireshark.columns import PacketColumns, columns_of
from cctrace.wireshark.comments import comments_of
from cctrace.wireshark.companion import SUFFIX, write_companion

File = str | os.PathLike[str]


@dataclass(frozen=True, repr=False)
class Annotated(Summarized, Jsonable):
    """Result of `annotate`."""

    card_title = "Annotated capture"

    target: str  # the pcapng
    companion: str  # the file beside it, whose fields the plug-in shows
    packets: int  # in the capture
    commented: int  # packets with a comment
    flows: list[str] = field(default_factory=list)  # of each analysed: its sender, and why it behaved as it did
    notes: list[str] = field(default_factory=list)  # caveats

    def summary(self) -> str:
        """Return as text what was written."""
        packets = format_counted(self.packets, "packet", "packets")
        head = f"{self.target}: {packets}, {self.commented} with a comment; fields in {self.companion}"
        return "\n".join([head, *self.flows])

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""
        return asdict(self)


def annotate(
    source: File,
    target: File,
    tcpinfo: Iterable[File] = (),
    controller: str | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Annotated:
    """Copy a capture, byte for byte, to a pcapng with comments on its packets.

    Its bulk flows are analysed as in `cctrace.analyze`. A second file beside the target, which has its name with
    `SUFFIX`, holds the state at each of their packets, for Wireshark's plug-in.

    `source`: a capture, of any link type, compressed or not. `tcpinfo`: the kernel's counters of its flows.
    `controller`: the one to replay; by default each flow's own, from its counters or identified. `options`: `limit`,
    `decapsulate` of `cctrace.io.read_file`. Raises `FormatError` if the file cannot be read; `ArgumentError` if it is
    no capture, is annotated already, or cannot be read twice, or if counters belong to none of its flows; `StreamError`
    if none of its flows can be reconstructed.

    >>> import tempfile
    >>> import cctrace as cct
    >>> capture = cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = annotate(capture, f"{folder}/annotated.pcapng")
    >>> found.packets, found.commented > 500
    (9381, True)
    """
    source, target = os.fspath(source), os.fspath(target)
    _require_annotatable(source, target, options.get("limit"))
    found = _Findings()
    counters = Counters.of_files(tcpinfo, options=options)
    progress(f"reading {source}")

    def of_flow(flow: Flow | CounterFlow) -> _Findings:
        one = _Findings()
        one.add(source, cast(Flow, flow), counters, controller)  # of a capture, as was checked
        forget(cast(Flow, flow))
        return one

    for flows in batches_of_file(source, **options):
        # Counters note which flows they belong to, which only this process would know.
        each = map(of_flow, flows) if counters.tables else in_processes(of_flow, flows, _Findings(refused=KILLED))
        for flow in flows:
            progress(f"analysing {connection(*flow.key)}")
            found.join(next(each))
    counters.require_used()
    if not found.flows:
        raise StreamError(found.refused)
    progress(f"writing {target}")
    companion = target + SUFFIX
    comments = _Counted(heapq.merge(*map(comments_of, found.flows), key=attrgetter("frame")))
    application = f"cctrace {cctrace.__version__}"
    with replacing(target) as file, open_source(source, options.get("limit")) as opened, replacing(companion) as beside:
        packets = write_annotated(opened, file, comments, visible("\n".join(found.lines)), application)
        write_companion(found.flows, beside)
    return Annotated(target, companion, packets, comments.count, found.lines, found.notes)


@dataclass
class _Findings:
    """Results of the flows' analyses."""

    flows: list[PacketColumns] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: str = ""

    def join(self, other: Self) -> None:
        """Add the results of further flows."""
        self.flows += other.flows
        self.lines += other.lines
        self.notes += other.notes
        self.refused = self.refused or other.refused

    def add(self, source: str, flow: Flow, counters: Counters, controller: str | None) -> None:
        """Analyse a flow."""
        flow, others = counters.attach(flow)
        with Attempt("hand-over to fq"):
            flow = at_hand_over(flow)
        analysis = of_capture(source, flow, (), controller)
        self.notes += [f"{analysis.title}: {note}" for note in (*analysis.notes, *others)]
        with Attempt("annotation") as part:
            self.flows.append(columns_of(flow, analysis))
        if part.refusal is not None:
            self.refused = part.refusal.reason
            return
        sender = analysis.controller or analysis.variant or "an unknown controller"
        self.lines.append(f"flow {flow.index}, {analysis.title}, sent by {sender}: {analysis.sentence}")


class _Counted(Iterator["Comment"]):
    """Comments, counted as they pass."""

    def __init__(self, comments: Iterable[Comment]) -> None:
        self._comments, self.count = iter(comments), 0

    def __next__(self) -> Comment:
        comment = next(self._comments)
        self.count += 1
        return comment


def _require_annotatable(source: str, target: str, limit: int | None) -> None:
    """Refuse a source that is not a capture or was annotated already, and a target that is not a separate file."""
    if source == "-":
        raise ArgumentError("annotate reads a capture twice, which standard input does not allow: give a file")
    with open_source(source, limit) as opened:
        name = sniff(opened)
        if name not in CAPTURES:
            raise ArgumentError(f"{source}: a capture is needed here, this is {name}")
        if is_annotated(opened.head):
            raise ArgumentError(f"{source} is annotated already: annotate the capture that it was made of")
    if os.path.exists(target) and not os.path.isfile(target):
        raise ArgumentError(f"target={target!r} is not a regular file: a second file is written beside it")
    if os.path.isfile(source) and os.path.isfile(target) and os.path.samefile(source, target):
        raise ArgumentError(f"{target} is the capture itself: give another file to write to")
