"""Data for the page's scripts, as JSON: every packet and every point of the panels, within the size limit."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.plot.limits import LIMITS, limit_words
from cctrace.plot.packets import in_time
from cctrace.plot.panels import changes, decimate
from cctrace.report.encode import fast, floats, integers, small

if TYPE_CHECKING:
    from cctrace.columns import Values
    from cctrace.plot.packets import Received, Sent
    from cctrace.plot.panels import Panel, Series
    from cctrace.plot.states import Lane
    from cctrace.report.encode import Pack
    from cctrace.report.page import FlowSection


SERIES_BYTES = 1_650_000  # of the panels' points on a page (a third more as base64); above that they are thinned
_WIDGET_BYTES = 100_000_000
_THINNED = (20_000, 5_000, 1_500, 400)  # spans of time that a series is thinned to, tried in turn


def page_data(flows: Mapping[int, FlowSection], comparison: FlowSection | None, room: int) -> str:
    """Return the JSON that a page's script needs, for a script element; the panels' points take `room` bytes."""
    encoded = [_flow(f"flow{i}", flow) for i, flow in flows.items()]
    encoded += [_flow("comparison", comparison)] if comparison is not None else []
    _fill_series(encoded, room)
    return script_json({"flows": encoded})


def widget_data(identifier: str, flow: FlowSection) -> dict[str, Any]:
    """Return what the scripts need of a flow in a notebook: the columns as bytes, nothing thinned before 100 MB."""
    data = _flow(identifier, flow, fast)
    _fill_series([data], _WIDGET_BYTES, fast)
    return data


def script_json(data: Any) -> str:
    """Return JSON that cannot end the script element it stands in."""
    text = json.dumps(
        data, separators=(",", ":"), allow_nan=False, default=lambda data: base64.b64encode(data).decode("ascii")
    )
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _flow(identifier: str, flow: FlowSection, pack: Pack = small) -> dict[str, Any]:
    return {
        "id": identifier,
        "start_ns": str(flow.start_ns),
        "range": _range(flow),
        "time_axis": flow.time_axis,
        "phases": flow.phases.spans,
        "limits": [
            [limit_words(x.name), x.name if x.name in LIMITS else "unknown", x.start_s, x.end_s] for x in flow.limits
        ],
        "events": [[event.name.replace("_", " "), event.start_s, event.end_s, event.text] for event in flow.events],
        "lanes": [_lane(lane, pack) for lane in flow.lanes],
        "panels": [(identifier, panel) for panel in flow.panels],
        "packets": None if flow.packets is None else packet_columns(flow.packets, flow.start_ns, pack),
        "packet_files": flow.packet_files,
    }


def _lane(lane: Lane, pack: Pack) -> dict[str, Any]:
    """Return a timeline of states: when each began, which it was; the last one ends at `end`."""
    names = sorted({name for _, _, name in lane.phases.spans})
    starts = np.array([start for start, _, _ in lane.phases.spans])
    codes = [names.index(name) for _, _, name in lane.phases.spans]
    packed = {"label": lane.label, "names": names, "end": lane.phases.spans[-1][1] if len(codes) else 0.0}
    return packed | {"t": integers(np.rint(starts * 1e6), 1e-6, pack), "code": integers(codes, pack=pack)}


def _range(flow: FlowSection) -> list[float]:
    low, high = 0.0, float(flow.duration_s)
    if flow.packet_files:
        low = min(low, flow.packet_files[0]["from"] / 1e9)
        high = max(high, flow.packet_files[-1]["to"] / 1e9)
    for side in flow.packets or ():
        if len(side):
            low = min(low, (int(side.time_ns.min()) - flow.start_ns) / 1e9)
            high = max(high, (int(side.time_ns.max()) - flow.start_ns) / 1e9)
    return [low, high if high > low else low + 1e-6]


def packet_columns(packets: tuple[Sent, Received], start_ns: int, pack: Pack = small) -> dict[str, dict[str, Any]]:
    """Return the columns of packets, (`Sent`, `Received`), in the order of time."""
    sent, received = in_time(packets[0]), in_time(packets[1])
    start = np.int64(start_ns)
    columns = {
        "sent": {
            "t": sent.time_ns - start,
            "kind": sent.kind + 8 * sent.spurious.astype(np.uint8),
            **{name: getattr(sent, name) for name in ("frame", "seq", "size", "flags")},
        },
        "received": {
            "t": received.time_ns - start,
            **{name: getattr(received, name) for name in ("frame", "ack", "window", "size", "flags", "blocks", "left")},
            "length": received.right - received.left,
        },
    }
    return {side: {name: integers(c, pack=pack) for name, c in of.items()} for side, of in columns.items()}


def _fill_series(flows: Sequence[dict[str, Any]], room: int, pack: Pack = small) -> None:
    """Replace the panels by their data, in full where the page has room for it, else thinned as little as possible."""
    for buckets in (None, *_THINNED):
        filled, left = [], room if buckets != _THINNED[-1] else math.inf
        for flow in flows:
            panels, times, left = _panels(flow["panels"], buckets, pack, left)
            filled.append((panels, times))
        if left >= 0:
            break
    for flow, (panels, times) in zip(flows, filled, strict=True):
        flow["panels"], flow["times"], flow["thinned"] = panels, times, bool(buckets)


def _panels(
    panels: Iterable[tuple[str, Panel]], buckets: int | None, pack: Pack, room: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], float]:
    """Return the data of panels, the columns of time that their series share, and the bytes left of `room`.

    Stops as soon as there is no room left (it is negative then).
    """
    times: list[dict[str, Any]] = []
    places: dict[bytes, int] = {}
    data: list[dict[str, Any]] = []
    for identifier, panel in panels:
        series = []
        for curve in panel.series:
            if room < 0:
                return data, times, room
            time_s, values = _points(curve, buckets)
            key = hashlib.blake2b(np.ascontiguousarray(time_s).data).digest()
            if key not in places:
                places[key] = len(times)
                times.append(integers(np.rint(time_s * 1e6), 1e-6, pack))
                room -= len(times[-1]["data"])
            style = {"label": curve.label, "colour": curve.colour, "kind": curve.kind, "dashed": curve.dashed}
            column = floats(values, pack)
            series.append(style | {"stretches": curve.stretches, "t": places[key], "y": column})
            room -= len(column["data"])
        data.append(
            {
                "id": f"{identifier}-{panel.name}",
                "title": panel.title,
                "axis": panel.axis,
                "from_zero": panel.from_zero,
                "upper_limit": panel.upper_limit,
                "series": series,
            }
        )
    return data, times, room


def _points(series: Series, buckets: int | None) -> tuple[Values, Values]:
    """Return the points of a series, without what repeats where it holds its values."""
    finite = np.isfinite(series.value)
    time_s, values = series.time_s[finite], series.value[finite]
    if series.kind == "steps":
        time_s, values = changes(time_s, values)
    return (time_s, values) if buckets is None else decimate(time_s, values, buckets)
