"""Reports of many captures, and a page that lists them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cctrace.analysis.analyze import analyze
from cctrace.display import Progress, silent
from cctrace.errors import CctraceError, one_line
from cctrace.files import files_below
from cctrace.io import is_capture
from cctrace.names import common_folder, short_names
from cctrace.report.document import link
from cctrace.report.overview import COLUMNS, keeper, row_of, write_report
from cctrace.report.page import Report, write
from cctrace.units import format_counted

PAGE = "report.html"


def captures_in(folder: str | Path) -> list[Path]:
    """Return the captures in a folder and its subfolders, sorted; files of unknown format are skipped."""
    return [path for path in sorted(map(Path, files_below(folder))) if path.is_file() and _may_be_capture(path)]


def _may_be_capture(path: Path) -> bool:
    try:
        return is_capture(path)
    except (CctraceError, OSError):
        return False
    except Exception:  # a fault of cctrace's own ends no search of a folder: `write_index` will note it for this file
        return True


def write_index(
    files: Sequence[Any],
    folder: str | Path,
    controller: str | None = None,
    progress: Progress = silent,
    failed: Callable[[Exception], object] = lambda error: None,
    **options: Any,
) -> tuple[Path, list[dict[str, Any]], list[str]]:
    """Analyse captures one by one; write a report for each, and a page that lists all flows.

    A capture that cannot be analysed, for whatever reason, does not end the others' analysis: it is noted on the page,
    and `failed` receives the exception. `folder` receives report.html, the list, and a folder with the report of each
    capture. `controller`, `progress`, `options`: as in `cctrace.analyze`.

    Returns the page, one object per flow (`FlowAnalysis.to_dict`), and a note for each capture without a report.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[list[str]] = []
    links: dict[int, str] = {}
    objects: list[dict[str, Any]] = []
    notes: list[str] = []
    names = short_names(files, taken={PAGE})
    for k, (file, name) in enumerate(zip(files, names, strict=True), 1):
        progress(f"{k} of {len(files)}: {file}")
        try:
            analyses = analyze([file], controller=controller, keep=keeper(), **options)
            write_report(analyses, folder / name, workers=options.get("workers"))
            lines = [
                (link(name, PAGE, fragment=f"flow{i}"), [*row_of(analysis), analysis.sentence], analysis.to_dict())
                for i, analysis in enumerate(analyses)
            ]
        except Exception as error:
            notes.append(f"no report of {file}: {one_line(error)}")
            failed(error)
            continue
        for address, cells, fields in lines:
            links[len(rows)] = address
            rows.append([name, *cells])
            objects.append(fields | {"report": f"{name}/{PAGE}"})
    page = folder / PAGE
    title = f"{format_counted(len(files), 'capture', 'captures')}, {format_counted(len(rows), 'flow', 'flows')}"
    columns = ["Capture", *COLUMNS, "Verdict"]
    write(Report(title, common_folder(files), columns, rows, [], notes=notes, row_links=links), page)
    return page, objects, notes
