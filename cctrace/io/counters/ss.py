"""`ss -ti`: the text that iproute2 prints about TCP sockets, of all versions and layouts.

A sample is a time (a `# <ns>` line, a `date` line, a `ts` prefix on every line, a `watch` header ...) and sockets. A
socket is a line of state, queues and addresses, then words about it: on the same line (`-O`) or on indented ones. Where
`grep` kept only the words (`ss -ti | grep cwnd | ts`), a line belongs to the connection whose counters it can continue.

`ss` omits zeros. Whether an absent word means zero or "this ss is too old to print it" is decided per file: a word
introduced in release R counts as zero where absent if the file has any word of R or later.

Sources: [iproute2] misc/ss.c, tcp_stats_print and tcp_show_info, releases 4.1 to 6.8.
"""

import re
from collections.abc import Iterator
from typing import Any

from cctrace.arguments import short_repr
from cctrace.display import shortened
from cctrace.errors import FormatError
from cctrace.io.counters import tcpinfo
from cctrace.io.counters.clock import leading_time
from cctrace.io.counters.structs import PHASES
from cctrace.io.source import Source, reads

STATES = {
    "ESTAB": 1, "SYN-SENT": 2, "SYN-RECV": 3, "FIN-WAIT-1": 4, "FIN-WAIT-2": 5, "TIME-WAIT": 6, "UNCONN": 7,
    "CLOSE-WAIT": 8, "LAST-ACK": 9, "LISTEN": 10, "CLOSING": 11,
}  # fmt: skip

# Words by the release that introduced them, the value where they are omitted (None: missing) and unit (n number, ms
# milliseconds, rate); "word:column" where the column has another name. Columns are in us and bytes/s.
_BY_RELEASE = (
    (0, None, "ms", "rto ato rcv_rtt"),
    (0, None, "n", "mss:snd_mss cwnd:snd_cwnd ssthresh:snd_ssthresh fackets rcv_space"),
    (0, 0, "n", "unacked lost sacked backoff lastsnd:last_data_sent lastrcv:last_data_recv lastack:last_ack_recv"),
    (0, 3, "n", "reordering"),
    (402, 0, "n", "bytes_acked bytes_received segs_out segs_in"),
    (406, 0, "n", "notsent:notsent_bytes data_segs_out data_segs_in"),
    (406, None, "ms", "minrtt:min_rtt"),
    (410, 0, "rate", "delivery_rate:delivery_rate_Bps"),
    (410, 0, "ms", "busy:busy_time_us rwnd_limited:rwnd_limited_us sndbuf_limited:sndbuf_limited_us"),
    (415, None, "n", "pmtu rcvmss:rcv_mss advmss rcv_ssthresh"),
    (420, 0, "n", "delivered delivered_ce bytes_sent bytes_retrans dsack_dups reord_seen"),
    (518, 0, "n", "snd_wnd rcv_ooopack"),
    (606, 0, "n", "rcv_wnd rehash"),
)
_WORDS = {
    word.partition(":")[0]: (word.rpartition(":")[2], unit, release, absent)
    for release, absent, unit, words in _BY_RELEASE
    for word in words.split()
}
# Keys of a poll that are not words of ss; a word of that name is refused.
_ODD = "odd"  # words with unexpected values
_OWN = {_ODD, "key", "informed", "time_ns", "time_after_ns", "state", "recv_q", "send_q", "cc"}
# Known words that `_information` parses by themselves.
_PARSED = {"bbr", "skmem", "rtt", "retrans", "wscale", "send", "pacing_rate"}
_MAX_EXAMPLES = 3  # unexpected words listed in the warning
_FLAGS = {"ts", "sack", "ecn", "ecnseen", "fastopen", "usec_ts", "app_limited", "mptcp", "tcp-ulp-mptcp", "ao", "md5"}

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]")
_SOCKET = re.compile(
    r"\s*(?:(?:tcp|mptcp|tcp6)\s+)?(?:(?P<state>[A-Z][A-Z0-9-]+)\s+)?(?P<recv_q>\d+)\s+(?P<send_q>\d+)\s+"
    r"(?P<src>\S+):(?P<sport>[\w*-]+)\s+(?P<dst>\S+):(?P<dport>[\w*-]+)(?P<rest>\s.*|)$"
)
_KNOWN = re.compile(r"(?:^|\s)(wscale|rto|rtt|mss|cwnd|ssthresh|bytes_acked|segs_out):\d")
_INFO = re.compile(r"(?:^|\s)(?:rto|mss|cwnd|rtt|wscale):\d")
_WATCH = re.compile(r"Every [\d.]+s?: .*?((?:[A-Z][a-z]{2} ){1,2}.*)$")
_TOKEN = re.compile(
    r"(\w[\w-]*):\(((?:[^()]|\([^()]*\))*)\)|(send|pacing_rate|delivery_rate) (\S+bps)|([\w-]+):(\S+)|(\S+)"
)
_RATE = re.compile(r"([\d.]+)([kKMGT]?)bps")
_SCALE = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes looks like the output of ss."""
    text = head.decode("utf-8", "replace")
    if "Local Address:Port" in text or ("Recv-Q" in text and "Send-Q" in text):
        return True
    lines = [leading_time(_ANSI.sub("", line))[1] for line in text.splitlines()]
    if any(_SOCKET.match(line) or len(set(_KNOWN.findall(line))) >= 3 for line in lines):
        return True
    # A poller that starts before the connection writes only separators for a while.
    first = [line for line in text.splitlines()[:5] if line.strip()]
    return bool(first) and all(re.fullmatch(r"# ?\d{9,19}(\.\d+)?( \d{9,19}(\.\d+)?)?", line) for line in first)


@reads("ss output")
def read(source: Source) -> tcpinfo.TcpInfo:
    """Read `ss -ti` output into `TcpInfo`; one row per socket and sample that carries TCP information.

    Raises `FormatError`: no socket with TCP information (was ss run with -i?).
    """
    polls, odd = tcpinfo.Polls(), list[str]()
    without, latest_ns, nameless = 0, None, _Nameless()
    first: tuple[str, ...] = ()
    for poll in _polls(source):
        if not poll.pop("informed", False):
            without += 1
            continue
        odd += poll.pop(_ODD, ())
        time_ns, key = poll["time_ns"], poll.pop("key") or nameless.key(poll)
        if time_ns is not None:
            latest_ns = max(latest_ns or 0, time_ns)
        polls.add(poll, key, cc=poll.pop("cc", None))
        first = first or tuple(poll)
    name, warnings = source.name, source.cut_warning()
    if not polls:
        raise FormatError(f"{name}: {without} sockets, none with TCP information; was ss run with -t and -i?")
    if without:
        warnings.append(f"{name}: {without} sockets without TCP information skipped")
    if latest_ns is None:
        warnings.append(f"{name}: no time stamps; the samples are in order, but their times are missing")
    elif latest_ns < 366 * 86400 * 10**9:
        warnings.append(f"{name}: the time stamps have no year; counted from 1970-01-01")
    if odd:
        examples = ", ".join(dict.fromkeys(map(shortened, odd[:_MAX_EXAMPLES])))
        warnings.append(
            f"{name}: {len(odd)} words are not as ss prints them ({examples}); kept as text in the columns text_…"
        )
    omitted = _omitted(polls.rows)
    polls.rows.replace_missing(omitted)
    if nameless.latest:
        warnings.append(f"{name}: lines without addresses; connections are distinguished by their counters")
    table = [_named(known) for known in polls.table]
    columns = polls.rows.arrays()
    ordered = dict.fromkeys((*first, *omitted, *columns))  # as in the first poll, had it printed its zeros
    return tcpinfo.build({column: columns[column] for column in ordered}, table, name, "ss", warnings)


def _polls(source: Source) -> Iterator[dict[Any, Any]]:
    """Yield a dict per socket, with "informed" where its line of information followed."""
    before = after = current = None
    for raw in source.lines():
        line = _ANSI.sub("", raw)
        watch = _WATCH.match(line)
        time_ns, rest = leading_time(watch[1] if watch else line)
        if time_ns is not None:
            before, after = time_ns, time_ns
            second, rest_of_pair = leading_time(rest) if line.lstrip().startswith("#") else (None, rest)
            if second is not None:
                after, rest = second, rest_of_pair
        match = None if watch else _SOCKET.match(rest)
        if match:
            if current is not None:
                yield current
            current = _socket(match, before, after)
            rest = match["rest"]
        if not _INFO.search(rest):
            continue
        if current is None or current["key"] is None:  # no line with addresses so far
            if current is not None:
                yield current
            current = {"time_ns": before, "time_after_ns": after, "key": None}
        _information(rest, current)
        current["informed"] = True
    if current is not None:
        yield current


_GROWING = ("bytes_acked", "bytes_received", "bytes_sent", "segs_out", "segs_in", "data_segs_out", "total_retrans")
_LASTING = ("cc", "snd_mss", "snd_wscale", "rcv_wscale", "advmss")


class _Nameless:
    """Polls without addresses, assigned to connections: counters grow, and each has one poll per sample."""

    def __init__(self) -> None:
        self.latest: dict[int, dict[str, Any]] = {}  # poll of each connection
        self._taken: set[int] = set()
        self._sample: int | None = None

    def key(self, poll: dict[Any, Any]) -> tuple[None, int, None, None]:
        """Return the key of the connection that a poll is of."""
        if poll["time_ns"] is None or poll["time_ns"] != self._sample:
            self._sample, self._taken = poll["time_ns"], set()
        able = [n for n, last in self.latest.items() if n not in self._taken and _continues(last, poll)]
        number = max(able, key=lambda n: self.latest[n].get("bytes_acked", 0), default=len(self.latest))
        self.latest[number] = dict(poll)
        self._taken.add(number)
        return None, number, None, None


def _named(known: dict[str, Any]) -> dict[str, Any]:
    """Return what identifies a connection: its addresses, or the number that `_Nameless` gave it."""
    if known["src"] is not None:
        return known
    return {"flow_id": known["sport"]} | ({"cc": known["cc"]} if "cc" in known else {})


def _continues(last: dict[str, Any], poll: dict[str, Any]) -> bool:
    """Return whether a poll may be a later one of the same connection."""
    same = all(last.get(name) == poll.get(name) for name in _LASTING)
    return same and all(last.get(name, 0) <= poll.get(name, 0) for name in _GROWING)


def _socket(match: re.Match[str], before: int | None, after: int | None) -> dict[Any, Any]:
    return {
        "time_ns": before,
        "time_after_ns": after,
        "state": STATES.get(match["state"]),
        "recv_q": int(match["recv_q"]),
        "send_q": int(match["send_q"]),
        "key": (
            tcpinfo.plain_address(match["src"]),
            _port(match["sport"]),
            tcpinfo.plain_address(match["dst"]),
            _port(match["dport"]),
        ),
    }


def _port(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _information(text: str, poll: dict[str, Any]) -> None:
    """Add the words of an information line to a poll."""
    for group, inner, rate, value, key, word, bare in _TOKEN.findall(text):
        try:
            if group == "bbr":
                _bbr(inner, poll)
            elif group == "skmem":
                poll.update({f"skmem_{k}": int(v) for k, v in re.findall(r"\b([a-z]+)(\d+)", inner)})
            elif rate:
                _take_rate(rate, value, poll)
            elif key:
                _take_word(key, word, poll)
            elif bare in _FLAGS:
                poll["delivery_rate_app_limited" if bare == "app_limited" else f"flag_{bare}"] = 1
            elif bare and "cc" not in poll and re.fullmatch(r"[a-z][a-z0-9_]*", bare):
                poll["cc"] = bare
        except (ValueError, OverflowError):  # an unexpected value
            name, text_value = group or rate or key, inner or value or word
            poll[f"text_{name}"] = text_value
            if name in _WORDS or name in _PARSED or name in _OWN:
                poll.setdefault(_ODD, []).append(f"{name}:{text_value}")


def _take_rate(word: str, value: str, poll: dict[str, Any]) -> None:
    first, _, limit = value.partition("/")
    if word == "send":
        poll["send_Bps"] = bytes_per_second(first)
        return
    poll[f"{word}_Bps"] = bytes_per_second(first if first.endswith("bps") else first + "bps")
    if limit:
        poll["max_pacing_rate"] = bytes_per_second(limit)


def _take_word(key: str, word: str, poll: dict[str, Any]) -> None:
    if key == "rtt":
        poll["rtt"], poll["rttvar"] = (_micros(part) for part in word.split("/"))
    elif key == "retrans":
        now, _, total = word.partition("/")
        poll["retrans"], poll["total_retrans"] = int(now), int(total)
    elif key == "wscale":
        poll["snd_wscale"], poll["rcv_wscale"] = (int(part) for part in word.split(","))
    elif key in _WORDS:
        column, unit, _, _ = _WORDS[key]
        poll[column] = int(word) if unit == "n" else _micros(word) if unit == "ms" else bytes_per_second(word)
    elif key in ("sk", "cgroup"):
        poll[key] = word
    elif key in _OWN:
        raise ValueError(f"{key} is not a word of ss")
    else:
        poll[key] = int(word)


def _bbr(inner: str, poll: dict[str, Any]) -> None:
    """Parse `bbr:(...)`; a patched ss prints more into it for versions 2 and 3."""
    for part in inner.split(","):
        key, _, word = part.partition(":")
        if word.endswith("bps"):
            poll[f"bbr_{key}_Bps"] = _bounded(bytes_per_second(word))
        elif key == "mrtt":
            poll["bbr_min_rtt_us"] = _micros(word)
        elif key.endswith("_gain"):
            poll[f"bbr_{key}"] = round(float(word) * 256)
        elif key == "phase":
            poll["bbr_phase"] = PHASES.index(word) if word in PHASES else None
        elif key:
            poll[f"bbr_{key}"] = _bounded(int(word))


def _bounded(value: int) -> int | None:
    """Return a value of BBR's; None for the largest of its type (as printf shows it), which means no bound."""
    return value if 0 <= value < 1 << 63 else None


def bytes_per_second(text: str) -> int:
    """Return bytes per second for a rate as ss prints it, "1.05Mbps"; ValueError if it is not one.

    >>> bytes_per_second("11074.0Mbps"), bytes_per_second("8bps")
    (1384250000, 1)
    """
    match = _RATE.fullmatch(text)
    if not match:
        raise ValueError(f"{short_repr(text)} is no rate")
    return round(float(match[1]) * _SCALE[match[2]] / 8)


def _micros(text: str) -> int:
    """Return microseconds for milliseconds as ss prints them: "40.2", "132ms", "72ms(0.1%)"."""
    return round(float(text.partition("(")[0].removesuffix("ms")) * 1000)


def _omitted(polls: tcpinfo.PollColumns) -> dict[str, int]:
    """Return the value that an absent word means, by column, where this file's ss prints that word."""
    release = max((release for column, _, release, _ in _WORDS.values() if column in polls), default=0)
    absent = {column: value for column, _, since, value in _WORDS.values() if value is not None and since <= release}
    absent |= {"retrans": 0, "total_retrans": 0}
    if release >= 410:
        absent["delivery_rate_app_limited"] = 0
    return absent
