"""A run over a corpus: list, plan, hand batches to workers, count. What is committed is done.

DIR/manifest/            what there is to be analysed, in batches
DIR/<table>/date=…/source=…/part-….parquet
DIR/_run/                schema version and tasks; commits: what of it all is not a result
"""

import collections
import json
import time
from dataclasses import dataclass, field

from cctrace.corpus import batch, manifest, tables
from cctrace.corpus.inputs import DEFAULT_RULES, Rules, listed
from cctrace.corpus.local import Threads
from cctrace.corpus.store import open_store
from cctrace.corpus.tasks import DEFAULT, parse, tables_of
from cctrace.errors import ArgumentError
from cctrace.extras import needed

IDENTITY = "_run/corpus.json"
MEMORY, SECONDS = 4 << 30, 600.0


@dataclass
class Summary:
    """What a run did.

    Attributes
    ----------
    captures : int
        Analysed by this run, those that became errors among them.
    packets : int
    errors : dict of str to int
        Kind: captures.
    seconds : float
        By the clock, from listing to the last commit.
    cpu_seconds : float
        CPU time of the analyses alone, of all workers.
    already : int
        Inputs that were committed before.
    warnings : list of str
    """

    captures: int = 0
    packets: int = 0
    errors: dict = field(default_factory=dict)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    already: int = 0
    warnings: list = field(default_factory=list)

    def add(self, done):
        """Add what a batch committed."""
        self.captures += done["captures"]
        self.packets += done["packets"]
        self.cpu_seconds += done["cpu_seconds"]
        for kind, count in done["errors"].items():
            self.errors[kind] = self.errors.get(kind, 0) + count

    def to_dict(self):
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


class Progress:
    """How far a run is; `text` is for display."""

    def __init__(self, total, already):
        self.total, self.done, self.errors = total, already, 0
        self._began, self._before = time.monotonic(), already

    def tick(self):
        """One more capture (or batch of `count`) is done."""
        self.done += 1

    def text(self):
        """Return count, rate and time left."""
        passed = time.monotonic() - self._began
        rate = (self.done - self._before) / passed if passed > 0 else 0.0
        left = (self.total - self.done) / rate if rate > 0 else 0.0
        wrong = f", {self.errors:,} errors" if self.errors else ""
        return f"{self.done:,} of {self.total:,} inputs{wrong}, {rate:,.1f}/s, {_clock(left)} left"


def _clock(seconds):
    minutes, seconds = divmod(round(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def run(
    inputs,
    output,
    tasks=DEFAULT,
    *,
    workers=None,
    scheduler=None,
    counters=DEFAULT_RULES,
    source=None,
    memory=MEMORY,
    seconds=SECONDS,
    limit=None,
    say=lambda text: None,
):
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
        What one capture may take: bytes beyond what an idle process has, and CPU time (ten times that by the clock).
    limit : int, optional
        Largest size that a compressed file may unpack to, see `cctrace.io.read_file`.
    say : callable
        Receives how far it is, for display.

    Returns
    -------
    Summary

    Raises
    ------
    ArgumentError
        Nothing matches, the output is of another schema version or of other tasks, a limit is none.
    OutputError
        The output cannot be written. What is committed stays; the same call goes on from there.
    ClusterError
        The scheduler cannot be reached, or is lost for good.

    Examples
    --------
    >>> import cctrace as cct
    >>> cct.corpus.run("captures/**/*.pcap.zst", "results", workers=2).captures      # doctest: +SKIP
    2000
    """
    needed("pyarrow", "parquet")
    began = time.monotonic()
    tasks = parse(tasks)
    _check_limits(workers, memory, seconds)
    store = open_store(output)
    _check_identity(store, tasks)
    store.tidy(older_s=3600.0)
    say("listing")
    entries = listed(inputs, counters, source)
    executor = _executor(workers, scheduler, say)
    try:
        summary = Summary()
        _add_to_manifest(store, tasks, entries, summary)
        order = batch.Order(str(store), "", tasks, int(memory), float(seconds), limit, _expanded(counters))
        _work(store, order, executor, summary, say)
    finally:
        executor.close()
    summary.seconds = time.monotonic() - began
    return summary


def _expanded(counters):
    Rules(counters)
    return tuple(counters)


def _check_limits(workers, memory, seconds):
    if workers is not None and workers < 1:
        raise ArgumentError(f"workers={workers}: at least 1")
    if memory < 64 << 20:
        raise ArgumentError(f"memory={memory}: at least 64 MB")
    if not seconds > 0:
        raise ArgumentError(f"seconds={seconds}: more than 0")


def _executor(workers, scheduler, say):
    if scheduler is None:
        return Threads(workers)
    from cctrace.corpus.cluster import Cluster

    return Cluster(scheduler, say)


def _check_identity(store, tasks):
    if not store.exists(IDENTITY):
        if store.names():
            raise ArgumentError(f"{store}: holds other files and no corpus; name another folder")
        return
    told = identity(store)
    if tuple(told["tasks"]) != tasks:
        raise ArgumentError(
            f"{store}: holds the results of --tasks {','.join(told['tasks'])}, asked are {','.join(tasks)}; name "
            "another folder, or the same tasks"
        )


def identity(store):
    """Return what a corpus says of itself: {"schema", "tasks"}.

    Raises
    ------
    ArgumentError
        If there is none, or one of another schema version.
    """
    if not store.exists(IDENTITY):
        raise ArgumentError(f"{store}: no corpus; `cctrace corpus run … -o {store}` makes one")
    told = json.loads(store.read(IDENTITY))
    if told.get("schema") != tables.VERSION:
        raise ArgumentError(
            f"{store}: its tables are of schema version {told.get('schema')}, this cctrace writes and reads "
            f"{tables.VERSION}; name another folder"
        )
    return told


def _add_to_manifest(store, tasks, entries, summary):
    """Write down what is new among the entries, and what this corpus is if it is new."""
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


def _work(store, order, executor, summary, say):
    """Have every batch that is not committed done, a window of them at a time."""
    committed = {name.rpartition("/")[2].removesuffix(".json") for name in store.names(batch.COMMITS, ".json")}
    planned = list(manifest.batches(store))
    cut = {name.rstrip("ab") for name in committed if name[-1] in "ab"}
    todo = [part for whole in planned for part in _pending(whole, committed, cut)]
    total, left = sum(one.captures for one in planned), sum(one.captures for one in todo)
    summary.already = total - left
    progress = Progress(total, summary.already)
    stale = _stale(store, order.tasks, {one.name for one in todo})
    executor.begin(progress)
    waiting, under_way = collections.deque(todo), {}
    while waiting or under_way:
        while waiting and len(under_way) < executor.window:
            its = waiting.popleft()
            under_way[its.name] = its
            executor.submit(order._replace(batch=its.name, stale=tuple(stale.get(its.name, ()))))
        say(progress.text())
        if (told := executor.next(1.0)) is None:
            continue
        its, done = under_way.pop(told[0].batch), told[1]
        if done is None and its.captures > 1:  # every worker that took it died: which capture is it?
            found = manifest.halves(its)
            waiting.extendleft(found)
            stale[found[0].name] = _stale(store, order.tasks, {its.name}).get(its.name, [])
            continue
        summary.add(done or _lost(store, told[0]))
        progress.errors = sum(summary.errors.values())
        executor.finished(its.captures)
    say(progress.text())


def _pending(whole, committed, cut):
    """Return what of a batch is not committed: itself, halves of it, or nothing."""
    if whole.name in committed:
        return []
    if whole.captures > 1 and whole.name.rstrip("ab") in cut:
        return [part for half in manifest.halves(whole) for part in _pending(half, committed, cut)]
    return [whole]


def _stale(store, tasks, todo):
    """Return the parts that an interrupted run left of batches that are to be done: {batch: [name]}."""
    left: dict[str, list] = {}
    for table in tables_of(tasks):
        for name in store.names(table, ".parquet"):
            of = name.rpartition("/part-")[2].removesuffix(".parquet")
            if of in todo:
                left.setdefault(of, []).append(name)
    return left


def _lost(store, order):
    """Commit that the one capture of a batch brought down every worker that took it."""
    (entry,) = manifest.entries_of(store, order.batch)
    told = {"capture": entry.capture, "error": "worker", "reason": "every worker that took it ended"}
    parts = batch.Parts(order.tasks)
    parts.add(entry.source, entry.date, {"errors": [batch.error_row(told, entry)]})
    done = {"captures": 1, "errors": {"worker": 1}, "packets": 0, "seconds": 0.0, "cpu_seconds": 0.0}
    return batch.commit(order, parts, done)
