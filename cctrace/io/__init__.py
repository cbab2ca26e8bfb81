"""Readers, one module per format; `read_file` and `stream` recognise the format by content.

A reader of tcp_info is two functions: `sniff(head)` looks at the first bytes, `read(source)` returns `TcpInfo`.
A reader of captures has `sniff` and `frames_of`, which finds the frames that `frames.Decoder` decodes to `Packets`.
Readers are imported on first use, so that reading a capture does not wait for the packages of other formats.
"""

from __future__ import annotations

import glob
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cctrace.arguments import check_argument, check_choice, whole
from cctrace.errors import ArgumentError, FormatError
from cctrace.io.source import BOM, BinaryFile, Member, Source, file_path, open_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cctrace.io.captures.frames import Decoder, FrameIterator
    from cctrace.io.captures.packets import Packets
    from cctrace.io.captures.quic import Survey
    from cctrace.io.counters.kernelevents import KernelEvents
    from cctrace.io.counters.tcpinfo import TcpInfo
    from cctrace.io.linktrace import LinkTrace
    from cctrace.io.source import Input, Inputs

# Name of a format (`format=`) and module. The order is that of sniffing: the most certain magic first.
FORMATS = {
    "pcap": "captures.pcap",
    "pcapng": "captures.pcapng",
    "snoop": "captures.snoop",
    "bblog": "counters.bblog",
    "parquet": "parquet",
    "tcpinfo-csv": "counters.tcpinfo_csv",
    "mlab": "counters.mlab",
    "flent": "counters.flent",
    "siftr": "counters.siftr",
    "varnishlog": "counters.varnish",
    "bcc": "counters.bcctools",
    "iperf3": "counters.iperf3",
    "tcp_probe": "counters.tcp_probe",
    "ss": "counters.ss",
    "qlog": "counters.qlog",
    "ucc5g": "counters.ucc5g",
    "mahimahi": "mahimahi",
    "tcpinfo-json": "counters.tcpinfo_json",
    "tcp-info-struct": "counters.tcpinfo_struct",
}
CAPTURES = ("pcap", "pcapng", "snoop")
ARCHIVE = "archive"  # what `sniff` calls a tar or ZIP file
MAY_HOLD_PACKETS = (*CAPTURES, ARCHIVE, "parquet")


def read_file(
    source: Inputs, format: str | None = None, decapsulate: str | Sequence[str] = (), limit: int | None = None
) -> Packets | TcpInfo | LinkTrace | KernelEvents:
    """Read one input of any supported format.

    `source`: a path, "-" for standard input, a URL, an open binary file, a glob pattern, or a list of them; compression
    is recognised by content. Several captures (a list, the matches of a pattern, the members of a tar or ZIP archive)
    are joined in the order of their first packets; counters become one table. `format`: one of `FORMATS`; default:
    recognised by content. `decapsulate`: of captures, tunnels to look into, of ipip, gre, vxlan, geneve, or "all".
    `limit`: largest number of bytes accepted out of a compressed file.

    Raises `FormatError`: the file is missing, empty, of no known format, or holds nothing that could be read. A capture
    that is damaged or ends early yields what precedes the damage, and a `Truncated` warning.

    >>> import cctrace as cct
    >>> from cctrace.io import read_file
    >>> packets = read_file(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst"))
    >>> len(packets)
    9381
    """
    sources = _expand(source)
    if len(sources) == 1:
        with open_source(sources[0], limit) as opened:
            name = _format_of(opened, format)
            if name == ARCHIVE:
                return _of_archive(opened, decapsulate, limit)
            if name not in CAPTURES:
                return _module(name).read(opened)
            return next(_packets([opened], None, format, decapsulate, limit))
    return next(_packets(sources, None, format, decapsulate, limit))


def stream(
    source: Inputs,
    chunk: int = 1_000_000,
    format: str | None = None,
    decapsulate: str | Sequence[str] = (),
    limit: int | None = None,
    lasting: int = 0,
    brief: bool = False,
) -> Iterator[Packets]:
    """Yield the packets of a capture, larger than memory if need be, as `Packets` of about `chunk` rows each.

    Connection numbers continue from part to part; each part's connection table holds all connections so far, and its
    counters and warnings cover everything read so far. With more than `chunk` connections, parts grow with their
    number. With `lasting`, a part's columns are overwritten once so many more parts have been yielded. With `brief`,
    captures lack the columns `layout.DETAILS`. Other parameters and errors as for `read_file`.
    """
    whole("chunk", chunk, 1)
    sources = _expand(source)
    if len(sources) == 1 and format is None:
        with open_source(sources[0], limit) as opened:
            if sniff(opened) == ARCHIVE:
                yield _of_archive(opened, decapsulate, limit)  # type: ignore[misc]  # its captures, or `FormatError`
            else:
                yield from _packets([opened], chunk, format, decapsulate, limit, lasting, brief)
        return
    yield from _packets(sources, chunk, format, decapsulate, limit, lasting, brief)


def _of_archive(source: Source, decapsulate: str | Sequence[str], limit: int | None) -> Packets | TcpInfo:
    """Return the contents of all members of an archive, joined."""
    from cctrace.io import archive
    from cctrace.io.counters.merging import merged
    from cctrace.io.counters.tcpinfo import TcpInfo

    with source:
        members, warnings = archive.members(source)
    tables, captures = [], []
    for member in members:
        try:
            if (name := format_of(member, limit)) in CAPTURES:
                captures.append(member)
            elif name != ARCHIVE:
                tables.append(_module(name).read(open_source(member, limit)))
        except FormatError as error:
            if member.allowance and member.allowance.is_spent:
                raise
            warnings.append(f"{error}; left out")
    tables = [table for table in tables if isinstance(table, TcpInfo)]
    if bool(tables) == bool(captures):
        what = "both captures and counters: unpack it, and give them one by one" if tables else "no supported file"
        raise FormatError("; ".join([f"{source.name}: the archive holds {what}", *warnings[:3]]))
    data = merged(tables, source.name) if tables else next(_packets(captures, None, None, decapsulate, limit))
    data.warnings += warnings
    return data


def sniff(source: Source) -> str:
    """Return the name of the format of an open `Source`; FormatError if it is none that cctrace reads."""
    head = source.head.removeprefix(BOM)
    for name in FORMATS:
        if _module(name).sniff(head):
            return name
    if import_module("cctrace.io.archive").sniff(source.head):
        return ARCHIVE
    reason = import_module("cctrace.io.foreign").refusal(source)
    source.close()
    raise FormatError(reason)


def format_of(source: Input, limit: int | None = None) -> str:
    """Return what `sniff` says of a file; FormatError if its format is unknown. `limit` as for `read_file`."""
    with open_source(source, limit) as opened:
        return sniff(opened)


def is_capture(source: Input, limit: int | None = None) -> bool:
    """Return whether a file is a capture; FormatError if its format is unknown. `limit` as for `read_file`."""
    return format_of(source, limit) in CAPTURES


def _module(name: str) -> Any:
    return import_module(f"cctrace.io.{FORMATS[name]}")


def _format_of(source: Source, format: str | None) -> str:
    if format is not None:
        check_choice("format", format, FORMATS)
    return format or sniff(source)


def _expand(source: Inputs) -> list[Input]:
    """Return the inputs that the argument `source` of `read_file` names."""
    if isinstance(source, (list, tuple)):
        check_argument(source, "source", source, "a path, or a list with at least one")
        return [one for item in source for one in _expand(item)]
    if isinstance(source, BinaryFile | Source | Member):
        return [source]
    if not isinstance(source, (str, os.PathLike)):
        kind = type(source).__name__
        raise ArgumentError(f"cannot read {kind!r}: give a path, a URL, an open binary file, or a list of these")
    path = os.fspath(source)
    check_argument(path, "source", path, "a path, a URL, an open binary file, or a list of these")
    if not glob.has_magic(path) or "://" in path or os.path.exists(path):
        return [path]
    found = sorted(glob.glob(path))
    if not found:
        raise FormatError(f"{path}: no file matches")
    return list(found)


def _packets(
    sources: Sequence[Input],
    chunk: int | None,
    format: str | None,
    decapsulate: str | Sequence[str],
    limit: int | None,
    lasting: int = 0,
    brief: bool = False,
) -> Iterator[Packets]:
    """Yield the packets of captures, joined in the order of time: all at once, or in parts of about `chunk` rows."""
    from cctrace.io.captures.frames import Decoder

    names = ["<stdin>" if one == "-" else getattr(one, "name", one) for one in sources]
    name = str(names[0]) if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    decoder = Decoder(name, decapsulate, chunk or 0, lasting, brief)
    survey = None if all(_is_rereadable(one) for one in sources) else _survey(name)
    taken = 0
    for source in sorted(sources, key=lambda one: _start_ns(one, format, limit)) if len(sources) > 1 else sources:
        with open_source(source, limit) as opened:
            for _ in _decoded(opened, format, decoder, survey):
                # Each part brings the table of all connections: no smaller than that, or reading takes quadratic time.
                if chunk and decoder.rows >= max(chunk, decoder.connections):
                    taken += decoder.rows
                    yield decoder.take()
        decoder.issue()
    if not taken and not decoder.rows:
        raise FormatError(
            "; ".join(filter(None, [decoder.why_empty(), _quic(sources, survey, format, decoder, limit)]))
        )
    if decoder.counters["non_tcp"] > taken + decoder.rows:
        decoder.add_note(_quic(sources, survey, format, decoder, limit))
    if decoder.rows:
        yield decoder.take()


def _decoded(source: Source, format: str | None, decoder: Decoder, survey: Survey | None) -> Iterator[None]:
    """Decode an open capture; yield now and then if more frames follow. `survey`, if any, gets the same frames."""
    from cctrace.lang.machine import INTERPRETED

    module = _capture_module(source, format)
    if hasattr(module, "decode") and not survey and not INTERPRETED:
        yield from module.decode(source, decoder)
        return
    for data, frames, count in module.frames_of(source, decoder):
        if count > 0:
            yield
        others = decoder.counters["non_tcp"]
        decoder.feed(data, frames, count)
        if survey and decoder.counters["non_tcp"] > others:
            survey.feed(data, frames, count)


def _is_rereadable(source: Input) -> bool:
    """Return whether a source can be read a second time, unlike standard input."""
    path = source.path if isinstance(source, Source) else source
    return isinstance(path, Member) or (
        isinstance(path, (str, os.PathLike)) and os.path.isfile(file_path(os.fspath(path)))
    )


def _survey(name: str) -> Survey:
    from cctrace.io.captures.quic import Survey

    return Survey(name)


def _quic(
    sources: Sequence[Input], survey: Survey | None, format: str | None, decoder: Decoder, limit: int | None
) -> str:
    """Return a line about the QUIC connections in captures that hold more than TCP, "" if there are none."""
    if not decoder.counters["non_tcp"]:
        return ""
    if survey:
        return survey.text()
    survey = _survey(decoder.name)
    for source in sources:
        with open_source(getattr(source, "path", None) or source, limit) as opened:
            for data, frames, count in frames_of(opened, format, survey):
                survey.feed(data, frames, count)
                if survey.is_full:
                    break
    return survey.text()


def frames_of(source: Source, format: str | None, decoder: Decoder, **kwargs: int) -> FrameIterator:
    """Return an iterator over (buffer, `Frames`, count) of an open capture; FormatError if it is none."""
    return _capture_module(source, format).frames_of(source, decoder, **kwargs)


def _capture_module(source: Source, format: str | None) -> Any:
    """Return the module that reads an open capture; FormatError if it is none."""
    name = _format_of(source, format)
    if name not in CAPTURES:
        raise FormatError(f"{source.name}: a capture is needed here, this is {name}")
    if not _module(name).sniff(source.head):
        raise FormatError(f"{source.name}: not a {name}: starts with bytes {source.head[:4].hex(' ')}")
    return _module(name)


def _start_ns(source: Input, format: str | None, limit: int | None) -> int:
    """Return the time of the first packet of a capture, 0 if it has none."""
    from cctrace.io.captures.frames import Decoder

    with open_source(source, limit) as opened:
        for _, frames, count in frames_of(opened, format, Decoder(""), chunk=1 << 16):
            if count:
                return frames.time_ns[0]
    return 0
