"""Compaction: many small parts become few of 64 to 128 MB, in an order that only the rows decide.

Two runs over the same captures are the same bytes afterwards, however many workers there were and whatever was killed
meanwhile. Old parts go only when the new ones are complete and a journal says so: a compaction that was interrupted is
finished, or undone, by the next.
"""

import io
import json

from cctrace.corpus import tables
from cctrace.corpus.batch import COMMITS
from cctrace.corpus.runs import identity
from cctrace.corpus.store import open_store
from cctrace.corpus.tasks import tables_of
from cctrace.extras import needed

TARGET = 96 << 20  # bytes of a part, from which on the next one begins
ROWS = 20_000  # of a row group
STAGE, JOURNAL = "_run/stage", "_run/compaction.json"


def compact(where, say=lambda text: None):
    """Merge the parts of every partition of a corpus.

    Parameters
    ----------
    where : str
        Folder or URL of the corpus; no run may be writing it.
    say : callable
        Receives what is being done, for display.

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
    """
    store = open_store(where)
    tasks = identity(store)["tasks"]
    recover(store)
    before = after = 0
    for table in tables_of(tasks):
        for folder, parts in sorted(partitions(store, table).items()):
            before += len(parts)
            say(f"{folder}: {len(parts)} parts")
            after += len(_merge(store, table, folder, parts))
    return {"before": before, "after": after}


def committed_parts(store, table):
    """Return the parts of a table that are committed."""
    done = {name.rpartition("/")[2].removesuffix(".json") for name in store.names(COMMITS, ".json")}
    parts = []
    for name in store.names(table, ".parquet"):
        kind, _, of = name.rpartition("/")[2].removesuffix(".parquet").partition("-")
        if kind == "compact" or of in done:
            parts.append(name)
    return parts


def partitions(store, table):
    """Return {folder: committed parts} of a table."""
    found: dict[str, list] = {}
    for name in committed_parts(store, table):
        found.setdefault(name.rpartition("/")[0], []).append(name)
    return found


def recover(store):
    """Finish a compaction that was interrupted after its new parts were complete; undo one that was before."""
    if store.exists(JOURNAL):
        _exchange(store, json.loads(store.read(JOURNAL)))
    for name in store.names(STAGE):
        store.remove(name)
    store.tidy()


def _merge(store, table, folder, parts):
    """Write the rows of a partition anew; return the parts there are then."""
    if parts == [f"{folder}/compact-00000.parquet"]:
        return parts  # merged before, and nothing has come since
    rows = _read(store, table, parts)
    new = []
    for number, data in enumerate(_written(rows)):
        new.append(f"{folder}/compact-{number:05d}.parquet")
        store.replace(f"{STAGE}/{new[-1]}", data)
    told = {"old": parts, "new": new}
    store.replace(JOURNAL, json.dumps(told).encode())
    _exchange(store, told)
    return new


def _exchange(store, told):
    """Put the staged parts in the place of the old ones; the same again does no harm."""
    for name in told["new"]:
        if store.exists(f"{STAGE}/{name}"):
            store.move(f"{STAGE}/{name}", name)
    for name in set(told["old"]) - set(told["new"]):
        store.remove(name)
    store.remove(JOURNAL)


def _read(store, table, parts):
    pa = needed("pyarrow", "parquet")
    pq = needed("pyarrow.parquet", "parquet")
    schema, found = tables.arrow_schema(table), []
    for name in parts:
        with store.open(name) as file:
            found.append(pq.ParquetFile(file).read().cast(schema))
    return tables.ordered(table, pa.concat_tables(found))


def _written(rows):
    """Yield the bytes of files of about `TARGET` that hold the rows in turn."""
    pq = needed("pyarrow.parquet", "parquet")
    position = 0
    while position < len(rows):
        buffer = io.BytesIO()
        with pq.ParquetWriter(buffer, rows.schema, compression="zstd") as writer:
            while position < len(rows) and buffer.tell() < TARGET:
                writer.write_table(rows.slice(position, ROWS), row_group_size=ROWS)
                position += ROWS
        yield buffer.getvalue()
