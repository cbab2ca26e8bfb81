"""Times as people and tools write them, as int64 nanoseconds since the epoch. Exact: no float on the way.

Understood: epoch numbers (s, ms, us or ns, by their size), ISO 8601, `date`'s default and its English variants, `ts`'s
"Jan 02 15:04:05", and a bare time of day. Without a zone, UTC is assumed; without a year 1970, without a day 1 January.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime

from cctrace.arguments import short_repr

_EPOCH = re.compile(r"(\d{9,19})(?:\.(\d+))?(?![\w:.-])")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?\s?(Z|UTC|GMT|[+-]\d\d:?\d\d)?(?!\w)")
_DATE = re.compile(
    r"(?:[A-Z][a-z]{2,8},? )?(?:(?P<d1>\d{1,2}) )?(?P<month>[A-Z][a-z]{2}) +(?:(?P<d2>\d{1,2}) +)?"
    r"(?:(?P<y1>\d{4}) +)?(?P<clock>\d\d?:\d\d:\d\d)(?:\.(?P<fraction>\d+))?(?: (?P<half>[AP]M))?"
    r"(?: (?P<zone>[A-Z]{2,5}|[+-]\d{2,4}))?(?: (?P<y2>\d{4}))?(?!\w)"
)
_BEFORE = " \t\r\n\f\v#=[(-"  # what stands before a time: brackets, comments, rules
_CLOCK = re.compile(r"(\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?(?![\w:])")
_LATEST_NS = 1 << 63  # what an int64 holds: the year 2262
_MONTHS = ("", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def fraction_ns(digits: str | None) -> int:
    """Return the nanoseconds of the digits after a decimal point of seconds."""
    return int((digits or "0")[:9].ljust(9, "0"))


def epoch_ns(text: str) -> int:
    """Return nanoseconds for an epoch number in s, ms, us or ns; its size shows which. ValueError if it is none.

    >>> epoch_ns("1700000000.5"), epoch_ns("1700000000500")
    (1700000000500000000, 1700000000500000000)
    """
    seconds, _, fraction = text.partition(".")
    for digits, unit in ((12, 10**9), (14, 10**6), (17, 10**3), (20, 1)):
        if len(seconds) < digits:
            return int(seconds) * unit + fraction_ns(fraction) * unit // 10**9
    raise ValueError(f"{short_repr(text)} is no epoch time")


def time_of_text(text: str) -> int:
    """Return nanoseconds for an epoch number or an ISO 8601 time; ValueError if it is neither."""
    return epoch_ns(text) if text.partition(".")[0].isdigit() else parse_iso(text)


def _calendar_ns(
    year: int | str,
    month: int | str,
    day: int | str,
    hour: int | str,
    minute: int | str,
    second: int | str,
    fraction: str | None = None,
    zone: str | None = None,
) -> int:
    shift = 0
    if zone and zone[0] in "+-":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        shift = (int(digits[:2]) * 60 + int(digits[2:])) * (60 if zone[0] == "+" else -60)
    leap = int(second) == 60
    moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second) - leap, tzinfo=UTC)
    return (int(moment.timestamp()) + leap - shift) * 10**9 + fraction_ns(fraction)


def leading_time(text: str) -> tuple[int | None, str]:
    """Return (time in ns, rest of the text) if `text` begins with a time, brackets allowed; else (None, text).

    >>> leading_time("2026-11-20T18:18:20.5Z ESTAB 0")
    (1795198700500000000, ' ESTAB 0')
    """
    start = len(text) - len(text.lstrip(_BEFORE))
    for pattern, parse in _FORMS:
        match = pattern.match(text, start)
        if match:
            try:
                ns = parse(match)
            except (ValueError, OverflowError):
                continue
            if not -_LATEST_NS < ns < _LATEST_NS:
                continue
            return ns, re.sub(r"^\s?[\])]", "", text[match.end() :])
    return None, text


def parse_iso(text: str) -> int:
    """Return nanoseconds of an ISO 8601 time; ValueError if it is none."""
    match = _ISO.match(text)
    if not match:
        raise ValueError(f"{short_repr(text)} is not an ISO 8601 time")
    return _parse_iso(match)


def _parse_iso(match: re.Match[str]) -> int:
    return _calendar_ns(*match.groups())


def _parse_date(match: re.Match[str]) -> int:
    hour, minute, second = match["clock"].split(":")
    if match["half"]:
        hour = int(hour) % 12 + 12 * (match["half"] == "PM")
    month, day = _MONTHS.index(match["month"]), match["d1"] or match["d2"]
    if not day:  # "Mar 18:08:10": truncated, or not a date at all
        raise ValueError(f"{short_repr(match[0])} names no day")
    return _calendar_ns(
        match["y1"] or match["y2"] or 1970, month, day, hour, minute, second, match["fraction"], match["zone"]
    )


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], int]], ...] = (
    (_EPOCH, lambda match: epoch_ns(match[0])),
    (_ISO, _parse_iso),
    (_DATE, _parse_date),
    (_CLOCK, lambda match: _calendar_ns(1970, 1, 1, *match.groups())),
)
