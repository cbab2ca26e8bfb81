"""Write the tables of docs/papers.md from what `cctrace reproduce --json` printed.

    for paper in kumar bbr2plus obbr bbrx beyond; do cctrace reproduce $paper --json > $paper.json; done
    python docs/make_papers.py kumar.json bbr2plus.json obbr.json bbrx.json beyond.json

What stands between the marks ``<!-- claims of PAPER -->`` and ``<!-- end -->`` is replaced.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

PAGE = Path(__file__).parent / "papers.md"


def table(claims):
    """Return the claims as a table: mark, where, what the paper says, what came out, why."""
    counted = Counter(claim["mark"] for claim in claims)
    lines = ["; ".join(f"{count} {mark}" for mark, count in counted.most_common()) + ".", ""]
    lines += ["| | figure: claim | paper | here | why |", "|---|---|---|---|---|"]
    for claim in claims:
        why = "; ".join(filter(None, [claim["mechanism"], claim["recording"]]))
        cells = (claim["mark"], f"**{claim['figure']}** {claim['claim']}", claim["paper"], claim["here"], why)
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines)


def main(files):
    """Put the claims in `files` into the page."""
    page = PAGE.read_text(encoding="utf-8")
    for file in files:
        claims = json.loads(Path(file).read_text(encoding="utf-8"))
        if any(claim["quick"] for claim in claims):
            sys.exit(f"{file}: made with --quick; the page shows full figures")
        paper = claims[0]["paper_name"]
        begin = f"<!-- claims of {paper} -->"
        found = re.compile(f"{begin}.*?<!-- end -->", re.DOTALL)
        if not found.search(page):
            sys.exit(f"{PAGE} has no place for {paper}: {begin} … <!-- end -->")
        before, after = found.split(page, maxsplit=1)
        page = f"{before}{begin}\n{table(claims)}\n<!-- end -->{after}"
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
