"""`convert` writes what `read_file` reads as Parquet (lossless), CSV (for people) or pcap (for other tools)."""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from cctrace.arguments import check_choice
from cctrace.errors import ArgumentError
from cctrace.files import replacing
from cctrace.io import CAPTURES, FORMATS, read_file, sniff, stream
from cctrace.io.captures.packets import OPT_MSS, OPT_SACK_PERMITTED, OPT_TIMESTAMPS, OPT_WINDOW_SCALE, Packets
from cctrace.io.source import open_source
from cctrace.schema import ENDS
from cctrace.tcp.flags import SYN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd

    from cctrace.io.counters.kernelevents import KernelEvents
    from cctrace.io.counters.tcpinfo import TcpInfo
    from cctrace.io.linktrace import LinkTrace
    from cctrace.io.source import Inputs

TARGETS = ("parquet", "csv", "pcap")
_LINKTYPE_RAW = 101
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a cell that begins so is run by spreadsheets


def convert(
    source: Inputs, target: str | os.PathLike[str], to: str | None = None, chunk: int = 1_000_000, **options: Any
) -> dict[str, Any]:
    """Convert a file that cctrace reads.

    `source`: as for `read_file`; a capture larger than memory is converted in parts of `chunk` packets. `to`:
    "parquet", "csv" or "pcap", default by `target`'s extension; pcap is for captures only, and becomes raw IP,
    headers without payload, nanoseconds. `options`: `format`, `decapsulate`, `limit` of `read_file`. Returns ``rows``
    written, ``target``, ``to``, ``warnings``. Raises `ArgumentError` if the target's format is unknown or unfit, or the
    source is its own target; `OSError` if the target cannot be written, which is then left as it was.
    """
    target = os.fspath(target)
    to = to or target.rpartition(".")[2].lower()
    check_choice("to", to, TARGETS)
    if _is_file(source) and _is_file(target) and os.path.samefile(source, target):
        raise ArgumentError(f"{target} is the source itself: give another file to write to")
    data = _open(source, chunk, options)
    if to == "pcap" and not isinstance(data, _Parts):
        raise ArgumentError(f"{source}: only captures become pcap, and this holds no packets")
    if to == "parquet":
        from cctrace.io.parquet import save_table

        rows = save_table(data, target)
    elif isinstance(data, _Parts) and to == "pcap":
        rows = write_pcap(data, target)
    else:
        rows = _write_csv(data, target)
    return {"rows": rows, "target": target, "to": to, "warnings": list(data.warnings)}


def _is_file(source: object) -> TypeGuard[str | os.PathLike[str]]:
    return isinstance(source, (str, os.PathLike)) and os.path.isfile(source)


class _Parts:
    """The parts of a capture; once they were iterated over, the warnings of the last one."""

    def __init__(self, parts: Iterable[Packets]) -> None:
        self._parts = parts
        self.warnings: list[str] = []

    def __iter__(self) -> Iterator[Packets]:
        for packets in self._parts:
            self.warnings = packets.warnings
            yield packets


def _open(source: Inputs, chunk: int, options: dict[str, Any]) -> _Parts | TcpInfo | LinkTrace | KernelEvents:
    """Return the parts of a capture, or all of anything else."""
    name = options.get("format")
    if name is None and _is_file(source):
        with open_source(source, options.get("limit")) as opened:
            name = sniff(opened)
    if name in FORMATS and name not in CAPTURES:
        data = read_file(source, **options)
        return _Parts([data]) if isinstance(data, Packets) else data
    return _Parts(stream(source, chunk, **options))


def _write_csv(data: _Parts | TcpInfo | LinkTrace | KernelEvents, target: str) -> int:
    """Write a CSV; packets with the addresses and ports of sender and receiver instead of a connection's number."""
    rows = 0
    with replacing(target) as whole, open(whole, "w", encoding="utf-8", newline="") as file:
        for part in data if isinstance(data, _Parts) else [data]:
            frame = _packet_frame(part) if isinstance(part, Packets) else _without_formulas(part.frame())
            frame.to_csv(file, index=False, header=rows == 0)
            rows += len(frame)
    return rows


def _without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with an apostrophe before texts that a spreadsheet would run; numbers stay as they are."""

    def quoted(value: Any) -> Any:
        return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value

    texts = frame.select_dtypes(exclude=["number", "bool", "datetime"])
    return frame.assign(**{str(name): texts[name].map(quoted) for name in texts})


def _packet_frame(packets: Packets) -> pd.DataFrame:
    frame = packets.frame().drop(columns=["sack_row", "sack_count"])
    forth = packets["direction"] == 0
    ends = {name: packets.connections[name][packets["conn"]] for name in ENDS}
    for at, (name, other) in enumerate((("src", "dst"), ("sport", "dport"), ("dst", "src"), ("dport", "sport")), 1):
        frame.insert(at, name, np.where(forth, ends[name], ends[other]))
    blocks = [_blocks(packets, i) for i in np.flatnonzero(packets["sack_count"]).tolist()]
    column = np.full(len(packets), "", object)
    column[packets["sack_count"] > 0] = [" ".join(f"{left}-{right}" for left, right in pairs) for pairs in blocks]
    frame["sack"] = column
    return frame


def _blocks(packets: Packets, i: int) -> list[tuple[int, int]]:
    rows = slice(packets["sack_row"][i], packets["sack_row"][i] + packets["sack_count"][i])
    return list(zip(packets.sacks["left"][rows].tolist(), packets.sacks["right"][rows].tolist(), strict=True))


def write_pcap(parts: Iterable[Packets], target: str | os.PathLike[str]) -> int:
    """Write `Packets`, in parts, as a nanosecond pcap of raw IP: headers alone, lengths as they were on the wire.

    Returns the number of packets.
    """
    rows = 0
    with replacing(target) as part, open(part, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 128, _LINKTYPE_RAW))
        for packets in parts:
            for record in records(packets):
                file.write(record)
            rows += len(packets)
    return rows


def records(packets: Packets) -> Iterator[bytes]:
    """Yield one pcap record per packet: IP and TCP headers as they were, options in the usual order, no payload."""
    table = packets.connections
    family = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in table["src"]]
    ends = [
        ((socket.inet_pton(f, src), sport), (socket.inet_pton(f, dst), dport))
        for f, src, sport, dst, dport in zip(
            family, table["src"], table["sport"], table["dst"], table["dport"], strict=True
        )
    ]
    columns = zip(*(packets[name].tolist() for name in _HEADER_COLUMNS), strict=True)
    for i, (time_ns, conn, direction, flags, seq, ack, window, ip_len, payload, tos, ttl, ident) in enumerate(columns):
        (src, sport), (dst, dport) = ends[conn] if direction == 0 else ends[conn][::-1]
        options = _tcp_options(packets, i, conn, direction, flags)
        # Pad to the header's original length, so that payload and packet keep theirs.
        bare = 40 if len(src) == 4 else 60
        options += bytes(max(0, min(40, ip_len - payload - bare) - len(options)))
        ip_len = bare + len(options) + payload
        word = (5 + len(options) // 4) << 12 | flags
        segment = struct.pack("!HHIIHHI", sport, dport, seq, ack, word, window, 0) + options
        if len(src) == 4:
            length = ip_len if ip_len < 1 << 16 else 0
            header = struct.pack("!BBHHHBBH", 0x45, tos, length, ident, 0x4000, ttl, 6, 0) + src + dst
            header = header[:10] + struct.pack("!H", _checksum(header)) + header[12:]
        else:
            length = ip_len - 40 if ip_len - 40 < 1 << 16 else 0
            header = struct.pack("!IHBB", 6 << 28 | tos << 20, length, 6, ttl) + src + dst
        size = len(header) + len(segment)
        seconds, rest = divmod(time_ns, 10**9)
        if not 0 <= seconds < 1 << 32:
            raise ArgumentError(f"packet {i} at time_ns {time_ns}: a pcap holds times from 1970 to 2106; use parquet")
        yield struct.pack("<IIII", seconds, rest, size, max(ip_len, size)) + header + segment


_HEADER_COLUMNS = ("time_ns", "conn", "direction", "flags", "seq", "ack", "window", "ip_len", "payload", "tos", "ttl",
                   "ip_id")  # fmt: skip


def _tcp_options(packets: Packets, i: int, conn: int, direction: int, flags: int) -> bytes:
    """Return the TCP options of a packet, padded; MSS and window scale as its connection's SYN had them."""
    bits, out, side = int(packets["options"][i]), b"", "ba"[direction == 0]
    if flags & SYN:
        mss, wscale = int(packets.connections[f"mss_{side}"][conn]), int(packets.connections[f"wscale_{side}"][conn])
        out += struct.pack("!BBH", 2, 4, mss) if bits & OPT_MSS and mss >= 0 else b""
        out += struct.pack("!BBBB", 1, 3, 3, wscale) if bits & OPT_WINDOW_SCALE and wscale >= 0 else b""
    # As Linux does, SACK-permitted takes the place of the padding of time stamps: a SYN's header stays within 40 bytes.
    pad = b"\4\2" if flags & SYN and bits & OPT_SACK_PERMITTED else b"\1\1"
    if bits & OPT_TIMESTAMPS:
        out += pad + struct.pack("!BBII", 8, 10, int(packets["tsval"][i]), int(packets["tsecr"][i]))
    elif pad == b"\4\2":
        out += b"\1\1" + pad
    if packets["sack_count"][i]:
        blocks = _blocks(packets, i)
        out += struct.pack("!BBBB", 1, 1, 5, 2 + 8 * len(blocks)) + b"".join(struct.pack("!II", *b) for b in blocks)
    return out


def _checksum(header: bytes) -> int:
    """Return the checksum of an IPv4 header [RFC1071], whose own field is 0."""
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF
