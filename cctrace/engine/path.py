"""The modelled path of a simulation: a bottleneck with a queue, delay, jitter and loss.

Rates are wire rates: a segment of 1448 bytes occupies 1514 bytes (QUIC: 1252 and 1294). The queue lies before the
forward delay; a bandwidth-delay product (``"2bdp"``) is the first rate times the base RTT.
"""

from dataclasses import dataclass, field

import numpy as np

from cctrace.engine.sim.layout import EMPIRICAL, GAMMA, LOGNORMAL, NO_JITTER, NORMAL, PER_BURST, PER_PACKET, PER_SLOT
from cctrace.errors import ArgumentError, FormatError
from cctrace.units import parse_rate_bps, parse_share, parse_size_bytes, parse_time_ns

MAHIMAHI_BYTES = 1500  # of one delivery opportunity
_KINDS = {"normal": NORMAL, "gamma": GAMMA, "lognormal": LOGNORMAL, "empirical": EMPIRICAL}


def _time_ns(name, value):
    if isinstance(value, str):
        return parse_time_ns(value)
    raise ArgumentError(f"{name}={value!r}: write it with its unit, for example '40ms'")


@dataclass(frozen=True)
class Jitter:
    """Random delay beyond the bottleneck, drawn per packet, per burst or per time slot.

    Parameters
    ----------
    kind : {"normal", "gamma", "lognormal", "empirical"}
        Normal jitter has mean zero and the path's delay never falls below zero (it is drawn again); the others add to
        the base delay.
    sd : str, optional
        Standard deviation, for example ``"2ms"``.
    mean : str, optional
        Mean of a gamma or lognormal jitter.
    samples_ns : array_like, optional
        Delays to draw from, ns (empirical).
    per : str
        ``"packet"``, ``"burst"`` or ``"slot:5ms"``.
    rho : float
        Correlation of successive normal (or log-normal) draws, 0 to less than 1.
    reorder : bool
        Whether packets overtake each other, as with netem; by default a packet waits behind its predecessor.

    Examples
    --------
    >>> Jitter("normal", sd="2ms", per="slot:5ms").text()
    'normal:sd=2ms,per=slot:5ms'
    """

    kind: str
    sd: str | None = None
    mean: str | None = None
    samples_ns: object = None
    per: str = "packet"
    rho: float = 0.0
    reorder: bool = False

    def __post_init__(self):
        if self.kind not in _KINDS:
            raise ArgumentError(f"jitter kind {self.kind!r}: use {', '.join(_KINDS)}")
        if self.kind == "empirical":
            if self.samples_ns is None or len(self.samples_ns) == 0:
                raise ArgumentError("empirical jitter needs samples_ns, delays in nanoseconds")
            return
        if self.sd is None or _time_ns("sd", self.sd) < 0:
            raise ArgumentError(f"{self.kind} jitter needs sd, for example sd='2ms'")
        if self.kind != "normal" and (self.mean is None or _time_ns("mean", self.mean) <= 0):
            raise ArgumentError(f"{self.kind} jitter needs a positive mean, for example mean='10ms'")
        if not 0.0 <= self.rho < 1.0 or (self.rho > 0 and self.kind == "gamma"):
            raise ArgumentError(f"rho={self.rho!r}: 0 <= rho < 1, for normal and lognormal jitter")
        self.grouping()

    @classmethod
    def parse(cls, text):
        """Read ``normal:sd=10ms,per=packet|burst|slot:5ms[,rho=0.9][,reorder]``."""
        kind, _, rest = text.partition(":")
        given = {}
        for part in filter(None, rest.split(",")):
            name, _, value = part.partition("=")
            if name not in ("sd", "mean", "per", "rho", "reorder"):
                raise ArgumentError(f"jitter {text!r}: unknown {name!r} (use sd, mean, per, rho, reorder)")
            given[name] = True if name == "reorder" else value
        if "rho" in given:
            given["rho"] = float(given["rho"])
        return cls(kind, **given)

    def text(self):
        """Return the jitter as `parse` reads it."""
        parts = [f"{n}={v}" for n, v in (("sd", self.sd), ("mean", self.mean), ("per", self.per)) if v is not None]
        return f"{self.kind}:" + ",".join(parts + (["reorder"] if self.reorder else []))

    def grouping(self):
        """Return (PER_PACKET, PER_BURST or PER_SLOT, slot in ns)."""
        if self.per == "packet":
            return PER_PACKET, 0
        if self.per == "burst":
            return PER_BURST, 0
        if self.per.startswith("slot:") and (slot := parse_time_ns(self.per[5:])) > 0:
            return PER_SLOT, slot
        raise ArgumentError(f"jitter per={self.per!r}: use packet, burst or slot:TIME, for example slot:5ms")

    def fields(self, forward_ns):
        """Return the WORLD fields of this jitter on a path of the given forward delay."""
        per, slot = self.grouping()
        given = {"jitter_kind": _KINDS[self.kind], "jitter_per": per, "jitter_slot_ns": slot, "jitter_rho": self.rho}
        if self.kind == "empirical":
            samples = np.ascontiguousarray(self.samples_ns, dtype=np.float64)
            return given | {"jitter_table": samples, "jitter_samples": len(samples)}
        sd = parse_time_ns(self.sd)
        if self.kind == "normal":
            return given | {"jitter_a": 0.0, "jitter_b": float(sd), "jitter_floor": -float(forward_ns)}
        mean = parse_time_ns(self.mean)
        if self.kind == "gamma":
            return given | {"jitter_a": (mean / sd) ** 2, "jitter_b": sd * sd / mean, "jitter_floor": 0.0}
        variance = np.log1p((sd / mean) ** 2)
        return given | {"jitter_a": np.log(mean) - variance / 2, "jitter_b": np.sqrt(variance), "jitter_floor": 0.0}

    def span_ns(self):
        """Return a delay that the jitter practically never exceeds."""
        if self.kind == "empirical":
            return int(np.max(self.samples_ns))
        return (parse_time_ns(self.mean) if self.mean else 0) + 8 * parse_time_ns(self.sd)


@dataclass(frozen=True)
class Path:
    """A bottleneck and what surrounds it.

    Parameters
    ----------
    rate : str or sequence of (seconds, str)
        Bottleneck rate, constant or in steps: ``"40Mbit"``, ``[(0, "40Mbit"), (10, "10Mbit")]``.
    rtt : str
        Base round-trip time without queueing and serialisation.
    buffer : str
        Queue in bytes or BDPs of the first rate: ``"200kB"``, ``"2bdp"``.
    jitter : Jitter or str, optional
    loss : str, optional
        Random loss of data packets before the queue, ``"1%"``.
    burst_loss : (float, float), optional
        Gilbert-Elliott: probability of entering and of leaving the state in which `loss` applies.
    ack_loss : str, optional
        Random loss of ACKs.
    reverse : str
        The part of `rtt` that the ACKs take.
    aqm : {"droptail", "codel"}
    policer : (str, str), optional
        Rate and burst of a policer before the queue: ``("10Mbit", "100kB")``.
    trace_ms : array_like, optional
        A Mahimahi trace: ms of each 1500-byte delivery opportunity, repeated for ever; replaces `rate`.

    Raises
    ------
    ArgumentError
        If a quantity is not positive or lacks its unit.

    Examples
    --------
    >>> Path(rate="40Mbit", rtt="40ms", buffer="2bdp").buffer_bytes
    400000
    """

    rate: object = None
    rtt: str = "40ms"
    buffer: str = "1bdp"
    jitter: object = None
    loss: str = "0%"
    burst_loss: tuple | None = None
    ack_loss: str = "0%"
    reverse: str = "0ms"
    aqm: str = "droptail"
    policer: tuple | None = None
    trace_ms: object = None
    _steps: tuple = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        if isinstance(self.jitter, str):
            object.__setattr__(self, "jitter", Jitter.parse(self.jitter) if self.jitter != "none" else None)
        if (self.rate is None) == (self.trace_ms is None):
            raise ArgumentError("a path needs either rate or trace_ms")
        object.__setattr__(self, "_steps", self._read_steps())
        if self.rtt_ns <= 0:
            raise ArgumentError(f"rtt={self.rtt!r} must be positive")
        if not 0 <= self.reverse_ns <= self.rtt_ns:
            raise ArgumentError(f"reverse={self.reverse!r} must lie between 0 and the RTT")
        if self.buffer_bytes < 1514:
            raise ArgumentError(f"buffer={self.buffer!r} is less than one packet (1514 bytes)")
        if self.aqm not in ("droptail", "codel"):
            raise ArgumentError(f"aqm={self.aqm!r}: use droptail or codel")

    def _read_steps(self):
        if self.trace_ms is not None:
            return _trace_steps(self.trace_ms)
        steps = [(0, self.rate)] if isinstance(self.rate, str) else list(self.rate)
        times = np.array([round(float(t) * 1e9) for t, _ in steps], np.int64)
        rates = np.array([r if isinstance(r, int | float) else parse_rate_bps(r) for _, r in steps], np.float64)
        if len(steps) == 0 or times[0] != 0 or np.any(np.diff(times) <= 0):
            raise ArgumentError("rate steps must start at 0 s and increase in time")
        if np.any(rates < 0) or not np.any(rates > 0):
            raise ArgumentError("rate: no step has a positive rate, so nothing would ever be delivered")
        return times, rates

    @property
    def rtt_ns(self):
        """Base RTT, ns."""
        return _time_ns("rtt", self.rtt)

    @property
    def reverse_ns(self):
        """Delay of the ACK path, ns."""
        return _time_ns("reverse", self.reverse)

    @property
    def bdp_bytes(self):
        """Bandwidth-delay product of the first positive rate."""
        rates = self._steps[1]
        return rates[rates > 0][0] / 8 * self.rtt_ns / 1e9

    @property
    def buffer_bytes(self):
        """Queue limit, bytes, the packet in service included."""
        return parse_size_bytes(self.buffer, self.bdp_bytes)

    @property
    def reorders(self):
        """Whether packets may overtake each other."""
        return self.jitter is not None and self.jitter.reorder

    def rate_steps(self):
        """Return (start ns, bit/s) of the rate's steps, as arrays."""
        return self._steps

    def max_rate_bps(self):
        """Return the largest rate."""
        return float(self._steps[1].max())

    def jitter_span_ns(self):
        """Return a delay that the jitter practically never exceeds."""
        return 0 if self.jitter is None else self.jitter.span_ns()

    def world_fields(self):
        """Return the fields of the simulation's WORLD record that describe this path."""
        loss = parse_share(self.loss)
        given = {"loss_k": 1.0 - loss, "loss_h": 1.0 - loss, "ack_loss": parse_share(self.ack_loss)}
        if self.burst_loss is not None:
            given |= {"loss_k": 1.0, "loss_p": float(self.burst_loss[0]), "loss_r": float(self.burst_loss[1])}
        if self.jitter is None:
            given["jitter_kind"] = NO_JITTER
        else:
            given |= self.jitter.fields(self.rtt_ns - self.reverse_ns)
        if self.aqm == "codel":  # [RFC8289] §4: 5 ms in 100 ms
            given |= {"aqm": 1, "aqm_target_ns": 5_000_000, "aqm_interval_ns": 100_000_000}
        if self.policer is not None:
            bucket = parse_size_bytes(self.policer[1])
            rate = parse_rate_bps(self.policer[0]) / 8
            given |= {"police": 1, "token_rate_Bps": rate, "police_bucket": bucket, "tokens": float(bucket)}
        return given


def _trace_steps(trace_ms):
    """Steps of a Mahimahi trace, one hour of it: the rate of each millisecond that delivers or does not."""
    trace = np.asarray(trace_ms, np.int64)
    if len(trace) == 0 or trace[-1] <= 0 or np.any(np.diff(trace) < 0):
        raise ArgumentError("trace_ms must be ascending milliseconds, the last one positive")
    period = int(trace[-1])
    counts = np.bincount(np.where(trace == period, 0, trace), minlength=period)[:period]
    repeats = -(-3_600_000 // period)
    changes = np.flatnonzero(np.diff(np.tile(counts, repeats), prepend=-1))
    rates = np.tile(counts, repeats)[changes] * MAHIMAHI_BYTES * 8 * 1000.0
    return (changes * 1_000_000).astype(np.int64), rates.astype(np.float64)


def read_rate_steps(file):
    """Read a file of lines ``seconds Mbit/s`` (``#`` begins a comment) as the steps that `Path` takes.

    Raises
    ------
    FormatError
        If a line is not two numbers; names the line.
    """
    steps = []
    with open(file, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            words = line.partition("#")[0].replace(",", " ").split()
            if not words:
                continue
            try:
                seconds, mbit = map(float, words)
            except ValueError:
                raise FormatError(f"{file}, line {number}: {line.strip()!r} is not `seconds Mbit/s`") from None
            steps.append((seconds, mbit * 1e6))
    if not steps:
        raise FormatError(f"{file}: no line `seconds Mbit/s`")
    return steps


def read_mahimahi(file):
    """Read a Mahimahi trace: one millisecond per line.

    Raises
    ------
    FormatError
        If a line is not a whole number of milliseconds; names the line.
    """
    trace = []
    with open(file, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.strip().isdigit():
                raise FormatError(f"{file}, line {number}: {line.strip()!r} is not a whole number of milliseconds")
            if line.strip():
                trace.append(int(line))
    if not trace:
        raise FormatError(f"{file}: an empty trace delivers nothing")
    return np.array(trace)
