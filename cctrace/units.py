"""Quantities as people write them ("40Mbit", "5ms", "2bdp", "1%") to numbers, and numbers to text.

Inside cctrace a quantity is a plain number with its unit in its name (`rate_bps`, `rtt_us`); strings are parsed here,
at the boundary. A string must have a unit: "40" is refused, because it may mean milliseconds or seconds. What is
refused raises an `ArgumentError`.

Rates are bits per second for `bit`, `bit/s`, `bps` ("40Mbit", "40 Mbit/s", "40Mbps") and bytes for `B/s`, `Bps`: a
small `b` is a bit and a capital `B` a byte, as in iperf3 and `ss`. (`tc` alone reads "mbps" as megabytes.)
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from cctrace.arguments import short_repr
from cctrace.errors import ArgumentError

_NUMBER = r"\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)\s*"
_PREFIX = {"": 1, "k": 10**3, "K": 10**3, "m": 10**6, "M": 10**6, "g": 10**9, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_RATE = re.compile(_NUMBER + r"([kKmMgGT]?)(bit/s|bit|bps|b/s|B/s|Bps)\s*")
_TIME = re.compile(_NUMBER + r"(ns|us|µs|ms|s|min|h)\s*")
_TIME_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_SIZE = re.compile(_NUMBER + r"([kKmMgGT]|[KMG]i|)(B|bytes?)\s*")
_BDP = re.compile(_NUMBER + r"(?:bdp|BDP)\s*")
LONGEST_NS = 10**17  # three years: a longer duration is a mistake, and sums of such still fit 64 bits
MAX_BYTES = 10**15
_SHARE = re.compile(_NUMBER + r"(%|)\s*")
_FACTOR = re.compile(r"\s*[x\u00d7]" + _NUMBER)
_TURNED = re.compile(_NUMBER + r"[x\u00d7]\s*")


def parse_rate_bps(text: object, name: str | None = None) -> float:
    """Return a rate in bits per second.

    Parameters
    ----------
    text, name : str
        The rate with its unit, and what the `ArgumentError` calls it if it is not one.

    Examples
    --------
    >>> parse_rate_bps("40Mbit"), parse_rate_bps("1.5 Gbit/s"), parse_rate_bps("5MB/s")
    (40000000.0, 1500000000.0, 40000000.0)
    """
    number, prefix, unit = _match(_RATE, text, name, "a rate", "40Mbit, 1.5Gbit/s, 5MB/s")
    return number * _PREFIX[prefix] * (8 if unit.startswith("B") else 1)


def parse_time_ns(text: object, name: str | None = None) -> int:
    """Return a duration in whole nanoseconds.

    Parameters
    ----------
    text, name : str
        The duration with its unit, and what the `ArgumentError` calls it if it is not one, or longer than three years.

    Examples
    --------
    >>> parse_time_ns("40ms"), parse_time_ns("1.5 s"), parse_time_ns("250us")
    (40000000, 1500000000, 250000)
    """
    number, unit = _match(_TIME, text, name, "a duration", "40ms, 250us, 1.5s, 2min")
    if number * _TIME_NS[unit] > LONGEST_NS:
        raise ArgumentError(f"{_called(text, name)} is longer than three years")
    return round(number * _TIME_NS[unit])


def parse_size_bytes(text: object, bdp_bytes: float | None = None, name: str | None = None) -> int:
    """Return a size in whole bytes.

    Parameters
    ----------
    text, name : str
        The size with its unit, and what the `ArgumentError` calls it if it is not one, or more than a petabyte.
    bdp_bytes : float, optional
        The bandwidth-delay product; if it is given, `text` may be a multiple of it ("2bdp").

    Examples
    --------
    >>> parse_size_bytes("200kB"), parse_size_bytes("64KiB"), parse_size_bytes("2bdp", bdp_bytes=200_000)
    (200000, 65536, 400000)
    """
    if bdp_bytes is not None and (found := _BDP.fullmatch(str(text))):
        return _checked_size(text, name, float(found[1]) * bdp_bytes)
    examples = "200kB, 64KiB" if bdp_bytes is None else "200kB, 64KiB, 2bdp"
    number, prefix, _ = _match(_SIZE, text, name, "a size", examples)
    return _checked_size(text, name, number * (_BINARY.get(prefix) or _PREFIX[prefix]))


def _checked_size(text: object, name: str | None, size_bytes: float) -> int:
    if size_bytes > MAX_BYTES:
        raise ArgumentError(f"{_called(text, name)} is more than a petabyte")
    return round(size_bytes)


def parse_share(text: object, name: str | None = None) -> float:
    """Return a share between 0 and 1.

    Parameters
    ----------
    text, name : str
        A percentage, or a number from 0 to 1; and what the `ArgumentError` calls it if it is neither.

    Examples
    --------
    >>> parse_share("1%"), parse_share("0.01"), parse_share(0.25)
    (0.01, 0.01, 0.25)
    """
    number, percent = _match(_SHARE, text, name, "a share", "1%, 0.01")
    share = number / 100 if percent else number
    if share > 1:
        raise ArgumentError(f"{_called(text, name)} is not a share: it must lie between 0 and 1 (0% and 100%)")
    return share


def parse_factor(text: object, name: str | None = None) -> float | None:
    """Return the factor that ``"x2"`` stands for; None for any other text.

    Parameters
    ----------
    text, name : str
        The text, and what the `ArgumentError` calls it if it is a factor written the other way round, ``"2x"``.

    Examples
    --------
    >>> parse_factor("x0.5"), parse_factor("200kB")
    (0.5, None)
    """
    if turned := _TURNED.fullmatch(str(text)):
        raise ArgumentError(f"{_called(text, name)}: write a factor as 'x{turned[1]}'")
    found = _FACTOR.fullmatch(str(text))
    return float(found[1]) if found else None


def _match(pattern: re.Pattern[str], text: object, name: str | None, what: str, examples: str) -> tuple[Any, ...]:
    """Return the groups of `pattern`, the first as a float."""
    found = pattern.fullmatch(str(text))
    if not found and pattern.fullmatch(str(text).lstrip().removeprefix("-")):
        raise ArgumentError(f"{_called(text, name)} is negative; {what} is 0 or more, for example {examples}")
    if not found or not math.isfinite(number := float(found[1])):
        raise ArgumentError(f"{_called(text, name)} is not {what}; write it with its unit, for example {examples}")
    return number, *found.groups()[1:]


def _called(text: object, name: str | None) -> str:
    """Return how an error names an argument and its value."""
    return short_repr(text) if name is None else f"{name}={short_repr(text)}"


def format_number(value: float, digits: int = 3) -> str:
    """Return a number as people write it: with this many significant digits, thousands separators, and no exponent.

    Parameters
    ----------
    value : float
    digits : int

    Examples
    --------
    >>> format_number(14_321.0, 2), format_number(0.2345), format_number(0.00000358), format_number(0)
    ('14,000', '0.234', '0.00000358', '0')
    """
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    rounded = float(f"{value:.{digits}g}")
    if abs(rounded) >= 10 ** (digits - 1):
        return f"{rounded:,.0f}"
    decimals = digits - 1 - math.floor(math.log10(abs(rounded))) if rounded else 0
    text = f"{rounded:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_count(count: int) -> str:
    """Return a whole number with thousands separators.

    >>> format_count(12_600)
    '12,600'
    """
    return f"{count:,}"


def format_counted(count: int, one: str, several: str) -> str:
    """Return a count with the words that follow it, in the singular or the plural.

    Parameters
    ----------
    count : int
    one, several : str
        The words that follow 1, and any other count.

    Examples
    --------
    >>> format_counted(1, "packet was lost", "packets were lost"), format_counted(1200, "byte", "bytes")
    ('1 packet was lost', '1,200 bytes')
    """
    return f"{format_count(count)} {one if count == 1 else several}"


def format_rate(bps: float) -> str:
    """Return a rate in bits per second as text with three digits.

    >>> format_rate(38_137_000), format_rate(0)
    ('38.1 Mbit/s', '0 bit/s')
    """
    return _scaled(bps, (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1)), "bit/s")


def format_time(ns: float) -> str:
    """Return a duration in nanoseconds as text with three digits; less than 0.1 ns is 0.

    >>> format_time(40_237_000), format_time(1_500_000_000), format_time(19_966_000_000), format_time(0)
    ('40.2 ms', '1.5 s', '20 s', '0 s')
    """
    return "0 s" if abs(ns) < 0.1 else _scaled(ns, (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1)), "")


def format_rtt(rtt_us: float | None) -> str:
    """Return a recorded RTT in whole microseconds, as text; of 0, what it means: both packets have one time stamp.

    >>> format_rtt(40_237), format_rtt(0), format_rtt(None)
    ('40.2 ms', "below the clock's step", 'unknown')
    """
    if rtt_us is None or math.isnan(rtt_us):
        return "unknown"
    return format_time(rtt_us * 1000) if rtt_us else "below the clock's step"


def format_size(size_bytes: float) -> str:
    """Return a number of bytes as text with three digits, decimal prefixes.

    >>> format_size(96_164_689), format_size(512)
    ('96.2 MB', '512 B')
    """
    return _scaled(size_bytes, (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1)), "B")


def format_share(share: float) -> str:
    """Return a share as a percentage with three digits; below 0.001 %, it says so.

    >>> format_share(0.00954), format_share(1.0), format_share(3.58e-7), format_share(0.0)
    ('0.954 %', '100 %', 'less than 0.001 %', '0 %')
    """
    if math.isnan(share):
        return "unknown"
    return "less than 0.001 %" if 0 < share < 1e-5 else f"{format_number(100 * share)} %"


def format_percent(share: float, decimals: int = 0) -> str:
    """Return a share as a percentage of fixed decimals, for counts of few and for columns of a table.

    Parameters
    ----------
    share : float
        Of 1.
    decimals : int, optional

    Examples
    --------
    >>> format_percent(0.954), format_percent(0.00954, 2)
    ('95 %', '0.95 %')
    """
    return f"{100 * share:.{decimals}f} %"


def _scaled(value: float, steps: Sequence[tuple[str, float]], unit: str) -> str:
    if math.isnan(value):
        return "unknown"
    # Compare the rounded value, so that 999.9 k becomes 1 M and not 1,000 k (below .999 rounding cannot reach it).
    size = abs(value)
    name, factor = next(((n, f) for n, f in steps if size / f >= 0.999 and float(f"{size / f:.3g}") >= 1), steps[-1])
    digits = f"{value / factor:.3g}"
    return f"{format_number(value / factor) if 'e' in digits else digits} {name}{unit}"
