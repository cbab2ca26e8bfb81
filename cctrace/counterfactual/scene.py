"""What every run of a what-if has in common: paths drawn, the other senders, the receiver, the time.

scene = Scene(flow)          infers the path, says whose flow it was, and runs that over the path
scene.ask("bbr3")            another controller over the same paths with the same chance; or another path
"""

import numpy as np

from cctrace.counterfactual.figures import FIGURES, SHARE, difference, estimated, missed, near, recorded_figures
from cctrace.counterfactual.questions import changed
from cctrace.diagnosis.diagnose import diagnose
from cctrace.diagnosis.record import Record
from cctrace.errors import ArgumentError, FitError, StreamError
from cctrace.fit import path as fit_path
from cctrace.fit.constants import UNSEEN_REACH
from cctrace.identification.identify import UNKNOWN, identify
from cctrace.path.evidence import evidence_of
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate
from cctrace.units import format_share, parse_factor

OPEN_ENDED = 1.1  # times the RTT over the shorter half of unseen queues: longer ones would make it longer still
HELD_BACK = ("application_limited", "send_buffer_limited")  # first verdicts with which nothing is answered
MOST_BDP = 10.0  # buffers that paths have, at most or so
WINDOW_SHUT = 0.01  # share of the time, from which on the receive window is part of the path
_UNSEEN = {
    "rate": "a faster path: no queue ever grew, so what it could have carried is not known",
    "buffer": "a longer queue: it never overflowed; its longest backlog to ten times that, or ten BDP, are tried",
    "base_rtt": "a shorter base RTT: others' packets stood in the queue all the time",
}


class Scene:
    """The inferred path, and who sends over it.

    Parameters
    ----------
    flow : Flow
        Of a capture.
    own : str or class, optional
        The controller that sent it; by default as `identify` finds.
    draws, seed : int
    diagnosis : Diagnosis, optional
        Of the flow, if it is at hand.
    progress : callable
        Receives lines of progress.

    Attributes
    ----------
    path : FittedPath
    recorded : dict
        {figure: value}.
    own : str, class or None
    original : dict or None
        {figure: Estimate} of `own` over the path.
    reproduces : bool
        Whether that is what was recorded: as near as predictions are asked to be, or as the runs of the same controller
        over one path are to each other (90 % of them).
    unseen : list of str
        What the capture cannot exclude.

    Raises
    ------
    FitError
        If the path cannot be inferred, or not the path but the application held the flow back.
    StreamError
        If the capture lacks one direction.
    """

    def __init__(self, flow, *, own=None, draws, seed, diagnosis=None, progress=lambda line: None):
        table = evidence_of(flow).transmissions
        self.window, self.unseen = _held_back(flow, diagnosis)
        progress("the path")
        if flow.taken_at not in ("sender", "unknown"):
            self.unseen.append(
                f"what was lost before the capture, taken at the {flow.taken_at}: sent again may be more"
            )
        self._sent_seen = flow.taken_at in ("sender", "unknown")
        self.path = fit_path(flow, progress)
        self.bounded = self.path.estimates["unseen"]
        self.unseen += [_UNSEEN[name] for name in self.bounded if name in _UNSEEN]
        progress("whose flow it was")
        self.own = own or _own(flow, self.unseen)
        self._paths, self._seed = plausible(self.path, draws, seed), seed
        told = table.told_ns[table.told_ns >= 0]
        self.recorded = recorded_figures(flow, table)
        self._duration = f"{(int(told.max()) - table.start_ns) / 1e9:.3f}s"
        acks = len(np.unique(table.ack_row[table.ack_row >= 0]))
        self._ack_every = 1 if len(told) < 1.5 * acks else 2
        self._others = _others(flow, self.path)
        self._largest_window = Record(flow).largest_window_bytes
        self.original, self.reproduces, self._runs, self._misfit = None, False, None, {}
        if self.own:
            self._check(progress)

    def _check(self, progress):
        """Run the flow's own controller: over the draws, and over one path, for what chance alone changes."""
        self._runs = self._run(self.own, {}, progress)
        self.original = estimated(self._runs, {})
        chance = estimated(self._over([self.path] * len(self._paths), self.own, {}, progress), {})
        self.reproduces = all(
            near(name, self.original[name].value, self.recorded[name])
            or chance[name].low <= self.recorded[name] <= chance[name].high
            for name in FIGURES
        )
        self._misfit = {name: missed(name, self.original[name], self.recorded[name]) for name in FIGURES}

    def ask(self, name, changes, progress=lambda line: None):
        """Return the figures of a controller over the path, changed, and by how much they differ from the original's.

        Parameters
        ----------
        name : str or class
        changes : dict
            As `whatif` takes them.
        progress : callable

        Returns
        -------
        dict of str to Estimate
        dict of str to Estimate or None
            None without a known controller of its own.
        """
        runs = self._run(name, changes, progress) if name != self.own or changes else self._runs
        figures = estimated(runs, self._misfit)
        differ = None if self._runs is None else difference(runs, self._runs, self._misfit)
        for answer in (figures, differ or {}):
            self._unbound(answer, runs)
        return figures, differ

    def _unbound(self, answer, runs):
        """Take the bounds away that the capture does not give."""
        if not answer:
            return
        if "rate" in self.bounded:  # a path that never filled may be any faster
            answer["goodput_bps"] = answer["goodput_bps"]._replace(high=None)
        if not self._sent_seen:
            answer[SHARE] = answer[SHARE]._replace(high=None)
        if "buffer" in self.bounded:
            rtt = runs["rtt_mean_us"][np.argsort([path.buffer_bytes for path in self._paths], kind="stable")]
            half = len(rtt) // 2
            if np.median(rtt[half:]) > OPEN_ENDED * np.median(rtt[:half]):
                answer["rtt_mean_us"] = answer["rtt_mean_us"]._replace(high=None)

    def _run(self, name, changes, progress):
        """Return {figure: value per draw} of a controller over the drawn paths, changed."""
        return self._over(self._paths, name, changes, progress)

    def _over(self, paths, name, changes, progress):
        rows = []
        sender = Sender(name, **self._receiver(changes))
        changes = {key: value for key, value in changes.items() if key != "rwnd"}
        for k, path in enumerate(paths):
            progress(f"{sender.name} over the inferred path: {k + 1} of {len(paths)}")
            over = changed(path, changes)
            try:
                sim = simulate(over, [sender, *self._others], self._duration, self._seed + k)
            except ArgumentError as error:
                raise FitError(f"the inferred path cannot be simulated: {error}") from None
            rows.append([float(sim.flows[column].iloc[0]) for column in FIGURES.values()])
        return dict(zip(FIGURES, np.array(rows).T, strict=True))

    def _receiver(self, changes):
        """Return what of a `Sender` describes the receiver: its window only if that held back, or is another now."""
        told = {"ack_every": self._ack_every}
        if "rwnd" in changes:
            size = changes["rwnd"]
            factor = parse_factor(size)
            told["rwnd"] = size if factor is None else f"{factor * (self.window or self._largest_window):.0f}B"
        elif self.window:
            told["rwnd"] = f"{self.window:.0f}B"
        return told


def plausible(path, draws, seed):
    """Return paths drawn from what a fit leaves open.

    A queue that never overflowed may be as long as ten bandwidth-delay products, if that is more than ten times its
    longest backlog: a flow that never made a queue says nothing of its length.
    """
    paths = path.draws(draws, seed)
    least = path.estimates["buffer_bytes"].low
    bdp = path.max_rate_bps() / 8 * path.rtt_ns / 1e9
    if "buffer" not in path.estimates["unseen"] or not least or MOST_BDP * bdp <= UNSEEN_REACH * least:
        return paths
    power = np.log(MOST_BDP * bdp / least) / np.log(UNSEEN_REACH)
    return [changed(one, {"buffer": f"{least * (one.buffer_bytes / least) ** power:.0f}B"}) for one in paths]


def _held_back(flow, found):
    """Return (receive window to keep, bytes, or None; what that leaves open), if the path decided most of the time.

    Raises
    ------
    FitError
        If the application or the send buffer did.
    """
    found = found or diagnose(flow)
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
    unseen.append(
        f"a receive window above the {window / 1e3:.0f} kB seen, which held back and is kept (rwnd changes it)"
    )
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
    return found.spec


def _others(flow, path):
    """Return the senders of the other flows through the same bottleneck."""
    begin_ns, senders = flow.summary["start_ns"], []
    evidence = evidence_of(flow)
    least_us = float(np.nanmin(evidence.transmissions.rtt_us))
    for index in evidence.through.others:
        other = flow.capture.flow(index)
        start = (other.summary["start_ns"] - begin_ns) / 1e9
        rtt_us = path.rtt_ns / 1e3 + float(np.nanmin(evidence.companions[index].rtt_us)) - least_us
        span = {"start": f"{max(start, 0):.3f}s", "stop": f"{start + other.summary['duration_s']:.3f}s"}
        senders.append(Sender(_own(other, []) or "cubic", rtt=f"{max(rtt_us, 100.0):.0f}us", **span))
    return senders
