"""Files that the server may read: regular files below its root, after resolving links."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cctrace.display import visible
from cctrace.errors import ArgumentError, CctraceError
from cctrace.io import MAY_HOLD_PACKETS, format_of
from cctrace.units import format_size

LARGEST = 1_000_000_000  # bytes of a file; `cctrace analyze` takes minutes for a larger one
MAX_LISTED = 200  # files
_MAX_SEEN = 20_000  # entries of folders that are looked at for these


@dataclass(frozen=True)
class Files:
    """The files below a folder. `root`: an existing folder."""

    root: Path

    @classmethod
    def below(cls, folder: str | os.PathLike[str]) -> Files:
        """Return the files below a folder; `ArgumentError` if it is not one."""
        if not os.path.isdir(folder):
            raise ArgumentError(f"--root {os.fspath(folder)}: no such folder")
        return cls(Path(folder).resolve())

    def path(self, name: str) -> Path:
        """Return the file of a name below the root; `ArgumentError` if it is missing, too large or not regular."""
        found = self._inside(name)
        if not found.is_file():
            what = "a folder: list_captures shows what is in it" if found.is_dir() else "no file below the root"
            raise ArgumentError(f"file {visible(name)!r} is {what}")
        if (size := found.stat().st_size) > LARGEST:
            raise ArgumentError(f"file {visible(name)!r}: {format_size(size)} are more than {format_size(LARGEST)}")
        return found

    def _inside(self, name: str) -> Path:
        try:
            found = (self.root / name).resolve()
        except (OSError, ValueError, RuntimeError):
            raise ArgumentError(f"file {visible(name)!r}: no such name") from None
        if not found.is_relative_to(self.root):
            raise ArgumentError(f"file {visible(name)!r} is outside of the folder that this server reads")
        return found

    def listed(self, folder: str) -> tuple[list[dict[str, Any]], bool]:
        """Return name, size and format of the captures and counters below a folder, and whether there are more."""
        begin = self._inside(folder)
        if not begin.is_dir():
            raise ArgumentError(f"folder {visible(folder)!r}: no such folder below the root")
        found: list[dict[str, Any]] = []
        for path in self._walk(begin):
            try:
                name = format_of(path)
            except (CctraceError, OSError):
                continue  # no format that cctrace reads
            if len(found) == MAX_LISTED:
                return found, True
            kind = "capture" if name in MAY_HOLD_PACKETS else "counters"
            size = path.stat().st_size
            found.append({"file": str(path.relative_to(self.root)), "kind": kind, "format": name, "size_bytes": size})
        return found, False

    def _walk(self, begin: Path) -> Iterator[Path]:
        """Yield the regular files below a folder in the order of their names; links are not followed."""
        entries = 0
        for folder, folders, names in os.walk(begin):
            folders[:] = sorted(one for one in folders if not one.startswith("."))
            for name in sorted(names):
                entries += 1
                if entries > _MAX_SEEN:
                    return
                path = Path(folder) / name
                if not path.is_symlink() and path.is_file() and path.stat().st_size <= LARGEST:
                    yield path
