"""The manifest: all inputs, in batches, as Parquet; only a window of batches is in the task graph at a time.

A batch is 50 to 500 captures (fewer where the corpus has fewer than 2,000: so that every worker gets some), at most
256 MB of them, or one archive. Batches are cut once, when the manifest is written, and depend on its entries alone;
a batch that is committed is done. Inputs that a later run adds become another part of the manifest.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cctrace.corpus.inputs import Entry
from cctrace.corpus.store import ROWS, Store, parquet_bytes
from cctrace.extras import needed

FOLDER = "manifest"
MOST, PER_CORPUS = 500, 40
BYTES = 256 << 20
COLUMNS = ("batch", *Entry._fields)


class Batch(NamedTuple):
    """Some entries of the manifest: where they are, and how many."""

    name: str
    captures: int


def write(store: Store, entries: Sequence[Entry]) -> None:
    """Add entries to the manifest, in batches. `entries` are sorted."""
    pa = needed("pyarrow", "parquet")
    number = len(store.names(FOLDER, ".parquet"))
    columns = [_cut(entries, number), *map(list, zip(*entries, strict=True))]
    types = [pa.string(), pa.string(), pa.int64(), pa.bool_(), pa.string(), pa.string(), pa.list_(pa.string())]
    table = pa.table(columns, pa.schema(list(zip(COLUMNS, types, strict=True))))
    store.create(f"{FOLDER}/part-{number:05d}.parquet", parquet_bytes(table))


def _cut(entries: Sequence[Entry], number: int) -> list[str]:
    most = min(MOST, -(-len(entries) // PER_CORPUS))
    names, batch, name, count, size, before = [], -1, "", 0, 0, None
    for entry in entries:
        alone = entry.archive or (before is not None and before.archive)
        if (
            before is None
            or alone
            or count == most
            or size + max(entry.size, 0) > BYTES
            or entry.source != before.source
        ):
            batch, count, size = batch + 1, 0, 0
            name = f"{number:05d}-{batch:07d}"
        names.append(name)
        count, size, before = count + 1, size + max(entry.size, 0), entry
    return names


def known(store: Store) -> dict[str, int]:
    """Return the inputs in the manifest: {capture: size}."""
    pq = needed("pyarrow.parquet", "parquet")
    sizes: dict[str, int] = {}
    for name in store.names(FOLDER, ".parquet"):
        with store.open(name) as file:
            table = pq.read_table(file, columns=["capture", "size"])
        sizes |= dict(zip(table["capture"].to_pylist(), table["size"].to_pylist(), strict=True))
    return sizes


def batches(store: Store) -> Iterator[Batch]:
    """Yield the batches in the order of the manifest."""
    pq = needed("pyarrow.parquet", "parquet")
    for name in store.names(FOLDER, ".parquet"):
        with store.open(name) as file:
            parts = pq.ParquetFile(file).iter_batches(ROWS, columns=["batch"])
            of_entries = itertools.chain.from_iterable(part["batch"].to_pylist() for part in parts)
            yield from (Batch(batch, sum(1 for _ in its)) for batch, its in itertools.groupby(of_entries))


def entries_of(store: Store, batch: str) -> list[Entry]:
    """Return the entries of a batch; a half is that of the batch it was cut from (see `halves`)."""
    pq = needed("pyarrow.parquet", "parquet")
    original = batch.rstrip("ab")
    with store.open(f"{FOLDER}/part-{original.partition('-')[0]}.parquet") as file:
        table = pq.read_table(file, filters=[("batch", "==", original)])
    entries = [Entry(*(row[name] for name in Entry._fields)) for row in table.to_pylist()]
    for half in batch[len(original) :]:
        middle = len(entries) // 2
        entries = entries[:middle] if half == "a" else entries[middle:]
    return entries


def halves(batch: Batch) -> tuple[Batch, Batch]:
    """Return the two halves of a batch, for one whose workers all died."""
    middle = batch.captures // 2
    return Batch(f"{batch.name}a", middle), Batch(f"{batch.name}b", batch.captures - middle)
