"""The cards of a flow's section on what was simulated: each cause removed, and other senders or another path."""

import math
from collections.abc import Sequence

from cctrace.counterfactual.effects import Effects, effect_words
from cctrace.counterfactual.whatif import WhatIf, cells
from cctrace.diagnosis.catalogue import CAUSES
from cctrace.diagnosis.findings import Verdict
from cctrace.diagnosis.order import is_remedy, matters
from cctrace.display import escape
from cctrace.estimates import Estimate, ranged
from cctrace.refusals import Refusal
from cctrace.report.elements import Scale, card, in_two_lines, remarks, table
from cctrace.units import format_number, format_share

_TITLE = "What each cause cost: the flow simulated with and without it"
_WIDTH, _HEIGHT, _MARGIN = 300, 26, 8  # of a bar's frame, pixels
_MIN_SPAN = 1.25  # times: a narrower axis would make noise look large
_MAX_SPAN = 100.0
_HEADS = ("", "Goodput", "Mean RTT", "Retransmitted")


def effects_card(effects: Effects | Refusal | None, verdicts: Sequence[Verdict]) -> str:
    """Return the HTML of the effects of `verdicts`; of a `Refusal`, why there are none; "" of None."""
    if effects is None:
        return ""
    if isinstance(effects, Refusal):
        return card(_TITLE, f"<p>Not simulated: {escape(effects.reason)}.</p>", is_open=True)
    unanswered = (
        f"no number for “{escape(CAUSES[verdict.name].words)}”: {escape(verdict.no_effect)}"
        for verdict in verdicts
        if verdict.no_effect
    )
    not_excluded = (f"not excluded: {escape(text)}" for text in effects.not_excluded)
    body = f"<p>{escape(_act(verdicts))}</p>{_bars(verdicts)}{_comparison(effects)}"
    return card(_TITLE, body + remarks(unanswered) + remarks(not_excluded), is_open=True)


def _act(verdicts: Sequence[Verdict]) -> str:
    """Return the sentence to act on."""
    for verdict in verdicts:
        if verdict.effect is not None and is_remedy(verdict):
            return f"The most would be gained {effect_words(verdict.effect)}."
    for verdict in verdicts:
        if verdict.effect is not None and verdict.effect.goodput.low is None and matters(verdict):
            return f"If the application has more to send, the most may be gained {effect_words(verdict.effect)}."
    return "Of the causes that can be simulated none costs goodput: without any of them it would be about the same."


def _bars(verdicts: Sequence[Verdict]) -> str:
    """Return a table with two bars per cause: goodput and RTT without it, as multiples of those with it."""
    simulated = [(verdict, verdict.effect) for verdict in verdicts if verdict.effect is not None]
    if not simulated:
        return ""
    goodput, rtt = _axis([effect.goodput for _, effect in simulated]), _axis([effect.rtt for _, effect in simulated])
    rows = (
        (
            f'{escape(CAUSES[verdict.name].words)}<br><span class="soft">with {escape(effect.without)} '
            f"(confidence {format_share(verdict.confidence)})</span>",
            _bar(effect.goodput, goodput, "estimate"),
            _bar(effect.rtt, rtt, "window"),
        )
        for verdict, effect in simulated
    )
    heads = ("Cause", "Goodput without it", "Mean RTT without it")
    note = (
        "Multiples of what the flow has with the cause, both simulated over the same draws of the inferred path; thin "
        "lines are 90 % intervals, an arrow is a side that the capture does not bound. One cause is removed at a time."
    )
    return table("effects", heads, rows, "Effect of each cause") + f'<p class="soft">{note}</p>'


def _axis(ratios: Sequence[Estimate]) -> Scale:
    """Return a function from ratio to position: logarithmic, with 1 and all known values inside the frame."""
    known = [side for ratio in ratios for side in ratio if side is not None and side > 0]
    low, high = min([*known, 1 / _MIN_SPAN]), max([*known, _MIN_SPAN])
    low, high = math.log(max(low, 1 / _MAX_SPAN)), math.log(min(high, _MAX_SPAN))

    def place(ratio: float) -> float:
        at = (math.log(max(ratio, 1e-9)) - low) / (high - low)
        return _MARGIN + (_WIDTH - 2 * _MARGIN) * min(max(at, 0.0), 1.0)

    return place


def _bar(ratio: Estimate, x: Scale, colour: str) -> str:
    """Return a bar from 1 to a ratio with its interval, and its numbers."""
    value, low, high = ratio
    middle, one = _HEIGHT / 2, x(1.0)
    at = x(1.0 if value is None else value)
    left, right = _MARGIN / 2 if low is None else x(low), _WIDTH - _MARGIN / 2 if high is None else x(high)
    ends = [_end(left, low is None, -1), _end(right, high is None, 1)]
    text = _numbers(ratio)
    return (
        f'<svg class="effect c-{colour}" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'role="img" aria-label="{escape(text)}">'
        f'<rect x="{min(one, at):.1f}" y="{middle - 6}" width="{max(abs(at - one), 1):.1f}" height="12" class="bar"/>'
        f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{middle}" y2="{middle}" class="interval"/>{"".join(ends)}'
        f'<line x1="{one:.1f}" x2="{one:.1f}" y1="0" y2="{_HEIGHT}" class="one"/></svg>'
        f"<br>{escape(text)}"
    )


def _end(x: float, is_open: bool, way: int) -> str:
    """Return the end of an interval: a tick, or an arrow."""
    middle = _HEIGHT / 2
    if is_open:
        path = f"M{x - 5 * way:.1f} {middle - 4}L{x:.1f} {middle}L{x - 5 * way:.1f} {middle + 4}"
        return f'<path d="{path}" class="interval"/>'
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{middle - 4}" y2="{middle + 4}" class="interval"/>'


def _numbers(ratio: Estimate) -> str:
    """Return a ratio as text.

    >>> from cctrace.estimates import Estimate
    >>> _numbers(Estimate(3.2, 2.9, None)), _numbers(Estimate(1.004, 0.99, 1.02))
    ('× 3.2 (2.9 or more)', '× 1.00 (0.99 to 1.02)')
    """
    value, low, high = (
        None if side is None else f"{side:.2f}" if side < 2 else format_number(side, 2) for side in ratio
    )
    return f"× {ranged(str(value), low, high)}"


def _comparison(found: Effects) -> str:
    """Return the recorded flow, the simulated one, and that without each cause."""
    rows = ([escape(name), *map(in_two_lines, cells(figures))] for name, figures in found.rows())
    return (
        table("narrow without", _HEADS, rows, "The flow with and without each cause")
        + f'<p class="soft">“{escape(found.own)} simulated” is the check: the flow\'s own controller over the inferred '
        "path reproduces what was recorded. Below each value where 90 % of further such runs would be.</p>"
    )


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
        f'{table("whatif", (*_HEADS, "Against the original"), rows, "What if")}<p class="soft">{escape(caption)}</p>'
        f"<p{mark}>{escape(trust[0].upper() + trust[1:])}.</p>"
        + remarks(f"not excluded: {escape(text)}" for text in whatif.not_excluded),
        is_open=True,
    )
