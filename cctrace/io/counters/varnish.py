"""Varnish's log with tcp_info of the client's socket per request, as `tcp.dump_info()` of vmod tcp writes it.

A record is a tag and its text, by transaction (`varnishlog`) or each with the number of its transaction (`-g raw`). The
time of a poll is the transaction's latest `Timestamp`; `ReqStart` names the client, `SessOpen` (`-g session`)
the server's end too. One poll is `tcpi:`, `tcpi2:` and the name of the congestion control.

Source: vmod_tcp(3), vsl(7), varnishlog(1).
"""

import re
from dataclasses import dataclass

from cctrace.errors import FormatError
from cctrace.io.counters import tcpinfo
from cctrace.io.counters.clock import epoch_ns
from cctrace.io.source import Source, reads

_HEAD = re.compile(r"(\*+)\s+<<\s*\w+\s*>>\s+\d+")
_RECORD = re.compile(r"(?:-+|\s*(\d+))\s+(\w+)\s+(?:[cb]\s+)?(.*)")
_DUMP = re.compile(r"tcpi2?: (.*)")
_FIGURE = re.compile(r"\b(\w+)=(\d+)")  # of a long word each start but the first is passed over
Endpoint = tuple[str | None, int | None]
_CONTROL = "getsockopt() returned: "


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is Varnish's log."""
    text = head.decode("utf-8", "replace")
    return bool(_HEAD.match(text.lstrip()) or re.search(r"^ *\d+ (SessOpen|Begin) +[cb] ", text, re.MULTILINE))


@dataclass
class _Transaction:
    """The time, addresses and latest poll of a transaction."""

    server: Endpoint = (None, None)
    client: Endpoint = (None, None)
    time_ns: int | None = None
    poll: tcpinfo.Poll | None = None


@reads("Varnish's log")
def read(source: Source) -> tcpinfo.TcpInfo:
    """Read the log of `varnishlog` into `TcpInfo`, one row per `tcp.dump_info()`.

    Raises `FormatError`: no output of `tcp.dump_info()`, or no `Timestamp` before it.
    """
    reader, name = _Reader(), source.name
    for line in source.lines():
        reader.take(line)
    if not reader.polls and reader.timeless:
        raise FormatError(
            f"{name}: no Timestamp in this log of Varnish; varnishlog -g request, without -i, writes them"
        )
    if not reader.polls:
        raise FormatError(f"{name}: no tcp_info in this log of Varnish; tcp.dump_info() in sub vcl_deliver writes it")
    warnings = [f"{name}: {reader.timeless} polls have no Timestamp; skipped"] if reader.timeless else []
    warnings += source.cut_warning()
    return tcpinfo.build(
        tcpinfo.PollColumns(reader.polls).arrays(), reader.connections.table, name, "varnishlog", warnings
    )


class _Reader:
    def __init__(self) -> None:
        self.polls: list[tcpinfo.Poll] = []
        self.connections, self.timeless = tcpinfo.Connections(), 0
        self._grouped = _Transaction()
        self._raw: dict[str, _Transaction] = {}

    def take(self, line: str) -> None:
        """Parse one line."""
        if head := _HEAD.match(line):
            # A nested transaction belongs to the session above it.
            self._grouped = _Transaction(self._grouped.server if len(head[1]) > 1 else (None, None))
            return
        if not (record := _RECORD.match(line)):
            return
        number, tag, text = record.groups()
        transaction = self._raw.setdefault(number, _Transaction()) if number else self._grouped
        words = text.split()
        if tag == "Timestamp" and len(words) > 1:
            if words[1].partition(".")[0].isdigit():
                transaction.time_ns = epoch_ns(words[1])
        elif tag == "ReqStart" and len(words) > 1 and words[1].isdigit():
            transaction.client = tcpinfo.plain_address(words[0]), int(words[1])
        elif tag == "SessOpen" and len(words) > 4 and words[4].isdigit():
            transaction.server = tcpinfo.plain_address(words[3]), int(words[4])
        elif tag == "VCL_Log":
            self._log(transaction, text)
        elif tag == "End" and number:
            del self._raw[number]

    def _log(self, transaction: _Transaction, text: str) -> None:
        if text.startswith(_CONTROL) and transaction.poll is not None:
            control = text[len(_CONTROL) :].strip()
            self.connections.number(self._key(transaction), cc=control)
        elif dump := _DUMP.match(text):
            figures = {name: int(value) for name, value in _FIGURE.findall(dump[1])}
            if text.startswith("tcpi2") and transaction.poll is not None:
                transaction.poll |= figures
            elif transaction.time_ns is None:
                self.timeless += 1
            else:
                number = self.connections.number(self._key(transaction))
                transaction.poll = {"time_ns": transaction.time_ns, tcpinfo.CONNECTION: number} | figures
                self.polls.append(transaction.poll)

    @staticmethod
    def _key(transaction: _Transaction) -> tuple[str | None, int | None, str | None, int | None]:
        return (*transaction.server, *transaction.client)
