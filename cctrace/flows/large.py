"""Selection of flows if none is named: the bulk flows, or the largest if there is none.

`bulk_flows` does so for captures larger than memory: it reads once for the table, and again for as many flows as fit.
"""

import contextlib
import itertools
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, TypeGuard, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cctrace.columns import LONG
from cctrace.errors import ArgumentError, StreamError
from cctrace.flows.capture import BULK_BYTES, Capture, read
from cctrace.flows.counters import CounterFlow, CounterTable
from cctrace.flows.flow import Flow
from cctrace.flows.table import of_file
from cctrace.io import is_capture, stream
from cctrace.io.captures.packets import joined
from cctrace.io.counters.tcpinfo import TcpInfo
from cctrace.io.linktrace import LinkTrace
from cctrace.lang.threads import cores

Made = TypeVar("Made")

FLOWS_PER_PROCESS = 8  # at least: fewer are not worth the start of another one
BATCH = 20_000_000  # packets, 1.2 GB of columns
LARGE_FILE = 1_000_000_000  # bytes on disk, from which packets are not held all at a time


def bulk_rows(bytes_sent: ArrayLike, at_least: float = BULK_BYTES) -> NDArray[np.intp]:
    """Return the rows of flows that carried at least `at_least` bytes, largest first; the largest if none did.

    >>> bulk_rows([5e3, 2e6, np.nan, 1e5]).tolist(), bulk_rows([5e3, 7e3]).tolist()
    ([1, 3], [1])
    """
    sent = np.nan_to_num(np.asarray(bytes_sent, float))
    order = np.argsort(-sent, kind="stable")
    bulk = order[sent[order] >= at_least]
    return bulk if len(bulk) else order[:1]


def largest_row(bytes_sent: ArrayLike) -> int:
    """Return the row of the flow that sent most, 0 of none.

    >>> largest_row([5e3, np.nan, 2e6]), largest_row([])
    (2, 0)
    """
    return int(next(iter(bulk_rows(bytes_sent)), 0))


def is_large(source: object, limit: int | None = None) -> TypeGuard[str]:
    """Return whether a source is the path of a capture whose flows are better read one by one."""
    if not isinstance(source, str) or not os.path.isfile(source):
        return False
    return os.path.getsize(source) >= LARGE_FILE and is_capture(source, limit)


def bulk_or_largest(capture: Capture) -> list[Flow]:
    """Return the bulk flows of a capture, largest first; its largest flow if there is none."""
    return [capture.flow(int(row)) for row in bulk_rows(capture.columns["bytes_sent"])]


def bulk_connections(table: TcpInfo) -> list[CounterFlow]:
    """Return the bulk flows of counters, largest first; the largest if there is none."""
    flows = [CounterFlow(table, index) for index in range(len(table.connections))]
    return [flows[row] for row in bulk_rows([flow.row["bytes_sent"] for flow in flows])]


def batches_of_file(file: str, **options: Any) -> Iterable[list[Flow] | list[CounterFlow]]:
    """Return the bulk flows of a capture or of counters, or the largest: in one list, of a large capture in several.

    `options`: `limit`, `decapsulate` of `cctrace.io.read_file`. Raises `FormatError` if the file cannot be read,
    `ArgumentError` if it holds no flows, `StreamError` if a capture has no TCP connection.
    """
    if is_large(file, options.get("limit")):
        return bulk_batches(file, **options)
    data = read(file, **options)
    if isinstance(data, CounterTable):
        return [bulk_connections(data)]
    if not isinstance(data, Capture):
        link = ", but a link's trace: give it to cctrace simulate --trace" if isinstance(data, LinkTrace) else ""
        raise ArgumentError(f"{file}: holds neither packets nor counters of connections{link}")
    if not len(data):
        raise StreamError(f"{file}: no TCP connection in this capture")
    return [bulk_or_largest(data)]


def bulk_flows(source: Any, **options: Any) -> Iterator[Flow]:
    """Yield the flows of `bulk_batches`, which takes the same options."""
    return itertools.chain.from_iterable(bulk_batches(source, **options))


def bulk_batches(
    source: Any, hz: int | None = None, at_least: float = BULK_BYTES, batch: int = BATCH, **options: Any
) -> Iterator[list[Flow]]:
    """Yield the flows of a capture that carried at least `at_least` bytes, largest first; the largest if none did.

    The columns of at most `batch` packets are held at a time, or of one flow if that is larger; each batch is one more
    pass over the file.

    `source` must be readable more than once. `hz`: as for `cctrace.read`. `options`: `limit`, `decapsulate` of
    `cctrace.io.read_file`. Raises `FormatError` if the file cannot be read.
    """
    table = of_file(source, **options).columns()
    sent, packets = table["bytes_sent"], table["packets"]
    order = bulk_rows(sent, at_least)
    while len(order):
        count = max(1, int(np.searchsorted(np.cumsum(packets[order]), batch, side="right")))
        rows, order = order[:count], order[count:]
        wanted = np.zeros(len(sent), bool)
        wanted[rows] = True
        capture = Capture(joined(part.select(wanted) for part in stream(source, **options)), hz)
        yield [capture.flow(int(row)) for row in rows]


def is_long(flow: Flow | CounterFlow) -> bool:
    """Whether memory has room for one such flow at a time only."""
    return isinstance(flow, Flow) and flow.row["packets"] > LONG


def after_long(flows: Sequence[Flow | CounterFlow]) -> int:
    """Return how many flows one process takes by itself: those up to the last long one."""
    return max((k + 1 for k, flow in enumerate(flows) if is_long(flow)), default=0)


def in_processes(
    made: Callable[[Flow | CounterFlow], Made], flows: Sequence[Flow | CounterFlow], killed: Made
) -> Generator[Made, None, None]:
    """Yield what a function returns for each flow; processes share those after the last long one, if they are many.

    `killed`: what is yielded for a flow whose process the system ended.
    """
    alone = after_long(flows)
    yield from map(made, flows[:alone])
    rest = flows[alone:]
    if (workers := min(cores(), len(rest) // FLOWS_PER_PROCESS)) <= 1:
        yield from map(made, rest)
        return
    from cctrace.lang.processes import BrokenProcessPool, made_in_order  # 20 ms, which one flow need not wait for

    with contextlib.closing(made_in_order(lambda k: made(rest[k]), len(rest), workers)) as shared:
        for found in shared:
            yield killed if isinstance(found, BrokenProcessPool) else found
