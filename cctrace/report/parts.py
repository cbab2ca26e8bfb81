"""Packets that are too many for one page: pages beside it, each with the packets of a part of the time."""

import itertools
from dataclasses import replace

import numpy as np

from cctrace.plot.packets import Received
from cctrace.plot.panels import Phases

PACKETS = 1_000_000  # that a page holds one by one


def fitting(sections, room=None):
    """Return the sections whose packets a page holds, as they are, and the others' numbers.

    Parameters
    ----------
    sections : list of FlowSection or None
    room : int, optional
        Packets; default: `PACKETS`.

    Returns
    -------
    sections : list of FlowSection or None
        Without the packets of those that do not fit.
    beyond : list of int
        Which these are.
    """
    room, kept, beyond = PACKETS if room is None else room, [], []
    for i, section in enumerate(sections):
        count = 0 if section is None or section.packets is None else sum(map(len, section.packets))
        if count > room:
            beyond.append(i)
            section = replace(section, packets=None)
            count = 0
        room -= count
        kept.append(section)
    return kept, beyond


def parts(section, size=None):
    """Yield the section in parts of at most `size` packets (default: `PACKETS`), in the order of time."""
    size = PACKETS if size is None else size
    times = np.sort(np.concatenate([side.time_ns for side in section.packets]))
    edges = [int(times[0]), *(int(t) for t in times[size::size]), int(times[-1]) + 1]
    edges = sorted(set(edges))
    for low_ns, high_ns in itertools.pairwise(edges):
        low, high = ((edge - section.start_ns) / 1e9 for edge in (low_ns, high_ns))
        yield replace(
            section,
            title=f"{section.title}: {low:.3f} to {high:.3f} s",
            packets=tuple(_between(side, low_ns, high_ns) for side in section.packets),
            panels=[_panel_between(panel, low, high) for panel in section.panels],
            limits=[limit for limit in section.limits if limit.end_s >= low and limit.start_s <= high],
            events=[event for event in section.events if event.end_s >= low and event.start_s <= high],
            lanes=[lane._replace(phases=_phases_between(lane.phases, low, high)) for lane in section.lanes],
            begin_s=low,
            duration_s=high,
        )


def _between(side, low_ns, high_ns):
    kept = (side.time_ns >= low_ns) & (side.time_ns < high_ns)
    blocks = np.repeat(kept, side.blocks) if isinstance(side, Received) else None
    columns = {name: getattr(side, name) for name in side.__dataclass_fields__}
    return type(side)(**{n: c[blocks if n in ("left", "right") else kept] for n, c in columns.items()})


def _phases_between(phases, low, high):
    return Phases([span for span in phases.spans if span[1] >= low and span[0] <= high])


def _panel_between(panel, low, high):
    series = []
    for one in panel.series:
        first, last = np.searchsorted(one.time_s, (low, high))
        rows = slice(max(0, first - 1), last + 1)  # so that curves reach the edges
        series.append(replace(one, time_s=one.time_s[rows], value=one.value[rows]))
    return replace(panel, series=series)
