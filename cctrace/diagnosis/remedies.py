"""Quantified remedies: the what-if questions that follow from a verdict's advice.

Questions in the syntax of `cctrace.whatif`:

    remedies(verdict, own)          controllers and path changes that the advice names
    commands(verdict, flow, own)    the same as `cctrace whatif ...` commands
    questions(diagnosis, own)       those of an entire diagnosis, for `whatif.what_would_help`
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from typing import TYPE_CHECKING, Any

from cctrace.cc import KERNEL_NAMES
from cctrace.diagnosis.constants import DOUBTFUL_CONFIDENCE, MOST_OF_TIME
from cctrace.diagnosis.findings import Verdict

if TYPE_CHECKING:
    from cctrace.diagnosis.diagnose import Diagnosis
    from cctrace.flows.flow import Flow

Own = str | type | None  # the flow's controller
Question = tuple[str | None, dict[str, Any]]  # a controller, None for the flow's own, and changes of the path

# Verdict -> (controllers, changes of the path), as in its advice. Remedies that cannot be simulated over the inferred
# path (a fair queue, a route) are missing.
REMEDIES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "receiver_limited": ((), {"rwnd": "x4"}),
    "application_limited": ((), {"app": "bulk"}),
    "send_buffer_limited": ((), {"send_buffer": "x4"}),
    "pacing_limited": ((), {"pacing": "none"}),
    "policer": (("bbr2022", "bbr3"), {}),
    "collapse": (("bbr2_comp", "bbr2plus", "cubic6"), {"jitter": "x0.5"}),
    "reordering": ((), {"jitter": "none"}),
    "stale_bandwidth": (("obbr_paper", "bbr3"), {"buffer": "x0.5"}),
    "random_loss": (("bbr2022", "bbr3"), {"loss": "0%"}),
    "shallow_buffer": (("bbr3", "obbr_paper"), {"buffer": "x4"}),
    "self_induced_queue": (("bbr2022", "bbr3"), {"aqm": "codel"}),
    "congestive_loss": (("bbr3",), {"aqm": "codel"}),
    "window_growing": (("bbr2022", "bbr3"), {}),
    "path_full": ((), {"rate": "x2"}),
    "jitter": ((), {"jitter": "x0.5"}),
}
BESIDE = ("cubic6", "bbr2022", "bbr3")  # candidates if no verdict names a remedy


def remedies(verdict: str, own: Own = None) -> dict[str, Question]:
    """Return the questions that follow from a verdict's advice: {name: (controller or None for its own, changes)}.

    `verdict`: its name. `own`: the flow's controller, by its own or the kernel's name: it is not a remedy for itself.

    >>> remedies("random_loss", "bbr")
    {'bbr3': ('bbr3', {}), 'its own, loss 0%': (None, {'loss': '0%'})}
    """
    controllers, changes = REMEDIES.get(verdict, ((), {}))
    found = _others(controllers, own)
    found |= {f"its own, {name} {value}": (None, {name: value}) for name, value in changes.items()}
    return found


def _others(controllers: tuple[str, ...], own: Own) -> dict[str, Question]:
    own = own.partition(":")[0] if isinstance(own, str) else ""
    kernel = KERNEL_NAMES.get(own, own)
    return {name: (name, {}) for name in controllers if name not in (own, kernel)}


def commands(verdict: str, flow: Flow, own: str | None = None) -> list[str]:
    """Return the `cctrace whatif` command for a verdict's advice: ["cctrace ... --cc bbr3", "--loss 0%"].

    Further entries replace the first one's option; empty if no simulation would answer.

    `verdict`, `own`: as in `remedies`.
    """
    asked = list(remedies(verdict, own).values())
    controllers = [name for name, _ in asked if name]
    changes = [
        f"--{key.replace('_', '-')} {value}" for name, change in asked if not name for key, value in change.items()
    ]
    options = ([f"--cc {','.join(controllers)}"] if controllers else []) + changes
    source, which = _as_argument(str(flow.capture.packets.source)), ""
    if len(flow.capture) > 1:
        which = f" --flow {flow.index}"
    return [f"cctrace whatif {source}{which} {option}" for option in options[:1]] + options[1:]


def _as_argument(source: str) -> str:
    """Return a capture's source as a command takes it: FILE stands for one that has no name, or several."""
    if source == "<stdin>":
        return "-"
    return "FILE" if re.fullmatch(r"<stream>|.* and \d+ more", source) else shlex.quote(source)


def _is_unread(verdict: Verdict) -> bool:
    """Return whether a receiver did not read, or slowly, most of the time, which a larger window cannot fix."""
    evidence = verdict.evidence
    unread = "shut_s" in evidence or evidence.get("unread_share", 0.0) >= MOST_OF_TIME
    return verdict.name == "receiver_limited" and unread


def with_commands(verdicts: list[Verdict], flow: Flow, own: str | None = None) -> list[Verdict]:
    """Return verdicts whose advice includes the commands that quantify it."""
    found = []
    for verdict in verdicts:
        asked = "; or with ".join(f"`{one}`" for one in commands(verdict.name, flow, own) if not _is_unread(verdict))
        advice = f"{verdict.advice} How much: {asked}." if asked else verdict.advice
        found.append(dataclasses.replace(verdict, advice=advice))
    return found


def questions(diagnosis: Diagnosis, own: Own) -> dict[str, tuple[str | type, dict[str, Any]]]:
    """Return the questions about a flow: {name: (controller, changes)}.

    The remedies of the first verdict that is at least half sure and has any; other controllers if there are none.

    `own`: the flow's controller; without one, path changes cannot be evaluated.
    """
    sure = [one.name for one in diagnosis.verdicts if one.is_there >= DOUBTFUL_CONFIDENCE and not _is_unread(one)]
    none: dict[str, Question] = {}
    asked = next((found for name in sure if (found := remedies(name, own))), none)
    if not any(who for who, _ in asked.values()):
        asked = _others(BESIDE, own) | asked
    asking = {name: (who or own, changes) for name, (who, changes) in asked.items()}
    return {name: (who, changes) for name, (who, changes) in asking.items() if who is not None}
