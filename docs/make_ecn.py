"""Write the table of docs/ecn.md between ``<!-- l4s -->`` and ``<!-- end -->`` from `benchmarks/l4s.json`.

python -m benchmarks.l4s DIR && python docs/make_ecn.py
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parent.parent
PAGE = REPOSITORY / "docs" / "ecn.md"
TABLE = REPOSITORY / "benchmarks" / "l4s.json"
PLACE = re.compile("<!-- l4s -->.*?<!-- end -->", re.DOTALL)


def shares(values: Sequence[float]) -> str:
    """Return shares in %, of three digits."""
    return ", ".join(f"{100 * value:.3g}" for value in values) + " %"


def times(values_ms: Sequence[float]) -> str:
    """Return times in ms, of three digits below 100 ms."""
    return ", ".join(f"{value:.3g}" if value >= 1 else f"{value:.2f}" for value in values_ms) + " ms"


def row(one: dict[str, Any], is_further: bool) -> str:
    """Return the row of a flow; only the first one of a run names it."""
    run = f"{one['rate_mbit']} Mbit/s, {one['rtt_ms']} ms" + (", CUBIC, then Prague" if one["beside"] else "")
    cells = [
        "" if is_further else run,
        one["flow"],
        shares([one["marked"]]),
        shares(one["simulated_marked"]),
        times([one["queue_ms"]]),
        times(one["simulated_queue_ms"]),
    ]
    return "| " + " | ".join(cells) + " |"


def farthest(rows: Sequence[dict[str, Any]]) -> float:
    """Return the largest relative difference of a simulated figure from the recorded one."""
    pairs = (("simulated_marked", "marked"), ("simulated_queue_ms", "queue_ms"))
    return max(abs(value / one[told] - 1) for one in rows for many, told in pairs for value in one[many])


def text() -> str:
    """Return the sentences on RFC 9332, and the table of runs."""
    found = json.loads(TABLE.read_text(encoding="utf-8"))
    rfc, rows = found["rfc9332"], found["runs"]
    classic = [one["classic_marked"] for one in rfc]
    lines = [
        f"Sixteen CUBIC flows beside one Prague (100 Mbit/s, 20 ms) queue for "
        f"{times([one['classic_queue_ms'] for one in rfc])}. Their marks, {shares(classic)}, imply "
        f"{shares([2 * share**0.5 for share in classic])} for ECT(1); Prague gets "
        f"{shares([one['ect1_marked'] for one in rfc])}.",
        "",
        "| run | flow | marks, recorded | simulated | queue, recorded | simulated |",
        "|---|---|---|---|---|---|",
        *(
            row(one, before["beside"] and one["beside"])
            for one, before in zip(rows, [{"beside": 0}, *rows], strict=False)
        ),
        "",
        f"The farthest figure is {shares([farthest(rows)])} off.",
    ]
    return "\n".join(lines)


def page() -> str:
    """Return the page with its table."""
    before, after = PLACE.split(PAGE.read_text(encoding="utf-8"), maxsplit=1)
    return f"{before}<!-- l4s -->\n{text()}\n<!-- end -->{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
