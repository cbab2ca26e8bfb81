"""Short names for files in a list: distinct, and valid as names of folders."""

import os
import re
from collections.abc import Collection, Sequence

from cctrace.display import visible

_ENDINGS = re.compile(r"(\.(pcap|pcapng|cap|ntar|snoop|dmp))?(\.(gz|zst|xz|bz2|lz4))?$")
_LONGEST = 200  # bytes: file systems take 255, and a number may follow


def common_folder(files: Sequence[str | os.PathLike[str]]) -> str:
    """Return the deepest folder or file that all files share, an absolute path; "" of none."""
    return os.path.commonpath([os.path.abspath(file) for file in files]) if files else ""


def short_names(files: Sequence[str | os.PathLike[str]], taken: Collection[str] = ()) -> list[str]:
    """Return a short, distinct name for each file: its path without the folders that all share.

    A name is valid as that of a folder: it holds no slash, does not begin with a dot (so that it is neither
    ".." nor hidden), is valid UTF-8, and is neither that of another file nor in `taken`.

    `taken`: names to avoid.

    >>> short_names(["a/one/sender.pcap.zst", "a/two/sender.pcap"])
    ['one-sender', 'two-sender']
    >>> short_names(["...pcap.zst", ".pcap", "..pcap"])
    ['pcap.zst', 'pcap', 'pcap-2']
    """
    base = common_folder(files)
    base = os.path.dirname(base) if base in map(os.path.abspath, files) else base
    names: dict[str, None] = {}
    for file in files:
        path = os.path.relpath(os.path.abspath(file), base)
        name = stem = _as_folder(_ENDINGS.sub("", path)) or _as_folder(path) or "capture"
        number = len(names)
        while name in names or name in taken:
            name, number = f"{stem}-{number}", number + 1
        names[name] = None
    return list(names)


def _as_folder(path: str) -> str:
    name = visible(path.replace(os.sep, "-"), keep="").lstrip(".")
    return name.encode()[:_LONGEST].decode("utf-8", "ignore")
