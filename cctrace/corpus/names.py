"""What files are called where many are listed: as short as tells them apart, and good as the name of a folder."""

import os
import re

from cctrace.display import visible

_ENDINGS = re.compile(r"(\.(pcap|pcapng|cap|ntar|snoop|dmp))?(\.(gz|zst|xz|bz2|lz4))?$")
_LONGEST = 200  # bytes: file systems take 255, and a number may follow


def common_folder(files):
    """Return the deepest folder or file that all files share, an absolute path; "" of none."""
    return os.path.commonpath([os.path.abspath(file) for file in files]) if files else ""


def short_names(files, taken=()):
    """Return a short name for each file: what tells it from the others, without the folders that all share.

    A name may be that of a folder, below any other: it holds no slash, does not begin with a dot (so that it is neither
    ".." nor hidden), can be written in UTF-8, and is none of another file or of `taken`.

    Parameters
    ----------
    files : sequence of path-like
    taken : collection of str
        Names that are not given.

    Returns
    -------
    list of str

    Examples
    --------
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


def _as_folder(path):
    name = visible(path.replace(os.sep, "-"), keep="").lstrip(".")
    return name.encode()[:_LONGEST].decode("utf-8", "ignore")
