"""One input and all of its tasks: the code that runs in the killable child."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from cctrace.analysis.inputs import Counters
from cctrace.corpus import tasks as of_flow
from cctrace.corpus.inputs import Rules
from cctrace.corpus.inputs import date_in as _date_in
from cctrace.corpus.tasks import Row
from cctrace.display import plain
from cctrace.errors import ArgumentError, FormatError, StreamError
from cctrace.flows.capture import Capture, read
from cctrace.flows.counters import CounterFlow
from cctrace.flows.flow import Flow
from cctrace.flows.large import bulk_flows, bulk_or_largest, bulk_rows, is_large
from cctrace.flows.table import of_file
from cctrace.io import read_file
from cctrace.io.counters.tcpinfo import TcpInfo
from cctrace.io.source import Member
from cctrace.schema import ENDS

Named = str | Member  # a path or a URL, or a file of an archive
Found = tuple[list[Row], Iterator[tuple[Any, int]], Sequence[str]]


def captures_of(
    entry: Row, rules: Sequence[str], limit: int | None
) -> Iterator[tuple[str, Callable[[], tuple[Named, Sequence[Named]]]]]:
    """Yield (name, a function that returns source and counters) of what an input holds: itself, or an archive's files.

    In archives, the list of names says which counters belong to which capture.
    """
    if not entry["archive"]:
        yield entry["capture"], lambda: (entry["capture"], entry["counters"])
        return
    from cctrace.corpus.members import groups

    yield from groups(entry["capture"], Rules(rules), limit)


def analyse(
    name: str, source: Named, counters: Sequence[Named], size: int, tasks: Sequence[str], limit: int | None = None
) -> tuple[dict[str, list[Row]], str]:
    """Return the results of tasks for one capture, or for connections known from counters only.

    `name`: its name in the rows. `counters`: the kernel's counters of its flows. `size`: bytes as stored, -1 unknown.
    `tasks`: see `tasks.parse`. `limit`: as for `cctrace.io.read_file`. Returns {table: rows}, and the day of the first
    packet (UTC). Raises `FormatError`, `ArgumentError` if it cannot be read.
    """
    summaries, bulk, warnings = _flows(source, limit)
    beside, rows, notes = Counters(_counted(counters, limit)), dict[str, list[Row]](), list(warnings)
    if "flows" in tasks:
        rows["flows"] = [of_flow.flow_row(one, _key(name, i, one)) for i, one in enumerate(summaries)]
    count = 0
    for flow, index in bulk:
        count += 1
        if isinstance(flow, Flow):
            flow, of_receiver = beside.attach(flow)
            notes += of_receiver
        for task in tasks:
            if task == "flows":
                continue
            for table, found in of_flow.rows_of(task, flow, _key(name, index, flow.row)).items():
                rows.setdefault(table, []).extend(found)
    row = _capture_row(summaries) | {"capture": name, "size": size, "bulk_flows": count}
    row |= {"counters": [_called(one) for one in counters], "warnings": [*notes, *beside.refused]}
    rows["captures"] = [row]
    start = row["start_ns"]
    date = datetime.fromtimestamp(start / 1e9, UTC).date().isoformat() if start else _date_in(name)
    return {table: plain(found) for table, found in rows.items()}, date


def _capture_row(summaries: Sequence[Row]) -> Row:
    """Return the columns of the table `captures` that follow from the rows of its connections."""
    start_ns = min((one["start_ns"] for one in summaries if one["start_ns"] > 0), default=None)
    ends = [one["start_ns"] + 1e9 * np.nan_to_num(one["duration_s"]) for one in summaries]
    return {
        "packets": sum(int(one["packets"]) for one in summaries),
        "connections": len(summaries),
        "start_ns": None if start_ns is None else int(start_ns),
        "duration_s": None if start_ns is None else (max(ends) - start_ns) / 1e9,
    }


def _called(source: Named) -> str:
    return source if isinstance(source, str) else source.name


def _key(name: str, index: int, summary: Row) -> Row:
    return {"capture": name, "connection": index, "network": of_flow.network_of(summary["dst"])}


def _flows(source: Named, limit: int | None) -> Found:
    """Return the rows of all connections, an iterator over (bulk flow, its row's number), and warnings."""
    if is_large(source, limit):
        return _of_large(source, limit)
    data = read(source, limit=limit)
    if isinstance(data, Capture):
        if not len(data):
            raise StreamError(f"{data.packets.source}: no TCP connection in this capture")
        return data.connections.rows(), ((flow, flow.index) for flow in bulk_or_largest(data)), data.warnings
    if isinstance(data, TcpInfo):
        return _of_counters(data)
    raise ArgumentError(f"{_called(source)}: holds neither packets nor counters of connections")


def _of_large(source: str, limit: int | None) -> Found:
    table = of_file(source, limit=limit)
    records = table.rows()
    keys = {tuple(one[name] for name in (*ENDS, "start_ns")): i for i, one in enumerate(records)}
    found = ((flow, keys[(*flow.key, flow.row["start_ns"])]) for flow in bulk_flows(source, limit=limit))
    return records, found, table.packets.warnings


def _of_counters(table: TcpInfo) -> Found:
    flows = [CounterFlow(table, index) for index in range(len(table.connections))]
    bulk = bulk_rows([flow.row["bytes_sent"] for flow in flows])
    # The corpus's ports are numbers; `ss` without -n prints their names.
    rows = [flow.row | {n: None for n in ("sport", "dport") if isinstance(flow.row[n], str)} for flow in flows]
    return rows, ((flows[i], int(i)) for i in bulk), table.warnings


def _counted(counters: Sequence[Named], limit: int | None) -> list[TcpInfo]:
    """Return the tables of the counters of a capture; the parts of a connection are merged."""
    from cctrace.io.counters.merging import merged

    tables = []
    for one in counters:
        table = read_file(one, limit=limit)
        if not isinstance(table, TcpInfo):
            raise ArgumentError(f"{_called(one)}: was taken for the counters of a capture, but holds none")
        tables.append(table)
    return [merged(tables, tables[0].source)] if len(tables) > 1 else tables


def reason_of(error: BaseException) -> tuple[str, str]:
    """Return (kind, reason) of an error: caused by the file, or internal."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return "memory", "it needs more memory than the limit"
    if isinstance(error, FormatError | ArgumentError | StreamError | OSError):
        return "unreadable", text or type(error).__name__
    return "internal", f"{type(error).__name__}: {text}"
