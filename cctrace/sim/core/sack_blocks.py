"""The blocks that a receiver remembers for its SACK option: pairs of segments (first, behind the last)."""

from cctrace.lang.memory import words


def coalesce_blocks(f):
    """tcp_sack_maybe_coalesce: the first block may have met others."""
    blocks = words(f.sack_blocks)
    kept = 1
    for k in range(1, f.n_blocks):
        left, right = blocks[2 * k], blocks[2 * k + 1]
        if left <= blocks[1] and blocks[0] <= right:
            blocks[0], blocks[1] = min(blocks[0], left), max(blocks[1], right)
        else:
            blocks[2 * kept], blocks[2 * kept + 1] = left, right
            kept += 1
    f.n_blocks = kept


def forget_blocks(f):
    """tcp_sack_remove: what the left edge has passed."""
    blocks = words(f.sack_blocks)
    kept = 0
    for k in range(f.n_blocks):
        if blocks[2 * k] > f.rcv_nxt:
            blocks[2 * kept], blocks[2 * kept + 1] = blocks[2 * k], blocks[2 * k + 1]
            kept += 1
    f.n_blocks = kept
