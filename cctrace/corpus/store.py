"""Where a corpus is stored: a local folder, or a remote one through fsspec. Files are created atomically.

Creation is exclusive: a second writer learns that the file exists. An existing file is complete, because it was written
under another name first (local), or appears when its upload is complete (object stores).
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
import time
from typing import IO, TYPE_CHECKING, Any

from cctrace.arguments import check_argument, path_of
from cctrace.errors import ArgumentError, CctraceError
from cctrace.extras import needed

if TYPE_CHECKING:
    import pyarrow as pa


ROWS = 20_000  # per row group of a Parquet file: what is read at once to find a batch


class OutputError(CctraceError):
    """The output cannot be written: a full disk, a lost server; names the file and the reason."""


def open_store(where: str | os.PathLike[str]) -> Store:
    """Return the store of a folder: a path, or a URL ("s3://bucket/corpus")."""
    check_argument(isinstance(where, str | os.PathLike), "where", where, "a path, or a URL")
    where = path_of("where", where)
    return Remote(where) if "://" in where else Local(where)


class _Folder:
    """What both kinds of folder share."""

    where: str

    def __str__(self) -> str:
        return self.where

    def path(self, name: str) -> str:
        """Return the path or URL of a file."""
        return os.path.join(self.where, name)

    def create(self, name: str, data: bytes) -> bool:
        """Create a file with these bytes; return False, and leave it, if it exists."""
        try:
            self._write(name, data, is_new=True)
        except FileExistsError:
            return False
        except OSError as error:
            raise self._error(name, error) from error
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Create a file, or replace its contents."""
        try:
            self._write(name, data, is_new=False)
        except OSError as error:
            raise self._error(name, error) from error

    def _error(self, name: str, error: OSError) -> OutputError:
        return OutputError(f"{self.path(name)}: {error.strerror or error}")

    def _write(self, name: str, data: bytes, is_new: bool) -> None:
        raise NotImplementedError


class Local(_Folder):
    """A folder of this machine, or of a file system that all workers mount."""

    def __init__(self, where: str) -> None:
        self.where = os.path.abspath(where)

    def at(self, name: str) -> str:
        """Return the path of a file in `filesystem`."""
        return self.path(name)

    def filesystem(self) -> Any:
        """Return it as a file system of Arrow."""
        return needed("pyarrow.fs", "parquet").LocalFileSystem()

    def exists(self, name: str) -> bool:
        """Return whether there is such a file."""
        return os.path.exists(self.path(name))

    def names(self, folder: str = "", suffix: str = "") -> list[str]:
        """Return the files beneath a folder that end in `suffix`, sorted, relative to the store."""
        found = []
        for root, _, files in os.walk(self.path(folder)):
            rest = os.path.relpath(root, self.where)
            found += [
                name if rest == "." else f"{rest}/{name}"
                for name in files
                if name.endswith(suffix) and not name.endswith(".tmp")
            ]
        return sorted(found)

    def open(self, name: str) -> IO[bytes]:
        """Return a seekable binary file; FileNotFoundError if there is none."""
        return open(self.path(name), "rb")

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        with self.open(name) as file:
            return file.read()

    def _write(self, name: str, data: bytes, is_new: bool) -> None:
        path = self.path(name)
        folder, base = os.path.split(path)
        temporary = os.path.join(folder, f".{base}.{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            os.makedirs(folder, exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            (os.link if is_new else os.replace)(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)

    def move(self, name: str, to: str) -> None:
        """Rename a file; an existing one of the new name is replaced."""
        os.makedirs(os.path.dirname(self.path(to)), exist_ok=True)
        os.replace(self.path(name), self.path(to))

    def remove(self, name: str) -> None:
        """Remove a file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(name))

    def tidy(self, older_s: float = 0.0) -> None:
        """Remove unfinished files, older than `older_s`, of writers that were killed."""
        for root, _, files in os.walk(self.where):
            for path in (os.path.join(root, name) for name in files if name.startswith(".") and name.endswith(".tmp")):
                with contextlib.suppress(OSError):
                    if time.time() - os.path.getmtime(path) >= older_s:
                        os.unlink(path)


class Remote(_Folder):
    """A folder of a server or an object store, through fsspec."""

    def __init__(self, where: str) -> None:
        fsspec = needed("fsspec", "cluster")
        self.where = where.rstrip("/")
        try:
            self.fs, self._root = fsspec.core.url_to_fs(self.where)
        except (ValueError, ImportError) as error:
            raise ArgumentError(f"{where}: {' '.join(str(error).split())}") from error

    def at(self, name: str) -> str:
        """Return the path of a file in `filesystem`."""
        return f"{self._root}/{name}" if name else self._root

    def filesystem(self) -> Any:
        """Return it as a file system of Arrow."""
        fs = needed("pyarrow.fs", "parquet")
        return fs.PyFileSystem(fs.FSSpecHandler(self.fs))

    def exists(self, name: str) -> bool:
        """Return whether there is such a file."""
        return self.fs.exists(self.at(name))

    def names(self, folder: str = "", suffix: str = "") -> list[str]:
        """Return the files beneath a folder that end in `suffix`, sorted, relative to the store."""
        self.fs.invalidate_cache()
        try:
            found = self.fs.find(self.at(folder))
        except FileNotFoundError:
            return []
        cut = len(self._root) + 1
        return sorted(name[cut:] for name in found if name.endswith(suffix))

    def open(self, name: str) -> IO[bytes]:
        """Return a seekable binary file; FileNotFoundError if there is none."""
        return self.fs.open(self.at(name), "rb")

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        return self.fs.cat_file(self.at(name))

    def _write(self, name: str, data: bytes, is_new: bool) -> None:
        self.fs.makedirs(os.path.dirname(self.at(name)), exist_ok=True)
        self.fs.pipe_file(self.at(name), data, mode="create" if is_new else "overwrite")

    def move(self, name: str, to: str) -> None:
        """Rename a file; an existing one of the new name is replaced."""
        self.fs.makedirs(os.path.dirname(self.at(to)), exist_ok=True)
        self.fs.mv(self.at(name), self.at(to))

    def remove(self, name: str) -> None:
        """Remove a file."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm_file(self.at(name))

    def tidy(self, older_s: float = 0.0) -> None:
        """Do nothing: an incomplete upload leaves no file."""


Store = Local | Remote


def parquet_bytes(table: pa.Table) -> bytes:
    """Return an Arrow table as the bytes of a Parquet file: the same for the same rows."""
    pq = needed("pyarrow.parquet", "parquet")
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", row_group_size=ROWS)
    return buffer.getvalue()
