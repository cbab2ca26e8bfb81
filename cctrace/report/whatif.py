"""The what-if card of a flow's section."""

from cctrace.counterfactual.whatif import WhatIf, cells
from cctrace.display import escape
from cctrace.estimates import Estimate
from cctrace.refusals import Refusal

_HEADS = ("", "Goodput", "Mean RTT", "Sent again", "Against the original")


def whatif_card(found: WhatIf | Refusal | None) -> str:
    """Return the HTML of a `WhatIf`; of a `Refusal`, why there is none; "" of None."""
    if found is None:
        return ""
    if isinstance(found, Refusal):
        return _card("What if", f"<p>No answer: {escape(found.reason)}</p>")
    advice = found.advice()
    body = "".join(_row(name, figures, advice.get(name, "")) for name, figures in found.rows())
    head = "".join(f'<th scope="col">{name}</th>' for name in _HEADS)
    table = (
        '<div class="scroll" tabindex="0" role="region" aria-label="What if">'
        f'<table class="whatif"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )
    mark = "" if found.reproduces else ' class="card warning"'
    trust = f"<p{mark}>{escape(_sentence(found.trust()))}</p>"
    caption = "Below each value where 90 % of further such runs would be."
    if found.original:
        caption += f" “{found.own} simulated” is the check: the flow's own controller over the inferred path."
    return _card(_title(found), f'{table}<p class="soft">{escape(caption)}</p>{trust}{_unseen(found)}')


def _row(name: str, figures: dict[str, Estimate], advice: str) -> str:
    values = "".join(f"<td>{in_two_lines(text)}</td>" for text in cells(figures))
    return f"<tr><td>{escape(name)}</td>{values}<td>{escape(advice)}</td></tr>"


def in_two_lines(text: str) -> str:
    """Return a value, and its interval on a line of its own."""
    value, bracket, rest = text.partition(" (")
    return f'{escape(value)}<br><span class="soft">{escape(rest[:-1])}</span>' if bracket else escape(value)


def _title(found: WhatIf) -> str:
    changed = ", ".join(f"{name} {value}" for name, value in found.changed.items())
    return f"What if: other senders over {f'the path with {changed}' if changed else 'the inferred path'}"


def _unseen(found: WhatIf) -> str:
    items = "".join(f"<li>not excluded: {escape(text)}</li>" for text in found.unseen)
    return f'<ul class="remarks">{items}</ul>' if items else ""


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _card(title: str, body: str) -> str:
    return f'<details class="card" open><summary>{escape(title)}</summary>{body}</details>'
