"""The page over a corpus: distributions, groups, errors, and a table of flows with links to their own pages.

Everything is in one file, as in the page of a capture; text from the user's files is escaped.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import cctrace
from cctrace.columns import Floats
from cctrace.corpus.capture import reason_of
from cctrace.corpus.inputs import is_archive
from cctrace.corpus.queries import Corpus
from cctrace.diagnosis.catalogue import CAUSES
from cctrace.display import Progress, connection, escape, silent
from cctrace.errors import ArgumentError, CctraceWarning, warn_caller
from cctrace.files import write_text
from cctrace.flows.table import retransmitted_share
from cctrace.identification.identify import Candidate, Identification
from cctrace.io.source import open_source
from cctrace.report.corpus_whatif import whatif_part
from cctrace.report.document import document, link
from cctrace.report.elements import figures, text_table
from cctrace.schema import ENDS
from cctrace.units import format_counted, format_rate, format_rtt, format_share, format_size, format_time

_HERE = Path(__file__).parent
_MAX_ROWS, _MAX_GROUPS, _MAX_ERRORS, _BARS = 2_000, 40, 50, 36
_COLOURS = ["0b6e4f", "b08900", "3f6fb5", "b5483f", "7b5ea7", "4f9d9d", "8a8f98", "c77fa4", "6b8e23", "d2691e"]
_FLOWS = ["bytes_sent", "goodput_bps", "rtt_min_us", "rtt_median_us", "retransmitted_segments", "segments_sent"]
_FLOWS += ["duration_s", "start_ns", *ENDS]


def write_pages(
    corpus: Corpus, folder: str | Path | None = None, by: str = "source", pages: int = 20, progress: Progress = silent
) -> Path:
    """Write index.html over a corpus, and pages of some of its flows; return the path of index.html.

    `folder`: made if it does not exist; default: "report" in the corpus, of a remote one in the working directory.
    `by`: column of the groups: source, date, network. `pages`: of how many flows to draw a page: the largest of every
    verdict in turn. Raises `ArgumentError` if the corpus has no flows (its tasks were others), or `by` is not a column.
    """
    if "flows" not in corpus.tables:
        raise ArgumentError(f"{corpus.where}: a report needs the task flows, its tasks are {','.join(corpus.tasks)}")
    folder = Path(folder or ("report" if "://" in corpus.where else os.path.join(corpus.where, "report")))
    flows = _flows(corpus, by)
    folder.mkdir(parents=True, exist_ok=True)
    links: dict[tuple[str, int], str] = {}
    rank = flows.groupby("verdict").cumcount().to_numpy()  # the largest of every verdict, then the second largest
    drawn = flows.iloc[np.lexsort((np.arange(len(flows)), rank))[:pages]]
    for capture, chosen in drawn.groupby("capture", sort=False):
        progress(f"drawing {capture}")
        links |= _pages_of(corpus, str(capture), chosen, folder)
    page = folder / "index.html"
    write_text(page, _render(corpus, flows, by, links))
    return page


def _flows(corpus: Corpus, by: str) -> pd.DataFrame:
    """Return the bulk flows with everything known of each; all connections if no task concerned bulk flows."""
    keys = ["capture", "connection"]
    columns = [*keys, *([by] if by not in keys else []), *_FLOWS]
    flows = corpus.flows.frame(list(dict.fromkeys(columns)))
    flows["retransmitted_share"] = retransmitted_share(flows)
    if "verdicts" in corpus.tables:
        verdicts = corpus.verdicts.frame([*keys, "verdict", "text", "controller", "refused"])
        verdicts["verdict"] = (
            verdicts["verdict"].map(lambda name: CAUSES[name].words if name in CAUSES else name).fillna("refused")
        )
        verdicts["text"] = verdicts["text"].fillna(verdicts.pop("refused"))
        flows = flows.merge(verdicts, on=keys, how="inner")
    else:
        flows = flows.assign(verdict="unknown", text="", controller=corpus.unnamed)
    if "controllers" in corpus.tables:
        found = corpus.controllers.frame([*keys, "controller"]).rename(columns={"controller": "identified"})
        flows = flows.merge(found, on=keys, how="left")
        flows["controller"] = flows.pop("identified").fillna(flows["controller"])
    flows["controller"] = flows["controller"].fillna(corpus.unnamed)
    return flows.sort_values("bytes_sent", ascending=False, kind="stable").reset_index(drop=True)


def _pages_of(corpus: Corpus, capture: str, chosen: pd.DataFrame, folder: Path) -> dict[tuple[str, int], str]:
    """Draw flows of one capture; return their pages by (capture, connection); warn if it fails (a file is gone)."""
    from cctrace.analysis.analyze import analyze
    from cctrace.report.overview import write_report

    column = corpus.captures.frame(["counters"], capture=capture)["counters"]
    counters = list(column.iloc[0]) if len(column) else []
    senders = _identified(corpus, capture)
    ends = {tuple(row[list(ENDS)]): int(row["connection"]) for _, row in chosen.iterrows()}
    pages = {}
    with tempfile.TemporaryDirectory() as temporary:
        try:
            source, *beside = [_file(name, temporary) for name in (capture, *counters)]
            found = {key: senders.get(connection) for key, connection in ends.items()}
            for analysis in analyze([source], beside, identifications=found):
                connection = ends.get(tuple(analysis.row[key] for key in ENDS))
                if connection is not None:
                    name = f"{_stem(capture)}-{connection}"
                    page = write_report([replace(analysis, file=capture)], folder / name)
                    pages[capture, connection] = link(name, page.name)
        except Exception as error:  # one capture must not end the page over all of them
            warn_caller(f"{capture}: no page of its own: {': '.join(reason_of(error))}", CctraceWarning)
    return pages


def _identified(corpus: Corpus, capture: str) -> dict[int, Identification]:
    """Return the senders of a capture's flows according to the corpus: {connection: Identification}."""
    if "controllers" not in corpus.tables:
        return {}
    columns = ["connection", "group", "candidates", "probabilities", "reason"]
    rows = corpus.controllers.frame(columns, capture=capture).dropna(subset=["candidates"])
    return {
        int(row["connection"]): Identification(
            [Candidate(*candidate) for candidate in zip(row["candidates"], row["probabilities"], strict=True)],
            tuple(row["group"]),
            row["reason"],
            0.0,
        )
        for _, row in rows.iterrows()
    }


def _stem(capture: str) -> str:
    base = re.sub(r"[^\w.-]", "_", capture.rpartition("/")[2], flags=re.ASCII).lstrip(".")
    return f"{base[:60]}-{hashlib.blake2b(capture.encode(), digest_size=4).hexdigest()}"


def _file(name: str, temporary: str) -> str:
    """Return a capture as a file: itself, or a copy of a member of an archive."""
    archive = name.rpartition(":")[0]
    if not archive or not is_archive(archive):
        return name
    from cctrace.io import archive as archives

    with open_source(archive) as source:
        members = {member.name: member for member in archives.members(source)[0]}
    path = os.path.join(temporary, str(len(os.listdir(temporary))))  # what it is called does not matter
    Path(path).write_bytes(members[name].data)
    return path


# ---------------------------------------------------------------------------------------------------------------------
def _render(corpus: Corpus, flows: pd.DataFrame, by: str, links: Mapping[tuple[str, int], str]) -> str:
    errors = corpus.errors.frame()
    title = format_counted(len(corpus.captures) + len(errors), "capture", "captures")
    classes = {name: f"v{i % len(_COLOURS)}" for i, name in enumerate(flows["verdict"].value_counts().index)}
    body = f"""<header><div>
<h1>{title}</h1>
<p class="soft">{escape(corpus.where)} · tasks {escape(", ".join(corpus.tasks))}</p>
</div></header>
<main>
{_figures(corpus, flows, errors)}
<h2>Distributions</h2>
<div class="grid">
{_distributions(flows)}
</div>
{_groups(flows, by, classes)}
{whatif_part(corpus)}
{_errors(errors)}
{_table(flows, by, links)}
</main>
<footer>Written by cctrace {escape(cctrace.__version__)}. The tables beside this page hold every flow.</footer>"""
    colours = "".join(f".v{i}{{background:#{colour};fill:#{colour}}}" for i, colour in enumerate(_COLOURS))
    sheet = f"{colours}\n{(_HERE / 'corpus.css').read_text(encoding='utf-8')}"
    script = (_HERE / "table.js").read_text(encoding="utf-8") + 'sortable(document.getElementById("flows"));\n'
    return document(title, sheet, body, script)


def _figures(corpus: Corpus, flows: pd.DataFrame, errors: pd.DataFrame) -> str:
    packets = int(corpus.captures.frame(["packets"])["packets"].sum())
    counts = {"Captures": len(corpus.captures), "Packets": packets, "Connections": len(corpus.flows)}
    counts |= {"Bulk flows": len(flows), "Errors": len(errors)}
    return figures((name, f"{count:,}") for name, count in counts.items())


def _distributions(flows: pd.DataFrame) -> str:
    quantities = (
        ("Goodput", "goodput_bps", format_rate),
        ("Lowest RTT", "rtt_min_us", format_rtt),
        ("Median RTT", "rtt_median_us", format_rtt),
        ("Retransmitted share", "retransmitted_share", format_share),
        ("Duration", "duration_s", lambda s: format_time(s * 1e9)),
        ("Bytes sent", "bytes_sent", format_size),
    )
    return "\n".join(_histogram(title, flows[name].to_numpy(np.float64), form) for title, name, form in quantities)


def _histogram(title: str, values: Floats, form: Callable[[float], str]) -> str:
    """Return a histogram on a logarithmic axis; what is zero has a bar of its own."""
    finite = values[np.isfinite(values)]
    above = finite[finite > 0]
    zeros = len(finite) - len(above)
    caption = format_counted(len(finite), "flow", "flows")
    caption += f", median {form(float(np.median(finite)))}" if len(finite) else ""
    caption += f", zero in {zeros:,}" if zeros else ""
    if not len(above):
        return f'<div class="card"><h3>{title}</h3><p class="soft">{caption}</p></div>'
    low, high = np.log10(above.min()), np.log10(above.max())
    edges = np.linspace(low, max(high, low + 0.1) + 1e-9, _BARS + 1)
    counts, _ = np.histogram(np.log10(above), edges)
    bars = []
    width, height = 400 / _BARS, 110
    for i, count in enumerate(counts):
        tall = height * count / counts.max()
        span = f"{form(10 ** edges[i])} to {form(10 ** edges[i + 1])}: {count:,}"
        bars.append(
            f'<rect class="bar" x="{i * width:.1f}" y="{height + 4 - tall:.1f}" width="{width - 1:.1f}" '
            f'height="{tall:.1f}"><title>{escape(span)}</title></rect>'
        )
    places = ((0, "start", low), (200, "middle", (low + high) / 2), (400, "end", high))
    labels = "".join(
        f'<text x="{x}" y="130" text-anchor="{anchor}">{escape(form(10**at))}</text>' for x, anchor, at in places
    )
    return f"""<div class="card"><h3>{title}</h3><p class="soft">{escape(caption)}</p>
<svg viewBox="0 0 400 136" role="img" aria-label="{title}: {escape(caption)}">{"".join(bars)}
<line class="axis" x1="0" y1="115" x2="400" y2="115"/>{labels}</svg></div>"""


def _groups(flows: pd.DataFrame, by: str, classes: Mapping[str, str]) -> str:
    """Return the shares of verdicts in every group, the largest groups first."""
    body = []
    groups = flows.groupby(by, dropna=False)
    for name in groups.size().sort_values(ascending=False, kind="stable").index[:_MAX_GROUPS]:
        group = flows[flows[by] == name]
        shares = group["verdict"].value_counts(normalize=True)
        ends = 100 * shares.cumsum()
        mix = "".join(
            f'<rect class="{classes[verdict]}" x="{ends[verdict] - 100 * share:.2f}" width="{100 * share:.2f}" '
            f'height="1"><title>{escape(verdict)}: {escape(format_share(share))}</title></rect>'
            for verdict, share in shares.items()
        )
        caption = ", ".join(f"{verdict} {format_share(share)}" for verdict, share in shares.items())
        goodput = _or_unknown(format_rate, group["goodput_bps"].median())
        rtt = _or_unknown(format_rtt, group["rtt_min_us"].astype(float).median())
        bar = (
            f'<svg class="mix" role="img" aria-label="{escape(caption)}" viewBox="0 0 100 1" '
            f'preserveAspectRatio="none">{mix}</svg>'
        )
        body.append([escape(str(name)), bar, f"{len(group):,}", goodput, rtt])
    key = "".join(f'<span><i class="{mark}"></i>{escape(name)}</span>' for name, mark in classes.items())
    more = f'<p class="soft">The {_MAX_GROUPS} largest of {len(groups):,}.</p>' if len(groups) > _MAX_GROUPS else ""
    heads = (by, "Causes", "Flows", "Goodput, median", "Lowest RTT, median")
    return f"""<h2>By {escape(by)}</h2>{more}
{text_table(heads, body, 2)}
<div class="key">{key}</div>"""


def _errors(errors: pd.DataFrame) -> str:
    if not len(errors):
        return ""
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in errors["kind"].value_counts().items())
    rows = errors.head(_MAX_ERRORS)[["capture", "kind", "reason"]].itertuples(index=False)
    more = f" The first {_MAX_ERRORS}:" if len(errors) > _MAX_ERRORS else ""
    return f"""<h2>Errors</h2><p class="soft">{escape(kinds)}.{more}</p>
{text_table(("Capture", "Kind", "Reason"), (map(escape, row) for row in rows), 3)}"""


def _table(flows: pd.DataFrame, by: str, links: Mapping[tuple[str, int], str]) -> str:
    largest = flows.head(_MAX_ROWS)
    heads = ["Capture", "Flow", by, "Cause", "Controller"]
    heads += ["Sent", "Goodput", "Lowest RTT", "Median RTT", "Retransmitted"]
    head = "".join(
        f'<th scope="col"{" class=text" if i < 5 else ""}><button type="button">{escape(name)}</button></th>'
        for i, name in enumerate(heads)
    )
    body = "\n".join(_row(row, by, links) for row in largest.to_dict("records"))
    names = "".join(f"<option>{escape(name)}</option>" for name in sorted(flows["verdict"].unique()))
    more = f" The {_MAX_ROWS:,} largest of {len(flows):,}." if len(flows) > _MAX_ROWS else ""
    return f"""<h2 id="table">Flows</h2>
<p class="soft">A linked flow has its own page; <code>cctrace analyze CAPTURE</code> writes one of any other.{more}</p>
<div class="card scroll"><div class="tools" id="tools" hidden>
<input id="search" type="search" placeholder="Search" aria-label="Search the flows">
<select id="only" aria-label="Only this cause"><option value="">every cause</option>{names}</select>
<output class="soft" id="found"></output></div>
<table id="flows"><thead><tr>{head}</tr></thead><tbody>
{body}
</tbody></table></div>"""


def _row(row: Mapping[Hashable, Any], by: str, links: Mapping[tuple[str, int], str]) -> str:
    name = escape("/".join(row["capture"].split("/")[-2:]))
    if address := links.get((row["capture"], row["connection"])):
        name = f'<a href="{escape(address)}">{name}</a>'
    flow = connection(row["src"], row["sport"], row["dst"], row["dport"])
    texts = [flow, str(row[by]), row["verdict"], row["controller"]]
    cells = [f'<td class="text name" title="{escape(row["capture"])}">{name}</td>']
    cells += [f'<td class="text">{escape(text)}</td>' for text in texts]
    cells[3] = f'<td class="text" title="{escape(str(row["text"]))}">{escape(row["verdict"])}</td>'
    forms = (
        ("bytes_sent", format_size),
        ("goodput_bps", format_rate),
        ("rtt_min_us", format_rtt),
        ("rtt_median_us", format_rtt),
    )
    for column, form in (*forms, ("retransmitted_share", format_share)):
        value = float("nan") if pd.isna(row[column]) else float(row[column])
        cells.append(f'<td data-v="{"NaN" if pd.isna(value) else repr(value)}">{_or_unknown(form, value)}</td>')
    return f'<tr data-verdict="{escape(row["verdict"])}">{"".join(cells)}</tr>'


def _or_unknown(form: Callable[[float], str], value: Any) -> str:
    return "unknown" if pd.isna(value) else escape(form(value))
