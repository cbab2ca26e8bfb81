"""Files of folders, and files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cctrace.arguments import path_of
from cctrace.extras import needed

if TYPE_CHECKING:
    import pandas as pd


def files_below(folder: str | os.PathLike[str], failed: Callable[[OSError], object] | None = None) -> Iterator[str]:
    """Yield the paths of the files in a folder and its subfolders; also in linked folders, but in each only once.

    `failed`: receives the error of a folder that cannot be listed, which is skipped unless it raises.
    """
    seen = set()
    for root, folders, files in os.walk(folder, onerror=failed, followlinks=True):
        status = os.stat(root)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders.sort()
        yield from (os.path.join(root, name) for name in sorted(files))


@contextlib.contextmanager
def replacing(target: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the name of a file to write, which replaces the target once complete; a device or pipe is written itself.

    A link stays, and what it leads to is replaced. Raises `OSError` if it cannot be written; the target is left as it
    was.
    """
    target = path_of("file", target)
    if os.path.exists(target) and not os.path.isfile(target):
        yield target
        return
    file = os.path.realpath(target)
    part = os.path.join(os.path.dirname(file), f".cctrace-{os.urandom(8).hex()}.part")
    unnamed = _without_name(os.path.dirname(file))
    written = part if unnamed is None else f"/proc/self/fd/{unnamed}"
    try:
        if unnamed is None:
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        yield written
        if unnamed is not None:
            os.link(written, part, src_dir_fd=unnamed)  # with a folder's descriptor it follows the link in /proc
        os.replace(part, file)
    except OSError as error:
        if error.filename in (None, part, written):
            raise OSError(error.errno, error.strerror, target) from error
        raise
    finally:
        if unnamed is not None:
            os.close(unnamed)
        with contextlib.suppress(OSError):
            os.unlink(part)


def _without_name(folder: str) -> int | None:
    """Return the descriptor of a new file without a name, which ends with this process; None where there is none.

    What stands in for it has a name that nobody else in a shared folder can have taken or linked; if the process is
    killed, it stays.
    """
    if not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.open(folder, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o666)
    except (AttributeError, OSError):  # not Linux, or a file system without (NFS)
        return None


def write_text(target: str | os.PathLike[str], text: str) -> None:
    """Write a file in UTF-8, as `replacing` does."""
    with replacing(target) as part:
        Path(part).write_text(text, encoding="utf-8")


def write_parquet(target: str | os.PathLike[str], table: pd.DataFrame) -> int:
    """Write a table as Parquet, as `replacing` does; return its rows. Raises `MissingError` without pyarrow."""
    needed("pyarrow", "parquet")
    # pyarrow takes only names that are UTF-8, and pandas asks a file for its name unless it was opened by number.
    with replacing(target) as part, open(os.open(part, os.O_WRONLY), "wb") as file:
        table.to_parquet(file)
    return len(table)
