"""`KernelEvents`: events of connections that tracing tools printed, as columns, and their agreement with a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from cctrace.columns import frame_of
from cctrace.display import endpoint
from cctrace.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from cctrace.columns import Bools, Ints, Values

_DAY_S, _ZONE_S = 86_400, 900  # time zones differ by quarters of an hour
_HANDSHAKE = ("SYN_SENT", "SYN_RECV", "NEW_SYN_RECV")


class CapturedFlow(Protocol):
    """The interface of a flow that `KernelEvents.compare` needs; `cctrace.flows.flow.Flow` is one."""

    key: tuple[str, int, str, int]
    retransmissions: pd.DataFrame
    row: dict[str, Any]


class KernelComparison(NamedTuple):
    """The tool's events of a flow, compared with the capture."""

    text: str  # one sentence
    figures: dict  # the numbers in it, per tool as `KernelEvents.compare` lists them
    table: object  # tcpretrans: `flow.retransmissions` with the column `kernel`: whether the tool reported it


class KernelEvents:
    """Events of connections, one row per line of the tool; `format` is "tcpretrans" or "tcplife".

    `columns` are `src, sport, dst, dport` (the traced host first), and of tcpretrans `second_of_day` (local time),
    `kind` (R retransmission, L tail loss probe), `state`; of tcplife `tx_kib`, `rx_kib`, `duration_ms`.
    """

    def __init__(self, columns: dict[str, Values], format: str, source: str, warnings: Sequence[str]) -> None:
        self.columns, self.format, self.source, self.warnings = columns, format, source, list(warnings)

    def __len__(self) -> int:
        return len(self.columns["sport"])

    def __getitem__(self, name: str) -> Values:
        return self.columns[name]

    def __repr__(self) -> str:
        return f"<KernelEvents {self.source}: {len(self)} lines of {self.format}>"

    def frame(self) -> pd.DataFrame:
        """Return the columns as a pandas DataFrame."""
        return frame_of(self.columns)

    def compare(self, flow: CapturedFlow) -> KernelComparison:
        """Return the tool's events of a captured flow compared with the capture.

        Figures of tcpretrans: ``kernel`` (reported retransmissions, except ``handshake``, those of the handshake),
        ``probes`` (L), ``captured`` (retransmitted segments in the capture), ``agree`` (reported retransmissions that
        match a captured one in the same second or the one before, each used once), ``zone_s`` (offset of the tool's
        local time from UTC: the multiple of 15 minutes at which most agree). Of tcplife: ``duration_ms`` and ``bytes``
        (both as ``kernel`` and ``captured``; the kernel's bytes are a range, as they are whole KiB), ``agree`` (whether
        the bytes agree).

        Raises `ArgumentError` if no line is about this connection (tcpretrans: about what its sender sent).
        """
        src, sport, dst, dport = flow.key
        mine, reverse = self._between(src, sport, dst, dport), self._between(dst, dport, src, sport)
        if self.format == "tcpretrans" and mine.any():
            return self._retransmissions(flow, mine)
        if self.format == "tcplife" and (mine.any() or reverse.any()):
            return self._life(flow, mine, reverse)
        raise ArgumentError(f"no line about {endpoint(src, sport)} -> {endpoint(dst, dport)} in {self.source}")

    def _between(self, src: str, sport: int, dst: str, dport: int) -> Bools:
        c = self.columns
        return (c["src"] == src) & (c["sport"] == sport) & (c["dst"] == dst) & (c["dport"] == dport)

    def _retransmissions(self, flow: CapturedFlow, mine: Bools) -> KernelComparison:
        early = np.isin(self["state"], _HANDSHAKE)
        seconds = np.sort(self["second_of_day"][mine & (self["kind"] != "L") & ~early])
        table = flow.retransmissions.copy()
        polled = (table["time_ns"].to_numpy() // 10**9) % _DAY_S
        zones = range(-12 * 3600, 14 * 3600 + 1, _ZONE_S)
        pairs = {zone: _pairs((seconds - zone) % _DAY_S, polled) for zone in zones}
        # Of zones with equally many matches, the nearest to UTC.
        zone = max(zones, key=lambda one: (len(pairs[one]), -abs(one))) if len(seconds) else 0
        table["kernel"] = np.isin(np.arange(len(table)), pairs[zone])
        figures = {
            "kernel": len(seconds),
            "handshake": int((mine & early).sum()),
            "probes": int((mine & (self["kind"] == "L")).sum()),
            "captured": len(table),
            "agree": len(pairs[zone]),
            "zone_s": zone,
        }
        text = (
            "{agree} of {kernel} retransmissions that tcpretrans reported are in the capture, "
            "which shows {captured} retransmitted segments; {probes} tail loss probes reported"
        )
        return KernelComparison(text.format(**figures), figures, table)

    def _life(self, flow: CapturedFlow, mine: Bools, reverse: Bools) -> KernelComparison:
        row = np.flatnonzero(mine | reverse)[-1]  # the last connection, where ports were reused
        kib = int(self["tx_kib" if mine[row] else "rx_kib"][row])
        sent, took = int(flow.row["bytes_sent"]), flow.row["duration_s"] * 1000
        figures = {
            "duration_ms": {"kernel": float(self["duration_ms"][row]), "captured": float(took)},
            "bytes": {"kernel": (kib * 1024, kib * 1024 + 1023), "captured": sent},
            "agree": kib * 1024 - 2 <= sent <= kib * 1024 + 1023,  # SYN and FIN count as acknowledged
        }
        reported = f"tcplife: {kib} KiB in {self['duration_ms'][row]:.0f} ms"
        return KernelComparison(f"{reported}; the capture: {sent / 1024:.1f} KiB in {took:.0f} ms", figures, None)


def _pairs(reported: Ints, polled: Ints) -> list[int]:
    """Return a row of `polled` for each second in `reported` that matches it or the next; both in s of the day."""
    left: dict[int, list[int]] = {}
    for row, second in enumerate(polled.tolist()):
        left.setdefault(second, []).append(row)
    found = []
    for second in reported.tolist():
        rows = left.get((second - 1) % _DAY_S) or left.get(second)
        if rows:
            found.append(rows.pop(0))
    return found
