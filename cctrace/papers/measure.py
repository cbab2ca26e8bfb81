"""What the figures of the papers measure: functions of plain values (numbers, texts, lists) that return plain values.

Their results are kept on disk, named by the arguments and by the code that made them (`cctrace.papers.runs`); a change
in this file invalidates all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.sim.jitter import Jitter
from cctrace.sim.path import Path, steps_of_lists
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate
from cctrace.tcp.wire import MSS_BYTES, WIRE_PER_PAYLOAD

if TYPE_CHECKING:
    import pandas as pd

SETTLED_S = 0.3  # start of a run that is left out, because the rate is not yet meaningful
FULL_S = 0.1  # after which STARTUP has filled a path of 5 ms: the queue before a collapse counts from here


def simulation(
    path: dict[str, Any],
    flows: list[dict[str, Any]],
    duration: str,
    seed: int,
    sample: str | None = None,
    watch: Sequence[str] = (),
    keep: Sequence[str] = (),
    exact: bool = False,
    until: str | None = None,
) -> dict[str, Any]:
    """Simulate, and return the figures of flows and link, and of samples over time what is asked for.

    `path`: fields of `cctrace.Path`; ``jitter`` and ``jitter_before`` may be the fields of a `Jitter`. `flows`: fields
    of `cctrace.Sender`. `duration`, `seed`, `sample`, `watch`, `exact`, `until`: as `cctrace.simulate`. `keep`: columns
    of the timeline to return, flow by flow; the means over time come with any `sample`. Returns ``flows`` (one dict per
    flow), ``link``, ``seconds`` (how long it was); with `sample` also ``means``, ``before`` (means until the flow first
    gets less than half the link's rate; None if it never had half), ``collapse_s`` (when that is, or None) per flow,
    and ``timeline``.
    """
    route = path_of(path)
    senders = [Sender(**f) for f in flows]
    sim = simulate(route, senders, duration, seed, sample=sample, watch=list(watch), exact=exact, until=until)
    rows = sim.flows.select_dtypes("number").to_dict("records")
    out: dict[str, Any] = {"flows": [{str(name): _number(value) for name, value in row.items()} for row in rows]}
    out["seconds"] = sim.duration_s
    out["link"] = {name: _number(value) for name, value in sim.link.items()}
    if sim.timeline is None:
        return out
    parts = [part.reset_index(drop=True) for _, part in sim.timeline.groupby("flow")]
    half = route.max_rate_bps() / 2 / WIRE_PER_PAYLOAD
    ends = [_collapse(part, half) for part in parts]
    out["collapse_s"] = ends
    out["means"] = [_means(part, SETTLED_S) for part in parts]
    out["before"] = [
        _means(part, SETTLED_S) if end is None else _means(_filled(part[part.time_s < end], half), FULL_S)
        for part, end in zip(parts, ends, strict=True)
    ]
    out["timeline"] = [{name: [_number(v) for v in part[name]] for name in keep} for part in parts]
    return out


def path_of(fields: dict[str, Any]) -> Path:
    """Return the `Path` described by plain values."""
    fields = {name: steps_of_lists(value) for name, value in fields.items()}
    for name in ("jitter", "jitter_before"):
        if isinstance(fields.get(name), dict):
            fields[name] = Jitter(**fields[name])
    return Path(**fields)


def _number(value: float) -> float | None:
    """Return a number of seven digits, or None if it is not finite."""
    return float(f"{value:.7g}") if np.isfinite(value) else None


def _collapse(part: pd.DataFrame, half_bps: float) -> float | None:
    """Return the first time from which a flow gets less than half of the link over three samples, or None."""
    time_s = part.time_s.to_numpy()
    bps = np.diff(part.delivered_segments.to_numpy()) * MSS_BYTES * 8 / np.diff(time_s)
    low = (bps < half_bps) & (time_s[:-1] >= SETTLED_S)
    runs = low[:-2] & low[1:-1] & low[2:] if len(low) > 2 else low[:0]
    return float(time_s[:-1][: len(runs)][runs][0]) if runs.any() else None


def _filled(part: pd.DataFrame, half_bps: float) -> pd.DataFrame:
    """Return a flow's samples, or none of them if it never got half of the link."""
    bps = np.diff(part.delivered_segments) * MSS_BYTES * 8 / np.diff(part.time_s)
    return part if (bps >= half_bps).any() else part[:0]


def _means(part: pd.DataFrame, since_s: float) -> dict[str, float | None]:
    """Return the mean of every column from a time on; None where nothing is left."""
    settled = part[part.time_s >= since_s].drop(columns=["time_s", "flow"])
    means = settled.select_dtypes("number").astype(float).mean()
    return {str(name): _number(value) if len(settled) else None for name, value in means.items()}
