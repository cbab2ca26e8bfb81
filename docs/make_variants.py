"""Write docs/variants.md from the controllers' classes: `make docs`."""

import re
from pathlib import Path

from cctrace.cc import REGISTRY, controller
from cctrace.cc.compare import describe, steps_of

PAGE = Path(__file__).parent / "variants.md"
HEADER = """# Controllers

Generated from the classes and the headers of their files by `make docs`; `cctrace variants A B` shows how any two
differ, `cctrace variants A` one of them. A *step* is a method of the class; what is not listed as different is
inherited unchanged. [Families](#families) at the end has tables of all steps and parameters that differ within one."""
WORDS = {
    "differs": "How it differs",
    "quirks": "Quirks of the release, kept",
    "left_open": "Left open by its source, and chosen here",
    "sources": "Sources",
}


def page():
    """Return the text of the page."""
    names = sorted(REGISTRY)
    entries = [describe(name) for name in names]
    cells = [
        (f"[{e['name']}](#{e['name']})", e["stack"], e["parent"] or "", ", ".join(e["papers"]), e["summary"])
        for e in entries
    ]
    overview = table(("controller", "stack", "derived from", "papers", "what it is"), cells)
    families = [family(root) for root in names if not describe(root)["parent"]]
    parts = [HEADER, overview, *map(section, entries), "## Families", *filter(None, families)]
    return "\n\n".join(parts) + "\n"


def table(head, rows):
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def section(entry):
    """Return the part of the page about one controller: what it has that its parent has not."""
    parts = [f"## {entry['name']}", entry["summary"]]
    if entry["parent"]:
        inherited = describe(entry["parent"])
        steps = ", ".join(f"`{step}`" for step in entry["own_steps"])
        parts.append(f"Derived from [{entry['parent']}](#{entry['parent']}). Steps of its own: {steps}.")
    else:
        inherited = {"params": {}, "transitions": []}
        parts.append(f"Derived from no other; {len(entry['own_steps'])} steps.")
    params = {key: row for key, row in entry["params"].items() if row != inherited["params"].get(key)}
    if params:
        rows = [(f"`{key}`", p["default"], f"{p['low']} to {p['high']}", p["doc"]) for key, p in params.items()]
        parts.append(table(("parameter", "default", "allowed", "meaning"), rows))
    if entry["transitions"] != inherited["transitions"]:
        parts.append(diagram(entry["states"], entry["transitions"]))
    for heading, title in WORDS.items():
        if entry[heading]:
            parts.append("\n".join([f"{title}:", "", *(f"* {text}" for text in entry[heading])]))
    return "\n\n".join(parts)


def diagram(states, transitions):
    """Return the state diagram; the states after the four modes are the phases of PROBE_BW, and are drawn inside it."""
    phases = states[4:]

    def arrows(edges):  # a label of Mermaid ends at a colon or semicolon
        return [f"{start} --> {end}: {re.sub('[:;]', ',', why)}" for start, end, why in edges]

    inner = [f"    {line}" for line in arrows(t for t in transitions if t[0] in phases)]
    outer = [f"[*] --> {states[0]}", *arrows(t for t in transitions if t[0] not in phases)]
    if inner:
        outer += ["state PROBE_BW {", *inner, "}"]
    return "\n".join(["```mermaid", "stateDiagram-v2", *(f"    {line}" for line in outer), "```"])


def family(root):
    """Return the tables of what differs among a root and all that is derived from it; nothing if it stands alone."""
    base = controller(root)[0]
    classes = {name: controller(name)[0] for name in [root, *sorted(REGISTRY)]}
    classes = {name: cls for name, cls in classes.items() if issubclass(cls, base)}
    if len(classes) == 1:
        return ""
    owners = {owner: name for name, owner in ((name, cls.__name__) for name, cls in classes.items())}
    steps = {name: steps_of(cls) for name, cls in classes.items()}
    params = {name: cls.params for name, cls in classes.items()}

    def differing(columns, cell):
        keys = dict.fromkeys(key for column in columns.values() for key in column)
        rows = [(f"`{key}`", *(cell(column, key) for column in columns.values())) for key in keys]
        return [row for row in rows if len(set(row[1:])) > 1]

    def who(column, key):
        return owners.get(column[key], column[key]) if key in column else ""

    def default(column, key):
        return column[key].default if key in column else ""

    return "\n\n".join(
        [
            f"### The family of {root}",
            "Whose step each takes (a name that is not a controller is a part that several share):",
            table(("step", *classes), differing(steps, who)),
            "Defaults of parameters that differ:",
            table(("parameter", *classes), differing(params, default)),
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
