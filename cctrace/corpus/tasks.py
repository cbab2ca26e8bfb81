"""The tasks: each is a function from a flow to the rows of its tables.

    flows             one row per connection, as `cctrace flows`
    explain           what limited every bulk flow: verdicts, limits, events
    identify          which congestion control sent it
    fit               its path, and whether BBR would collapse on it
    replay=NAME       what controller NAME would have decided
    whatif=NAME+NAME  what other controllers would have achieved on its path

A flow that cannot answer (a `StreamError`, a `FitError`) is a row with the reason in `refused`, not an error.
"""

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cctrace.arguments import as_list, check_argument
from cctrace.cc import controller
from cctrace.corpus.tables import TABLES
from cctrace.errors import ArgumentError, FitError, StreamError
from cctrace.flows.counters import CounterFlow

Row = dict[str, Any]  # of a table, by column
Rows = dict[str, list[Row]]  # by table
NAMES = ("flows", "explain", "identify", "fit", "replay", "whatif")
_ALLOWED = "allowed are flows, explain, identify, fit, replay=NAME, whatif=NAME+NAME"
DEFAULT = ("flows", "explain")
_FIGURES = ("retransmitted_share", "receiver_share", "application_share", "rtt_min_us", "rtt_median_us",
            "in_flight_bdp")  # fmt: skip
_CHANGES = {"goodput_change": "goodput_bps", "rtt_change": "rtt_mean_us", "share_change": "retransmitted_share"}


def parse(text: str | Sequence[str]) -> tuple[str, ...]:
    """Return the tasks that a text names, in the order of `NAMES`.

    `text`: "flows,explain,replay=bbr2", or the names. Raises `ArgumentError` if one is unknown, or the controller of a
    replay or a what-if is.

    >>> parse("replay=bbr2,flows")
    ('flows', 'replay=bbr2')
    """
    names = text.split(",") if isinstance(text, str) else as_list(text)
    check_argument(all(isinstance(name, str) for name in names), "tasks", text, "names of tasks, as texts")
    tasks = dict.fromkeys(name.strip() for name in names if name.strip())
    for task in tasks:
        name, given, variant = task.partition("=")
        if name not in NAMES or bool(given) != (name in ("replay", "whatif")):
            raise ArgumentError(f"tasks: {task!r}; {_ALLOWED}")
        for one in variant.split("+") if name == "whatif" else [variant] if given else []:
            controller(one)
    if not tasks:
        raise ArgumentError(f"tasks: none given; {_ALLOWED}")
    return tuple(sorted(tasks, key=lambda task: (NAMES.index(task.partition("=")[0]), task)))


def tables_of(tasks: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the tables that tasks fill."""
    names = ["captures", "errors"]
    for task in tasks:
        names += _TASKS[task.partition("=")[0]][1]
    return tuple(dict.fromkeys(names))


def rows_of(task: str, flow: Any, key: dict[str, Any]) -> Rows:
    """Return the results of a task for a bulk flow.

    `task`: "explain", "identify", "fit", "replay=NAME" or "whatif=NAME+NAME". `key`: the columns that all of its rows
    share: capture, connection, network. Returns the rows of each table.
    """
    name, _, variant = task.partition("=")
    function, _ = _TASKS[name]
    assert function is not None, f"{name} is about connections, not about bulk flows"
    return function(flow, key, variant) if variant else function(flow, key)


def network_of(address: str) -> str:
    """Return the network of an address: its /24, of IPv6 its /48; "" if it is not one.

    >>> network_of("10.99.0.2"), network_of("fd99::2")
    ('10.99.0.0/24', 'fd99::/48')
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return ""
    return str(ipaddress.ip_network((parsed, 24 if parsed.version == 4 else 48), strict=False))


def flow_row(summary: Row, key: dict[str, Any]) -> Row:
    """Return the row of a connection in the table of flows."""
    row = key | {column.name: summary[column.name] for column in TABLES["flows"] if column.name not in key}
    return row | {"warnings": list(row["warnings"])}


def _explain(flow: Any, key: dict[str, Any]) -> Rows:
    from cctrace.diagnosis.diagnose import diagnose
    from cctrace.identification.named import controller_name

    summary = flow.row
    row = key | {name: summary[name] for name in ("bytes_sent", "goodput_bps", "start_ns")}
    row["controller"] = controller_name(flow.tcpinfo)
    try:
        found = diagnose(flow, row["controller"])
    except StreamError as refusal:
        return {"verdicts": [row | {"refused": str(refusal)}]}
    first, *others = found.verdicts
    row |= {"verdict": first.name, "confidence": first.confidence, "text": first.text}
    row |= {"also": [verdict.name for verdict in others]}
    row |= {name: found.figures.get(name) for name in _FIGURES}
    lasted: dict[str, float] = {}
    for limit in found.limits:
        lasted[limit.name] = lasted.get(limit.name, 0.0) + limit.end_s - limit.start_s
    total = sum(lasted.values())
    limits = [
        key | {"limit": name, "seconds": seconds, "share": seconds / total if total > 0 else None}
        for name, seconds in lasted.items()
    ]
    events = [
        key | {"event": event.name, "start_s": event.start_s, "end_s": event.end_s, "text": event.text}
        for event in found.events
    ]
    return {"verdicts": [row], "limits": limits, "events": events}


def _identify(flow: Any, key: dict[str, Any]) -> Rows:
    from cctrace.identification.identify import identify

    row = key | {"start_ns": flow.row["start_ns"]}
    try:
        found = identify(flow)
    except (StreamError, ArgumentError) as refusal:
        return {"controllers": [row | {"refused": str(refusal)}]}
    names, probabilities = zip(*found.candidates, strict=True)
    row |= {"controller": names[0], "probability": probabilities[0], "group": list(found.group)}
    row |= {"candidates": list(names), "probabilities": list(probabilities), "reason": found.reason}
    return {"controllers": [row]}


def _fit(flow: Any, key: dict[str, Any]) -> Rows:
    row = key | {"start_ns": flow.row["start_ns"]}
    if isinstance(flow, CounterFlow):
        refused = [row | {"refused": "counters alone: a fit needs packets"}]
        return {"paths": refused, "collapse": refused}
    return {"paths": [_path(flow, row)], "collapse": _collapse(flow, row)}


def _path(flow: Any, row: Row) -> Row:
    from cctrace.fit import path

    try:
        found = path(flow).to_dict()
    except (FitError, StreamError) as refusal:
        return row | {"refused": str(refusal)}
    jitter = found["jitter"] or {}
    row |= _estimate("rate_bps", found["rate_bps"][-1]) | {"rate_changes": len(found["rate_bps"]) - 1}
    row |= _estimate("base_rtt_us", found["base_rtt_us"]) | _estimate("buffer_bytes", found["buffer_bytes"])
    row |= _estimate("random_loss", found["loss"]["share"]) | _estimate("jitter_sd_us", jitter.get("sd_us"))
    row |= {"jitter": jitter.get("distribution"), "jitter_process": jitter.get("process")}
    return row | {"cross_traffic": found["cross_traffic"]["kind"], "undetermined": found["undetermined"]}


def _collapse(flow: Any, row: Row) -> list[Row]:
    from cctrace.fit import Collapse

    try:
        found = Collapse().fit(flow).forecasts_
    except (FitError, StreamError) as refusal:
        return [row | {"refused": str(refusal)}]
    rows = []
    for name, forecast in found.items():
        one = row | {"controller": name, "collapses": forecast.verdict}
        for quantity in ("threshold_sd_us", "sd_us", "probability_hour"):
            one |= _estimate(quantity, getattr(forecast, quantity).to_dict())
        rows.append(one)
    return rows


def _estimate(name: str, ends: Row | None) -> Row:
    """Return the columns of an estimate that came as {"value", "low", "high"}, or as None."""
    value, low, high = ((ends or {}).get(side) for side in ("value", "low", "high"))
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _replay(flow: Any, key: dict[str, Any], variant: str) -> Rows:
    from cctrace.replaying.run import replay

    row = key | {"start_ns": flow.row["start_ns"], "controller": variant}
    try:
        run = replay(flow, variant)
    except (StreamError, ArgumentError) as refusal:
        return {"replays": [row | {"refused": str(refusal)}]}
    decided = run.decisions
    row["calls"] = len(decided)
    for column, names in (("snd_cwnd_median", ("snd_cwnd", "cwnd")), ("pacing_rate_median_Bps", ("pacing_rate",))):
        name = next((name for name in names if name in decided), None)
        row[column] = float(np.median(decided[name])) if name and len(decided) else None
    return {"replays": [row | _agreement(run, flow)]}


def _agreement(run: Any, flow: Any) -> Row:
    """Return the share of polls at which a replay agrees with the kernel's log; nothing without counters."""
    if flow.tcpinfo is None:
        return {}
    try:
        shares = run.compare().to_dict()
    except ArgumentError:
        return {}
    names = {"bw_1%": "bw_within_1_percent", "min_rtt_1%": "min_rtt_within_1_percent", "cwnd_2": "cwnd_within_2"}
    return {column: shares[name] for name, column in names.items() if name in shares}


def _whatif(flow: Any, key: dict[str, Any], variant: str) -> Rows:
    from cctrace.counterfactual.whatif import whatif

    names, row = variant.split("+"), key | {"start_ns": flow.row["start_ns"]}
    try:
        if isinstance(flow, CounterFlow):
            raise FitError("counters alone: what if needs packets")
        found = whatif(flow, names)
    except (FitError, StreamError) as refusal:
        return {"whatifs": [row | {"controller": name, "refused": str(refusal)} for name in names]}
    answer = found.to_dict()
    row |= {"own": found.own, "reproduces": found.reproduces, "not_excluded": found.not_excluded}
    row |= {f"recorded_{figure}": value for figure, value in found.recorded.items()}
    row |= _figures("original", answer["original"])
    rows = []
    for name in names:
        one = row | {"controller": name} | _figures("candidate", answer["candidates"][name])
        for column, figure in _CHANGES.items():
            one |= _estimate(column, answer["differences"].get(name, {}).get(figure))
        rows.append(one)
    return {"whatifs": rows}


def _figures(sender: str, given: Row | None) -> Row:
    columns: Row = {}
    for figure in _CHANGES.values():
        columns |= _estimate(f"{sender}_{figure}", (given or {}).get(figure))
    return columns


_TASKS: dict[str, tuple[Callable[..., Rows] | None, tuple[str, ...]]] = {
    "flows": (None, ("flows",)),
    "explain": (_explain, ("verdicts", "limits", "events")),
    "identify": (_identify, ("controllers",)),
    "fit": (_fit, ("paths", "collapse")),
    "replay": (_replay, ("replays",)),
    "whatif": (_whatif, ("whatifs",)),
}
