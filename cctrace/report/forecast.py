"""The forecast of minRTT collapse on the page: words, a table, and the closed form's surface with the flow on it."""

from html import escape

import numpy as np

from cctrace.analytic.collapse import Collapse
from cctrace.units import format_share, format_time

_MAP = (
    (0, 32, 76),
    (65, 77, 107),
    (124, 123, 120),
    (188, 174, 108),
    (255, 234, 70),
)  # cividis
_COLUMNS, _ROWS = 36, 14
_WIDTH, _HEIGHT = 640, 250
_LEFT, _TOP, _RIGHT, _BOTTOM = 70, 12, 620, 206
_LEAST = 1e-6  # chance that is told: the runs behind it are some dozens
_NOTE = (
    "Background: the chance that the closed form of Kumar et al. gives, for independent samples of a normal RTT. "
    "Bar: the threshold that runs of the simulator with this path's jitter show, with its interval; the forecast rests "
    "on these runs."
)


def forecast_section(forecast):
    """Return the HTML of a forecast.

    Parameters
    ----------
    forecast : cctrace.fit.Collapse or str or None
        Why there is none, if it is a text.
    """
    if forecast is None:
        return ""
    if isinstance(forecast, str):
        return f'<p class="soft">minRTT collapse of BBR is not forecast: {escape(forecast)}.</p>'
    head = ("Controller", "Collapses", "Threshold of the sd", "Jitter’s sd", "Chance now", "Within an hour")
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in _row(name, one)) + "</tr>"
        for name, one in forecast.forecasts_.items()
    )
    columns = "".join(f'<th scope="col">{name}</th>' for name in head)
    table = f'<table class="narrow"><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table>'
    return (
        f'<details class="card forecast"><summary>Would jitter make BBR’s minRTT collapse here? '
        f'{escape(forecast.line())}</summary>\n<div class="scroll" tabindex="0" role="region" '
        f'aria-label="Forecast of minRTT collapse">{table}</div>\n{_surface(forecast)}'
        f'<p class="soft">{_NOTE}</p></details>'
    )


def _row(name, one):
    return (
        name,
        one.verdict,
        _between(one.threshold_sd_us),
        _between(one.sd_us),
        _chance(one.probability.value),
        _chance(one.probability_hour.value),
    )


def _chance(value):
    return format_share(value) if value >= _LEAST else f"below {format_share(_LEAST)}"


def _between(estimate):
    """Return an estimate in microseconds as text: value and interval, "-" for a side that is not bounded."""
    value, low, high = ("-" if side is None else format_time(side * 1e3) for side in estimate)
    return f"{value} ({low} to {high})"


def _axes(forecast):
    """Return the ends of the axes: the jitter's sd and the queueing delay, us."""
    one = next(iter(forecast.forecasts_.values()))
    known = [side for side in (*one.threshold_sd_us, *one.sd_us) if side is not None]
    widest = min(max([1.15 * max(known, default=0), 0.25 * forecast.delay_us_]), 2 * forecast.delay_us_)
    return widest, max(0.5 * forecast.delay_us_, 1.5 * forecast.queue_us_)


def _surface(forecast):
    name, one = next(iter(forecast.forecasts_.items()))
    widest, longest = _axes(forecast)
    sd = (np.arange(_COLUMNS) + 0.5) / _COLUMNS * widest
    queue = (np.arange(_ROWS) + 0.5) / _ROWS * longest
    chance = Collapse(mean_us=forecast.delay_us_).surface(sd_us=sd, queue_delay_us=queue)
    wide, high = (_RIGHT - _LEFT) / _COLUMNS, (_BOTTOM - _TOP) / _ROWS
    cells = "".join(
        f'<rect x="{_LEFT + i * wide:.1f}" y="{_BOTTOM - (k + 1) * high:.1f}" width="{wide + 0.4:.1f}" '
        f'height="{high + 0.4:.1f}" fill="{_colour(chance[i, k])}"/>'
        for i in range(_COLUMNS)
        for k in range(_ROWS)
    )
    x = _scale(widest, _LEFT, _RIGHT)
    y = _scale(longest, _BOTTOM, _TOP)
    here = (x(one.sd_us.value), y(forecast.queue_us_))
    said = f"this flow: sd {format_time(one.sd_us.value * 1e3)}, queue {format_time(forecast.queue_us_ * 1e3)}"
    label = (
        f"Chance of minRTT collapse over the jitter's standard deviation and the queueing delay, with {said}; "
        "the table above has the forecast"
    )
    end, shift = ("end", -10) if here[0] > (_LEFT + _RIGHT) / 2 else ("start", 10)
    return (
        f'<svg class="surface" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">{cells}'
        f"{_ticks(widest, x, longest, y)}{_threshold(one.threshold_sd_us, x, here[1], name)}"
        f'<circle cx="{here[0]:.1f}" cy="{here[1]:.1f}" r="6" fill="#fff" stroke="#000" stroke-width="2"/>'
        f'<text class="on" x="{here[0] + shift:.1f}" y="{here[1] - 12:.1f}" text-anchor="{end}">{escape(said)}</text>'
        "</svg>"
    )


def _scale(most, start, end):
    return lambda value: start + (end - start) * min(max(value / most, 0.0), 1.0)


def _threshold(threshold, x, y, name):
    """Return the interval of the threshold as a bar at the flow's own queue; nothing where the runs found none."""
    if threshold.value is None:
        return ""
    low = threshold.value if threshold.low is None else threshold.low
    high = np.inf if threshold.high is None else threshold.high
    at = f'y1="{y - 16:.1f}" y2="{y + 16:.1f}" stroke="#fff" stroke-width="2"'
    return (
        f'<line x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#000" stroke-width="7"/>'
        f'<line x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#fff" stroke-width="4"/>'
        f'<line x1="{x(threshold.value):.1f}" x2="{x(threshold.value):.1f}" {at}/>'
        f'<text class="on" x="{x(threshold.value):.1f}" y="{y - 30:.1f}" text-anchor="middle">'
        f"threshold of {escape(name)}</text>"
    )


def _ticks(widest, x, longest, y):
    marks = [
        f'<text x="{x(share * widest):.1f}" y="{_BOTTOM + 16}" text-anchor="middle">{share * widest / 1e3:.3g}</text>'
        for share in (0, 0.25, 0.5, 0.75, 1)
    ]
    marks += [
        f'<text x="{_LEFT - 6}" y="{y(share * longest) + 4:.1f}" text-anchor="end">{share * longest / 1e3:.3g}</text>'
        for share in (0, 0.5, 1)
    ]
    middle = (_TOP + _BOTTOM) / 2
    return (
        "".join(marks) + f'<text x="{(_LEFT + _RIGHT) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">'
        "Standard deviation of the jitter (ms)</text>"
        f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">Queueing delay (ms)</text>'
    )


def _colour(chance):
    """Return the colour of a chance.

    >>> _colour(0.0), _colour(1.0)
    ('#00204c', '#ffea46')
    """
    place = float(np.clip(chance, 0, 1)) * (len(_MAP) - 1)
    i = min(int(place), len(_MAP) - 2)
    mixed = (round(a + (b - a) * (place - i)) for a, b in zip(_MAP[i], _MAP[i + 1], strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)
