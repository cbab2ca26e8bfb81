"""What to analyse: files, patterns, lists, folders, URLs; and the counters next to captures.

A rule says which counters belong to a capture, by names without the endings of compression: "sender:tcpinfo.csv",
"{name}:{name}.ss.txt"; before the colon stands the capture's name without its own ending, {part} is a number
(M-Lab splits the counters of a connection into .00000, .00001 ...). The first rule that matches counts.
"""

import glob
import operator
import os
import re
import stat
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cctrace.arguments import check_argument, paths_of
from cctrace.display import visible
from cctrace.errors import ArgumentError
from cctrace.extras import needed
from cctrace.files import files_below
from cctrace.io.source import file_url, is_device

Inputs = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
RULES: dict[str, tuple[str, ...]] = {
    "ours": ("sender:tcpinfo.csv", "sender:ss.txt", "{name}:{name}.tcpinfo.csv", "{name}:{name}.ss.txt"),
    "mlab": ("{name}:{name}.{part}.jsonl",),
    "none": (),
}
DEFAULT_RULES = ("ours", "mlab")
_COMPRESSION = re.compile(r"\.(gz|zst|xz|bz2|lz4)$", re.IGNORECASE)
_CAPTURE = re.compile(r"\.(pcap|pcapng|cap|dmp|snoop)$", re.IGNORECASE)
_ARCHIVE = re.compile(r"\.(tgz|tar|tar\.(gz|zst|xz|bz2|lz4)|zip)$", re.IGNORECASE)
_LIST = re.compile(r"\.(txt|lst|list)$", re.IGNORECASE)
_DATE = re.compile(r"(?<!\d)((?:19|20)\d\d)([-/]?)(0[1-9]|1[0-2])\2(0[1-9]|[12]\d|3[01])(?!\d{3})")
_MLAB = re.compile(r"(mlab\d-[a-z]{3}\w{2,3})")
UNKNOWN_DATE, OTHER_SOURCE = "unknown", "other"


class Entry(NamedTuple):
    """One input: a capture or counters, or an archive of them. Names are UTF-8, see `file_url`."""

    capture: str
    size: int
    archive: bool
    source: str
    date: str
    counters: list


def is_archive(name: str) -> bool:
    """Return whether a name is that of an archive."""
    return _ARCHIVE.search(name) is not None


def taken(names: Iterable[str]) -> list[str]:
    """Return which files of a folder or an archive to analyse: captures and archives; all files if there are none.

    >>> taken(["a/README", "a/sender.pcap.zst", "a/tcpinfo.csv"]), taken(["ss.txt"])
    (['a/sender.pcap.zst'], ['ss.txt'])
    """
    found = [name for name in names if is_archive(name) or _CAPTURE.search(_COMPRESSION.sub("", name))]
    return found or list(names)


def date_in(name: str) -> str:
    """Return the last date in a name, "unknown" if there is none.

    >>> date_in("s3://ndt/2020/01/31/20200131T000000Z-pcap.tgz"), date_in("sender.pcap.zst")
    ('2020-01-31', 'unknown')
    """
    found = list(_DATE.finditer(name))
    return "-".join(found[-1].group(1, 3, 4)) if found else UNKNOWN_DATE


class Rules:
    """Compiled rules that match counters to captures.

    `rules`: names of `RULES`, or rules. Raises `ArgumentError` if one is neither.
    """

    def __init__(self, rules: Sequence[str] = DEFAULT_RULES) -> None:
        self._patterns = []
        for rule in rules:
            check_argument(isinstance(rule, str), "counters", rule, "rules, as texts")
            for one in RULES.get(rule, (rule,)):
                capture, colon, counters = one.partition(":")
                if not (colon and capture and counters) or ("{name}" in counters and capture != "{name}"):
                    raise ArgumentError(
                        f"counters: {one!r}; allowed are {', '.join(RULES)} or CAPTURE:COUNTERS, for example "
                        "'{name}:{name}.ss.txt'"
                    )
                pattern = (
                    re.escape(counters).replace(r"\{name\}", "(?P<name>.+)").replace(r"\{part\}", r"(?P<part>\d+)")
                )
                self._patterns.append((None if capture == "{name}" else capture, re.compile(pattern)))

    def join(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Return {capture: [counters]} for the names in one folder."""
        if not self._patterns:
            return {}
        counters: dict[tuple, list] = {}
        stems = {}
        for name in names:
            base = _COMPRESSION.sub("", name)
            if _CAPTURE.search(base):
                stems[name] = _CAPTURE.sub("", base)
                continue
            for number, (fixed, pattern) in enumerate(self._patterns):
                if match := pattern.fullmatch(base):
                    parts = match.groupdict()
                    stem = fixed if fixed is not None else parts.get("name")
                    counters.setdefault((stem, number), []).append((int(parts.get("part") or 0), name))
        joined = {}
        for name, stem in stems.items():
            for number in range(len(self._patterns)):
                if found := counters.get((stem, number)) or counters.get((None, number)):
                    joined[name] = [one for _, one in sorted(found)]
                    break
        return joined


def listed(inputs: Inputs, counters: Sequence[str] = DEFAULT_RULES, source: str | None = None) -> list[Entry]:
    """Return all inputs, in an order that does not depend on that of the arguments.

    `inputs`: paths, patterns, folders, URLs ("s3://…", which may be patterns), lists of such names (a text file, a line
    each; "@FILE" says that it is one). `counters`: see `Rules`. `source`: regular expression whose group in a name is
    its source; default: the host of M-Lab, else "other". Returns each input once, by source and name. Raises
    `ArgumentError` if one matches nothing, or cannot be listed.
    """
    rules = Rules(counters)
    pattern = _source_pattern(source)
    sizes: dict[str, int] = {}
    for one in paths_of("inputs", inputs):
        found = _expand(one)
        if not found:
            raise ArgumentError(f"{one}: no file {'in this folder' if os.path.isdir(one) else 'matches'}")
        sizes |= found
    joined = _joined(sizes, rules)
    used = {name for names in joined.values() for name in names}
    entries: list[Entry] = []
    none: list[str] = []
    for name, size in sizes.items():
        if name not in used:
            match = pattern.search(name)
            of = re.sub(r"[^\w.-]+", "_", visible(match[1])) if match else OTHER_SOURCE
            counters = [file_url(one) for one in joined[name]] if name in joined else none
            source, date = sys.intern(of), sys.intern(date_in(name))  # equal strings are shared: there may be a million
            entries.append(Entry(file_url(name), size, is_archive(name), source, date, counters))
    entries.sort(key=operator.attrgetter("source", "capture"))
    return entries


def _source_pattern(source: str | None) -> re.Pattern[str]:
    if source is None:
        return _MLAB
    try:
        pattern = re.compile(source)
    except re.error as error:
        raise ArgumentError(f"source: {source!r} is not a regular expression: {error}") from None
    if pattern.groups != 1:
        raise ArgumentError(f"source: {source!r} has {pattern.groups} groups; one is needed, which is the source")
    return pattern


def _expand(one: str) -> dict[str, int]:
    """Return {name: size} of the files that one input names."""
    if one.startswith("@"):
        return _of_list(one[1:])
    if "://" in one:
        return _remote(one)
    path = os.path.abspath(one)
    try:
        if os.path.isdir(path):
            return _sizes(taken([*files_below(path, _fail)]))
        if os.path.isfile(path) and _LIST.search(path) and _names_files(path):
            return _of_list(path)
    except OSError as error:
        raise ArgumentError(f"{one}: cannot be listed: {error.strerror}") from None
    if os.path.lexists(path):
        return {path: _size(path)}
    return _sizes(os.path.abspath(name) for name in glob.iglob(one, recursive=True))


def _sizes(names: Iterable[str]) -> dict[str, int]:
    """Return {name: size} of files; no folders, and no pipes, sockets and devices, which may never end."""
    found = {}
    for name in names:
        try:
            status = os.stat(name)
        except OSError:
            found[name] = -1  # becomes a row of errors
            continue
        if stat.S_ISREG(status.st_mode):
            found[name] = status.st_size
    return found


def _fail(error: OSError) -> None:
    raise error


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _remote(url: str) -> dict[str, int]:
    fsspec = needed("fsspec", "cluster")
    scheme = url[: url.index("://") + 3]
    try:
        fs, root = fsspec.core.url_to_fs(url)
        if glob.has_magic(root):
            found = fs.glob(root, detail=True)
        elif fs.isdir(root):
            there = fs.find(root, detail=True)
            found = {name: there[name] for name in taken(there)}
        else:
            found = {root: fs.info(root)}
    except FileNotFoundError:
        return {}
    except Exception as error:  # each file system has its own errors
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ArgumentError(f"{url}: cannot be listed: {reason}") from error
    return {
        scheme + name.removeprefix(scheme): int(info.get("size") or -1)
        for name, info in found.items()
        if info.get("type") != "directory"
    }


def _names_files(path: str) -> bool:
    """Return whether the first line of a text names a file, as that of a list does."""
    with open(path, "rb") as file:
        first = next((line for line in os.fsdecode(file.read(65536)).splitlines() if _is_entry(line)), "")
    return "://" in first.split(" ")[0] or os.path.exists(_beside(path, first.strip()))


def _is_entry(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


def _beside(path: str, name: str) -> str:
    """Return the path of a name in a list: relative to the list, or to the working directory."""
    there = os.path.join(os.path.dirname(os.path.abspath(path)), name)
    return there if os.path.exists(there) or not os.path.exists(name) else os.path.abspath(name)


def _of_list(path: str) -> dict[str, int]:
    """Return {name: size} of the files in a list; a line is a path or a URL, "#" begins a comment."""
    if is_device(path):
        raise ArgumentError(f"{path}: is a device: give a list of inputs, one a line")
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.strip() for line in file if _is_entry(line)]
    except OSError as error:
        raise ArgumentError(f"{path}: the list cannot be read: {error.strerror}") from None
    found = {}
    for line in lines:
        if "://" in line:
            found[line] = -1
        else:
            name = os.path.normpath(_beside(path, line))
            found[name] = _size(name)
    return found


def _joined(sizes: Iterable[str], rules: Rules) -> dict[str, list[str]]:
    """Return {capture: [counters]}, considering all files in the folders of the captures."""
    folders: dict[str, list] = {}
    for name in sizes:
        folder, _, base = name.rpartition("/")
        if _CAPTURE.search(_COMPRESSION.sub("", base)):
            folders.setdefault(folder, []).append(base)
    joined = {}
    while folders:
        folder, captures = folders.popitem()
        there = set(_beside_in(folder)) | set(captures)
        wanted = set(captures)
        for name, counters in rules.join(sorted(there)).items():
            if name in wanted:
                joined[f"{folder}/{name}"] = [f"{folder}/{one}" for one in counters]
    return joined


def _beside_in(folder: str) -> list[str]:
    """Return the names in a folder; none if it cannot be listed."""
    if "://" not in folder:
        try:
            return os.listdir(folder or "/")
        except OSError:
            return []
    fs, root = needed("fsspec", "cluster").core.url_to_fs(folder)
    try:
        return [name.rpartition("/")[2] for name in fs.ls(root, detail=False)]
    except (OSError, NotImplementedError):
        return []
