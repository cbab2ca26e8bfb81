"""`cctrace identify`: identify a flow's congestion control."""

from typing import Any

import click

from cctrace.cli.arguments import paths
from cctrace.cli.common import (
    command_options,
    echo,
    print_json,
    print_table,
    print_text,
    progress,
    reading_options,
    warn,
)
from cctrace.display import endpoint
from cctrace.errors import StreamError
from cctrace.refusals import Attempt


@click.command(short_help="Identify the congestion control of flows, from captures or counters.")
@paths("files", "FILE...")
@reading_options
@command_options()
def identify(files: tuple[str, ...], reading: dict[str, Any], as_json: bool) -> None:
    """Identify the congestion control of the bulk flows of captures, with probabilities.

    Each FILE is a capture, taken anywhere, or holds counters of connections (ss, tcp_info). Every candidate (BBR of
    2016, 2019 and 2022, v2, v2+ and v3, CUBIC before and after the rework of HyStart, Reno) is replayed,
    and scored by times and sizes of the sends (sender's capture), by data in flight and rates (elsewhere), or by
    the evolution of cwnd, ssthresh and pacing rate (counters). Addresses and ports are not used. "unknown" is a
    candidate, too. If counters name the controller, only its variant is identified.

    With --json: a list with one object per flow: file, flow (as flows --json has it), candidates (name,
    probability; most probable first), group (the best and those indistinguishable on this flow), paced (whether the
    socket paced although its controller sets no rate), reason, seconds. A flow that cannot be identified has no
    candidates; the reason says what would be needed.
    """
    from cctrace.flows.counters import title_of
    from cctrace.identification.identify import identify_files

    with progress("identifying") as update:
        found = [_believed(*one) for one in identify_files(files, update, **reading)]
    if found and all(isinstance(result, StreamError) for _, _, result in found):
        raise found[0][2]
    for _, _, result in found:
        if isinstance(result, StreamError):
            warn(result)
    if as_json:
        print_json([_as_json(*one) for one in found])
        return
    identified = [(flow, result) for _, flow, result in found if not isinstance(result, StreamError)]
    rows = [_row(flow, result) for flow, result in identified]
    print_table(("sender", "receiver", "controller"), rows, heading=(2, _ends))
    for flow, result in identified:
        echo()
        print_text(f"{title_of(flow)}: {result.reason}.")


def _ends(row: Any) -> str:
    return " → ".join(row[:2])


def _as_json(file: str, flow: Any, result: Any) -> dict[str, Any]:
    known = {"file": file, "flow": flow.row}
    if isinstance(result, StreamError):
        return known | {"candidates": [], "group": [], "paced": False, "reason": str(result), "seconds": None}
    candidates = [candidate._asdict() for candidate in result.candidates]
    return known | {
        "candidates": candidates,
        "group": list(result.group),
        "paced": result.paced,
        "reason": result.reason,
        "seconds": round(result.seconds, 3),
    }


def _believed(file: str, flow: Any, result: Any) -> tuple[str, Any, Any]:
    """Return an identified flow, limited to the controller that its counters name."""
    from cctrace.identification.sender_text import believed

    found = None if isinstance(result, StreamError) else result
    named = _named_by_counters(flow, found)
    return file, flow, result if named is None else believed(found, named)


def _named_by_counters(flow: Any, found: Any) -> str | None:
    """Return the controller that a flow's counters name, by the kernel's name; None if they do not."""
    from cctrace.flows.counters import CounterFlow
    from cctrace.identification.named import controller_name, sender

    polls = flow.polls if isinstance(flow, CounterFlow) else None
    named = controller_name(polls)
    return named and sender(polls, named, *(found.group if found else ()))[0]


def _row(flow: Any, result: Any) -> tuple[Any, ...]:
    from cctrace.diagnosis.diagnose import diagnose
    from cctrace.identification.sender_text import OF_EITHER_FAMILY, group_text, sender_text

    src, sport, dst, dport = flow.key
    ends = ["-" if host is None else endpoint(host, port) for host, port in ((src, sport), (dst, dport))]
    if named := _named_by_counters(flow, result):
        return *ends, f"{named} (named by the counters)"
    causes: list[str] = []
    if group_text(result.group) == OF_EITHER_FAMILY:
        with Attempt("diagnosis"):
            causes = diagnose(flow).causes
    return *ends, sender_text(result, causes)
