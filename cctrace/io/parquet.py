"""Parquet: cctrace's own tables on disk and back without loss.

A table is columns of one length plus metadata; the metadata travels as JSON under the key `cctrace`, whose `kind` says
what the table is: packets, tcp_info, link, events. SACK blocks become two list columns of the packets.
"""

import json
import os

import numpy as np

from cctrace import __version__, schema
from cctrace.errors import ArgumentError, FormatError
from cctrace.extras import needed
from cctrace.io import door, tcpinfo
from cctrace.io.kernelevents import KernelEvents
from cctrace.io.linktrace import LinkTrace
from cctrace.io.packets import Packets
from cctrace.io.source import reads

_KEY = b"cctrace"


def sniff(head):
    """Tell whether a file that starts with these bytes is Parquet."""
    return head[:4] == b"PAR1"


def save(path, kind, parts, meta):
    """Write a table.

    Parameters
    ----------
    path : str or os.PathLike
    kind : str
        What it is; `load` returns it.
    parts : iterable of dict of str to ndarray or pyarrow array
        The columns, in one piece or several. int64 columns must not use `tcpinfo.MISSING` for anything but missing.
    meta : dict or callable returning one
        What JSON can hold; a callable is asked after the last part.

    Returns
    -------
    int
        Rows written.
    """
    pa = needed("pyarrow", "parquet")
    pq = needed("pyarrow.parquet", "parquet")

    writer, rows = None, 0
    try:
        for columns in parts:
            table = pa.table({name: _arrow(column) for name, column in columns.items()})
            writer = writer or pq.ParquetWriter(os.fspath(path), table.schema, compression="zstd")
            writer.write_table(table.cast(writer.schema))
            rows += len(table)
        if writer:
            told = {"kind": kind, "version": __version__, "meta": meta() if callable(meta) else meta}
            writer.add_key_value_metadata({_KEY.decode(): json.dumps(told, default=_plain)})
    finally:
        if writer:
            writer.close()
    return rows


@reads("a table that cctrace wrote")
def load(source):
    """Return (kind, columns, meta) of a table written by `save`; missing values as `save` got them.

    Nothing is known of the values yet: whoever knows the kind has `door` look at them.

    Raises
    ------
    FormatError
        Not Parquet, damaged, not written by cctrace, or it claims more than a file of its size holds.
    """
    pa = needed("pyarrow", "parquet")
    pq = needed("pyarrow.parquet", "parquet")

    name, data = source.name, source.rest()
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            told = file.metadata.metadata or {}
            source.refuse_bomb(_claimed_bytes(file.metadata), len(data))
            table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"{name}: damaged Parquet: {str(error).splitlines()[0]}") from None
    if _KEY not in told:
        raise FormatError(f"{name}: this Parquet was not written by cctrace; found {', '.join(table.column_names[:8])}")
    told = json.loads(told[_KEY])
    return told["kind"], {n: _numpy(table[n].combine_chunks()) for n in table.column_names}, told["meta"]


def _claimed_bytes(metadata):
    """Return about how many bytes a table takes once read: runs of one value take next to none in the file."""
    lists = sum(
        metadata.row_group(group).column(k).num_values
        for group in range(metadata.num_row_groups)
        for k in range(metadata.num_columns)
    )
    return 8 * lists


@reads("a table that cctrace wrote")
def read(source):
    """Read packets, tcp_info or a link trace that `save_table` wrote.

    Raises
    ------
    FormatError
        As `load`; also for event streams, which are no input file but are loaded by `Events`.
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


def save_table(data, path):
    """Write `Packets` (or an iterable of them, from `stream`), `TcpInfo` or `LinkTrace`; returns the rows written."""
    if isinstance(data, tcpinfo.TcpInfo):
        meta = {"connections": data.connections, "format": data.format, "warnings": data.warnings}
        return save(path, "tcp_info", [{"connection": data.connection} | data.columns | data.extra], meta)
    if isinstance(data, LinkTrace):
        at, size = data.capacity
        rest = len(data) - len(at)
        at, size = np.append(at, np.full(rest, tcpinfo.MISSING)), np.append(size, np.zeros(rest))
        meta = {"end_ns": data.end_ns, "format": data.format, "warnings": data.warnings}
        return save(path, "link", [data.columns | {"capacity_ns": at, "capacity_bytes": size}], meta)
    if isinstance(data, KernelEvents):
        raise ArgumentError(f"{data.source}: events of {data.format} are written as csv, not as parquet")
    last = []

    def parts():
        for packets in [data] if isinstance(data, Packets) else data:
            last[:] = [packets]
            yield _packet_columns(packets)

    def meta():
        packets = last[0]
        connections = {name: column.tolist() for name, column in packets.connections.items()}
        return {"connections": connections, "counters": packets.counters, "warnings": packets.warnings}

    return save(path, "packets", parts(), meta)


def _packet_columns(packets):
    pa = needed("pyarrow", "parquet")

    columns = {name: column for name, column in packets.columns.items() if name not in ("sack_row", "sack_count")}
    count = packets["sack_count"].astype(np.int64)
    ends = np.cumsum(count)
    # Row numbers of all blocks, packet by packet: in file order unless the packets were sorted since.
    blocks = np.repeat(packets["sack_row"].astype(np.int64) - (ends - count), count) + np.arange(count.sum())
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    for side in ("left", "right"):
        columns[f"sack_{side}"] = pa.ListArray.from_arrays(offsets, packets.sacks[side][blocks])
    return columns


def _packets(columns, meta, name):
    left, right = (columns.pop(f"sack_{side}") for side in ("left", "right"))
    offsets = left.offsets.to_numpy()
    count = np.diff(offsets)
    columns |= {"sack_row": np.where(count > 0, offsets[:-1], -1), "sack_count": count}
    columns.setdefault("frame", np.zeros(len(count), np.uint32))  # files of earlier versions
    sacks = {"left": left.values.to_numpy(), "right": right.values.to_numpy()}
    tables = door.packets(columns, sacks, meta["connections"], name)
    counters = {str(key): int(value) for key, value in meta["counters"].items()}
    return Packets(*tables, counters, _texts(meta["warnings"]), name)


def _tcp_info(columns, meta, name):
    connections = meta["connections"]
    if not (isinstance(connections, list) and all(isinstance(known, dict) for known in connections)):
        raise FormatError(f"{name}: damaged: its connections are no list of what identifies them")
    number = schema.Column("connection", "i8", "", "", within=(0, len(connections) - 1))
    polled = {c.name: columns.pop(c.name) for c in schema.TCP_INFO if c.name in columns}
    missing = np.full(len(columns["connection"]), tcpinfo.MISSING)
    table = tuple(column._replace(within=None) for column in schema.TCP_INFO)
    polled = door.checked((number, *table), {c.name: missing for c in table} | polled | columns, name)
    connection = polled.pop("connection")
    warnings = [f"{name}: {line}" for line in door.plausible(polled, tcpinfo.MISSING)]
    extra = {key: values for key, values in columns.items() if key != "connection"}
    return tcpinfo.TcpInfo(
        polled, extra, connection, connections, name, str(meta["format"]), _texts(meta["warnings"]) + warnings
    )


def _link(columns, meta, name):
    time = schema.Column("capacity_ns", "i8", "ns", "", within=(0, schema.LATEST_NS))
    size, end_ns = np.asarray(columns.pop("capacity_bytes"), np.float64), meta["end_ns"]
    used = columns["capacity_ns"] != tcpinfo.MISSING
    times = door.checked((time,), {"capacity_ns": columns.pop("capacity_ns")[used]}, name)["capacity_ns"]
    size = size[used]
    sound = isinstance(end_ns, int) and 0 < end_ns <= schema.LATEST_NS and np.isfinite(size).all() and (size >= 0).all()
    if not sound or np.any(np.diff(times) < 0):
        raise FormatError(f"{name}: damaged: what the link could carry is no bytes at ascending times")
    return LinkTrace(columns, (times, size), end_ns, name, str(meta["format"]), _texts(meta["warnings"]))


def _texts(lines):
    return [str(line) for line in lines]


def _arrow(column):
    pa = needed("pyarrow", "parquet")

    if not isinstance(column, np.ndarray):
        return column
    if column.dtype == np.int64:
        gap = column == tcpinfo.MISSING
        return pa.array(column, mask=gap if gap.any() else None)
    return pa.array(column.tolist()) if column.dtype == object else pa.array(column)


def _numpy(array):
    pa = needed("pyarrow", "parquet")

    if pa.types.is_list(array.type):
        return array
    if pa.types.is_int64(array.type):
        return array.fill_null(tcpinfo.MISSING).to_numpy(zero_copy_only=False)
    if pa.types.is_string(array.type) or pa.types.is_null(array.type):
        return np.array(array.to_pylist(), object)
    return array.to_numpy(zero_copy_only=False)


def _plain(value):
    return value.item() if isinstance(value, np.generic) else str(value)
