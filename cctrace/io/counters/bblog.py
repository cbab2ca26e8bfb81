"""FreeBSD's TCP black box log (BBLog): the state of RACK, BBR and the base stack at each of their events.

`tcplog_dumper` writes a pcapng. Its section header names the connection and the clock in custom options of Netflix's
number; each packet, and each event without one (a custom block), carries `struct tcp_log_buffer` in such an option.
The packets are read as a capture; this reader takes the structs. The unit of `t_srtt` depends on stack and release
(ticks or microseconds, scaled or not), so it stays `tlb_srtt` and is not converted to an RTT.

Source: [FreeBSD] sys/netinet/tcp_log_buf.h, tcplog_dumper; draft-ietf-opsawg-pcapng (custom options).
"""

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any

from cctrace.errors import FormatError
from cctrace.io.counters import tcpinfo
from cctrace.io.counters.siftr import ESTABLISHED
from cctrace.io.layout import BYTE_ORDERS, ENHANCED, MAX_BLOCK, SECTION, SECTION_BYTES, ByteOrder
from cctrace.io.options import options_of
from cctrace.io.source import Source, reads
from cctrace.tcp.sequence import unwrap

NETFLIX = 10949  # private enterprise number
_CUSTOM = (2988, 2989, 19372, 19373)
_VERSION, _TCPINFO, _DUMPINFO, _STACKNAME = 1, 2, 4, 6  # of Netflix's options
_EVENT = (0x0BAD, 0x40000BAD)
_INET6 = 28
_STACKINFO = 0x10
# Offsets that versions 8 and 9 of the struct share, little-endian whatever the machine.
_FIELDS = {
    "serial": 20, "tcp_flags": 68, "snd_una": 72, "snd_max": 76, "snd_cwnd_bytes": 80, "snd_nxt": 84,
    "snd_recover": 88, "snd_wnd": 92, "ssthresh_bytes": 96, "tlb_srtt": 100, "tlb_rttvar": 104,
}  # fmt: skip
# struct tcp_log_bbr, in version 9: what its fields mean depends on stack and event.
_STACK = struct.Struct("<4Q14I3H6BI")
_STACK_NAMES = (
    "cur_del_rate", "delRate", "rttProp", "bw_inuse", "inflight", "applimited", "log_delivered", "timeStamp", "epoch",
    "lt_epoch", "pkts_out", "flex1", "flex2", "flex3", "flex4", "flex5", "flex6", "log_lost", "pacing_gain",
    "cwnd_gain", "flex7", "bbr_state", "bbr_substate", "inhpts", "ininput", "use_lt_bw", "flex8", "pkt_epoch",
)  # fmt: skip
_STACK_AT = 160
HINT = "FreeBSD's BBLog: cct.read(file, format='bblog') reads the state of its TCP at every event, for flow.attach"


def sniff(head: bytes) -> bool:
    """Return whether these bytes begin a pcapng file, or section, with BBLog; by default it is read as a capture."""
    if head[:4] != SECTION_BYTES:
        return False
    order = BYTE_ORDERS.get(head[8:12], "big")
    end = int.from_bytes(head[4:8], order)
    return any(kind == _VERSION for kind, _ in _netflix_options(head[:end], 24, order))


def _netflix_options(block: bytes, at: int, order: ByteOrder) -> Iterator[tuple[int, bytes]]:
    """Yield (type, value) of Netflix's options from `at` on, up to one that exceeds the block."""
    with contextlib.suppress(ValueError):
        for code, value in options_of(block, at, order):
            if code in _CUSTOM and len(value) >= 8 and int.from_bytes(value[:4], order) == NETFLIX:
                yield int.from_bytes(value[4:8], "little"), value[8:]


@reads("a BBLog")
def read(source: Source) -> tcpinfo.TcpInfo:
    """Read a BBLog into `TcpInfo`, one row per event. Raises `FormatError`: no pcapng, or one without such a log."""
    log = _Log()
    damage = log.take_all(source)
    name = source.name
    if not log.polls:
        raise FormatError(f"{name}: no BBLog: no block of this file holds a struct tcp_log_buffer")
    warnings = [f"{name}: {damage}"] if damage else []
    warnings += [f"{name}: {log.skipped} events were lost before they were written"] if log.skipped else []
    warnings += source.cut_warning()
    return tcpinfo.build(log.polls.rows.arrays(), log.polls.table, name, "bblog", warnings)


class _Log:
    def __init__(self) -> None:
        self.polls, self.skipped = tcpinfo.Polls(), 0
        self._order: ByteOrder = "little"
        self._offset_us, self._number, self._version = 0, 0, 9
        self._acked: dict[int, int] = {}

    def take_all(self, source: Source) -> str:
        """Read the blocks of a pcapng; return what is wrong with it, "" if nothing."""
        at = 0
        while head := source.read(12):
            if len(head) < 12:
                return f"block at offset {at} is cut"
            if head[:4] == SECTION_BYTES:
                self._order = BYTE_ORDERS.get(head[8:], "big")
            kind, length = (int.from_bytes(head[i : i + 4], self._order) for i in (0, 4))
            if not 12 <= length <= MAX_BLOCK or length % 4:
                return f"block at offset {at} claims {length} bytes; stopped there"
            block = head + source.read(length - 12)
            if len(block) < length:
                return f"block at offset {at} is cut"
            self._take(kind, block)
            at += length
        return ""

    def _take(self, kind: int, block: bytes) -> None:
        if kind == SECTION:
            self._enter(dict(_netflix_options(block, 24, self._order)))
        elif kind == ENHANCED:
            captured = int.from_bytes(block[20:24], self._order)
            self._poll(_netflix_options(block, 28 + (captured + 3 & ~3), self._order))
        elif kind in _EVENT and int.from_bytes(block[8:12], self._order) == NETFLIX:
            if int.from_bytes(block[12:16], "little") == 2:
                self.skipped += int.from_bytes(block[16:20], "little")
            else:
                self._poll(_netflix_options(block, 16, "little"))

    def _enter(self, custom: dict[int, bytes]) -> None:
        """Read the options of a section header: version, connection, offset of the clock, name of the stack."""
        self._version = int.from_bytes(custom.get(_VERSION, b"\x09"), "little")
        info = custom.get(_DUMPINFO, b"")
        key: tuple[Any, ...] = (None,) * 4
        if len(info) >= 80:
            self._offset_us = _microseconds(info, 56)
            fport, lport = struct.unpack("!HH", info[16:20])
            family, at = (socket.AF_INET6, 0) if info[-8] == _INET6 else (socket.AF_INET, 12)
            peer, own = (socket.inet_ntop(family, info[start + at : start + 16]) for start in (20, 36))
            key = own, lport, peer, fport
        stack = custom.get(_STACKNAME, b"\0unknown")[1:].rstrip(b"\0").decode("ascii", "replace")
        self._number = self.polls.number(key, stack=stack)

    def _poll(self, options: Iterator[tuple[int, bytes]]) -> None:
        record = next((value for kind, value in options if kind == _TCPINFO), b"")
        if len(record) < 112 or not self.polls.table:
            return
        poll: tcpinfo.Poll = {name: int.from_bytes(record[at : at + 4], "little") for name, at in _FIELDS.items()}
        poll |= {"time_ns": 1000 * (self._offset_us + _microseconds(record, 0)), tcpinfo.CONNECTION: self._number}
        poll |= {"event": record[25], "state": ESTABLISHED.get(int.from_bytes(record[56:60], "little"))}
        # Sequence numbers wrap: unwrap close to the previous record.
        iss = int.from_bytes(record[64:68], "little")
        before = self._acked.get(self._number, 0)
        self._acked[self._number] = max(before, int(unwrap(poll["snd_una"], iss, before)))
        if iss:
            poll["bytes_acked"] = self._acked[self._number]
        flags = int.from_bytes(record[26:28], "little")
        if flags & _STACKINFO and self._version == 9 and len(record) >= _STACK_AT + _STACK.size:
            poll |= zip(_STACK_NAMES, _STACK.unpack_from(record, _STACK_AT), strict=True)
        self.polls.rows.append(poll)


def _microseconds(data: bytes, at: int) -> int:
    """Return a `struct timeval` of 64-bit parts in microseconds."""
    seconds, micros = struct.unpack_from("<qq", data, at)
    return seconds * 10**6 + micros
