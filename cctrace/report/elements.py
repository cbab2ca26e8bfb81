"""Pieces of HTML that the parts of a page share. What is called text is escaped here, what is called HTML is not."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from cctrace.display import escape

Scale: TypeAlias = Callable[[float], float]  # from a value to its place on an axis, pixels


def card(summary: str, body: str, kind: str = "", is_open: bool = False) -> str:
    """Return a card that folds; `summary` and `body` are HTML, `kind` is a further class."""
    name, state = f"card {kind}".rstrip(), " open" if is_open else ""
    return f'<details class="{name}"{state}><summary>{summary}</summary>{body}</details>'


def table(kind: str, heads: Iterable[str], rows: Iterable[Iterable[str]], label: str = "") -> str:
    """Return a table, of heads (text) and rows of cells (HTML); it scrolls on its own if it has a label."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    found = f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{label}">{found}</div>' if label else found


def text_table(heads: Iterable[str], rows: Iterable[Iterable[str]], texts: int) -> str:
    """Return a card with a table of a corpus: heads (text), and rows of cells (HTML), of which the first are texts."""

    def cells(tag: str, row: Iterable[str]) -> str:
        kinds = [' class="text name"', *[' class="text"'] * (texts - 1)]
        return "".join(f"<{tag}{kinds[k] if k < len(kinds) else ''}>{cell}</{tag}>" for k, cell in enumerate(row))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = cells("th", map(escape, heads))
    return f'<div class="card scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def figures(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and values (text) as a list of definitions."""
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in pairs)
    return f'<dl class="figures">{items}</dl>'


def remarks(texts: Iterable[str]) -> str:
    """Return remarks (HTML) in small print: nobody reads a page of warnings."""
    items = "".join(f"<li>{text}</li>" for text in texts)
    return f'<ul class="remarks">{items}</ul>' if items else ""


def in_two_lines(text: str) -> str:
    """Return a value, and its interval on a line of its own."""
    value, bracket, rest = text.partition(" (")
    return f'{escape(value)}<br><span class="soft">{escape(rest[:-1])}</span>' if bracket else escape(value)
