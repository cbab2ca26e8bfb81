"""What if another controller had sent this flow, or its path had been another?

    1. infer     the path, by `fit.path`, with draws of what the capture leaves open; whose flow it was, by `identify`
    2. check     the flow's own controller over these paths: does what was recorded come out again?
    3. ask       the candidates over the same draws, with the same chance (common random numbers)

Others that share the bottleneck in the capture are simulated as the senders they are, not replayed: they react. What
the capture cannot exclude is named in `WhatIf.unseen` and bounds the answer from one side.
"""

import dataclasses

import numpy as np

from cctrace.cc import controller as resolve
from cctrace.errors import ArgumentError, FitError, StreamError
from cctrace.explain.diagnose import diagnose
from cctrace.explain.identify import UNKNOWN, identify
from cctrace.explain.otherpath import changed, check_changes
from cctrace.explain.record import Record
from cctrace.fit import Estimate
from cctrace.fit import path as fit_path
from cctrace.fit.results import plain
from cctrace.fit.shared import neighbours
from cctrace.fit.transmissions import DELIVERED, WIRE_BYTES, as_flow, transmissions
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate
from cctrace.units import format_rate, format_share, format_time

FIGURES = {"goodput_bps": "goodput_bps", "rtt_mean_us": "rtt_mean_us", "retransmitted_share": "retransmit_ratio"}
DRAWS = 12
LEAST_DRAWS = 3
OPEN_ENDED = 1.1  # times the RTT over the shorter half of unseen queues: longer ones would make it longer still
HELD_BACK = ("application_limited", "send_buffer_limited")  # first verdicts with which nothing is answered
WINDOW_SHUT = 0.01  # share of the time, from which on the receive window is part of the path
# "Comes out again" is what the project asks of its predictions: within 10 %, 20 %, a factor of 2 or 0.3 points.
NEAR = {"goodput_bps": 0.10, "rtt_mean_us": 0.20}
NEAR_FACTOR, NEAR_POINTS = 2.0, 0.003
SIDES = (0.05, 0.95)  # of the runs: 90 % intervals
# How far simulations of a known path are from recordings of it, as a standard deviation on the scale of `_log`, told
# from recordings of a quiet lab that no what-if is judged by: `python benchmarks/whatif.py simulator`.
SIMULATOR = {"goodput_bps": 0.01, "rtt_mean_us": 0.012, "retransmitted_share": 0.03}
Z90 = 1.645
_UNSEEN = {
    "rate": "a faster path: no queue ever grew, so what it could have carried is not known",
    "buffer": "a longer queue: it never overflowed; one to ten times its longest backlog are tried",
    "base_rtt": "a shorter base RTT: others' packets stood in the queue all the time",
}


@dataclasses.dataclass(frozen=True)
class WhatIf:
    """What would have happened.

    Attributes
    ----------
    recorded : dict
        ``goodput_bps``, ``rtt_mean_us`` and ``retransmitted_share`` of the flow as it was captured.
    own : str or None
        The controller that sent it; None if nothing tells.
    original : dict or None
        The same figures of `own` over the inferred path: `Estimate`, 90 % intervals of the next such run.
    reproduces : bool
        Whether these are what was recorded. Where they are not, the path is not understood, and the candidates' figures
        are no advice.
    candidates : dict
        {name: figures}.
    path : FittedPath
        The inferred path.
    changed : dict
        What was changed of it, as given.
    unseen : list of str
        What the capture cannot exclude, in words.
    """

    recorded: dict
    own: str | None
    original: dict | None
    reproduces: bool
    candidates: dict
    path: object
    changed: dict
    unseen: list

    def as_object(self):
        """Return what `cctrace whatif --json` prints for a flow."""
        named = ("recorded", "own", "original", "reproduces", "candidates", "changed", "unseen")
        recorded = {name: Estimate(value, value, value) for name, value in self.recorded.items()}
        return plain({name: getattr(self, name) for name in named} | {"recorded": recorded})

    def table(self):
        """Return the answer as a DataFrame: a row per sender, value and interval of each figure."""
        import pandas as pd

        rows = {"recorded": {name: Estimate(value) for name, value in self.recorded.items()}}
        if self.original:
            rows[f"{self.own} (its own)"] = self.original
        rows |= self.candidates
        flat = {
            sender: {f"{name}{end}": getattr(figures[name], side) for name in FIGURES for end, side in _ENDS}
            for sender, figures in rows.items()
        }
        return pd.DataFrame.from_dict(flat, orient="index")

    def summary(self):
        """Return the answer as text."""
        lines = [_line("recorded", {name: Estimate(value) for name, value in self.recorded.items()})]
        if self.original:
            lines.append(_line(f"{self.own} simulated", self.original))
        lines += [_line(name, figures) for name, figures in self.candidates.items()]
        if self.reproduces:
            lines.append("the inferred path reproduces the recording")
        elif self.original:
            lines.append("the inferred path does NOT reproduce the recording: the figures above are no advice")
        else:
            lines.append("whose flow it was is unknown, so nothing shows that the path is understood: no advice")
        return "\n".join(lines + [f"not excluded: {text}" for text in self.unseen])


_ENDS = (("", "value"), ("_low", "low"), ("_high", "high"))


def whatif(flow, candidates=(), *, own=None, draws=DRAWS, seed=1, say=lambda text: None, **changes):
    """Simulate other controllers, or another path, in place of those of a captured flow.

    Parameters
    ----------
    flow : Flow or Simulation
        Of a capture (or of a simulation with ``packets=True``).
    candidates : sequence of str
        Controllers, as `simulate` takes them; none: only the flow's own.
    own : str, optional
        The controller that sent the flow; by default as `identify` finds.
    draws : int
        How many paths are drawn from what the capture leaves open; each is a run per candidate.
    seed : int
        The same seed gives the same numbers.
    say : callable
        Told what is being done.
    **changes
        Of the path: ``rate``, ``rtt``, ``buffer``, ``jitter``, ``loss``, as `Path` takes them, or ``"x2"``: times 2.

    Returns
    -------
    WhatIf

    Raises
    ------
    ArgumentError
        For an unknown controller or change.
    FitError
        If the path cannot be inferred, or not the path but application or receiver held the flow back.
    StreamError
        If the capture lacks one direction.
    """
    candidates = list(candidates)
    for name in [*candidates, *([own] if own else [])]:
        resolve(name)
    check_changes(changes)
    if not isinstance(draws, int) or draws < LEAST_DRAWS:
        raise ArgumentError(f"draws={draws!r} must be an integer from {LEAST_DRAWS}")
    captured = as_flow(flow)
    table = transmissions(captured)
    window, unseen = _held_back(captured)
    say("the path")
    path = fit_path(captured, say)
    unseen += [_UNSEEN[name] for name in path.estimates["unseen"] if name in _UNSEEN]
    say("whose flow it was")
    own = own or _own(captured, unseen)
    scene = _Scene(path, table, captured, draws, seed, window)
    recorded = recorded_figures(captured, table)
    original, reproduces, misfit = None, False, {}
    if own:
        say(f"{own} over the inferred path")
        runs = scene.runs(own, {})
        original = _estimates(runs, {})
        reproduces = all(_near(name, original[name].value, recorded[name]) for name in FIGURES)
        misfit = {name: abs(_log(name, original[name].value) - _log(name, recorded[name])) for name in FIGURES}
    answers = {}
    for name in candidates or ([own] if own and changes else []):
        say(f"{name} over the inferred path")
        answers[name] = _bounded(scene.runs(name, changes), misfit, scene)
    return WhatIf(recorded, own, original, reproduces, answers, path, dict(changes), unseen)


def recorded_figures(flow, table):
    """Return goodput (bit/s of payload, from the first packet to the last ACK), mean RTT (us) and share sent again."""
    told = table.told_ns[table.told_ns >= 0]
    if not len(told):
        raise StreamError("nothing that was sent was acknowledged, so there is nothing to compare with")
    delivered = (table.wire_bytes - WIRE_BYTES)[table.state == DELIVERED].sum()
    return {
        "goodput_bps": float(delivered * 8e9 / (int(told.max()) - table.start_ns)),
        "rtt_mean_us": float(flow.rtt.rtt_us.mean()),
        "retransmitted_share": float(table.again.mean()),
    }


class _Scene:
    """What every run has in common: paths drawn, the other senders, the receiver, the time."""

    def __init__(self, path, table, flow, draws, seed, window):
        self.paths, self.seed = path.draws(draws, seed), seed
        told = table.told_ns[table.told_ns >= 0]
        self.unseen = path.estimates["unseen"]
        self.duration = f"{(int(told.max()) - table.start_ns) / 1e9:.3f}s"
        acks = len(np.unique(table.ack_row[table.ack_row >= 0]))
        self.common = {"ack_every": 1 if len(told) < 1.5 * acks else 2}
        if window:
            self.common["rwnd"] = f"{window:.0f}B"
        self.others = _others(flow, path) if path.estimates["cross_traffic"]["flows_in_capture"] else []

    def runs(self, name, changes):
        """Return {figure: value per draw} of a controller over the drawn paths, changed."""
        rows = []
        for k, path in enumerate(self.paths):
            mine = Sender(name, **self.common)
            sim = simulate(changed(path, changes), [mine, *self.others], self.duration, self.seed + k)
            rows.append([float(sim.flows[column].iloc[0]) for column in FIGURES.values()])
        return dict(zip(FIGURES, np.array(rows).T, strict=True))


# --- what is known of the flow ---------------------------------------------------------------------------------------
def _held_back(flow):
    """Return (receive window to keep, bytes, or None; what that leaves open), if the path decided most of the time.

    Raises
    ------
    FitError
        If the application or the send buffer did.
    """
    found = diagnose(flow)
    first, unseen = found.verdicts[0].name if found.verdicts else "", []
    whole = sum(limit.end_s - limit.start_s for limit in found.limits) or 1.0
    idle, shut = (
        sum(limit.end_s - limit.start_s for limit in found.limits if limit.name in names) / whole
        for names in (("application", "send_buffer"), ("receive_window",))
    )
    if first in HELD_BACK:
        raise FitError(
            f"the application or its send buffer held the flow back (for {format_share(idle)} of the time): what "
            "another controller would have done with more to send is not in the capture; a bulk transfer is needed"
        )
    if idle > 0:
        unseen.append(f"that the application had less to send for up to {format_share(idle)} of the time")
    window = Record(flow).largest_window_bytes
    if shut <= WINDOW_SHUT or not window:
        return None, unseen
    unseen.append(f"a receive window above the {window / 1e3:.0f} kB seen, which held back and is kept")
    return window, unseen


def _own(flow, unseen):
    """Return who sent the flow, or None; `unseen` learns what that leaves open."""
    try:
        found = identify(flow)
    except StreamError as error:
        unseen.append(f"whose flow it was: {error}")
        return None
    if found.name == UNKNOWN:
        unseen.append("whose flow it was: no candidate explains what was sent; own=NAME says it")
        return None
    if len(found.group) > 1:
        unseen.append(f"that it was {' or '.join(name for name in found.group if name != found.name)} that sent it")
    return found.name


def _others(flow, path):
    """Return the senders of the other flows through the same bottleneck."""
    begin_ns, senders = flow.summary["start_ns"], []
    least_us = float(np.nanmin(transmissions(flow).rtt_us))
    for index in neighbours(flow):
        other = flow.capture.flow(index)
        start = (other.summary["start_ns"] - begin_ns) / 1e9
        rtt_us = path.rtt_ns / 1e3 + float(np.nanmin(transmissions(other).rtt_us)) - least_us
        times = {"start": f"{max(start, 0):.3f}s", "stop": f"{start + other.summary['duration_s']:.3f}s"}
        senders.append(Sender(_own(other, []) or "cubic", rtt=f"{max(rtt_us, 100.0):.0f}us", **times))
    return senders


# --- figures ---------------------------------------------------------------------------------------------------------
def _estimates(runs, misfit):
    """Return the median of runs and a 90 % interval.

    It has the spread of the runs, the simulator's own error, and by how much the original missed what was recorded.
    """
    found = {}
    for name, values in runs.items():
        low, middle, high = (_log(name, value) for value in np.quantile(values, [SIDES[0], 0.5, SIDES[1]]))
        known = np.hypot(Z90 * SIMULATOR[name], misfit.get(name, 0.0))
        low, high = middle - np.hypot(middle - low, known), middle + np.hypot(high - middle, known)
        found[name] = Estimate(*(_unlog(name, value) for value in (middle, low, high)))
    return found


def _log(name, value):
    """Return a figure on the scale on which its errors are alike: logarithms; a share's half a point above zero."""
    return float(np.log(value + (NEAR_POINTS if name == "retransmitted_share" else 0.0)))


def _unlog(name, value):
    if name == "retransmitted_share":
        return float(np.clip(np.exp(value) - NEAR_POINTS, 0.0, 1.0))
    return float(np.exp(value))


def _near(name, got, want):
    """Return whether a figure comes out again."""
    if name in NEAR:
        return abs(got / want - 1) <= NEAR[name]
    return abs(got - want) <= NEAR_POINTS or max(got, want) <= NEAR_FACTOR * min(got, want)


def _bounded(runs, misfit, scene):
    """Return the figures of a candidate, without the bounds that the capture does not give."""
    figures = _estimates(runs, misfit)
    if "rate" in scene.unseen:  # a path that never filled may be any faster
        figures["goodput_bps"] = figures["goodput_bps"]._replace(high=None)
    if "buffer" in scene.unseen:
        rtt = runs["rtt_mean_us"][np.argsort([path.buffer_bytes for path in scene.paths])]
        half = len(rtt) // 2
        if np.median(rtt[half:]) > OPEN_ENDED * np.median(rtt[:half]):
            figures["rtt_mean_us"] = figures["rtt_mean_us"]._replace(high=None)
    return figures


def _line(name, figures):
    goodput, rtt, again = (figures[key] for key in FIGURES)
    texts = (_range(goodput, format_rate), _range(rtt, _time), _range(again, format_share))
    return f"{name:24s} {texts[0]}, RTT {texts[1]}, {texts[2]} sent again"


def _time(us):
    return format_time(us * 1e3)


def _range(estimate, form):
    if estimate.low is None and estimate.high is None:
        return form(estimate.value)
    low, high = ("?" if side is None else form(side) for side in (estimate.low, estimate.high))
    return f"{form(estimate.value)} ({low} to {high})"
