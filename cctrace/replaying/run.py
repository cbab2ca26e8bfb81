"""Replay: a stream of calls through a controller, interpreted or compiled, with identical numbers.

`replay` is the façade over `player`. Of a recorded flow the sender's random draws are inferred from its sends
(`phase`), and what the controller decided is compared with what the kernel logged (`compare`).
"""

import itertools
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from cctrace import schema
from cctrace.cc import controller as resolve
from cctrace.cc.base import checked_params
from cctrace.errors import ArgumentError
from cctrace.flows.views import ticks
from cctrace.lang.fields import fields_of
from cctrace.replaying import midflow, phase, tick
from cctrace.replaying.model import model_fields
from cctrace.replaying.pacing import Pacer
from cctrace.replaying.player import Player

# Recorded by default: what the controller decides, and of its model what exists of these.
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


@dataclass(frozen=True, repr=False)
class Run:
    """What a controller decided over a stream.

    Attributes
    ----------
    decisions : DataFrame
        One row per call: ``time_ns``, ``event`` (name) and what was recorded, after the call.
    state : dict
        The final state, {field: value}.
    controller : type
    params : dict
        All parameters of the run.
    warnings : list of str
        Columns that the controller reads although nobody observed them, and what else limits what the run tells.
    source : object
        What was replayed.
    phases : list of phase.Phase
        The draws inferred from the sends of a recorded flow, see `cctrace.replaying.phase`.
    tick_phase_us : int
        Where the kernel's ticks lay, inferred for a controller without on_ack, see `cctrace.replaying.tick`.
    """

    decisions: pd.DataFrame
    state: dict
    controller: type
    params: dict
    warnings: list
    source: object = None
    phases: list = field(default_factory=list)
    tick_phase_us: int = 0

    def __repr__(self):
        given = ",".join(f"{name}={value}" for name, value in self.params.items())
        return f"<Run of {self.controller.__name__}:{given}, {len(self.decisions)} calls>"

    def compare(self):
        """Compare with the state that the kernel logged; the flow needs tcp_info attached.

        Returns
        -------
        cctrace.replaying.agreement.Comparison

        Raises
        ------
        ArgumentError
            If there is nothing to compare with.
        """
        from cctrace.replaying.agreement import Comparison

        return Comparison(self)


def replay(source, controller, *, mode="compiled", record=None, **params):
    """Call a controller with everything a stream recorded, and return what it decides.

    Parameters
    ----------
    source : View, path of a golden vector, or anything with ``.view(kind, **params)``
        Recorded and simulated flows have that method, and connections of which only counters are known.
    controller : str or type
        A name (``"bbr2"``, ``"obbr:mu=0.5"``) or a subclass of `LinuxController` or `QuicController`.
    mode : "compiled", "interpreted" or "debug"
        The same numbers; interpreted obeys breakpoints, debug also checks the type of every assignment.
    record : sequence of str or "all", optional
        Fields and array elements (``"bw_v[0]"``) to record instead of the outputs and the main model state.
    **params
        Parameters of the controller. A list or array of values makes a grid: the runs of all combinations.

    Returns
    -------
    Run, or list of Run for a grid
        The order is that of `itertools.product` over the lists as given.

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
    """
    cls, given = resolve(controller)
    grid = {name: list(v) for name, v in params.items() if isinstance(v, list | tuple | range | np.ndarray)}
    for name, values in grid.items():
        if not values:
            raise ArgumentError(f"{name} is an empty list; a grid needs values")
    runs = []
    for values in itertools.product(*grid.values()):
        chosen = {k: _plain(v) for k, v in (given | params | dict(zip(grid, values, strict=True))).items()}
        runs.append(_replay(source, cls, mode, record, chosen))
    return runs if grid else runs[0]


def _replay(source, cls, mode, record, params):
    if "hz" in cls.params and "hz" not in params and hasattr(source, "hz"):
        params = params | {"hz": source.hz}  # the recorded sender's kernel
    params = checked_params(cls, params)
    view = view_of(source, cls, params)
    names = recorded_names(cls, record)
    logged = getattr(source, "tcpinfo", None) is not None and cls.view == "linux"
    extra = [*(model_fields(cls) if logged else ()), *(("pacing_rate", "mode") if cls.phase_choices else ())]
    extra = [name for name in dict.fromkeys(extra) if name not in names]
    player = Player(view, cls, mode=mode, record=names + extra, **params)
    tick_us = 0
    if view.stack and not hasattr(cls, "on_ack") and hasattr(source, "events"):
        events = source.events
        tick_us = tick.phase_us(view, cls, params, events)
        player.replace_columns(ticks(events.now_us, events["lsndtime_us"], params["hz"], tick_us))
    if cls.phase_choices and hasattr(source, "sends"):
        expiry = -1 if source.facts["complete"] else midflow.probe_rtt_row(view)
        phases = phase.follow(Pacer(player, source.sends), phase.Sends.of(source), cls.phase_choices, expiry)
    else:
        player.run()
        phases = []
    names = {code: name for name, code in schema.EVENT_CODES.items()}
    kinds = pd.Categorical.from_codes(view.event, [names[code] for code in range(len(names))])
    decisions = pd.DataFrame({"time_ns": view.time_ns, "event": kinds} | player.recorded, copy=False)
    warnings = [*player.warnings, *getattr(source, "caveats", ())]
    return Run(decisions, player.state, cls, params, warnings, source, phases, tick_us)


def view_of(source, cls, params):
    """Return the `View` of a source for a controller class: a path is read as a golden vector."""
    if hasattr(source, "view"):
        return source.view(cls.view, **params)
    if hasattr(source, "__fspath__") or isinstance(source, str):
        from cctrace.replaying.vectors import load

        return load(source).view.view(cls.view)
    raise ArgumentError(f"cannot replay {type(source).__name__!r}; give a flow, a View or the path of a golden vector")


def recorded_names(cls, record):
    """Return the names that ``record=`` means: None the outputs and the main model state, "all" every field."""
    fields = fields_of(cls)
    if record is None:
        # A model value that the class keeps under another name (``bw`` is the best sample of a filter) is found as
        # the golden vectors find it.
        names = [*OUTPUTS[cls.view], *(name if name in fields else cls.golden_names.get(f"s_{name}") for name in MODEL)]
        return [name for name in names if name and name.partition("[")[0] in fields]
    if isinstance(record, str):
        if record != "all":
            raise ArgumentError(f"record={record!r} is not a list of fields, nor 'all'")
        return [
            element
            for name, field in fields.items()
            if name not in cls.params
            for element in ([f"{name}[{k}]" for k in range(field.length)] if field.length else [name])
        ]
    return list(record)


def _plain(value):
    return value.item() if isinstance(value, np.generic) else value
