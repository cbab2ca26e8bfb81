"""The bulk flows of captures larger than memory: read once for the table, and again for as many flows as fit."""

import numpy as np

from cctrace.flows.capture import Capture
from cctrace.flows.table import of_file

BATCH = 20_000_000  # packets, 1.2 GB of columns
LARGE_FILE = 1_000_000_000  # bytes on disk, from which on not all packets of a capture are held at a time


def bulk_flows(source, hz=None, at_least=100_000, batch=BATCH, **options):
    """Yield the flows of a capture that carried at least `at_least` bytes, largest first; the largest if none did.

    The columns of at most `batch` packets are held at a time, or of one flow if that is larger; each batch is one more
    pass over the file.

    Parameters
    ----------
    source : path
        A file that can be read more than once.
    hz : int, optional
        As for `cctrace.read`.
    at_least : int
        Bytes.
    batch : int
        Packets.
    options
        `limit`, `decapsulate` of `cctrace.io.read_file`.

    Yields
    ------
    Flow
        Equal to those of `cctrace.read(source).bulk(at_least)`.

    Raises
    ------
    FormatError
        If the file cannot be read.
    """
    from cctrace.io import stream
    from cctrace.io.packets import joined

    table = of_file(source, **options).columns()
    sent, packets = table["bytes_sent"], table["packets"]
    order = np.argsort(-sent, kind="stable")
    order = order[sent[order] >= at_least] if (sent >= at_least).any() else order[:1]
    while len(order):
        count = max(1, int(np.searchsorted(np.cumsum(packets[order]), batch, side="right")))
        rows, order = order[:count], order[count:]
        wanted = np.zeros(len(sent), bool)
        wanted[rows] = True
        capture = Capture(joined(part.select(wanted) for part in stream(source, **options)), hz)
        yield from (capture.flow(int(row)) for row in rows)
