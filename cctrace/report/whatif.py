"""The what-if card of a flow's section."""

from cctrace.counterfactual.whatif import WhatIf, cells
from cctrace.display import escape
from cctrace.refusals import Refusal
from cctrace.report.elements import card, in_two_lines, remarks, table

_HEADS = ("", "Goodput", "Mean RTT", "Retransmitted", "Against the original")


def whatif_card(found: WhatIf | Refusal | None) -> str:
    """Return the HTML of a `WhatIf`; of a `Refusal`, why there is none; "" of None."""
    if found is None:
        return ""
    if isinstance(found, Refusal):
        return card("What if", f"<p>No answer: {escape(found.reason)}</p>", is_open=True)
    advice = found.advice()
    rows = (
        [escape(name), *map(in_two_lines, cells(figures)), escape(advice.get(name, ""))]
        for name, figures in found.rows()
    )
    changed = ", ".join(f"{name} {value}" for name, value in found.changed.items())
    title = f"What if: other senders over {f'the path with {changed}' if changed else 'the inferred path'}"
    mark, trust = "" if found.reproduces else ' class="card warning"', found.trust()
    caption = "Below each value where 90 % of further such runs would be."
    if found.original:
        caption += f" “{found.own} simulated” is the check: the flow's own controller over the inferred path."
    return card(
        escape(title),
        f'{table("whatif", _HEADS, rows, "What if")}<p class="soft">{escape(caption)}</p>'
        f"<p{mark}>{escape(trust[0].upper() + trust[1:])}.</p>"
        + remarks(f"not excluded: {escape(text)}" for text in found.not_excluded),
        is_open=True,
    )
