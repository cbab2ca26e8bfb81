"""`cctrace variants`: the controllers, differences between any two, and the source of one in order of execution."""

from typing import Any

import click

from cctrace.cli.arguments import NAMES
from cctrace.cli.common import command_options, echo, print_json, print_table

# Key of `describe` -> what its sentences are.
WORDS = {
    "differs": "in the words of its header",
    "quirks": "quirks of the release, kept",
    "left_open": "left open by its source, and chosen here",
    "sources": "sources",
}


@click.command(short_help="List the controllers, or show how two differ.")
@click.argument("names", metavar="[A [B] | show A]", nargs=-1, type=NAMES)
@command_options()
def variants(names: tuple[str, ...], as_json: bool) -> None:
    """List the controllers, describe one (A), show what differs between two (A B), or print one as it runs (show A).

    The list names the papers that run a controller, as `cctrace reproduce --list` has them.

    The code of a controller is spread over the files of its ancestors: `show A` prints each entry point and what it
    calls, in order, with the class that defines it, its source and its text.

    A controller is a name, or a name with parameters: obbr:mu=0.75.
    """
    from cctrace.cc import REGISTRY
    from cctrace.cc.compare import describe

    if names[:1] == ("show",):
        if len(names) != 2:
            raise click.UsageError("show takes one controller", click.get_current_context())
        _show(names[1], as_json)
        return
    if len(names) > 2:
        raise click.UsageError("give at most two controllers", click.get_current_context())
    if len(names) == 2:
        _print_differences(*names, as_json)
        return
    entries = [describe(name) for name in names or sorted(REGISTRY)]
    if as_json:
        print_json(entries[0] if names else entries)
    elif names:
        _print_one(entries[0])
    else:
        rows = [
            (e["name"], e["stack"], e["parent"] or "", len(e["own_steps"]), ", ".join(e["papers"]), e["summary"])
            for e in entries
        ]
        print_table(("controller", "stack", "derived from", "own steps", "papers", "what it is"), rows)


def _show(name: str, as_json: bool) -> None:
    from cctrace.cc.show import resolved

    steps = resolved(name)
    if as_json:
        print_json(steps)
        return
    for step in steps:
        echo(f"{'  ' * step['depth']}{step['step']}  ({step['class']})")
    for step in steps:
        if step["source"]:
            cites = f"  {'; '.join(step['cites'])}" if step["cites"] else ""
            echo(f"\n# {step['class']}.{step['step']}  {step['file']}:{step['line']}{cites}")
            echo(step["source"].rstrip())


def _print_one(entry: dict[str, Any]) -> None:
    echo(f"{entry['name']}: {entry['summary']}")
    echo(f"stack {entry['stack']}, derived from {entry['parent'] or 'nothing'}")
    for paper, system in entry["papers"].items():
        echo(f"paper {paper}: {system}")
    echo(f"steps of its own: {', '.join(entry['own_steps'])}\n")
    rows = [(key, p["default"], f"{p['low']} to {p['high']}", p["doc"]) for key, p in entry["params"].items()]
    print_table(("parameter", "default", "allowed", "meaning"), rows)
    if entry["transitions"]:
        echo()
        print_table(("from", "to", "when"), entry["transitions"])
    _print_words(entry)


def _print_words(entry: dict[str, Any]) -> None:
    for heading in WORDS:
        if entry[heading]:
            echo(f"\n{entry['name']}: {WORDS[heading]}")
            for sentence in entry[heading]:
                echo(f"  * {sentence}")


def _print_differences(left: str, right: str, as_json: bool) -> None:
    from cctrace.cc.compare import counterparts, describe, differences

    params, steps = differences(left, right)
    entries = [describe(left), describe(right)]
    if as_json:
        tables = {"params": params, "steps": steps}
        found: dict = {
            name: [{"name": d.name, left: d.left, right: d.right} for d in rows] for name, rows in tables.items()
        }
        words = {heading: {entry["name"]: entry[heading] for entry in entries} for heading in WORDS}
        print_json(found | words | {"counterparts": [row._asdict() for row in counterparts(left, right)]})
        return
    if read := counterparts(left, right):
        print_table(("what", left, right, "section", "function"), [row[:5] for row in read])
        echo()
    for what, rows in (("parameter", params), ("step", steps)):
        texts = [(d.name, *("none" if side is None else side for side in (d.left, d.right))) for d in rows]
        if texts:
            print_table((what, left, right), texts)
            echo()
        else:
            echo(f"the same {what}s\n")
    echo("(what both headers say is left out)")
    for entry, other in zip(entries, entries[::-1], strict=True):
        _print_words(entry | {heading: [s for s in entry[heading] if s not in other[heading]] for heading in WORDS})
