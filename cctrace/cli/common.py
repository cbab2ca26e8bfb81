"""What the commands share: options, JSON, tables and progress."""

import contextlib
import json as jsonlib
import math
import signal
import sys
import threading

import click


def warn(text):
    """Print a warning as one line on stderr, each only once: readers and tables may both carry it."""
    line = " ".join(str(text).split())
    if line not in _warned:
        _warned.add(line)
        click.echo(f"cctrace: warning: {line}", err=True)


_warned: set[str] = set()


def forget_warnings():
    """Begin a new run of a command."""
    _warned.clear()


def command_options(json=True):
    """Add the options that every command has: `--debug`, and `--json` as the argument `as_json`."""

    def decorate(function):
        # main() looks for --debug itself: it must hold for errors in the other options too.
        function = click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")(function)
        if json:
            function = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(function)
        return function

    return decorate


def reading_options(function):
    """Add the options of commands that read captures: `--limit` and `--decapsulate`, as arguments of `read_file`."""
    function = click.option(
        "--limit",
        metavar="SIZE",
        callback=lambda context, option, text: None if text is None else _size(text),
        help="Largest size that a compressed file may unpack to, for example 20GB; default: what is no bomb.",
    )(function)
    return click.option(
        "--decapsulate",
        multiple=True,
        metavar="TUNNEL",
        help="Look into tunnels: ipip, gre, vxlan, geneve or all; may be given more than once.",
    )(function)


def _size(text):
    from cctrace.errors import ArgumentError
    from cctrace.units import parse_size_bytes

    if size := parse_size_bytes(text, name="--limit"):
        return size
    raise ArgumentError(f"--limit {text}: at least one byte")


def print_json(value):
    """Print a value as JSON; numpy scalars become numbers and what is not finite becomes null."""
    click.echo(jsonlib.dumps(_plain(value), indent=1, ensure_ascii=False))


def print_json_list(values):
    """Print values as one JSON list, a line each, as they come: there may be too many for the memory."""
    mark = "["
    for value in values:
        sys.stdout.write(f"{mark}\n{jsonlib.dumps(_plain(value), ensure_ascii=False)}")
        mark = ","
    sys.stdout.write("\n]\n" if mark == "," else "[]\n")


def _plain(value):
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return _plain(value.tolist())
    if value is None or (isinstance(value, float) and not math.isfinite(value)) or type(value).__name__ == "NAType":
        return None
    return value


def end(host, port):
    """Return an endpoint as people write it.

    >>> end("192.0.2.1", 443), end("2001:db8::1", 443)
    ('192.0.2.1:443', '[2001:db8::1]:443')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def print_table(columns, rows, title=None):
    """Print rows as a table; columns of quantities are aligned to the right, texts to the left."""
    if not sys.stdout.isatty():  # read by programs, by grep and by mail: one line a row, however long
        click.echo("\n".join(([title] if title else []) + lines_of(columns, rows)))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for i, name in enumerate(columns):
        justify = "right" if _are_quantities(rows, i) else "left"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=i > 0)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    Console(markup=False, highlight=False, emoji=False).print(table)


def lines_of(columns, rows):
    """Return a table as plain lines, two spaces between columns."""
    cells = [[str(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [_are_quantities(rows, i) for i in range(len(columns))]
    return [
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in cells
    ]


def _are_quantities(rows, i):
    cells = {str(row[i]) for row in rows} - {"", "unknown"}
    return i > 0 and all(cell[0].isdigit() and ":" not in cell for cell in cells)


_PATIENCE_S = 0.9  # after which what swallowed an interrupt, or cleans up, is interrupted again


@contextlib.contextmanager
def interruptible():
    """Make Ctrl-C end what runs within a second, even where a library swallows it; gives a list, empty until then."""
    interrupts = []
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return

    def interrupt(number, frame):
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
def progress(what):
    """Show on stderr, if it is a terminal, what is being done; yields a function that changes the text."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status(what) as status:
        yield status.update
