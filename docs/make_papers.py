"""Write the tables of docs/papers.md from what `cctrace reproduce --json` printed.

    for paper in kumar bbr2plus obbr bbrx beyond; do cctrace reproduce $paper --json > $paper.json; done
    python docs/make_papers.py kumar.json bbr2plus.json obbr.json bbrx.json beyond.json

What stands between the marks ``<!-- claims of PAPER -->`` and ``<!-- end -->`` is replaced.
"""

import json
import re
import sys
from pathlib import Path

from cctrace.papers.claims import SETTLES, Claim, statements, summary

PAGE = Path(__file__).parent / "papers.md"


def claim_of(said):
    """Return the claim that a dict describes."""
    return Claim(**{name: said[name] for name in Claim.__dataclass_fields__})


def table(claims, settles):
    """Return the summary, and a row per statement: mark, where, what the paper says, what came out, what fails of it.

    The summary ends with what would settle what does not hold. Beneath a statement are its readings and parts, where
    it has several.
    """
    first, *rest = summary(claims).splitlines()
    lines = [first, "", *(f"* {line}" for line in rest), f"* what would settle the rest: {settles}", ""]
    lines += ["| | figure: claim | paper | here | what fails; recordings |", "|---|---|---|---|---|"]
    for statement in statements(claims):
        one = len(statement.claims) == 1
        said = f"**{statement.figure}** {statement.claim}" + (" *(ours)*" if statement.ours else "")
        if not one:
            lines.append(row(f"**{statement.mark}**", said, statement.claims[0].paper))
        for claim in statement.claims:
            why = "; ".join(filter(None, [*claim.failed, claim.recording]))
            of = said if one else "; ".join(filter(None, [claim.part, claim.reading]))
            paper = claim.paper if one or claim.paper != statement.claims[0].paper else ""
            lines.append(row(f"**{claim.mark}**" if one else claim.mark, of, paper, claim.here, why))
    return "\n".join(lines)


def row(*cells):
    """Return a row of five cells, some of which may be left out."""
    return "| " + " | ".join(cell.replace("|", "/") for cell in (*cells, *[""] * (5 - len(cells)))) + " |"


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
        page = f"{before}{begin}\n{table([claim_of(claim) for claim in claims], SETTLES[paper])}\n<!-- end -->{after}"
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
