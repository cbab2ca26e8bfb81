"""What objects show of themselves in a notebook: a title, figures, remarks; HTML without script or style sheet."""

from html import escape

_TABLE = "border-collapse:collapse;margin:2px 0"
_HEAD = "text-align:left;padding:1px 14px 1px 0;font-weight:600"
_CELL = "text-align:left;padding:1px 14px 1px 0"


def card(title, rows, notes=()):
    """Return a title and figures as HTML.

    Parameters
    ----------
    title : str
    rows : iterable of (str, object)
        Name and value of each figure.
    notes : iterable of str
        Sentences below.

    Examples
    --------
    >>> print(card("Flow <a>", [("sent", "1 MB")]))
    <div><b>Flow &lt;a&gt;</b><table style="border-collapse:collapse;margin:2px 0"><tr><th style="text-align:left;padding:1px 14px 1px 0;font-weight:600">sent</th><td style="text-align:left;padding:1px 14px 1px 0">1 MB</td></tr></table></div>
    """  # noqa: E501
    lines = "".join(
        f'<tr><th style="{_HEAD}">{escape(str(name))}</th><td style="{_CELL}">{escape(str(value))}</td></tr>'
        for name, value in rows
    )
    return f'<div><b>{escape(title)}</b><table style="{_TABLE}">{lines}</table>{_remarks(notes)}</div>'


def grid(title, columns, rows, notes=()):
    """Return a title and a table as HTML; `rows` are sequences of values, one per column."""
    head = "".join(f'<th style="{_HEAD}">{escape(str(name))}</th>' for name in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(str(value))}</td>' for value in row) + "</tr>" for row in rows
    )
    return f'<div><b>{escape(title)}</b><table style="{_TABLE}"><tr>{head}</tr>{body}</table>{_remarks(notes)}</div>'


def of_summary(title, text):
    """Return the lines of a summary, "name: value", as a card."""
    rows, notes = [], []
    for line in text.splitlines():
        name, colon, value = line.partition(": ")
        (rows if colon else notes).append((name, value) if colon else name)
    return card(title, rows, notes)


def _remarks(notes):
    return "".join(f'<div style="opacity:0.7">{escape(str(note))}</div>' for note in notes)
