"""The values that `cdf` and `boxes` draw: a quantity of every flow of many runs, in groups.

From what is given to arrays:

    folder, pattern, capture ─┐
    Corpus, or its folder     ├─> flows with their names ──quantity──> {group: values in the axis' unit}
    Flow, Run, Simulation, …  ┘
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from cctrace.analysis.inputs import Counters
from cctrace.arguments import check_argument, short_repr
from cctrace.columns import Columns, Values
from cctrace.display import connection
from cctrace.errors import ArgumentError
from cctrace.flows.capture import Capture, read
from cctrace.flows.flow import Flow
from cctrace.flows.large import bulk_flows, bulk_or_largest, is_large
from cctrace.flows.source import flow_of
from cctrace.flows.table import retransmitted_share
from cctrace.flows.views import View
from cctrace.identification.named import controller_name
from cctrace.io.counters.tcpinfo import TcpInfo
from cctrace.replaying.model import model_of
from cctrace.replaying.run import Run
from cctrace.schema import LINUX_EVENTS
from cctrace.sim.result import Simulation

# Short names of quantities: a column, one value per flow; or `SAMPLED`, all samples of each flow.
ALIASES = {
    "goodput": "goodput_bps",
    "rtt_min": "rtt_min_us",
    "rtt_median": "rtt_median_us",
    "rtt_p95": "rtt_p95_us",
    "retransmitted": "retransmitted_share",
    "duration": "duration_s",
    "sent": "bytes_sent",
}
SAMPLED = {"rtt": "rtt_us", "queue": "queue_us"}
_LABELS = {
    "goodput_bps": "Goodput",
    "rtt_min_us": "Lowest RTT of a flow",
    "rtt_median_us": "Median RTT of a flow",
    "rtt_p95_us": "95th percentile of a flow's RTT",
    "retransmitted_share": "Retransmitted",
    "bytes_sent": "Sent",
    "rtt_us": "RTT",
    "queue_us": "RTT above the flow's lowest",
}
# Ending of a column: its axis' unit, and the factor to it.
_UNITS = {
    "_bps": ("Mbit/s", 1e-6),
    "_Bps": ("Mbit/s", 8e-6),
    "_us": ("ms", 1e-3),
    "_ns": ("ms", 1e-6),
    "_s": ("s", 1.0),
    "_share": ("%", 100.0),
    "_ratio": ("%", 100.0),
    "_segments": ("segments", 1.0),
    "bytes_sent": ("MB", 1e-6),
    "_bytes": ("kB", 1e-3),
}
GROUPS = ("controller", "file", "folder", "flow", "src", "dst")
_CORPUS_JOIN = ["capture", "connection"]


class _Item(NamedTuple):
    """One flow: what it may be grouped by, and where its values come from."""

    labels: dict[str, Any]
    source: Any


def samples(of: Any, quantity: str, by: str | None = None) -> Columns:
    """Return a quantity of many flows, by group.

    Parameters
    ----------
    of : str, path, Corpus, Capture, Flow, Run, Simulation, a list of these, or dict of str to these
        A capture, a folder of captures, a pattern (``runs/**/*.pcap*``), the folder or URL of a corpus; of captures the
        flows of at least 100 kB, or the largest. The keys of a dict are the groups. Where captures of both ends lie
        together, a pattern (``*/sender.pcap*``) takes one of them.
    quantity : str
        ``goodput``, ``rtt_min``, ``rtt_median``, ``rtt_p95``, ``retransmitted``, ``duration``, ``sent``, or any numeric
        column of what is given (of a corpus that of any table, of `Simulation.flows`, of `Flow.row`): a value per
        flow. ``rtt`` and ``queue`` (RTT above the flow's lowest): every RTT sample of every flow. Of a `Run` also the
        columns of its `table`, ``cwnd_segments`` for example: a value per call.
    by : str, optional
        What makes the groups: controller (captures: as counters beside them tell), file, folder, flow, src, dst; of a
        corpus any column. Default: ``controller`` where it is known without looking, else ``file``; ``source`` of a
        corpus. Flows of which that is not known are "unknown".

    Returns
    -------
    dict of str to ndarray
        In the unit that `axis_label` names.

    Raises
    ------
    ArgumentError
        If there is no such quantity or group, or nothing was found.

    Examples
    --------
    >>> import cctrace as cct
    >>> path = cct.Path(rate="10Mbit", rtt="40ms", buffer="1bdp")
    >>> runs = [cct.simulate(path, name, "5s", seed) for name in ("bbr2022", "cubic6") for seed in (1, 2)]
    >>> {name: len(values) for name, values in samples(runs, "goodput").items()}
    {'bbr2022': 2, 'cubic6': 2}
    """
    check_argument(isinstance(quantity, str), "quantity", quantity, "a text")
    check_argument(by is None or isinstance(by, str), "by", by, "a text, or None")
    if isinstance(of, dict):
        if by is not None:
            raise ArgumentError(f"by={by!r}: the keys of a dict are the groups")
        parts = {str(name): samples(one, quantity, None) for name, one in of.items()}
        return {name: np.concatenate(list(part.values())) for name, part in parts.items()}
    corpus = _corpus(of)
    if corpus is not None:
        return _of_corpus(corpus, ALIASES.get(quantity, quantity), by or "source")
    # One capture is in memory at a time.
    items = [(item.labels, _values(item.source, quantity)) for item in _items(of, by)]
    if not items:
        raise ArgumentError(f"{short_repr(of)}: no TCP flow in it")
    of_all = (name for name in GROUPS if all(labels.get(name) is not None for labels, _ in items))
    by = by or next(of_all, "flow")
    if all(labels.get(by) is None for labels, _ in items):
        known = [name for name in GROUPS if any(labels.get(name) is not None for labels, _ in items)]
        raise ArgumentError(f"by={by!r}: not known of these flows; known are {', '.join(known)}")
    groups: dict[str, list] = {}
    for labels, values in items:
        groups.setdefault(labels.get(by) or "unknown", []).append(values)
    scale = _unit(_column(quantity))[1]
    return {name: scale * np.concatenate(values) for name, values in groups.items()}


def axis_label(quantity: str) -> str:
    """Return the label of an axis of a quantity, with its unit.

    >>> axis_label("goodput"), axis_label("queue_delay_mean_us"), axis_label("jain")
    ('Goodput (Mbit/s)', 'Queue delay mean (ms)', 'Jain')
    """
    column = _column(quantity)
    unit, _ = _unit(column)
    ending = next((end for end in _UNITS if column.endswith(end)), "")
    words = column.removesuffix(ending if ending.startswith("_") else "").replace("_", " ")
    return _LABELS.get(column, words[:1].upper() + words[1:]) + (f" ({unit})" if unit else "")


def _column(quantity: str) -> str:
    return ALIASES.get(quantity, SAMPLED.get(quantity, quantity))


def _unit(column: str) -> tuple[str, float]:
    return next((unit for end, unit in _UNITS.items() if column.endswith(end)), ("", 1.0))


def _corpus(of: Any) -> Any:
    """Return the corpus that is meant, None for anything else."""
    from cctrace import corpus  # late: the page of an analysis draws no corpora

    if isinstance(of, corpus.Corpus):
        return of
    if isinstance(of, str | os.PathLike) and os.path.isdir(os.path.join(of, "_run")):
        return corpus.open(of)
    return None


def _of_corpus(corpus: Any, column: str, by: str) -> Columns:
    if column in SAMPLED:
        raise ArgumentError(f"quantity={column!r}: a corpus keeps rtt_min, rtt_median and rtt_p95 of each flow")
    column = "retransmitted_segments" if column == "retransmitted_share" and "flows" in corpus.tables else column
    wanted, of = _table_with(corpus, column, "quantity"), _table_with(corpus, by, "by")
    keys = [name for name in _CORPUS_JOIN if name in wanted.columns and name in of.columns]
    names = list(dict.fromkeys([*keys, *([by] if by in wanted.columns else []), column]))
    share = column == "retransmitted_segments"
    frame = wanted.frame([*names, *(["segments_sent"] if share else [])])
    if by not in frame:
        frame = frame.merge(of.frame([*keys, by]), on=keys)
    try:
        values = frame[column].to_numpy(np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise ArgumentError(f"quantity={column!r}: not a number") from None
    if share:
        values, column = retransmitted_share(frame), "retransmitted_share"
    values = values * _unit(column)[1]
    groups = frame[by].fillna("unknown").astype(str).to_numpy()
    known = np.isfinite(values)
    if not known.any():
        raise ArgumentError(f"{corpus.where}: no flow has a {column}")
    return {name: values[known & (groups == name)] for name in sorted(set(groups[known]))}


def _table_with(corpus: Any, column: str, called: str) -> Any:
    """Return the table of a corpus that has a column; the one of flows rather than of captures."""
    known = sorted(corpus.tables.values(), key=lambda table: table.name in ("captures", "errors"))
    for table in known:
        if column in table.columns:
            return table
    names = dict.fromkeys(name for table in known for name in table.columns)
    raise ArgumentError(f"{called}={column!r}: no table of {corpus.where} has it; there are {', '.join(names)}")


def _items(of: Any, by: str | None) -> Iterator[_Item]:
    if isinstance(of, list | tuple):
        files = [os.fspath(one) for one in of if isinstance(one, str | os.PathLike)]
        if files:
            yield from _of_files(files, by)
        for one in of:
            if not isinstance(one, str | os.PathLike):
                yield from _items(one, by)
    elif isinstance(of, str | os.PathLike):
        yield from _of_files([os.fspath(of)], by)
    elif isinstance(of, Capture):
        yield from (_flow_item(flow) for flow in bulk_or_largest(of))
    elif isinstance(of, Flow):
        yield _flow_item(of)
    elif isinstance(of, Run):
        named = _flow_item(of.source).labels if isinstance(of.source, Flow) else {"flow": repr(of.source)}
        yield _Item(named | {"controller": of.controller.__name__}, of)
    elif isinstance(of, Simulation):
        for i, name in enumerate(of.flows["cc"]):
            yield _Item({"controller": name, "flow": f"flow {i}"}, (of, i))
    else:
        raise ArgumentError(
            f"{short_repr(of)}: a capture, a folder, a pattern, a corpus, a Capture, Flow, Run or Simulation, or a "
            "list of these"
        )


def _of_files(inputs: Iterable[str], by: str | None) -> Iterator[_Item]:
    from cctrace.corpus.inputs import is_archive, listed
    from cctrace.names import short_names

    entries = [entry for entry in listed(inputs) if not is_archive(entry.capture)]
    files = [entry.capture for entry in entries]
    for entry, name in zip(entries, short_names(files), strict=True):
        named = {"file": name, "folder": os.path.basename(os.path.dirname(entry.capture))}
        tables = map(read, entry.counters) if by == "controller" else ()
        counters = Counters(table for table in tables if isinstance(table, TcpInfo))
        for flow in _bulk(entry.capture):
            item = _flow_item(counters.attach(flow)[0])
            yield item._replace(labels=item.labels | named)


def _bulk(file: str) -> Iterable[Any]:
    """Return the bulk flows of a capture; of a large one, one by one."""
    if is_large(file):
        return bulk_flows(file)
    data = read(file)
    if not isinstance(data, Capture):
        raise ArgumentError(f"{file}: holds no packets")
    return (item.source for item in _items(data, None)) if len(data) else []


def _flow_item(flow: Flow) -> _Item:
    ends = {"flow": connection(*flow.key), "src": flow.key[0], "dst": flow.key[2]}
    return _Item(ends | {"controller": controller_name(flow.tcpinfo)}, flow)


def _values(source: Any, quantity: str) -> Values:
    """Return the values of one flow, in the unit of the column."""
    if isinstance(source, tuple):
        simulation, index = source
        return _of_simulation(simulation, index, quantity)
    if isinstance(source, Run):
        flow = flow_of(source.source)
        if flow is not None and (quantity in SAMPLED or _column(quantity) in flow.row):
            return _values(flow, quantity)
        return _of_run(source, quantity)
    if quantity in SAMPLED:
        rtt_us = source.rtt["rtt_us"].to_numpy(np.float64)
        return _sampled(rtt_us, quantity)
    row, column = dict(source.row), _column(quantity)
    row["retransmitted_share"] = float(retransmitted_share(row))
    return _one(row, column, quantity, "a capture's flow")


def _sampled(rtt_us: Values, quantity: str) -> Values:
    return rtt_us - rtt_us.min(initial=np.inf) if quantity == "queue" and len(rtt_us) else rtt_us


def _one(row: dict[str, Any], column: str, quantity: str, whose: str) -> Values:
    """Return a number of a row of figures as an array."""
    value = row.get(column, "")
    if not (value is None or isinstance(value, int | float | np.number)):
        numbers = [name for name, one in row.items() if isinstance(one, int | float | np.number)]
        short = [alias for alias, name in ALIASES.items() if name in numbers]
        known = [*SAMPLED, *short, *(name for name in numbers if name not in ALIASES.values())]
        raise ArgumentError(f"quantity={quantity!r}: {whose} has {', '.join(known)}")
    return np.array([np.nan if value is None else value], np.float64)


def _of_simulation(simulation: Simulation, index: int, quantity: str) -> Values:
    if quantity in SAMPLED:
        if simulation.traces:
            return _sampled(_rtt_us(simulation.flow(index)), quantity)
        if simulation.ends:
            return _values(simulation.capture(index).flow(0), quantity)
        raise ArgumentError(
            f"quantity={quantity!r}: this simulation kept no samples; run simulate(..., trace=True), or take rtt_p95_us"
        )
    row: dict[str, Any] = {str(name): value for name, value in simulation.flows.loc[index].items()}
    row["retransmitted_share"] = row["retransmit_ratio"]
    return _one(row, _column(quantity), quantity, "a simulation's flow")


def _rtt_us(view: View) -> Values:
    if view.kind == "quic":
        rtt_ms = view.columns["smp_rtt_ms"]
        return rtt_ms[rtt_ms > 0] * 1e3
    rtt_us = view.columns["rs_rtt_us"][view.event == LINUX_EVENTS["pkts_acked"]]
    return rtt_us[rtt_us >= 0].astype(np.float64)


def _of_run(run: Run, quantity: str) -> Values:
    for table in (run.columns, *([model_of(run)] if "snd_cwnd" in run.columns else [])):
        if quantity in table and quantity != "event" and table[quantity].dtype.kind in "iufb":
            return table[quantity].astype(np.float64)
    raise ArgumentError(f"quantity={quantity!r}: this run recorded {', '.join(run.columns)}")
