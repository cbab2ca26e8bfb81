"""Write docs/variants.md from the controllers' classes: `make docs`."""

from pathlib import Path

from cctrace.cc import REGISTRY
from cctrace.cc.compare import describe

HEADER = """# Controllers

Generated from the classes by `make docs`; `cctrace variants A B` shows how any other two differ. A *step* is a method
of the class; what is not listed as different is inherited unchanged.
"""


def section(name):
    """Return the part of the page about one controller: what it has that its parent has not."""
    entry = describe(name)
    parts = [f"## {name}", entry["summary"]]
    if entry["parent"]:
        inherited = describe(entry["parent"])
        steps = ", ".join(f"`{step}`" for step in entry["own_steps"])
        parts.append(f"Derived from [{entry['parent']}](#{entry['parent']}). Steps of its own: {steps}.")
    else:
        inherited = {"params": {}, "transitions": []}
        parts.append(f"Derived from no other; {len(entry['own_steps'])} steps.")
    params = {key: row for key, row in entry["params"].items() if row != inherited["params"].get(key)}
    if params:
        head = ["| parameter | default | allowed | meaning |", "|---|---|---|---|"]
        rows = [f"| `{key}` | {p['default']} | {p['low']} to {p['high']} | {p['doc']} |" for key, p in params.items()]
        parts.append("\n".join(head + rows))
    if entry["transitions"] != inherited["transitions"]:
        edges = [f"    {start} --> {end}: {why.replace(':', ',')}" for start, end, why in entry["transitions"]]
        parts.append("\n".join(["```mermaid", "stateDiagram-v2", *edges, "```"]))
    return "\n\n".join(parts)


if __name__ == "__main__":
    overview = ["| controller | stack | derived from | what it is |", "|---|---|---|---|"]
    for name in sorted(REGISTRY):
        entry = describe(name)
        overview.append(f"| [{name}](#{name}) | {entry['stack']} | {entry['parent'] or ''} | {entry['summary']} |")
    page = "\n\n".join([HEADER + "\n" + "\n".join(overview), *map(section, sorted(REGISTRY))])
    (Path(__file__).parent / "variants.md").write_text(page + "\n", encoding="utf-8")
