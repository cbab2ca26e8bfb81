"""`cctrace identify`: which congestion control sent a flow."""

import click

from cctrace.cli.arguments import paths
from cctrace.cli.common import command_options, print_json, print_table, progress, reading_options, warn


@click.command(short_help="Which congestion control sent the flows of captures, or of counters.")
@paths("files", "FILE...")
@reading_options
@command_options()
def identify(files, limit, decapsulate, as_json):
    """Find out which congestion control sent the bulk flows of captures, and how sure that is.

    Each FILE is a capture, wherever it was taken, or holds counters of connections (ss, tcp_info). Every candidate (BBR
    of 2016, 2019 and 2022, v2, v2+ and v3, CUBIC of before and since Linux 6.14, Reno) is replayed, and scored by when
    packets left and how many at a time (sender), by what was in flight and how fast (elsewhere), or by how cwnd,
    ssthresh and pacing rate went on (counters). Neither addresses nor ports are looked at, nor the name that counters
    tell. "unknown" is a candidate too.

    With --json: a list with one object per flow: file, flow (as flows --json has it), candidates (name, probability;
    the most probable first), group (the best and those that this flow does not tell from it), paced (whether the
    socket was seen to pace although its controller sets no rate), reason, seconds. A flow that cannot be identified
    has no candidates; the reason says what would be needed.
    """
    from cctrace.errors import StreamError
    from cctrace.explain.identify import identify_files

    with progress("identifying") as say:
        found = list(identify_files(files, say, limit=limit, decapsulate=decapsulate))
    if found and all(isinstance(result, StreamError) for _, _, result in found):
        raise found[0][2]
    for _, _, result in found:
        if isinstance(result, StreamError):
            warn(result)
    if as_json:
        print_json([_as_json(*one) for one in found])
        return
    identified = [one for one in found if not isinstance(one[2], StreamError)]
    rows = [_row(flow, result) for _, flow, result in identified]
    print_table(("sender", "receiver", "controller", "probability"), rows)
    for (sender, *_), (_, _, result) in zip(rows, identified, strict=True):
        click.echo(f"\n{sender}: {result.reason}.")


def _as_json(file, flow, result):
    from cctrace.errors import StreamError

    known = {"file": file, "flow": flow.summary}
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


def _row(flow, result):
    src, sport, dst, dport = flow.key
    together = sum(probability for name, probability in result.candidates if name in result.group)
    ends = ("-" if src is None else f"{src}:{sport}", "-" if dst is None else f"{dst}:{dport}")
    return *ends, " or ".join(result.group), f"{together:.3f}"
