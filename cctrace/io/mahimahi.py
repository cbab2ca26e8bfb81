"""Mahimahi: packet-delivery traces and the logs of mm-link.

Trace: one integer per line, the millisecond of an opportunity to deliver 1500 bytes; a repeated line is another
opportunity; the trace starts over after its last millisecond. Log: comments, then `t + bytes` (arrival), `t - bytes
delay` (departure), `t # bytes` (opportunity) and `t d packets bytes` (drop), t in ms of `# base timestamp`'s clock.

Source: [mahimahi] src/frontend/link_queue.cc.
"""

import re

import numpy as np

from cctrace.errors import FormatError
from cctrace.io.linktrace import LinkTrace
from cctrace.io.source import Source, reads

OPPORTUNITY_BYTES = 1500
_EVENT = re.compile(rb"(\d{1,15}) (?:([+#]) (\d{1,15})|(-) (\d{1,15}) (\d{1,15})|(d) (\d{1,15}) (\d{1,15}))\s*$")


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is a Mahimahi trace or log."""
    lines = [line.strip() for line in head.split(b"\n")[:20]]
    body = [line for line in lines[: -1 if len(lines) > 1 else None] if line and not line.startswith(b"#")]
    if b"mahimahi" in head[:200] or b"# base timestamp:" in head:
        return True
    return bool(body) and (all(re.fullmatch(rb"\d{1,12}", x) for x in body) or all(_EVENT.fullmatch(x) for x in body))


@reads("a Mahimahi file")
def read(source: Source) -> LinkTrace:
    """Read a trace or a log into a `LinkTrace`.

    Raises `FormatError`: a line that belongs to neither format, times that go backwards in a trace, or an empty file;
    names the line.
    """
    lines = [line.strip() for line in source.lines()]
    name, warnings = source.name, source.cut_warning()
    body = [(number, line) for number, line in enumerate(lines, 1) if line and not line.startswith("#")]
    if not body:
        raise FormatError(f"{name}: no opportunities and no events in this Mahimahi file")
    if " " in body[0][1]:
        return _read_log(body, lines, name, warnings)
    try:
        times = np.array([int(line) for _, line in body], np.int64)
    except (ValueError, OverflowError):
        number, line = next((n, x) for n, x in body if not re.fullmatch(r"\d{1,12}", x))
        raise FormatError(f"{name}: line {number}: {line[:40]!r} is not a millisecond") from None
    steps = np.flatnonzero(np.diff(times) < 0)
    if len(steps):
        raise FormatError(f"{name}: line {body[steps[0] + 1][0]}: time goes backwards, to {times[steps[0] + 1]} ms")
    if times[-1] == 0:
        raise FormatError(f"{name}: all opportunities are at 0 ms: the trace has no length")
    capacity = (times * 10**6, np.full(len(times), float(OPPORTUNITY_BYTES)))
    return LinkTrace({"time_ms": times}, capacity, times[-1] * 10**6, name, "mahimahi", warnings)


def _read_log(body: list[tuple[int, str]], lines: list[str], name: str, warnings: list[str]) -> LinkTrace:
    base = next((int(m[1]) for line in lines if (m := re.match(r"# base timestamp: (\d+)", line))), 0)
    rows, odd = [], 0
    for _, line in body:
        match = _EVENT.fullmatch(line.encode())
        if not match:
            odd += 1
            continue
        time, other, other_bytes, _, out_bytes, delay, _, packets, lost_bytes = match.groups()
        kind = other or (b"-" if out_bytes else b"d")
        rows.append((int(time), kind.decode(), int(other_bytes or out_bytes or lost_bytes), delay, int(packets or 1)))
    if not rows:
        raise FormatError(f"{name}: line {body[0][0]}: {body[0][1][:40]!r} is neither an opportunity nor an event")
    if odd:
        warnings.append(f"{name}: {odd} lines are not events of mm-link; skipped")
    time, kind, size, delay, packets = zip(*rows, strict=True)
    columns = {
        "time_ms": np.array(time, np.int64) - base,
        "kind": np.array(kind, object),
        "bytes": np.array(size, np.int64),
        "delay_ms": np.array([np.nan if d is None else int(d) for d in delay]),
        "packets": np.array(packets, np.int64),
    }
    chances = columns["kind"] == "#"
    if not chances.any():
        chances = columns["kind"] == "-"
    start = columns["time_ms"].min()
    at = (columns["time_ms"][chances] - start) * 10**6
    end_ns = (columns["time_ms"].max() - start) * 10**6
    return LinkTrace(columns, (at, columns["bytes"][chances].astype(float)), end_ns, name, "mahimahi-log", warnings)
