"""The one cache of compiled code: object code on disk, named by what was compiled.

An entry is a file ``<title>-<digest>.o``: the SHA-256 of the rest, a line of JSON (digest of the key, and the
compiler's description of the code), then object code. The key covers everything that the code depends on
(`cctrace.lang.fingerprint`), so a stale entry is never found; a damaged one is compiled again, with a warning. Entries
are written to a temporary file and renamed, so that processes that start at the same time do not disturb each other.
Nothing is unpickled.

The cache is $CCTRACE_CACHE, else ~/.cache/cctrace, else the user's own directory in the system's temporary directory.
Object code from it is executed. A directory or an entry is therefore not used if it is a symbolic link, belongs to
another user or can be written by others; a line on stderr says why.
"""

import contextlib
import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from cctrace.lang import objects

Made: TypeAlias = tuple[dict[str, Any], bytes]  # the compiler's description of the code, object code
_FORMAT = 3  # of an entry; part of its name
_MAX_BYTES = 64 << 20  # 50 times what cctrace itself needs: a class that is edited in a notebook leaves 10 KB per edit


def obtain(title: str, key: str, build: Callable[[], Made]) -> Made:
    """Return (head, object code) of what `key` describes: from the cache, else from ``build()``, which is then kept.

    `title`: how the file's name begins. `key`: everything that the code depends on, besides compiler and processor.
    `build`: returns a dictionary (as JSON can write it) and object code.
    """
    key = f"{_FORMAT}\n{objects.target()}\n{key}"
    digest = hashlib.sha256(key.encode()).hexdigest()
    path = cache_dir() / f"{title}-{digest[:20]}.o"
    found = _read(path, digest)
    if found is None:
        found = build()
        _write(path, digest, *found)
    return found


def cache_dir() -> Path:
    """Return the directory of the cache; a line on stderr says so if it is not the one that was asked for."""
    return _usable(os.environ.get("CCTRACE_CACHE"), os.environ.get("HOME"), tempfile.gettempdir())


@lru_cache(maxsize=8)
def _usable(configured: str | None, home: str | None, temporary: str) -> Path:
    wanted = Path(configured) if configured else Path("~/.cache/cctrace").expanduser()
    reason = _why_not(wanted)
    if reason is None:
        return wanted
    own = Path(temporary) / f"cctrace-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    chosen = own if _why_not(own) is None else Path(tempfile.mkdtemp(prefix="cctrace-"))
    _warn(f"{wanted} {reason}, so compiled code is kept in {chosen}")
    return chosen


def _why_not(folder: Path) -> str | None:
    """Return why code cannot be kept in a directory, None if it can be; the directory is made if there is none."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if reason := _distrusted(folder.lstat(), stat.S_ISDIR, "directory"):
            return reason
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"cannot be written ({error.strerror})"


def _distrusted(status: os.stat_result, is_kind: Callable[[int], bool], kind: str) -> str | None:
    """Return why another user could have written a file or directory, None if only this user could."""
    if stat.S_ISLNK(status.st_mode):
        return "is a symbolic link"
    if not is_kind(status.st_mode):
        return f"is no {kind}"
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        return f"belongs to another user (uid {status.st_uid})"
    if hasattr(os, "getuid") and status.st_mode & 0o022:
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def _read(path: Path, digest: str) -> Made | None:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = "is a symbolic link" if path.is_symlink() else f"cannot be opened ({error.strerror})"
        _warn(f"{path} {reason}; it is compiled again")
        return None
    with os.fdopen(handle, "rb") as file:
        if distrust := _distrusted(os.fstat(handle), stat.S_ISREG, "file"):
            _warn(f"{path} {distrust}; it is compiled again")
            return None
        data = file.read()
        with contextlib.suppress(OSError):  # a cache that is only read
            os.utime(path)  # the time of use, see `_forget_unused`
    checksum, _, rest = data.partition(b"\n")
    if checksum == _checksum(rest):
        line, _, code = rest.partition(b"\n")
        head = json.loads(line)
        if head["key"] == digest:
            return head["description"], code
    _warn(f"{path} is damaged or belongs to other code; it is compiled again")
    return None


def _checksum(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _write(path: Path, digest: str, description: dict[str, Any], code: bytes) -> None:
    data = json.dumps({"key": digest, "description": description}).encode() + b"\n" + code
    try:
        handle, aside = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            file.write(_checksum(data) + b"\n" + data)
        os.replace(aside, path)
        _forget_unused(path.parent)
    except OSError as error:  # a full disk: the code is used without being kept
        _warn(f"{path} cannot be written ({error.strerror}); it will be compiled again")


def _forget_unused(folder: Path) -> None:
    """Remove the entries that were not used for longest, as long as all have more than `_MAX_BYTES`."""
    with contextlib.suppress(OSError):  # another process may be removing them, too
        entries = [(path.stat(), path) for path in folder.glob("*.o")]
        left = sum(status.st_size for status, _ in entries)
        for status, path in sorted(entries, key=lambda entry: entry[0].st_mtime_ns):
            if left <= _MAX_BYTES:
                return
            path.unlink(missing_ok=True)
            left -= status.st_size


def _warn(message: str) -> None:
    print(f"cctrace: {message}", file=sys.stderr)
