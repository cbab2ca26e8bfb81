"""One batch: analyses its captures, writes parts of the tables, commits. Runs in a worker, local or of a cluster."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cctrace.corpus import manifest, tables
from cctrace.corpus.guard import Guard, Zygote
from cctrace.corpus.inputs import Entry, date_in
from cctrace.corpus.store import Store, open_store, parquet_bytes
from cctrace.corpus.tasks import Row, tables_of
from cctrace.extras import needed

if TYPE_CHECKING:
    import pyarrow as pa

COMMITS = "_run/commits"
_PACKED_FROM = 5_000  # rows of a table from which on they become Arrow columns: Python objects take more memory


class Order(NamedTuple):
    """A batch as a worker receives it; the captures themselves are in the manifest."""

    where: str  # the output
    batch: str  # its name in the manifest
    tasks: tuple
    # memory, seconds: limits of every capture, see `Guard`
    memory: int
    seconds: float
    limit: int | None = None  # as for `cctrace.io.read_file`
    rules: tuple = ()  # which counters belong to which capture, for archives
    stale: tuple = ()  # parts that an interrupted run left of this batch


class _Worker(threading.local):
    """The state that a thread of a worker keeps between batches."""

    guard: Guard | None = None


_worker = _Worker()
_zygotes: list[Zygote] = []
_guards: set[Guard] = set()
_starting = threading.Lock()


def _guard(order: Order) -> Guard:
    with _starting:
        if not _zygotes:
            _zygotes.append(Zygote())
        if _worker.guard is None:
            _worker.guard = Guard(_zygotes[0], order.memory, order.seconds)
            _guards.add(_worker.guard)
    _worker.guard.memory, _worker.guard.seconds = order.memory, order.seconds
    return _worker.guard


def leave() -> None:
    """End this thread's child."""
    if _worker.guard is not None:
        _guards.discard(_worker.guard)
        _worker.guard.close()
        _worker.guard = None


def stop() -> None:
    """End the analyses in progress in this process: they raise `Stopped`. The zygote is kept for later runs."""
    for guard in list(_guards):
        guard.stop()


def shut_down() -> None:
    """End all child processes; a later run starts them again."""
    with _starting:
        while _zygotes:
            _zygotes.pop().close()


def run(order: Order, tick: Callable[[], None] = lambda: None) -> Row:
    """Analyse a batch, write its parts and commit it: the task of a worker. `tick`: called after every capture.

    Returns the commit: ``captures``, ``errors`` {kind: count}, ``packets``, ``seconds`` by the clock, ``cpu_seconds``
    of the analyses alone. Raises `OutputError` if the output cannot be written; the batch is not committed then.
    """
    return commit(order, *analyse(order, tick))


def analyse(order: Order, tick: Callable[[], None]) -> tuple[Parts, Row]:
    """Analyse a batch; return its `Parts` and the commit. `tick`: see `run`."""
    began = time.monotonic()
    store, parts = open_store(order.where), Parts(order.tasks)
    captures, packets, cpu = 0, 0, 0.0
    errors: dict[str, int] = {}
    guard = _guard(order)
    for entry in manifest.entries_of(store, order.batch):
        for result in guard.analyse(entry, order.tasks, order.rules, order.limit):
            captures, cpu = captures + 1, cpu + result.get("cpu", 0.0)
            if "error" in result:
                errors[result["error"]] = errors.get(result["error"], 0) + 1
                parts.add(entry.source, date_in(result["capture"]), {"errors": [error_row(result, entry)]})
            else:
                packets += result["rows"]["captures"][0]["packets"]
                parts.add(entry.source, result["date"], result["rows"])
            tick()
    took = {"seconds": round(time.monotonic() - began, 3), "cpu_seconds": round(cpu, 3)}
    return parts, {"captures": captures, "errors": errors, "packets": packets} | took


def error_row(result: Row, entry: Entry) -> Row:
    """Return the row of an error."""
    size = entry.size if result["capture"] == entry.capture else -1
    return {"capture": result["capture"], "kind": result["error"], "reason": result["reason"], "size": size}


def commit(order: Order, parts: Parts, done: Row) -> Row:
    """Write the parts of a batch, then its commit; a batch that another worker committed meanwhile is left alone."""
    store = open_store(order.where)
    name = f"{COMMITS}/{order.batch}.json"
    if store.exists(name):
        return committed(store, order.batch)
    for stale in order.stale:
        store.remove(stale)
    for table, partition, rows in parts.tables():
        store.replace(f"{table}/{partition}/part-{order.batch}.parquet", parquet_bytes(rows))
    return done if store.create(name, json.dumps(done).encode()) else committed(store, order.batch)


def commits(store: Store) -> set[str]:
    """Return the names of the batches that are committed."""
    return {name.rpartition("/")[2].removesuffix(".json") for name in store.names(COMMITS, ".json")}


def committed(store: Store, batch: str) -> Row:
    """Return the commit of a batch, see `run`."""
    return json.loads(store.read(f"{COMMITS}/{batch}.json"))


class Parts:
    """The rows of a batch, by table and partition."""

    def __init__(self, tasks: Sequence[str]) -> None:
        self._wanted = tables_of(tasks)
        self._rows: dict[tuple, list] = {}
        self._done: dict[tuple, list] = {}

    def add(self, source: str, date: str, rows: Mapping[str, list[Row]]) -> None:
        """Add the rows of one capture: {table: [row]}."""
        for table, found in rows.items():
            if found and table in self._wanted:
                key = table, f"date={date}/source={source}"
                self._rows.setdefault(key, []).extend(found)
                if len(self._rows[key]) >= _PACKED_FROM:
                    self._pack(key)

    def _pack(self, key: tuple[str, str]) -> None:
        pa = needed("pyarrow", "parquet")
        table = pa.Table.from_pylist(self._rows.pop(key), schema=tables.arrow_schema(key[0]))
        self._done.setdefault(key, []).append(table)

    def tables(self) -> Iterator[tuple[str, str, pa.Table]]:
        """Yield (table, partition, Arrow table), ordered."""
        pa = needed("pyarrow", "parquet")
        for key in list(self._rows):
            self._pack(key)
        for (name, partition), packed in sorted(self._done.items()):
            yield name, partition, tables.ordered(name, pa.concat_tables(packed))
