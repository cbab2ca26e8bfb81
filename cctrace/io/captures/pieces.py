"""Compiled: from a capture file to rows, piece by piece, so that each piece stays in the processor's cache.

Reading, finding and decoding take turns over `PIECE` bytes: the bytes are decoded before others replace them in the
cache, and Python, which takes longer for a call than a piece takes to decode, calls once for many pieces.
"""

from cctrace.io.captures.decode import decode_frames
from cctrace.io.captures.fast_path import fast_path
from cctrace.io.captures.records import find_packets, find_records
from cctrace.io.layout import BIG, BLOCKS, FACTOR, HEADER, LARGEST, NO_COUNTER, SWAP, USED_UP
from cctrace.lang.memory import call

PIECE = 1 << 17
FRAMES = 256  # frames found at a time
_CLEAR = 1 << 12  # rows that are cleared before they are used
# Words of the state: which bytes of the buffer are not consumed, the offset in the file of the buffer, and which of the
# frames that were found are not decoded; where in the file reading stops.
POS, END, BASE, FRAME, COUNT, STOP, STATE = range(7)
# Why `decode_packets` returns, besides a status of `find_packets`.
NO_ROOM, NO_CONNECTION, NO_MORE = range(10, 13)


def decode_packets(
    read, file, b, address, state, rules, interfaces, counts, frames, tunnels, r, row, keep, sacks, s, c, n, table, key,
    g, counters,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Decode packets of a capture file into the columns.

    `read`: address of the C library's function; `file`: descriptor, or -1: there are only the bytes of the buffer `b`,
    which is at `address`. `rules`: how a packet is found in its file (`layout.RULES`). `interfaces`, `counts`: those of
    `find_packets`; a file of records has one interface. The others are those of `decode_frames`.

    Returns (why it ended, rows, SACK rows and connections now in use). NO_ROOM: there are more frames than rows or SACK
    rows, NO_CONNECTION: the connections fill their arrays, NO_MORE: the bytes end, cannot be read, or do not fit the
    buffer; otherwise why nothing was found in them.
    """
    offset, caplen, wirelen, stamp, link = frames
    time_ns, conn, (left, _) = r[0], r[1], sacks
    big, largest = rules[BIG], rules[LARGEST]
    cleared, most = row, 1
    while True:
        if state[FRAME] == state[COUNT]:
            if row and not rules[SWAP]:
                if cleared < min(row + _CLEAR, len(time_ns)):
                    cleared = _clear(r, max(cleared, row), row + 2 * _CLEAR, keep)
                state[POS], now = fast_path(
                    b, state[POS], state[END], rules, interfaces, r, row, cleared, keep, c, conn[row - 1], counters
                )
                most, row = (1 if now > row else min(2 * most, FRAMES)), now
            if rules[BLOCKS]:
                state[COUNT], state[POS], status = find_packets(
                    b, state[POS], state[END], big, interfaces, largest, most, offset, caplen, wirelen, stamp, link,
                    counts,
                )  # fmt: skip
            else:
                state[COUNT], state[POS], status = find_records(
                    b, state[POS], state[END], big, interfaces[0, FACTOR], rules[HEADER], rules[SWAP], largest, most,
                    offset, caplen, wirelen, stamp,
                )  # fmt: skip
            state[FRAME] = 0
            if state[COUNT] == 0:
                if status != USED_UP:
                    return status, row, s, n
                if not _read_more(read, file, b, address, state):
                    return NO_MORE, row, s, n
                continue
        more = state[COUNT] - state[FRAME]
        if row + more > len(time_ns) or s + 4 * more > len(left):
            return NO_ROOM, row, s, n
        state[FRAME], row, s, n = decode_frames(
            b, offset, caplen, wirelen, stamp, link, state[FRAME], state[COUNT],
            tunnels, r, row, keep, sacks, s, c, n, table, key, g, counters,
        )  # fmt: skip
        if state[FRAME] < state[COUNT]:
            return NO_CONNECTION, row, s, n


def _read_more(read, file, b, address, state) -> bool:
    """Read a piece, or what is left up to the stop, behind what is not consumed, which moves to the buffer's beginning.

    Returns whether there was one.
    """
    rest = state[END] - state[POS]
    if file < 0 or rest + PIECE > len(b):
        return False
    if state[POS]:
        b[0:rest] = b[state[POS] : state[END]]
        state[BASE] += state[POS]
        state[POS], state[END] = 0, rest
    got = call(read, file, address + rest, min(PIECE, state[STOP] - state[BASE] - rest))
    state[END] += max(got, 0)
    return got > 0


def _clear(r, row, end, keep) -> int:
    """Mark rows as having neither SACK blocks nor ECN counters; return the row after them."""
    _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, sack_row, sack_count, _, ecn_e0, ecn_ce, ecn_e1 = r
    end = min(end, len(sack_row))
    sack_row[row:end], sack_count[row:end] = -1, 0
    first, last = row & keep, end & keep
    ecn_e0[first:last], ecn_ce[first:last], ecn_e1[first:last] = NO_COUNTER, NO_COUNTER, NO_COUNTER
    return end
