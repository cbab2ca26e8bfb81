"""Small recordings that ship with cctrace, with ground truth: their paths, provenance and checksums.

A recording is a folder: captures, the kernel's counters (tcp_info polled by the sender, or `ss`), and `scenario.json`,
which describes the path and the senders. `catalogue.json` lists each file with its sha256. Nothing is downloaded.
"""

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from cctrace.arguments import short_repr
from cctrace.errors import ArgumentError

ROOT = Path(__file__).parent / "_data" / "datasets"


@functools.cache
def _load() -> dict[str, Any]:
    return json.loads((ROOT / "catalogue.json").read_text(encoding="utf-8"))


def catalogue() -> dict[str, Any]:
    """Return the recordings that ship with cctrace.

    Returns
    -------
    dict
        ``{name: {"title", "controller", "path", "shows", "files": {file: {"sha256", "bytes"}}}}``; a fresh copy.

    Examples
    --------
    >>> sorted(catalogue())[-3:]
    ['single_bbr_1bdp', 'tso_bbr_300m_veth', 'web_server']
    """
    return json.loads(json.dumps(_load()["recordings"]))


def provenance() -> dict[str, str]:
    """Return where the recordings come from and under which licence they may be used, as a dict of strings.

    Examples
    --------
    >>> provenance()["licence"]
    'MIT, as cctrace itself'
    """
    return dict(_load()["provenance"])


def path(name: str, file: str | None = None) -> Path:
    """Return the folder of a shipped recording, or one file of it.

    Parameters
    ----------
    name : str
        A key of `catalogue`.
    file : str, optional
        A file of that recording, such as ``"sender.pcap.zst"``.

    Raises
    ------
    ArgumentError
        If there is no such recording or no such file in it.

    Examples
    --------
    >>> path("jitter_bbr_sd2ms", "tcpinfo.csv.zst").name
    'tcpinfo.csv.zst'
    """
    recordings = _load()["recordings"]
    if not isinstance(name, str) or name not in recordings:
        raise ArgumentError(f"no recording {short_repr(name)} ships with cctrace (there are: {', '.join(recordings)})")
    if file is None:
        return ROOT / name
    if not isinstance(file, str) or file not in recordings[name]["files"]:
        raise ArgumentError(
            f"recording {name!r} has no file {short_repr(file)} (it has: {', '.join(recordings[name]['files'])})"
        )
    return ROOT / name / file


def verify() -> list[str]:
    """Return the files, as "name/file", that are missing or differ from the catalogue's sha256 (none: all intact).

    Examples
    --------
    >>> verify()
    []
    """
    bad = []
    for name, recording in _load()["recordings"].items():
        for file, entry in recording["files"].items():
            target = ROOT / name / file
            if not target.is_file() or hashlib.sha256(target.read_bytes()).hexdigest() != entry["sha256"]:
                bad.append(f"{name}/{file}")
    return bad
