"""Common parts of the commands: options, JSON, tables and progress.

All output goes through `echo`, `print_json`, `print_table` or `progress`, so that neither contents nor names of
files can control the terminal. The linter forbids other ways.
"""

import contextlib
import functools
import json as jsonlib
import re
import shutil
import signal
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click

from cctrace.cli.arguments import SIZE_BYTES
from cctrace.cli.option_names import in_options
from cctrace.display import plain, visible
from cctrace.errors import ArgumentError

Heading = tuple[int, Callable[[Sequence[Any]], str]]
_INDENT = "  "
_WITH_UNIT = re.compile(r"(?<=\d) (?=\S)")
_PATIENCE_S = 0.9  # after which what swallowed an interrupt, or cleans up, is interrupted again
SILENT_S = 2.0  # that a command may take without saying what it does
_LONGEST_S = 60.0  # between the lines that say so


def warn(text: object) -> None:
    """Print a warning as one line on stderr, each only once: readers and tables may both carry it."""
    line = " ".join(str(text).split())
    if line not in _warned:
        _warned.add(line)
        echo(f"cctrace: warning: {line}", err=True)


_warned: set[str] = set()
_shows_tracebacks = False


def begin_run(debug: bool) -> None:
    """Begin a new run of a command; with `debug`, errors show their tracebacks."""
    global _shows_tracebacks
    _shows_tracebacks = debug
    _warned.clear()


def show_traceback(error: Exception) -> None:
    """Print on stderr where an error comes from, if the user asked for it (`--debug`)."""
    if _shows_tracebacks:
        echo("".join(traceback.format_exception(error)).rstrip(), err=True)


def echo(text: str = "", err: bool = False, bold: bool = False) -> None:
    """Print lines, on stderr with `err`; control characters are escaped."""
    text = visible(text)
    click.echo(click.style(text, bold=True) if bold else text, err=err)  # noqa: TID251 (the one place)


def command_options(json: bool = True) -> Callable[..., Any]:
    """Add the options that every command has: `--debug`, and `--json` as the argument `as_json`.

    An `ArgumentError` of the library names its own parameter; what the command raises names the option.
    """

    def decorate(run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def function(*arguments: Any, **options: Any) -> Any:
            try:
                return run(*arguments, **options)
            except ArgumentError as error:
                raise ArgumentError(in_options(str(error), click.get_current_context())) from error

        # main() looks for --debug itself: it must hold for errors in the other options too.
        command = click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")(function)
        if json:
            command = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)
        return command

    return decorate


def reading_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of commands that read captures, `--limit` and `--decapsulate`: the argument `reading`, a dict."""

    @functools.wraps(function)
    def with_reading(*arguments: Any, limit: int | None, decapsulate: tuple[str, ...], **options: Any) -> Any:
        return function(*arguments, reading={"limit": limit, "decapsulate": decapsulate}, **options)

    limit = click.option(
        "--limit",
        type=SIZE_BYTES,
        help="Largest size that a compressed file may unpack to, such as 20GB; default: only bombs are refused.",
    )
    tunnels = "Look into tunnels: ipip, gre, vxlan, geneve or all; may be given more than once."
    return click.option("--decapsulate", multiple=True, metavar="TUNNEL", help=tunnels)(limit(with_reading))


def print_json(value: Any) -> None:
    """Print a value as JSON; numpy scalars become numbers and what is not finite becomes null."""
    echo(_json(value, _INDENTED))


def print_json_list(values: Iterable[Any]) -> None:
    """Print values as one JSON list, a line each, as they come: there may be too many for the memory."""
    mark = "["
    for value in values:
        sys.stdout.write(f"{mark}\n{_json(value, _IN_ONE_LINE)}")
        mark = ","
    sys.stdout.write("\n]\n" if mark == "," else "[]\n")


# Made once: a table has 100,000 rows, and `json.dumps` makes an encoder for each, a fifth of its time.
_IN_ONE_LINE = jsonlib.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_INDENTED = jsonlib.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=1).encode


def _json(value: Any, encode: Callable[[Any], str]) -> str:
    """Return JSON without control characters: what is not printable is escaped, so nothing is lost."""
    try:  # most values are plain: looking at each first takes five times as long
        text = encode(value)
    except (TypeError, ValueError):
        text = encode(plain(value))
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else jsonlib.dumps(one)[1:-1] for one in text)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    title: str | None = None,
    heading: Heading | None = None,
    short: dict[str, str] | None = None,
) -> None:
    """Print rows as a table; columns of quantities are aligned to the right, texts to the left.

    A table too wide for the terminal is stacked: a row takes several lines, and nothing is cut. Pipes and files get
    one line per row, however long.

    `heading`: number of columns that the first line of a stacked row stands for, and the function that makes its text;
    default: the first column. `short`: shorter names of columns, for the stack.
    """
    rows = [[visible(cell, keep="") for cell in row] for row in rows]
    lines, head = lines_of(columns, rows), 1
    if sys.stdout.isatty() and max(map(len, lines)) > (width := shutil.get_terminal_size().columns):
        count, text = heading or (1, lambda row: str(row[0]))
        names = [(short or {}).get(name, name) for name in columns[count:]]
        lines, head = _stacked(text(columns), names, [(text(row), row[count:]) for row in rows], width)
    if title:
        echo(title)
    for line in lines[:head]:
        echo(line, bold=True)
    if rest := lines[head:]:
        echo("\n".join(rest))  # at once: a flood of SYNs has millions


def _stacked(
    name: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[Any]]], width: int
) -> tuple[list[str], int]:
    """Return rows, (heading, cells), as lines of a width at most, and how many of them are the table's head."""
    room = width - len(_INDENT)
    texts = [[name, *(cells[i] for _, cells in rows)] for i, name in enumerate(columns)]
    long = [i for i, column in enumerate(texts) if max(map(len, column[1:]), default=0) > room]
    parts: list[list[int]] = []
    used = room
    for i, column in enumerate(texts):
        wide = max(map(len, column))
        if i in long or not any(column[1:]):
            continue
        if parts and used + len(_INDENT) + wide <= room:
            parts[-1].append(i)
            used += len(_INDENT) + wide
        else:
            parts.append([i])
            used = wide
    blocks = [
        lines_of([columns[i] for i in part], [[cells[i] for i in part] for _, cells in rows], first=False)
        for part in parts
    ]
    lines = [*([name] if name else []), *(_INDENT + block[0] for block in blocks)]
    head = len(lines)
    for k, (heading, cells) in enumerate(rows, 1):
        # One that is too long names two ends.
        lines += re.sub(r" (→|->) ", rf"\n{_INDENT}\1 ", heading).split("\n") if len(heading) > width else [heading]
        lines += [_INDENT + block[k] for block in blocks if block[k].strip()]
        lines += [line for i in long if cells[i] for line in wrapped(f"{columns[i]}: {cells[i]}", width, _INDENT)]
    return lines, head


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Return a text as lines of a width at most; words stay whole, and a number stays with its unit.

    >>> wrapped("It sent 20 MB in 3.5 s.", 14)
    ['It sent 20 MB', '  in 3.5 s.']
    """
    lines = textwrap.wrap(
        _WITH_UNIT.sub("\xa0", text),
        width,
        initial_indent=indent,
        subsequent_indent=indent + _INDENT,
        break_long_words=False,  # names and commands can be copied
        break_on_hyphens=False,
    )
    return [line.replace("\xa0", " ") for line in lines]


def print_text(text: str) -> None:
    """Print a text: wrapped in a terminal, as far to the right as it begins; else as one line."""
    if sys.stdout.isatty():
        begin = len(text) - len(text.lstrip())
        text = "\n".join(wrapped(text[begin:], shutil.get_terminal_size().columns, text[:begin]))
    echo(text)


def lines_of(columns: Sequence[str], rows: Sequence[Sequence[Any]], first: bool = True) -> list[str]:
    """Return a table as plain lines, two spaces between columns; the `first` column is one of texts."""
    cells = [[str(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [(i > 0 or not first) and _are_quantities(rows, i) for i in range(len(columns))]
    return [
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in cells
    ]


def _are_quantities(rows: Sequence[Sequence[Any]], i: int) -> bool:
    cells = {str(row[i]) for row in rows} - {"", "unknown"}
    return all(cell[0].isdigit() and ":" not in cell for cell in cells)


@contextlib.contextmanager
def interruptible() -> Iterator[list[int]]:
    """Make Ctrl-C end what runs within a second, even where a library swallows it; gives a list, empty until then."""
    interrupts: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return

    def interrupt(number: int, frame: Any) -> None:
        interrupts.append(number)
        signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S)
        raise KeyboardInterrupt

    before = [(number, signal.signal(number, interrupt)) for number in (signal.SIGINT, signal.SIGALRM)]
    try:
        yield interrupts
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before:
            signal.signal(number, handler)


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[str], Any]]:
    """Show the current activity on stderr; yields a function that changes the text.

    A terminal shows it all the time; a file or a pipe gets a line after SILENT_S, and then ever fewer.
    """
    if not sys.stderr.isatty():
        doing, ended = [what], threading.Event()
        reporter = threading.Thread(target=_report_activity, args=(doing, ended), daemon=True)
        reporter.start()
        try:
            yield lambda text: doing.__setitem__(0, text)
        finally:
            ended.set()
            reporter.join()
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(visible(what))) as status:
        yield lambda text: status.update(Text(visible(text, keep="")))


def _report_activity(doing: list[str], ended: threading.Event) -> None:
    """Print what is being done, until it has ended: after SILENT_S, and then after twice as long each time."""
    began, wait_s = time.monotonic(), SILENT_S
    while not ended.wait(wait_s):
        echo(f"cctrace: {' '.join(doing[0].split())} ({time.monotonic() - began:.0f} s)", err=True)
        wait_s = min(2 * wait_s, _LONGEST_S)
