"""The one cache of compiled code: object code on disk, named by what was compiled.

An entry is a file ``<title>-<digest>.o``: a line of JSON (the key in full, a checksum, what the compiler has to say of
the code), then object code. The key says everything that the code depends on (`cctrace.lang.fingerprint`), so nothing
stale is ever found; an entry that is damaged, or that belongs to another key, is made anew with a line of warning.
Entries are written aside and renamed: processes that start at the same time write the same file. Nothing is unpickled.

They live in $CCTRACE_CACHE, else ~/.cache/cctrace, else a directory of the user's in the system's temporary directory:
what is loaded from there is executed, so one that is not the user's, or that others can write to, will not do.
"""

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import zlib
from functools import lru_cache
from pathlib import Path

from cctrace.lang import objects

_KEPT = 16  # entries of one title: those of a class that is being written in a notebook come and go


def obtain(title, key, build):
    """Return (head, object code) of what `key` describes: from the cache, else from ``build()``, which is then kept.

    Parameters
    ----------
    title : str
        How the file's name begins.
    key : str
        Everything that the code depends on, besides compiler and processor.
    build : function
        Returns a dictionary (as JSON can write it) and object code.
    """
    key = f"{objects.target()}\n{key}"
    digest = hashlib.sha256(key.encode()).hexdigest()
    path = cache_dir() / f"{title}-{digest[:20]}.o"
    found = _read(path, digest)
    if found is None:
        found = build()
        _write(path, digest, *found)
    return found


def cache_dir():
    """Return the directory of the cache; a line on stderr says so if it is not the one that was asked for."""
    return _usable(os.environ.get("CCTRACE_CACHE"), os.environ.get("HOME"), tempfile.gettempdir())


@lru_cache(maxsize=8)
def _usable(asked, home, temporary):
    wanted = Path(asked) if asked else Path("~/.cache/cctrace").expanduser()
    own = Path(temporary) / f"cctrace-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    if _is_writable(wanted):
        return wanted
    chosen = own if _is_writable(own) and _is_private(own) else Path(tempfile.mkdtemp(prefix="cctrace-"))
    _warn(f"{wanted} cannot be written, so compiled code is kept in {chosen}")
    return chosen


def _is_writable(path):
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError:
        return False
    return True


def _is_private(path):
    """Whether a directory of a known name, in a place where everybody writes, is the user's and nobody else's."""
    status = path.stat()
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o022)


def _read(path, digest):
    try:
        data = path.read_bytes()
    except OSError:
        return None
    try:
        line, code = data.split(b"\n", 1)
        head = json.loads(line)
        sound = head["key"] == digest and head["crc"] == zlib.crc32(code)
    except (ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        _warn(f"{path} is damaged or belongs to other code; it is compiled anew")
        return None
    return head["said"], code


def _write(path, digest, said, code):
    line = json.dumps({"key": digest, "crc": zlib.crc32(code), "said": said})
    try:
        handle, aside = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            file.write(line.encode() + b"\n" + code)
        os.replace(aside, path)
        _forget_oldest(path)
    except OSError as error:  # a full disk: the code is used all the same
        _warn(f"{path} cannot be written ({error.strerror}); it will be compiled again")


def _forget_oldest(path):
    title = path.name.rpartition("-")[0]
    same = [p for p in path.parent.glob(f"{title}-*.o") if p.name.rpartition("-")[0] == title]
    with contextlib.suppress(OSError):  # another process may be forgetting them, too
        for old in sorted(same, key=lambda p: p.stat().st_mtime)[:-_KEPT]:
            old.unlink(missing_ok=True)


def _warn(message):
    print(f"cctrace: {message}", file=sys.stderr)
