"""Compaction: many small parts become few of 64 to 128 MB, in an order that depends on the rows alone.

Two runs over the same captures give the same bytes afterwards, regardless of the number of workers and of
interruptions. Old parts are removed only when the new ones are complete and a journal says so: the next compaction
finishes, or undoes, an interrupted one.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cctrace.arguments import check_progress
from cctrace.corpus import tables
from cctrace.corpus.batch import commits
from cctrace.corpus.runs import identity
from cctrace.corpus.store import ROWS, Store, open_store
from cctrace.corpus.tasks import tables_of
from cctrace.display import Progress, silent
from cctrace.extras import needed

if TYPE_CHECKING:
    import pyarrow as pa

TARGET = 96 << 20  # bytes, after which the next part begins
STAGE, JOURNAL = "_run/stage", "_run/compaction.json"


def compact(where: str | os.PathLike[str], progress: Progress = silent) -> dict[str, int]:
    """Merge the parts of every partition of a corpus.

    Parameters
    ----------
    where : str
        Folder or URL of the corpus; no run may be writing it.
    progress : callable
        Receives lines of progress.

    Returns
    -------
    dict
        ``before`` and ``after``: how many parts there are.

    Raises
    ------
    ArgumentError
        If there is no corpus, or one of another schema version.
    OutputError
        If it cannot be written; nothing is lost.

    Examples
    --------
    >>> import tempfile
    >>> import cctrace as cct
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = cct.corpus.run(cct.datasets.path("web_server", "sender.pcap.zst"), folder, tasks=["flows"])
    ...     compact(folder)
    {'before': 2, 'after': 2}
    """
    check_progress(progress)
    store = open_store(where)
    tasks = identity(store)["tasks"]
    recover(store)
    before = after = 0
    for table in tables_of(tasks):
        for folder, parts in sorted(partitions(store, table).items()):
            before += len(parts)
            progress(f"{folder}: {len(parts)} parts")
            after += len(_merge(store, table, folder, parts))
    return {"before": before, "after": after}


def committed_parts(store: Store, table: str) -> list[str]:
    """Return the parts of a table that are committed."""
    done = commits(store)
    parts = []
    for name in store.names(table, ".parquet"):
        kind, _, of = name.rpartition("/")[2].removesuffix(".parquet").partition("-")
        if kind == "compact" or of in done:
            parts.append(name)
    return parts


def partitions(store: Store, table: str) -> dict[str, list[str]]:
    """Return {folder: committed parts} of a table."""
    found: dict[str, list] = {}
    for name in committed_parts(store, table):
        found.setdefault(name.rpartition("/")[0], []).append(name)
    return found


def recover(store: Store) -> None:
    """Finish a compaction that was interrupted after its new parts were complete; undo one interrupted earlier."""
    if store.exists(JOURNAL):
        _exchange(store, json.loads(store.read(JOURNAL)))
    for name in store.names(STAGE):
        store.remove(name)
    store.tidy()


def _merge(store: Store, table: str, folder: str, parts: list[str]) -> list[str]:
    """Rewrite the rows of a partition; return its new parts."""
    if parts == [f"{folder}/compact-00000.parquet"]:
        return parts  # merged before, and nothing was added since
    rows = _read(store, table, parts)
    new = []
    for number, data in enumerate(_written(rows)):
        new.append(f"{folder}/compact-{number:05d}.parquet")
        store.replace(f"{STAGE}/{new[-1]}", data)
    journal = {"old": parts, "new": new}
    store.replace(JOURNAL, json.dumps(journal).encode())
    _exchange(store, journal)
    return new


def _exchange(store: Store, journal: dict[str, list[str]]) -> None:
    """Replace the old parts by the staged ones; repeating it is harmless."""
    for name in journal["new"]:
        if store.exists(f"{STAGE}/{name}"):
            store.move(f"{STAGE}/{name}", name)
    for name in set(journal["old"]) - set(journal["new"]):
        store.remove(name)
    store.remove(JOURNAL)


def _read(store: Store, table: str, parts: list[str]) -> pa.Table:
    pa = needed("pyarrow", "parquet")
    pq = needed("pyarrow.parquet", "parquet")
    schema, found = tables.arrow_schema(table), []
    for name in parts:
        with store.open(name) as file:
            found.append(pq.ParquetFile(file).read().cast(schema))
    return tables.ordered(table, pa.concat_tables(found))


def _written(rows: pa.Table) -> Iterator[bytes]:
    """Yield the bytes of files of about `TARGET` bytes that hold the rows in order."""
    pq = needed("pyarrow.parquet", "parquet")
    position = 0
    while position < len(rows):
        buffer = io.BytesIO()
        with pq.ParquetWriter(buffer, rows.schema, compression="zstd") as writer:
            while position < len(rows) and buffer.tell() < TARGET:
                writer.write_table(rows.slice(position, ROWS), row_group_size=ROWS)
                position += ROWS
        yield buffer.getvalue()
