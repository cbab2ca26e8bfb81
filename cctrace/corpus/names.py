"""What files are called where many are listed: as short as tells them apart."""

import os
import re

_ENDINGS = re.compile(r"(\.(pcap|pcapng|cap|ntar|snoop|dmp))?(\.(gz|zst|xz|bz2|lz4))?$")


def common_folder(files):
    """Return the deepest folder or file that all files share, an absolute path; "" of none."""
    return os.path.commonpath([os.path.abspath(file) for file in files]) if files else ""


def short_names(files):
    """Return a short name for each file: what tells it from the others, without the folders that all share.

    Examples
    --------
    >>> short_names(["a/one/sender.pcap.zst", "a/two/sender.pcap"])
    ['one-sender', 'two-sender']
    """
    base = common_folder(files)
    base = os.path.dirname(base) if base in map(os.path.abspath, files) else base
    names: list[str] = []
    for file in files:
        name = _ENDINGS.sub("", os.path.relpath(os.path.abspath(file), base)).replace(os.sep, "-")
        names.append(name if name not in names else f"{name}-{len(names)}")
    return names
