"""Write the pages docs/papers_*.md from what `cctrace reproduce --json` printed, and draw their pictures (matplotlib).

    for paper in kumar bbr2plus obbr bbrx beyond; do cctrace reproduce $paper --json > $paper.json; done
    python docs/make_papers.py kumar.json bbr2plus.json obbr.json bbrx.json beyond.json
    python docs/make_papers.py --pictures                      # needs matplotlib

What stands between the marks ``<!-- summary of PAPER -->`` or ``<!-- claims of PAPER -->`` and ``<!-- end -->`` is
replaced, and the counts of all papers in docs/papers.md.
"""

import json
import re
import sys
from pathlib import Path

import cctrace as cct
from cctrace.papers.claims import SETTLES, Claim, statements, summary
from cctrace.papers.sizes import sizes

DOCS = Path(__file__).parent
COUNTS = re.compile(r"(\d+) statements? of the paper: (\d+) held, (\d+) held under .*?, (\d+) in part, (\d+) not held")
# One figure at the top of a page: what of the complete figure is changed, so that it is made in a minute.
PICTURES = {
    "kumar": ("2", {"jitter": {"reordering": ("10s", 1), "in order": ("10s", 1)}}),
    "bbr2plus": ("18", {"spreads": ("sd = mean",), "orders": ("in order",), "seeds": (1,)}),
    "obbr": ("7", {"clients": ("tc on loopback",), "seeds": (1,)}),
    "bbrx": ("4", {"paths": ("LTE at 115 Mbit/s, 3 MB of buffer, an ACK per two segments",), "seeds": (3,)}),
}
DPI, COLOURS, FEW = 80, 128, 32  # small: pictures are kept in the repository


def claim_of(said):
    """Return the claim that a dict describes."""
    return Claim(**{name: said[name] for name in Claim.__dataclass_fields__})


def opening(claims, paper):
    """Return the summary: the counts, the picture, and what holds under a reading or not at all."""
    first, *rest = summary(claims).splitlines()
    lines = [first, ""]
    if paper in PICTURES:
        figure = cct.papers.find(paper, PICTURES[paper][0])
        lines += [f"![{figure.title}](_static/papers/{paper}.png)", ""]
        lines += [f"![ours over the paper's numbers, a dot for each reading](_static/papers/{paper}_sizes.png)", ""]
    settles = f"* what would settle the rest: {SETTLES[paper]}"
    return "\n".join([*lines, *(f"* {line}" for line in rest), settles])


def table(claims):
    """Return a row per statement: mark, where, what the paper says, what came out, what fails of it.

    Beneath a statement are its readings and parts, where it has several.
    """
    lines = ["| | figure: claim | paper | here | what fails; recordings |", "|---|---|---|---|---|"]
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


def put(page, mark, text):
    """Replace what stands behind a mark of a page."""
    whole = page.read_text(encoding="utf-8")
    found = re.compile(f"<!-- {mark} -->.*?<!-- end -->", re.DOTALL)
    if not found.search(whole):
        sys.exit(f"{page} has no place <!-- {mark} --> … <!-- end -->")
    before, after = found.split(whole, maxsplit=1)
    page.write_text(f"{before}<!-- {mark} -->\n{text}\n<!-- end -->{after}", encoding="utf-8")


def counts():
    """Return the table of all papers, from their pages."""
    lines = [
        "| | statements | held | under a reading | in part | not held | held, in % |",
        "|---|---|---|---|---|---|---|",
    ]
    sums = [0] * 5
    for paper in SETTLES:
        numbers = [int(n) for n in COUNTS.search((DOCS / f"papers_{paper}.md").read_text(encoding="utf-8")).groups()]
        lines.append(f"| [{paper}](papers_{paper}.md) | {_counted(numbers)} |")
        if paper in PICTURES:  # the four papers; `beyond` is none
            sums = [a + b for a, b in zip(sums, numbers, strict=True)]
    return "\n".join([*lines, f"| the four papers | {_counted(sums)} |"])


def _counted(numbers):
    return " | ".join(map(str, [*numbers, round(100 * (numbers[1] + numbers[2]) / numbers[0])]))


def draw(paper):
    """Draw the picture of a page, in few colours."""
    name, changes = PICTURES[paper]
    figure = cct.papers.find(paper, name)
    _save(figure(**changes).plot(), paper, COLOURS)


def _save(drawn, name, colours):
    from PIL import Image

    file = DOCS / "_static" / "papers" / f"{name}.png"
    file.parent.mkdir(exist_ok=True)
    drawn.savefig(file, dpi=DPI)
    method = Image.Quantize.MEDIANCUT if colours > FEW else Image.Quantize.FASTOCTREE  # which keeps what is rare
    Image.open(file).convert("RGB").quantize(colours, method).save(file, optimize=True)


def main(files):
    """Put the claims in `files` into the pages, or draw the pictures."""
    if files == ["--pictures"]:
        for paper in PICTURES:
            draw(paper)
        return
    for file in files:
        said = json.loads(Path(file).read_text(encoding="utf-8"))
        if any(claim["quick"] for claim in said):
            sys.exit(f"{file}: made with --quick; the pages show complete figures")
        paper, claims = said[0]["paper_name"], [claim_of(claim) for claim in said]
        if paper in PICTURES:
            _save(sizes(claims), f"{paper}_sizes", FEW)
        put(DOCS / f"papers_{paper}.md", f"summary of {paper}", opening(claims, paper))
        put(DOCS / f"papers_{paper}.md", f"claims of {paper}", table(claims))
    put(DOCS / "papers.md", "counts", counts())


if __name__ == "__main__":
    main(sys.argv[1:])
