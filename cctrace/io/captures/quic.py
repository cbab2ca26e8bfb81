"""QUIC in captures: which UDP flows carry it. Even its acknowledgements are encrypted; only a qlog shows them.

A flow is QUIC from its first long header on: a known version, and a connection ID of at most 20 bytes.

Source: RFC 9000, section 17.2; RFC 9369 (version 2).
"""

import socket
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cctrace.display import endpoint
from cctrace.io.captures.frames import Decoder, Frames
from cctrace.io.captures.link import ip_header
from cctrace.units import format_size

MAX_FRAMES = 200_000  # examined at most
_LISTED = 5  # connections named in a message
UDP = 17


def version_name(version: int) -> str | None:
    """Return the name of a QUIC version, None if it is none.

    >>> version_name(1), version_name(0xFF00001D), version_name(0x51303530), version_name(0x16030100)
    ('v1', 'draft-29', 'Q050', None)
    """
    if version in (1, 0x6B3343CF):
        return "v1" if version == 1 else "v2"
    if version >> 8 == 0xFF0000:
        return f"draft-{version & 0xFF}"
    if version >> 24 in (0x51, 0x54) and all(48 <= version >> shift & 0xFF <= 57 for shift in (16, 8, 0)):
        return version.to_bytes(4, "big").decode("ascii")
    return "mvfst" if version >> 16 == 0xFACE else None


class Survey(Decoder):
    """Takes frames like a `Decoder`, and lists the QUIC connections in them.

    `flows`: {(address, port, address, port): dict of version, packets, bytes}, the endpoint that sent first in front.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.flows: dict[tuple[str, int, str, int], dict[str, Any]] = {}
        self._frames = 0

    def feed(self, data: NDArray[np.uint8], frames: Frames, count: int) -> None:
        """Examine `count` frames of the buffer `data`, up to `MAX_FRAMES` in all."""
        if count <= 0 or self._frames >= MAX_FRAMES:
            return
        count = min(count, MAX_FRAMES - self._frames)
        self._frames += count
        columns = (frames.offset, frames.caplen, frames.link)
        for start, size, link in zip(*(column[:count].tolist() for column in columns), strict=True):
            ip = int(ip_header(data, start, start + size, link))
            if ip >= 0:
                self._look(bytes(data[ip : start + size]))

    @property
    def is_full(self) -> bool:
        """Whether `MAX_FRAMES` frames were examined."""
        return self._frames >= MAX_FRAMES

    def _look(self, packet: bytes) -> None:
        ends, datagram = _udp(packet)
        if ends is None:
            return
        key = ends if ends in self.flows else (ends[2], ends[3], ends[0], ends[1])
        if key not in self.flows:
            name = _long_header(datagram)
            if name is None:
                return
            key = ends
            self.flows[key] = {"version": name, "packets": 0, "bytes": 0}
        self.flows[key]["packets"] += 1
        self.flows[key]["bytes"] += len(datagram)

    def text(self) -> str:
        """Return one line that lists the connections and says how to log them; "" if there are none."""
        if not self.flows:
            return ""
        named = []
        for key, flow in sorted(self.flows.items(), key=lambda item: -item[1]["bytes"]):
            carried = f"{flow['version']}, {flow['packets']} packets, {format_size(flow['bytes'])}"
            named.append(f"{endpoint(*key[:2])} → {endpoint(*key[2:])} ({carried})")
        more = f" and {len(named) - _LISTED} more" if len(named) > _LISTED else ""
        return (
            f"QUIC (UDP): {', '.join(named[:_LISTED])}{more}; its acknowledgements are encrypted: "
            "have an endpoint write a qlog, which cctrace reads"
        )


def _udp(packet: bytes) -> tuple[tuple[str, int, str, int] | None, bytes]:
    """Return the endpoints and the payload of a UDP datagram, (None, b"") of anything else."""
    version = packet[0] >> 4 if packet else 0
    if version == 4 and len(packet) >= 28 and packet[9] == UDP:
        at, family, ends = 4 * (packet[0] & 15), socket.AF_INET, (packet[12:16], packet[16:20])
    elif version == 6 and len(packet) >= 48 and packet[6] == UDP:
        at, family, ends = 40, socket.AF_INET6, (packet[8:24], packet[24:40])
    else:
        return None, b""
    sport, dport, length = (int.from_bytes(packet[at + i : at + i + 2], "big") for i in (0, 2, 4))
    src, dst = (socket.inet_ntop(family, end) for end in ends)
    return (src, sport, dst, dport), packet[at + 8 : at + max(8, length)]


def _long_header(datagram: bytes) -> str | None:
    """Return the QUIC version of a datagram with a long header, None if it has none."""
    if len(datagram) < 7 or datagram[0] & 0xC0 != 0xC0 or datagram[5] > 20:
        return None
    return version_name(int.from_bytes(datagram[1:5], "big"))
