"""Builds captures by hand: one connection, packet by packet, in the terms of the sender.

talk = Conversation()                       # three-way handshake, RTT 40 ms, MSS 1448 after options
talk.data(0.0, 1, segments=2)               # ms after the handshake, first byte, number of full segments
talk.ack(40.0, 1 + 2 * MSS)
capture = talk.capture()
"""

import numpy as np

from cctrace import schema
from cctrace.flows.capture import Capture
from cctrace.io.captures.packets import Packets

MSS = 1448
EPOCH_NS = 1_700_000_000_000_000_000
FIN, SYN, RST, PSH, ACK, ECE, CWR = 1, 2, 4, 8, 16, 64, 128
ISN, PEER_ISN, TS0 = 0xFFFFF000, 77, 5_000  # sequence numbers wrap early


class Conversation:
    """A hand-made connection; times are milliseconds after the handshake.

    `ecn` holds AE, CWR and ECE of the SYN, its answer and the ACK of that, as numbers; so does `ace` of `ack`.
    """

    def __init__(self, rtt_ms=40.0, handshake=True, sack=True, timestamps=True, wscale=7, ecn=(0, 0, 0)):
        self.rows, self.sacks = [], []
        self.rtt_ms, self.timestamps, self.wscale = rtt_ms, timestamps, wscale
        self.sack, self.handshake = sack, handshake
        if handshake:
            options = 4 | 8 | (16 if sack else 0)
            asked, answered, third = (code << 6 for code in ecn)
            self._row(-rtt_ms, 0, SYN | asked, ISN, 0, 0, options=options)
            answer = SYN | ACK | answered
            self._row(0, 1, answer, PEER_ISN, ISN + 1, 0, options, self._tick(-rtt_ms), window=65535)  # not scaled
            self._row(0.01, 0, ACK | third, ISN + 1, PEER_ISN + 1, 0)

    def _tick(self, ms):
        return int(TS0 + 1000 + np.floor(round(ms, 6)))

    def _row(
        self, ms, direction, flags, seq, ack, payload, options=0, tsecr=0, window=512, blocks=(), tick=None, tos=0
    ):
        stamps = 1 if self.timestamps else 0
        first = len(self.sacks) if blocks else -1
        self.sacks += [((ISN + left) & 0xFFFFFFFF, (ISN + right) & 0xFFFFFFFF) for left, right in blocks]
        self.rows.append(
            {
                "time_ns": EPOCH_NS + round((ms + self.rtt_ms) * 1e6),
                "direction": direction,
                "flags": flags,
                "seq": seq & 0xFFFFFFFF,
                "ack": ack & 0xFFFFFFFF,
                "window": window,
                "payload": payload,
                "ip_len": payload + 52,
                "tos": tos,
                "tsval": (self._tick(ms) if tick is None else tick) * stamps,
                "tsecr": tsecr * stamps,
                "options": options | stamps | (2 if blocks else 0),
                "sack_row": first,
                "sack_count": len(blocks),
            }
        )

    def data(self, ms, seq, segments=1, size=MSS, psh=None, fin=False, stamped_ms=None, tos=0, cwr=False):
        """The sender transmits `segments` packets of `size` bytes from `seq` on, 1 us apart, PSH on the last.

        TCP stamped them at `stamped_ms`, by default when they left. The first one carries CWR if `cwr` is given.
        """
        tick = None if stamped_ms is None else self._tick(stamped_ms)
        for i in range(segments):
            last = i == segments - 1
            flags = ACK | (PSH if (last if psh is None else psh) else 0) | (FIN if fin and last else 0)
            flags |= CWR if cwr and i == 0 else 0
            self._row(ms + i / 1000, 0, flags, ISN + seq + i * size, PEER_ISN + 1, size, tick=tick, tos=tos)
        return self

    def ack(self, ms, ack, blocks=(), echo_ms=None, window=512, ece=False, ace=0):
        """The receiver acknowledges up to `ack`, with SACK blocks, echoing the time stamp of `echo_ms` (an RTT ago)."""
        echo = self._tick(ms - self.rtt_ms if echo_ms is None else echo_ms)
        flags = ACK | (ECE if ece else 0) | ace << 6
        self._row(ms, 1, flags, PEER_ISN + 1, ISN + ack, 0, tsecr=echo, window=window, blocks=blocks)
        return self

    def packets(self):
        """Return the `Packets`, in order of time."""
        rows = sorted(self.rows, key=lambda row: row["time_ns"])
        columns = schema.empty(schema.PACKETS, len(rows))
        for i, row in enumerate(rows):
            for name, value in row.items():
                columns[name][i] = value
        columns["frame"][:] = np.arange(1, len(rows) + 1)
        sacks = np.array(self.sacks, np.uint32).reshape(-1, 2)
        known = self.handshake
        table = {
            "src": ["10.0.0.1"],
            "sport": [40000],
            "dst": ["10.0.0.2"],
            "dport": [5001],
            "mss_a": [1460 if known else -1],
            "mss_b": [1460 if known else -1],
            "wscale_a": [self.wscale if known else -1],
            "wscale_b": [self.wscale if known else -1],
            "sack_ok": [int(self.sack) if known else -1],
        }
        table = {c.name: np.array(table[c.name], dtype=c.dtype) for c in schema.CONNECTIONS}
        return Packets(columns, {"left": sacks[:, 0].copy(), "right": sacks[:, 1].copy()}, table, source="hand-made")

    def capture(self, **options):
        """Return the `Capture`."""
        return Capture(self.packets(), **options)

    def flow(self, **options):
        """Return the connection as a `Flow`."""
        return self.capture(**options).flow(0)
