"""The what-if card of a flow's section."""

from cctrace.counterfactual.whatif import WhatIf, cells
from cctrace.display import escape
from cctrace.refusals import Refusal
from cctrace.report.elements import card, in_two_lines, remarks, table

_HEADS = ("", "Goodput", "Mean RTT", "Retransmitted", "Against the original")


def whatif_card(whatif: WhatIf | Refusal | None) -> str:
    """Return the HTML of a `WhatIf`; of a `Refusal`, why there is none; "" of None."""
    if whatif is None:
        return ""
    if isinstance(whatif, Refusal):
        return card("What if", f"<p>No answer: {escape(whatif.reason)}</p>", is_open=True)
    advice = whatif.advice()
    rows = (
        [escape(name), *map(in_two_lines, cells(figures)), escape(advice.get(name, ""))]
        for name, figures in whatif.rows()
    )
    changed = ", ".join(f"{name} {value}" for name, value in whatif.changed.items())
    title = f"What if: other senders over {f'the path with {changed}' if changed else 'the inferred path'}"
    mark, trust = "" if whatif.reproduces else ' class="card warning"', whatif.trust()
    caption = "Below each value where 90 % of further such runs would be."
    if whatif.original:
        caption += f" “{whatif.own} simulated” is the check: the flow's own controller over the inferred path."
    return card(
        escape(title),
        f'{table("whatif", _HEADS, rows, "What if")}<p class="soft">{escape(caption)}</p>'
        f"<p{mark}>{escape(trust[0].upper() + trust[1:])}.</p>"
        + remarks(f"not excluded: {escape(text)}" for text in whatif.not_excluded),
        is_open=True,
    )
