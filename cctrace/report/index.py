"""Many captures: a report for each, and one page that lists them."""

from pathlib import Path

from cctrace.corpus.names import common_folder, short_names
from cctrace.errors import CctraceError
from cctrace.explain.analyze import analyze
from cctrace.io import is_capture
from cctrace.report.overview import COLUMNS, as_object, keeper, row_of, sentence_of, write_report
from cctrace.report.page import Report, write


def captures_in(folder):
    """Return the captures in a folder and those in it, sorted; what is of no known format is left out.

    Parameters
    ----------
    folder : path-like

    Returns
    -------
    list of pathlib.Path
    """
    found = []
    for path in sorted(Path(folder).rglob("*")):
        try:
            if path.is_file() and is_capture(path):
                found.append(path)
        except (CctraceError, OSError):
            continue
    return found


def write_index(files, folder, controller=None, say=lambda text: None, **options):
    """Analyse captures one by one, and write a report for each and a page that lists all flows.

    Parameters
    ----------
    files : sequence of path-like
    folder : path-like
        Receives report.html, the list, and a folder with the report of each capture.
    controller, say, options
        As of `cctrace.explain.analyze.analyze`.

    Returns
    -------
    page : pathlib.Path
    objects : list of dict
        One per flow, as `overview.as_object`.
    notes : list of str
        Why a capture has no report.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows, links, objects, notes, names = [], {}, [], [], short_names(files)
    for k, (file, name) in enumerate(zip(files, names, strict=True), 1):
        say(f"{k} of {len(files)}: {file}")
        try:
            analyses = analyze([file], controller=controller, keep=keeper(), **options)
        except (CctraceError, OSError) as error:
            notes.append(f"no report of {file}: {' '.join(str(error).split())}")
            continue
        write_report(analyses, folder / name)
        for i, analysis in enumerate(analyses):
            links[len(rows)] = f"{name}/report.html#flow{i}"
            rows.append([name, *row_of(analysis), sentence_of(analysis)])
            objects.append(as_object(analysis) | {"report": f"{name}/report.html"})
    page = folder / "report.html"
    title = f"{len(files)} captures, {len(rows)} flows"
    columns = ["Capture", *COLUMNS, "Verdict"]
    write(Report(title, common_folder(files), columns, rows, [], notes=notes, row_links=links), page)
    return page, objects, notes
