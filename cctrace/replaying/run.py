"""Replay: a stream of calls through a controller, interpreted or compiled, with identical numbers.

`replay` is the façade over `player` (complete streams, such as golden vectors) and `follow` (recorded flows, whose
unrecorded values `infer` infers). `agreement` compares the result with the kernel's log.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from cctrace import schema
from cctrace.arguments import as_list, check_argument
from cctrace.cc import controller as resolve
from cctrace.cc.base import checked_params, param_fields
from cctrace.columns import Columns, Floats, Held, Ints, frame_of
from cctrace.display import Carded
from cctrace.errors import ArgumentError
from cctrace.files import write_parquet
from cctrace.flows.cut_options import cut_options
from cctrace.flows.flow import Flow
from cctrace.flows.source import FlowSource, Streamed, Viewed, flow_of
from cctrace.flows.views import View, of_events
from cctrace.lang.fields import fields_of
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.inference.hypotheses import Inferred
from cctrace.replaying.inference.through_fq import handed_over_with
from cctrace.replaying.inference.writes import marks_of_writes
from cctrace.replaying.model import model_fields, model_of
from cctrace.replaying.player import Player
from cctrace.replaying.recorded_flow import follow, replay_events

if TYPE_CHECKING:
    import pandas as pd

    from cctrace.cc.base import Controller
    from cctrace.flows.packed import EventColumns
    from cctrace.replaying.agreement import Comparison

# Recorded by default: the controller's outputs, and those of these model fields that exist.
OUTPUTS = {"linux": ("snd_cwnd", "snd_ssthresh", "pacing_rate"), "quic": ("cwnd", "pacing_rate")}
MODEL = (
    "mode",
    "bw",
    "min_rtt_us",
    "min_rtt_ms",
    "pacing_gain",
    "cwnd_gain",
    "cycle_idx",
    "inflight_hi",
    "inflight_lo",
)


# Replays with computed writes: a round trip of decisions may settle with each (11 in view); of long flows, so many as
# replay these packets, three at least.
MAX_WRITTEN, MIN_WRITTEN, WRITTEN_PACKETS = 24, 3, 400_000


@dataclass(frozen=True, repr=False)
class Run(Carded):
    """A controller's decisions over a stream.

    Attributes
    ----------
    held : Mapping of str to ndarray
        What `columns` has; each column of a recorded flow is made when it is asked for.
    columns : dict of str to ndarray
        One element per call: ``time_s`` (since the flow's first packet, of a golden vector since its first call),
        ``time_ns``, ``event`` (code) and the recorded fields, after the call.
    decisions : DataFrame
        The same with the names of events.
    state : dict
        The final state, {field: value}.
    controller : type
    params : dict
        All parameters of the run.
    warnings : list of str
        Columns that the controller reads although they were not observed, and other limitations of the run.
    source : object
        The replayed stream.
    inferred : Inferred
        Unrecorded values inferred from the sends, see `replaying.inference.infer`: random draws, ticks, and the share
        of gain cycles in step.
    marked : ndarray of uint8 or None
        For each packet sent, whether it was application-limited.

    Examples
    --------
    >>> import cctrace as cct
    >>> folder = cct.datasets.path("loss_cubic_1pct")
    >>> flow = cct.read(folder / "sender.pcap.zst").flow(0).attach(cct.read(folder / "tcpinfo.csv.zst"))
    >>> cct.replay(flow, "cubic6").compare().to_dict()["cwnd_2"] > 0.99
    True
    """

    held: Held
    state: dict[str, Any]
    controller: type[Controller]
    params: dict[str, Any]
    warnings: list[str]
    source: Streamed | Viewed | str | os.PathLike[str] | None = None
    inferred: Inferred = field(default_factory=Inferred.nothing)
    marked: NDArray[np.uint8] | None = None

    @functools.cached_property
    def columns(self) -> Columns:
        """All columns of `held`."""
        return dict(self.held)

    @functools.cached_property
    def decisions(self) -> pd.DataFrame:
        """Decisions in the controller's own fields and units: DataFrame, one row per call."""
        import pandas as pd

        names = sorted(schema.EVENT_CODES, key=schema.EVENT_CODES.__getitem__)
        events = pd.Categorical.from_codes(self.columns["event"], pd.Index(names))
        return pd.DataFrame(self.columns | {"event": events}, copy=False)

    def recorded(self, *names: str) -> Held:
        """Return `held`. Raises `ArgumentError` if the replay did not record one of these fields."""
        if missing := [name for name in names if name not in self.held]:
            raise ArgumentError(f'this replay did not record {", ".join(missing)}: replay with record="all"')
        return self.held

    @property
    def decided(self) -> Ints:
        """A Linux controller's decisions as `Flow.answers` takes them, shape (calls, 4)."""
        held, states = self.recorded("snd_cwnd"), self.controller.states
        paces = "pacing_gain" in held or self.params.get("paced")
        rate = np.maximum(self.recorded("pacing_rate")["pacing_rate"], 0) if paces else 0
        probing = self.recorded("mode")["mode"] == states.index("PROBE_RTT") if "PROBE_RTT" in states else False
        return np.column_stack(np.broadcast_arrays(held["time_ns"], rate, held["snd_cwnd"], probing))

    def __repr__(self) -> str:
        given = ",".join(f"{name}={value}" for name, value in self.params.items())
        return f"<Run of {self.controller.__name__}:{given}, {self.held.count} calls>"

    def _card(self) -> tuple[str, list[tuple[str, object]], list[str]]:
        from cctrace.replaying.words import in_words

        flow = flow_of(self.source)
        mss = flow.facts["mss"] if flow else None
        rows: list[tuple[str, object]] = [
            ("calls", self.held.count),
            *in_words(self.controller, self.state, mss),
        ]
        return f"Replay of {self.controller.__name__}, after its last call", rows, self.warnings

    def frame(self) -> pd.DataFrame:
        """Return the decisions with common names and units: DataFrame, one row per call.

        For a Linux controller as `cctrace.replaying.model.model_table`, if the required fields were recorded
        (``record="all"``, or counters attached); ``decisions`` has the controller's own fields and units.
        """
        return frame_of({"time_s": self.held["time_s"]} | dict(model_of(self)))

    def to_parquet(self, path: str | os.PathLike[str]) -> int:
        """Write `decisions` as Parquet (with the extra "parquet"); return the number of rows."""
        return write_parquet(path, self.decisions)

    def compare(self) -> Comparison:
        """Compare with the state logged by the kernel; the flow needs tcp_info attached.

        Raises
        ------
        ArgumentError
            If there is nothing to compare with.
        """
        from cctrace.replaying.agreement import Comparison

        return Comparison(self)


Source: TypeAlias = "Streamed | Viewed | str | os.PathLike[str]"


@overload
def replay(
    source: Source,
    controller: str | type[Controller],
    *,
    mode: str = "compiled",
    record: Sequence[str] | str | None = None,
    **params: float,
) -> Run: ...
@overload
def replay(
    source: Source,
    controller: str | type[Controller],
    *,
    mode: str = "compiled",
    record: Sequence[str] | str | None = None,
    **params: Any,
) -> list[Run]: ...
def replay(
    source: Source,
    controller: str | type[Controller],
    *,
    mode: str = "compiled",
    record: Sequence[str] | str | None = None,
    **params: Any,
) -> Run | list[Run]:
    """Call a controller with every event of a stream, and return its decisions.

    Parameters
    ----------
    source : View, path of a golden vector, or anything with ``.view(kind)``
        Recorded and simulated flows have that method, and so have connections known from counters only.
    controller : str or type
        A name (``"bbr2"``, ``"obbr:mu=0.5"``) or a subclass of `LinuxController` or `QuicController`.
    mode : "compiled", "interpreted" or "debug"
        With identical results; interpreted supports breakpoints, debug also checks the type of every assignment.
    record : sequence of str or "all", optional
        Fields and array elements (``"bw_v[0]"``) to record instead of the outputs and the main model state.
    **params
        Parameters of the controller. Lists or arrays of values form a grid: one run per combination.

    Returns
    -------
    Run, or list of Run for a grid
        In the order of `itertools.product` over the lists.

    Raises
    ------
    ArgumentError
        If the controller, a parameter, the mode or a name in `record` is unknown, or a value out of range.
    StreamError
        If the stream lacks a column that the controller reads; names it.
    CompileError
        If the class cannot be compiled; names file, line and reason.

    Notes
    -----
    This is a shadow run: what the controller would have decided on these ACKs, not what would have happened.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> run = replay(flow, "cubic6")
    >>> int(run.decisions["snd_cwnd"].max()), run.decisions["event"].iloc[0]
    (45, 'init')
    >>> [one.params["beta"] for one in replay(flow, "cubic6", beta=[0.6, 0.7])]
    [0.6, 0.7]
    """
    cls, given = resolve(controller)
    grid = {name: list(v) for name, v in params.items() if isinstance(v, list | tuple | range | np.ndarray)}
    for name, values in grid.items():
        if not values:
            raise ArgumentError(f"{name} is an empty list; a grid needs values")
    runs = []
    for choice in itertools.product(*grid.values()):
        chosen = {k: _plain(v) for k, v in (given | params | dict(zip(grid, choice, strict=True))).items()}
        runs.append(_replay(source, cls, mode, record, chosen))
    return runs if grid else runs[0]


def _replay(
    source: Source, cls: type[Controller], mode: str, record: Sequence[str] | str | None, params: dict[str, Any]
) -> Run:
    hz_known, given = "hz" in params, set(params)
    is_array = isinstance(source, np.ndarray | np.generic)  # which has a view(), too
    if is_array or not isinstance(source, Streamed | Viewed | str | os.PathLike):
        kind = type(source).__name__
        raise ArgumentError(f"cannot replay {kind!r}; give a flow, a View or the path of a golden vector")
    if "hz" in cls.params and not hz_known and isinstance(source, Streamed):
        params = params | {"hz": source.hz}  # of the recorded sender's kernel
        hz_known = "hz" not in source.events.meta.get("inferred", ())
    flow = flow_of(source)
    params = checked_params(cls, params)
    wanted = recorded_names(cls, record)
    if flow is not None and flow.tcpinfo is not None and cls.view == "linux":
        wanted += model_fields(cls)  # to be compared with the counters
    wanted = list(dict.fromkeys(wanted))
    if cls.view == "linux" and isinstance(source, Streamed):
        source, follower, inferred = replay_events(source, cls, params, wanted, mode, hz_known, given)
        return _with_writes(_run_over(source, follower, inferred), wanted, mode)
    view = view_of(source, cls)
    player = Player(view, cls, mode=mode, record=wanted, **params)
    player.run()
    time_ns, event = np.ascontiguousarray(view.time_ns), np.ascontiguousarray(view.event)
    time_s = flow.seconds(time_ns) if flow else (time_ns - (time_ns[0] if len(time_ns) else 0)) / 1e9
    plain: Columns = {"time_s": time_s, "time_ns": time_ns, "event": event}
    warnings = [*player.warnings, *(flow.caveats if flow else ())]
    columns = Held(len(view.event), plain | player.recorded, {})
    return Run(columns, player.state, cls, params, warnings, source)


def _with_writes(plain: Run, wanted: Sequence[str], mode: str) -> Run:
    """Return a replay with the writes into the send buffer, or as it is where none explains the sends.

    The writes follow from the decisions, and these (through fq also the hand-over) from which packets the writes made
    application-limited. They are believed if the replay with them finds such a buffer again.
    """
    run, packets = plain, 1 if plain.marked is None else max(len(plain.marked), 1)
    before, found = plain.marked, plain.inferred.script
    for _ in range(max(MIN_WRITTEN, min(MAX_WRITTEN, WRITTEN_PACKETS // packets))):
        marks, source = marks_of_writes(run) if run is plain else marks_of_writes(run, 0.0), run.source
        if marks is None or before is None or not isinstance(source, Flow):
            return plain
        if np.array_equal(marks, before):
            break
        before = marks
        source = handed_over_with(source, run.controller, marks)
        known = run.params
        follower, inferred = follow(source, run.controller, known, wanted, mode, given=set(known), marks=marks)
        script = inferred.script._replace(  # what the first replay found, and this one was given
            paced=found.paced, gso_max_bytes=found.gso_max_bytes, ecn_enable=found.ecn_enable
        )
        run = _run_over(source, follower, inferred._replace(script=script, possible_hz=plain.inferred.possible_hz))
    return run


def _run_over(source: Streamed, follower: Follower, inferred: Inferred) -> Run:
    """Return the replay of a recorded flow, or of one known from counters."""
    flow, stream, recorded = flow_of(source), source.events.stream, follower.held
    # Times are made from the events when asked for: of a million packets they have 25 MB.
    made = {"time_s": functools.partial(_time_s, stream, flow), "time_ns": functools.partial(stream.column, "time_ns")}
    plain = {"event": np.ascontiguousarray(stream["event"])}  # a view would keep all columns
    warnings = [*follower.warnings, *(flow.caveats if flow else ())]
    if isinstance(flow, Flow) and (cut := cut_options(flow).note):
        warnings.append(cut)
    marked = follower.marks & np.uint8(cx.APP_LIMITED)
    held = Held(recorded.count, plain | recorded.plain, recorded.runs, made)
    return Run(held, follower.state, follower.cls, follower.params, warnings, source, inferred, marked)


def _time_s(stream: EventColumns, flow: FlowSource | None, begin: int, end: int) -> Floats:
    """Return the times of calls in seconds since the flow's first packet or, without a flow, since the first call."""
    time_ns = stream.column("time_ns", begin, end)
    return flow.seconds(time_ns) if flow else (time_ns - stream.column("time_ns", 0, min(1, stream.count)).sum()) / 1e9


def view_of(source: Source, cls: type[Controller]) -> View:
    """Return the `View` of a source for a controller class; a path is read as a golden vector."""
    if isinstance(source, Viewed):
        return source.view(cls.view)
    if isinstance(source, Streamed):
        return of_events(source.events, cls.view)
    from cctrace.replaying.vectors import load

    return load(source).view.view(cls.view)


def recorded_names(cls: type[Controller], record: Sequence[str] | str | None) -> list[str]:
    """Return the names for ``record=``: None the outputs and the main model state, "all" every field."""
    fields = fields_of(cls)
    if record is None:
        # A model value under another name (``bw`` is the best sample of a filter) is found by the class's mapping for
        # golden vectors.
        names = [*OUTPUTS[cls.view], *(name if name in fields else cls.golden_names.get(f"s_{name}") for name in MODEL)]
        return [name for name in names if name and name.partition("[")[0] in fields]
    if isinstance(record, str):
        if record != "all":
            raise ArgumentError(f"record={record!r} is not a list of fields, nor 'all'")
        return [
            element
            for name, field in fields.items()
            if name not in param_fields(cls)
            for element in ([f"{name}[{k}]" for k in range(field.length)] if field.length else [name])
        ]
    fields_named = as_list(record)
    are_names = all(isinstance(name, str) for name in fields_named)
    check_argument(are_names, "record", record, "'all', or a list of names of fields")
    return fields_named


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
