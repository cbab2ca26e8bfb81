"""Plots of single flows and of models as papers draw them: time-sequence graph, oBBR's Q_r, collapse surface.

Each returns a `matplotlib.figure.Figure` that a notebook displays directly; ``savefig("x.pdf")`` writes vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.arguments import as_list, check_argument, number
from cctrace.columns import Values, rows_of_spans
from cctrace.errors import ArgumentError
from cctrace.path.transmissions import as_flow
from cctrace.plot.figure import TIME, finish, one_panel, title_of
from cctrace.plot.of_tables import COLOURS
from cctrace.plot.packets import KINDS, RETRANSMISSIONS, packets_of
from cctrace.plot.panels import COLOURS as MEANINGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from cctrace.flows.flow import Flow

_MOST = 20_000  # packets drawn individually; a page has no room for more
_SPANS = 4_000  # time bins, each drawn as one bar where there are more packets


def time_sequence(flow: Flow, start_s: float | None = None, end_s: float | None = None, *, title: str = "") -> Figure:
    """Draw the packets of a flow as tcptrace does: segments, acknowledgements, window, SACK blocks, retransmissions.

    More than 20,000 of a kind are drawn as what they cover in each of 4,000 spans of time.

    Parameters
    ----------
    flow : Flow
    start_s, end_s : float, optional
        The part to draw, seconds since the first packet; default: all.
    title : str, optional

    Raises
    ------
    ArgumentError
        If there is no packet in that part.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> time_sequence(flow, 4.0, 4.2).axes[0].get_ylabel()
    'Sequence number (MB)'
    """
    flow = as_flow(flow)
    start_ns = int(flow.row["start_ns"])
    sides = packets_of(flow)
    low = -np.inf if start_s is None else number("start_s", start_s)
    high = np.inf if end_s is None else number("end_s", end_s)
    times = [(side.time_ns - start_ns) / 1e9 for side in sides]
    rows = [np.flatnonzero((t >= low) & (t <= high)) for t in times]
    if not any(map(len, rows)):
        lasted = f"the flow lasts from 0 to {flow.row['duration_s']:.3g} s"
        raise ArgumentError(f"start_s={start_s}, end_s={end_s}: no packet there; {lasted}")
    drawing, axes = one_panel((9.0, 5.0), title_of(title, flow))
    _sent(axes, sides[0], times[0], rows[0])
    _received(axes, sides[1], times[1], rows[1])
    axes.set(xlabel=TIME, ylabel="Sequence number (MB)")
    finish(axes, loc="upper left")
    return drawing


def _sent(axes: Axes, sent: Any, time_s: Values, rows: Any) -> None:
    low, high = sent.seq[rows] / 1e6, (sent.seq[rows] + sent.size[rows]) / 1e6
    kind = sent.kind[rows]
    for i, name in enumerate(KINDS):
        of = kind == i
        if not of.any():
            continue
        meaning, label = RETRANSMISSIONS.get(name, ("observed", "segments"))
        wide = 1.2 if name == "new" else 2.2
        bars = _thinned(time_s[rows][of], low[of], high[of])
        axes.vlines(*bars, color=MEANINGS[meaning], lw=wide, label=label)


def _thinned(time_s: Values, low: Values, high: Values) -> tuple[Values, Values, Values]:
    """Return bars (time, low, high): those given, or, if too many, the range covered in each of `_SPANS` time bins."""
    if len(time_s) <= _MOST:
        return time_s, low, high
    span = np.minimum((time_s - time_s.min()) / (np.ptp(time_s) or 1.0) * _SPANS, _SPANS - 1).astype(int)
    order = np.argsort(span, kind="stable")
    first = np.flatnonzero(np.diff(span[order], prepend=-1))
    least, most = np.minimum.reduceat(low[order], first), np.maximum.reduceat(high[order], first)
    return time_s[order][first], least, most


def _received(axes: Axes, received: Any, time_s: Values, rows: Any) -> None:
    known = rows[received.ack[rows] >= 0]
    known = known[:: -max(1, len(known) // _MOST)][::-1]  # increasing lines: the points left out lie on the line
    if len(known):
        green, acked = MEANINGS["estimate"], received.ack[known] / 1e6
        axes.step(time_s[known], acked, where="post", color=green, lw=1.1, label="acknowledged")
    edged = known[received.window[known] >= 0]
    if len(edged):
        edge = (received.ack[edged] + received.window[edged]) / 1e6
        limits = axes.get_ylim()
        axes.step(time_s[edged], edge, where="post", color=MEANINGS["bound"], lw=1.0, label="window edge")
        axes.set_ylim(*limits)  # a much larger window would flatten everything else
    count = received.blocks[rows]
    if count.any():
        at = np.repeat(time_s[rows], count)
        blocks = rows_of_spans((np.cumsum(received.blocks) - received.blocks)[rows], count)
        left, right = received.left[blocks] / 1e6, received.right[blocks] / 1e6
        axes.vlines(*_thinned(at, left, right), color=MEANINGS["pacing"], lw=0.9, alpha=0.6, label="SACK")


def queue_ratio(gain: float, ratios: Sequence[float], *, title: str = "") -> Figure:
    """Draw oBBR's Q_r over the loss-based share, and where it meets 1 - p: the share p* at which both coexist [Bi23].

    Parameters
    ----------
    gain : float
        BBR's cwnd_gain.
    ratios : sequence of float
        Buffers in bandwidth-delay products, a curve each.
    title : str, optional

    Examples
    --------
    >>> len(queue_ratio(2.0, [1, 2, 16]).axes)
    1
    """
    from cctrace.analytic import share  # late: the page of an analysis needs no models

    gain = number("gain", gain, "a number above 0", 0)
    ratios = [number("ratios", ratio, "numbers above 0", 0) for ratio in as_list(ratios)]
    drawing, axes = one_panel((5.6, 4.0), title)
    p = np.linspace(0, 1, 201)
    axes.plot(p, 1 - p, color="#444", ls="--", lw=1.2, label="1 - p")
    for k, ratio in enumerate(ratios):
        colour, meets = COLOURS[k % len(COLOURS)], float(share.loss_based_share(gain, ratio))
        label = f"buffer {ratio:g} BDP: p* = {meets:.3f}"
        axes.plot(p, share.occupied_ratio(p, gain, ratio), color=colour, lw=1.4, label=label)
        axes.plot(meets, 1 - meets, "o", color=colour, ms=6)
    axes.set(xlabel="Share p of the loss-based flows", ylabel="Share of the buffer, $Q_r$", xlim=(0, 1), ylim=(0, None))
    finish(axes, loc="best")
    return drawing


def collapse_surface(
    model: Any, sd_us: ArrayLike, queue_delay_us: ArrayLike, *, here: tuple[float, float] | None = None, title: str = ""
) -> Figure:
    """Draw the closed form's probability of minRTT collapse over jitter and queue, and where it is one half.

    Parameters
    ----------
    model : cctrace.analytic.Collapse
        Its other parameters hold everywhere.
    sd_us, queue_delay_us : array_like, shape (n,)
        The axes.
    here : (float, float), optional
        A capture's own jitter and queueing delay, us: marked.
    title : str, optional

    Examples
    --------
    >>> from cctrace.analytic import Collapse
    >>> model = Collapse(mean_us=5000, sd_us=500, floor_us=75)
    >>> len(collapse_surface(model, [250, 500, 1000], [0, 1000], here=(400, 100)).axes)
    2
    """
    from cctrace.analytic import Collapse  # late: the page of an analysis needs no models

    check_argument(isinstance(model, Collapse), "model", model, "a cctrace.analytic.Collapse")
    sd = np.array([number("sd_us", at, "numbers of microseconds") for at in as_list(sd_us)])
    queue = np.array([number("queue_delay_us", at, "numbers of microseconds") for at in as_list(queue_delay_us)])
    at = [] if here is None else [number("here", one, "two numbers of microseconds") for one in as_list(here)]
    check_argument(here is None or len(at) == 2, "here", here, "two numbers of microseconds")
    chance = model.surface(sd_us=sd, queue_delay_us=queue)
    drawing, axes = one_panel((5.8, 4.2), title)
    image = axes.pcolormesh(sd / 1e3, queue / 1e3, chance.T, vmin=0, vmax=1, cmap="cividis", shading="nearest")
    if chance.min() < 0.5 < chance.max():
        axes.contour(sd / 1e3, queue / 1e3, chance.T, [0.5], colors="white", linewidths=1.4)
    if at:
        axes.plot(at[0] / 1e3, at[1] / 1e3, "X", color="white", mec="black", ms=10, label="this capture")
        axes.legend(loc="upper right", fontsize=8)
    axes.set(xlabel="Standard deviation of the RTT (ms)", ylabel="Queueing delay (ms)")
    drawing.colorbar(image, ax=axes, label="Probability of collapse (line: one half)")
    return drawing
