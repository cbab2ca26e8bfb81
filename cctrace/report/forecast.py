"""The forecast of minRTT collapse on the page: text, table, and the underlying simulator runs."""

import math

from cctrace.display import escape
from cctrace.estimates import Estimate
from cctrace.fit.collapse import Collapse, Forecast
from cctrace.refusals import Refusal
from cctrace.report.elements import Scale, card, table
from cctrace.units import format_share, format_time

_WIDTH, _HEIGHT = 640, 270
_LEFT, _TOP, _RIGHT, _BOTTOM = 62, 14, 620, 214
_LEAST = 1e-6  # smallest reported probability: it rests on some dozens of runs
_MARKS = 3.6  # pixels
_ASKED = "Would jitter make BBR’s minRTT collapse here?"
_NOTE = (
    "Each mark is a run of the simulator: this path (its rate, delay, and its jitter, stretched), alone, for 21 s or "
    "more, with one of the controllers. Below one half a flow counts as collapsed; bars are the thresholds with their "
    "intervals. No closed form is used. If runs with more than three times the path's jitter do not collapse, the "
    "threshold is not searched for here; “cctrace fit collapse” does."
)


def forecast_section(collapse: Collapse | Refusal | None) -> str:
    """Return the HTML of a forecast."""
    if collapse is None:
        return ""
    if isinstance(collapse, Refusal):
        return card(_ASKED, f"<p>Not known: {escape(collapse.reason)}.</p>")
    heads = ("Controller", "Collapses", "Threshold of the sd", "Jitter’s sd", "Chance now", "Within an hour")
    rows = []
    for name, forecast in collapse.forecasts_.items():
        chances = (forecast.probability.value, forecast.probability_hour.value)
        texts = [name, forecast.verdict, _between(forecast.threshold_sd_us), _between(forecast.sd_us)]
        texts += ["-" if chance is None else format_share(max(chance, _LEAST)) for chance in chances]
        rows.append(map(escape, texts))
    cells = table("narrow", heads, rows, "Forecast of minRTT collapse")
    body = f'{cells}{_runs(collapse)}<p class="soft">{_NOTE}</p>'
    return card(f"{_ASKED} {escape(collapse.line())}", body, "forecast")


def _between(estimate: Estimate) -> str:
    """Return an estimate in microseconds as text: value and interval, "-" for a side that is not bounded."""
    value, low, high = ("-" if side is None else format_time(side * 1e3) for side in estimate)
    return f"{value} ({low} to {high})"


def _widest(collapse: Collapse, now_us: float) -> float:
    """Return the right end of the axis: the jitter's sd, us."""
    sds_us = [now_us, 0.25 * collapse.delay_us_]
    for forecast in collapse.forecasts_.values():
        sds_us += [side for side in forecast.threshold_sd_us if side is not None] + [sd for sd, _ in forecast.trials]
    return min(1.05 * max(sds_us), 2 * collapse.delay_us_)


def _groups(collapse: Collapse) -> list[tuple[str, Forecast]]:
    """Return the runs, grouped by controllers that share them: [(names, forecast)]."""
    groups: dict[tuple, list] = {}
    for name, forecast in collapse.forecasts_.items():
        groups.setdefault((forecast.trials, forecast.threshold_sd_us), []).append((name, forecast))
    return [(", ".join(name for name, _ in group), group[0][1]) for group in groups.values()]


def _runs(collapse: Collapse) -> str:
    now_us = collapse.sd_us_.value
    if now_us is None:
        return ""
    widest, groups = _widest(collapse, now_us), _groups(collapse)
    x, y = _scale(widest, _LEFT, _RIGHT), _scale(1.05, _BOTTOM, _TOP)
    caption = f"this flow: sd {format_time(now_us * 1e3)}"
    label = (
        f"Share of the link that simulated flows got over the jitter's standard deviation; {caption}; "
        "the table above has the thresholds"
    )
    marks = "".join(_group(k, names, forecast, x, y) for k, (names, forecast) in enumerate(groups))
    half = f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{y(0.5):.1f}" y2="{y(0.5):.1f}" class="half"/>'
    return (
        f'<svg class="surface" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"{_ticks(widest, x, y)}{half}{marks}{_here(now_us, collapse.sd_us_, caption, x)}</svg>"
    )


def _scale(most: float, start: float, end: float) -> Scale:
    return lambda value: start + (end - start) * min(max(value / most, 0.0), 1.0)


def _here(now_us: float, sd_us: Estimate, caption: str, x: Scale) -> str:
    """Return the flow's own jitter as a line, its interval as a band."""
    low, high = (x(now_us if side is None else side) for side in (sd_us.low, sd_us.high))
    at = x(now_us)
    end, shift = ("end", -8) if at > (_LEFT + _RIGHT) / 2 else ("start", 8)
    return (
        f'<rect x="{low:.1f}" y="{_TOP}" width="{max(high - low, 0.5):.1f}" height="{_BOTTOM - _TOP}" class="band"/>'
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{_BOTTOM}" class="here"/>'
        f'<text x="{at + shift:.1f}" y="{_BOTTOM - 10}" text-anchor="{end}">{escape(caption)}</text>'
    )


def _group(k: int, names: str, forecast: Forecast, x: Scale, y: Scale) -> str:
    """Return the runs of controllers, the bar of their threshold, and their legend."""
    parts = [_mark(k, x(sd), y(share)) for sd, share in forecast.trials]
    value, low, high = forecast.threshold_sd_us
    at = y(0.5) + 7 * k - 3
    if value is not None:
        left, right = (x(value if side is None else side) for side in (low, high))
        parts += [f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{at:.1f}" y2="{at:.1f}" class="bar"/>']
        parts += [f'<line x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{at - 7:.1f}" y2="{at + 7:.1f}" class="bar"/>']
    left = _LEFT + 250 * k
    parts += [_mark(k, left + 6, _HEIGHT - 8), f'<text x="{left + 16}" y="{_HEIGHT - 4}">{escape(names)}</text>']
    return f'<g class="c-flow{k}">{"".join(parts)}</g>'


def _mark(k: int, x: float, y: float) -> str:
    """Return a distinct mark for each group: colours alone do not suffice."""
    if k % 3 == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_MARKS}" class="run"/>'
    if k % 3 == 1:
        return f'<path d="M{x:.1f} {y - _MARKS:.1f}l{_MARKS} {2 * _MARKS}h{-2 * _MARKS}z" class="run"/>'
    return f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" class="run"/>'


def _round_steps(most: float) -> list[float]:
    """Return some round numbers from 0 to `most`.

    >>> _round_steps(10.5), _round_steps(320)
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [0.0, 100.0, 200.0, 300.0])
    """
    power = 10.0 ** math.floor(math.log10(most))
    step = next(power * part for part in (0.2, 0.5, 1.0, 2.0) if most / (power * part) <= 6)
    return [step * k for k in range(int(most / step + 1e-9) + 1)]


def _ticks(widest: float, x: Scale, y: Scale) -> str:
    marks = [
        f'<text x="{x(sd):.1f}" y="{_BOTTOM + 16}" text-anchor="middle">{sd / 1e3:.4g}</text>'
        for sd in _round_steps(widest)
    ]
    marks += [
        f'<text x="{_LEFT - 6}" y="{y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>' for share in (0, 0.5, 1)
    ]
    middle = (_TOP + _BOTTOM) / 2
    return (
        f'<rect x="{_LEFT}" y="{_TOP}" width="{_RIGHT - _LEFT}" height="{_BOTTOM - _TOP}" class="frame"/>'
        + "".join(marks)
        + f'<text x="{(_LEFT + _RIGHT) / 2}" y="{_BOTTOM + 34}" text-anchor="middle">'
        "Standard deviation of the jitter (ms)</text>"
        f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">Share of the link</text>'
    )
