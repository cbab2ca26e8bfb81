"""Conformance of a recorded flow: requirements checked on the wire."""

from cctrace.conform.judge import Tally, intended
from cctrace.conform.requirements import Spec
from cctrace.conform.result import Conformity
from cctrace.conform.wire import trace_of_flow
from cctrace.display import Progress, connection, silent
from cctrace.errors import ArgumentError
from cctrace.flows.flow import Flow
from cctrace.identification.identify import Identification, identify


def of_flow(flow: Flow, spec: Spec, progress: Progress = silent, sender: Identification | None = None) -> Conformity:
    """Return the `Conformity` of a flow; see `cctrace.conform.run`. A sender that is known is not identified again."""
    if not spec.wire:
        raise ArgumentError(
            f"spec={spec.name!r}: {spec.title} describes a controller or a qlog; a capture of TCP shows none of its "
            "requirements; spec='rack' is for any sender"
        )
    if sender is None:
        progress("identify")
        sender = identify(flow)
    if spec.families and sender.name not in spec.families:
        raise ArgumentError(
            f"identify says {sender.name}, which spec={spec.name!r} does not describe: {spec.title} is for "
            f"{' or '.join(spec.families)}; spec='rack' is for any sender"
        )
    tally = Tally(spec.wire, intended(sender.name, spec))
    tally.examine(spec.wire, trace_of_flow(flow), "the capture")
    notes = (f"sent by {sender.name}: {sender.reason}", "a capture shows bounds, not the sender's state", *flow.caveats)
    return Conformity(connection(*flow.key), spec.name, spec.title, tally.verdicts(), notes)
