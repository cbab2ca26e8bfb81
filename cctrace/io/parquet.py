"""cctrace's own tables as Parquet, written and read back without loss.

SACK blocks become two list columns of the packets; `tablefile` has the format.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from cctrace import schema
from cctrace.columns import rows_of_spans
from cctrace.errors import ArgumentError, FormatError
from cctrace.extras import needed
from cctrace.io import validation
from cctrace.io.captures.packets import Packets
from cctrace.io.counters import tcpinfo
from cctrace.io.counters.kernelevents import KernelEvents
from cctrace.io.linktrace import LinkTrace
from cctrace.io.source import Source, reads
from cctrace.io.tablefile import load, save

Savable = Packets | Iterable[Packets] | tcpinfo.TcpInfo | LinkTrace | KernelEvents


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is Parquet."""
    return head[:4] == b"PAR1"


@reads("a table that cctrace wrote")
def read(source: Source) -> Packets | tcpinfo.TcpInfo | LinkTrace:
    """Read packets, tcp_info or a link trace that `save_table` wrote.

    Raises `FormatError`: as `load`; also for event streams, which are no input file but are loaded by `Events`.
    """
    name = source.name
    kind, columns, meta = load(source)
    if kind == "packets":
        return _packets(columns, meta, name)
    if kind == "tcp_info":
        return _tcp_info(columns, meta, name)
    if kind == "link":
        return _link(columns, meta, name)
    raise FormatError(f"{name}: this Parquet holds {kind}, which is not read as a file")


def save_table(data: Savable, path: str | os.PathLike[str]) -> int:
    """Write `Packets` (or an iterable of them, from `stream`), `TcpInfo` or `LinkTrace`; returns the rows written."""
    if isinstance(data, tcpinfo.TcpInfo):
        return data.to_parquet(path)
    if isinstance(data, LinkTrace):
        at, size = data.capacity
        rest = len(data) - len(at)
        at, size = np.append(at, np.full(rest, tcpinfo.MISSING)), np.append(size, np.zeros(rest))
        about = {"end_ns": data.end_ns, "format": data.format, "warnings": data.warnings}
        return save(path, "link", [data.columns | {"capacity_ns": at, "capacity_bytes": size}], about)
    if isinstance(data, KernelEvents):
        raise ArgumentError(f"{data.source}: events of {data.format} are written as csv, not as parquet")
    last: list[Packets] = []

    def parts() -> Iterator[dict[str, Any]]:
        for packets in [data] if isinstance(data, Packets) else data:
            last[:] = [packets]
            yield _packet_columns(packets)

    def meta() -> dict[str, Any]:
        packets = last[0]
        connections = {name: column.tolist() for name, column in packets.connections.items()}
        return {"connections": connections, "counters": packets.counters, "warnings": packets.warnings}

    return save(path, "packets", parts(), meta)


def _packet_columns(packets: Packets) -> dict[str, Any]:
    pa = needed("pyarrow", "parquet")

    columns = {name: column for name, column in packets.columns.items() if name not in ("sack_row", "sack_count")}
    count = packets["sack_count"].astype(np.int64)
    blocks = rows_of_spans(packets["sack_row"], count)  # in file order unless the packets were sorted since
    offsets = np.append(0, np.cumsum(count)).astype(np.int32)
    for side in ("left", "right"):
        columns[f"sack_{side}"] = pa.ListArray.from_arrays(offsets, packets.sacks[side][blocks])
    return columns


def _packets(columns: dict[str, Any], meta: dict[str, Any], name: str) -> Packets:
    left, right = (columns.pop(f"sack_{side}") for side in ("left", "right"))
    offsets = left.offsets.to_numpy()
    count = np.diff(offsets)
    columns |= {"sack_row": np.where(count > 0, offsets[:-1], -1), "sack_count": count}
    sacks = {"left": left.values.to_numpy(), "right": right.values.to_numpy()}
    tables = validation.packets(columns, sacks, meta["connections"], name)
    counters = {str(key): int(value) for key, value in meta["counters"].items()}
    return Packets(*tables, counters, _texts(meta["warnings"]), name)


def _tcp_info(columns: dict[str, Any], meta: dict[str, Any], name: str) -> tcpinfo.TcpInfo:
    connections = meta["connections"]
    if not (isinstance(connections, list) and all(isinstance(known, dict) for known in connections)):
        raise FormatError(f"{name}: damaged: its connections are not a list of what identifies them")
    number = schema.Column("connection", "i8", "", "", within=(0, len(connections) - 1))
    polled = {c.name: columns.pop(c.name) for c in schema.TCP_INFO if c.name in columns}
    missing = np.full(len(columns["connection"]), tcpinfo.MISSING)
    table = tuple(column._replace(within=None) for column in schema.TCP_INFO)
    polled = validation.checked((number, *table), {c.name: missing for c in table} | polled | columns, name)
    connection = polled.pop("connection")
    warnings = [f"{name}: {line}" for line in validation.plausible(polled, tcpinfo.MISSING)]
    extra = {key: values for key, values in columns.items() if key != "connection"}
    return tcpinfo.TcpInfo(
        polled, extra, connection, connections, name, str(meta["format"]), _texts(meta["warnings"]) + warnings
    )


def _link(columns: dict[str, Any], meta: dict[str, Any], name: str) -> LinkTrace:
    time = schema.Column("capacity_ns", "i8", "ns", "", within=(0, schema.LATEST_NS))
    size, end_ns = np.asarray(columns.pop("capacity_bytes"), np.float64), meta["end_ns"]
    used = columns["capacity_ns"] != tcpinfo.MISSING
    times = validation.checked((time,), {"capacity_ns": columns.pop("capacity_ns")[used]}, name)["capacity_ns"]
    size = size[used]
    sound = isinstance(end_ns, int) and 0 < end_ns <= schema.LATEST_NS and np.isfinite(size).all() and (size >= 0).all()
    if not sound or np.any(np.diff(times) < 0):
        raise FormatError(f"{name}: damaged: the link's capacity is not a number of bytes at ascending times")
    return LinkTrace(columns, (times, size), end_ns, name, str(meta["format"]), _texts(meta["warnings"]))


def _texts(lines: Iterable[object]) -> list[str]:
    return [str(line) for line in lines]
