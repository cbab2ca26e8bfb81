"""A run over a corpus: list, plan, pass batches to workers, count. What is committed is done.

Files of a corpus in DIR:

    DIR/manifest/            all inputs, in batches
    DIR/<table>/date=…/source=…/part-….parquet
    DIR/_run/                schema version, tasks and commits: everything that is not a result
"""

from __future__ import annotations

import collections
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from cctrace.arguments import MAX_WORKERS, as_list, check_argument, check_progress, number, whole
from cctrace.corpus import batch, manifest, tables
from cctrace.corpus.batch import Order
from cctrace.corpus.inputs import DEFAULT_RULES, Entry, Inputs, listed
from cctrace.corpus.local import Threads
from cctrace.corpus.manifest import Batch
from cctrace.corpus.store import Store, open_store
from cctrace.corpus.tasks import DEFAULT, Row, parse, tables_of
from cctrace.display import Jsonable, Progress, silent
from cctrace.errors import ArgumentError
from cctrace.extras import needed

if TYPE_CHECKING:
    from cctrace.corpus.cluster import Cluster

IDENTITY = "_run/corpus.json"
MEMORY, SECONDS = 4 << 30, 600.0
Executor: TypeAlias = "Threads | Cluster"  # who runs batches: this machine, or the workers of a cluster


@dataclass
class Summary(Jsonable):
    """Result of a run.

    Attributes
    ----------
    captures : int
        Analysed by this run, including those that became errors.
    packets : int
    errors : dict of str to int
        Kind: number of captures.
    seconds : float
        Wall-clock time, from listing to the last commit.
    cpu_seconds : float
        CPU time of the analyses alone, of all workers.
    already : int
        Inputs that were committed before.
    warnings : list of str

    Examples
    --------
    >>> done = Summary(captures=3, packets=1000, errors={"FormatError": 1}, seconds=1.0, cpu_seconds=0.8, already=0)
    >>> done.captures, done.errors
    (3, {'FormatError': 1})
    """

    captures: int = 0
    packets: int = 0
    errors: dict = field(default_factory=dict)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    already: int = 0
    warnings: list = field(default_factory=list)

    def add(self, done: Row) -> None:
        """Add what a batch committed."""
        self.captures += done["captures"]
        self.packets += done["packets"]
        self.cpu_seconds += done["cpu_seconds"]
        for kind, count in done["errors"].items():
            self.errors[kind] = self.errors.get(kind, 0) + count

    def to_dict(self) -> Row:
        """Return what ``cctrace corpus run --json`` prints."""
        return {
            "captures": self.captures,
            "errors": sum(self.errors.values()),
            "packets": self.packets,
            "seconds": round(self.seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "errors_by_kind": dict(sorted(self.errors.items())),
            "captures_per_second": self.captures / self.seconds if self.seconds else None,
            "already": self.already,
            "warnings": self.warnings,
        }


class Tally:
    """Counts the captures of a run; `text` is for display."""

    def __init__(self, total: int, already: int) -> None:
        self.total, self.done, self.errors = total, already, 0
        self._began, self._before = time.monotonic(), already

    def tick(self) -> None:
        """Count one more capture."""
        self.done += 1

    def text(self) -> str:
        """Return count, and once there is one, rate and time left."""
        wrong = f", {self.errors:,} errors" if self.errors else ""
        count, done = f"{self.done:,} of {self.total:,} inputs{wrong}", self.done - self._before
        if not done:
            return count
        passed = time.monotonic() - self._began
        minutes, seconds = divmod(round(max((self.total - self.done) * passed / done, 0)), 60)
        hours, minutes = divmod(minutes, 60)
        clock = f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
        return f"{count}, {done / max(passed, 1e-9):,.1f}/s, {clock} left"


def run(
    inputs: Inputs,
    output: str | os.PathLike[str],
    tasks: str | Sequence[str] = DEFAULT,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    counters: Sequence[str] = DEFAULT_RULES,
    source: str | None = None,
    memory: int = MEMORY,
    seconds: float = SECONDS,
    limit: int | None = None,
    progress: Progress = silent,
) -> Summary:
    """Analyse any number of captures.

    Parameters
    ----------
    inputs : str or sequence of str
        Captures, archives of them, counters: paths, patterns, folders, URLs, lists; see `inputs.listed`.
    output : str
        Folder or URL of the results. One that exists is continued: what is committed is not done again.
    tasks : str or sequence of str
        Of flows, explain, identify, fit, replay=NAME.
    workers : int, optional
        Processes on this machine; default: as many as it has cores.
    scheduler : str, optional
        Address of a Dask scheduler, whose workers do it instead.
    counters : sequence of str
        Which counters belong to which captures, see `inputs.Rules`.
    source : str, optional
        Regular expression whose group in a capture's name is the partition `source`.
    memory, seconds : int, float
        Limits per capture: bytes beyond those of an idle process, and CPU time (the wall-clock limit is ten times
        as long).
    limit : int, optional
        Largest size that a compressed file may unpack to, see `cctrace.io.read_file`.
    progress : callable
        Receives lines of progress.

    Returns
    -------
    Summary
        What this run did; the results are in `output`, for `open`.

    Raises
    ------
    ArgumentError
        Nothing matches, the output has another schema version or other tasks, or a limit is invalid.
    OutputError
        The output cannot be written. What is committed stays; the same call goes on from there.
    ClusterError
        The scheduler cannot be reached, or is lost permanently.

    Examples
    --------
    >>> import tempfile
    >>> import cctrace as cct
    >>> recording = cct.datasets.path("web_server", "sender.pcap.zst")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(cct.corpus.run(recording, folder, tasks=["flows"]).captures)
    1
    """
    needed("pyarrow", "parquet")
    began = time.monotonic()
    tasks = parse(tasks)
    if workers is not None:
        whole("workers", workers, 1, MAX_WORKERS)
    if limit is not None:
        whole("limit", limit, 1)
    memory = int(number("memory", memory, "a number of bytes, at least 64 MB", (64 << 20) - 1))
    seconds = number("seconds", seconds, "a number of seconds above 0", 0)
    check_argument(source is None or isinstance(source, str), "source", source, "a regular expression, as a text")
    check_progress(progress)
    counters = as_list(counters)
    store = open_store(output)
    _check_identity(store, tasks)
    store.tidy(older_s=3600.0)
    progress("listing")
    entries = listed(inputs, counters, source)
    executor = _executor(workers, scheduler, progress)
    try:
        summary = Summary()
        _add_to_manifest(store, tasks, entries, summary)
        order = batch.Order(str(store), "", tasks, memory, seconds, limit, tuple(counters))
        _work(store, order, executor, summary, progress)
    finally:
        executor.close()
    summary.seconds = time.monotonic() - began
    return summary


def _executor(workers: int | None, scheduler: str | None, progress: Progress) -> Executor:
    if scheduler is None:
        return Threads(workers)
    from cctrace.corpus.cluster import Cluster

    return Cluster(scheduler, progress)


def _check_identity(store: Store, tasks: Sequence[str]) -> None:
    if not store.exists(IDENTITY):
        if store.names():
            raise ArgumentError(f"{store}: holds other files and no corpus; name another folder")
        return
    existing = identity(store)
    if tuple(existing["tasks"]) != tasks:
        raise ArgumentError(
            f"{store}: holds the results of --tasks {','.join(existing['tasks'])}, asked are {','.join(tasks)}; name "
            "another folder, or the same tasks"
        )


def identity(store: Store) -> Row:
    """Return {"schema", "tasks"} of a corpus; `ArgumentError` if there is none, or one of another schema version."""
    if not store.exists(IDENTITY):
        raise ArgumentError(f"{store}: no corpus; `cctrace corpus run … -o {store}` makes one")
    about = json.loads(store.read(IDENTITY))
    if about.get("schema") != tables.VERSION:
        raise ArgumentError(
            f"{store}: its tables are of schema version {about.get('schema')}, this cctrace writes and reads "
            f"{tables.VERSION}; name another folder"
        )
    return about


def _add_to_manifest(store: Store, tasks: Sequence[str], entries: Sequence[Entry], summary: Summary) -> None:
    """Add new entries to the manifest, and write the identity of a new corpus."""
    have = manifest.known(store)
    new = [entry for entry in entries if entry.capture not in have]
    changed = sum(have.get(entry.capture, entry.size) != entry.size for entry in entries)
    if changed:
        summary.warnings.append(
            f"{changed} inputs have another size than when they were listed; they are not analysed again: name "
            "another folder for that"
        )
    if new:
        manifest.write(store, new)
    store.create(IDENTITY, json.dumps({"schema": tables.VERSION, "tasks": list(tasks)}).encode())


def _work(store: Store, order: Order, executor: Executor, summary: Summary, progress: Progress) -> None:
    """Run every batch that is not committed, a window of them at a time."""
    committed = batch.commits(store)
    planned = list(manifest.batches(store))
    cut = {name.rstrip("ab") for name in committed if name[-1] in "ab"}
    todo = [part for planned_batch in planned for part in _pending(planned_batch, committed, cut)]
    total, left = sum(one.captures for one in planned), sum(one.captures for one in todo)
    summary.already = total - left
    tally = Tally(total, summary.already)
    stale = _stale(store, order.tasks, {one.name for one in todo})
    executor.begin(tally)
    waiting = collections.deque(todo)
    under_way: dict[str, Batch] = {}
    suspects: list[Batch] = []  # single captures; another one on the same worker may have brought it down
    retried: set[str] = set()
    while waiting or under_way or suspects:
        if not waiting and not under_way:  # alone, so that nothing else can bring its worker down
            retried.add(suspects[-1].name)
            waiting.append(suspects.pop())
        while waiting and len(under_way) < executor.window:
            its = waiting.popleft()
            under_way[its.name] = its
            executor.submit(order._replace(batch=its.name, stale=tuple(stale.get(its.name, ()))))
        progress(tally.text())
        if (answer := executor.next(1.0)) is None:
            continue
        its, done = under_way.pop(answer[0].batch), answer[1]
        if done is None and its.captures > 1:  # every worker that took it died: bisect to the capture that kills them
            found = manifest.halves(its)
            waiting.extendleft(found)
            stale[found[0].name] = _stale(store, order.tasks, {its.name}).get(its.name, [])
            continue
        if done is None and its.name not in retried:
            suspects.append(its)
            continue
        summary.add(done or _lost(store, answer[0]))
        tally.errors = sum(summary.errors.values())
        executor.finished(its.captures)
    progress(tally.text())


def _pending(planned_batch: Batch, committed: set[str], cut: set[str]) -> list[Batch]:
    """Return the uncommitted parts of a batch: itself, halves of it, or none."""
    if planned_batch.name in committed:
        return []
    if planned_batch.captures > 1 and planned_batch.name.rstrip("ab") in cut:
        return [part for half in manifest.halves(planned_batch) for part in _pending(half, committed, cut)]
    return [planned_batch]


def _stale(store: Store, tasks: Sequence[str], todo: set[str]) -> dict[str, list[str]]:
    """Return the files that an interrupted run left of uncommitted batches: {batch: [name]}."""
    left: dict[str, list] = {}
    for table in tables_of(tasks):
        for name in store.names(table, ".parquet"):
            of = name.rpartition("/part-")[2].removesuffix(".parquet")
            if of in todo:
                left.setdefault(of, []).append(name)
    return left


def _lost(store: Store, order: Order) -> Row:
    """Commit a batch of one capture that killed every worker that took it."""
    (entry,) = manifest.entries_of(store, order.batch)
    result = {"capture": entry.capture, "error": "worker", "reason": "every worker that took it ended"}
    parts = batch.Parts(order.tasks)
    parts.add(entry.source, entry.date, {"errors": [batch.error_row(result, entry)]})
    done = {"captures": 1, "errors": {"worker": 1}, "packets": 0, "seconds": 0.0, "cpu_seconds": 0.0}
    return batch.commit(order, parts, done)
