"""The modelled path of a simulation: a bottleneck with a queue, delay, jitter and loss.

Rates are wire rates: a segment of 1448 bytes occupies 1514 bytes (QUIC: 1252 and 1294). The queue lies before the
forward delay; a bandwidth-delay product (``"2bdp"``) is the first rate times the first base RTT.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from cctrace import presets
from cctrace.arguments import check_argument
from cctrace.columns import Floats, Ints, Values
from cctrace.display import Public, brief
from cctrace.errors import ArgumentError
from cctrace.io.linktrace import LinkTrace
from cctrace.sim.aqm import Aqm
from cctrace.sim.core.structs import DELAY_REALS, DELAY_WORDS, HTB, NO_JITTER, TBF
from cctrace.sim.jitter import Jitter
from cctrace.sim.path_arguments import (
    MAX_BPS,
    bucket_of,
    chances_of,
    jitter_of,
    rate_bps_of,
    shaper_of,
    steps_of,
    with_unit,
)
from cctrace.sim.traces import Steps, trace_steps
from cctrace.tcp.wire import PACKET_BYTES
from cctrace.units import parse_share, parse_size_bytes, parse_time_ns

Varying: TypeAlias = "str | float | Sequence[tuple[float, Any]] | None"  # constant, or steps (second, value)
DEFAULT_RTT, DEFAULT_LOSS = "40ms", "0%"
_PACKETS = re.compile(r"\s*(\d+)\s*(?:packets?|pkts?)\s*")


@dataclass(frozen=True)
class Path(Public):
    """A bottleneck and what surrounds it.

    `rate`, `rtt`, `jitter` and `loss` are constant, or vary in steps: ``rtt=[(0, "40ms"), (10, "80ms")]`` (seconds from
    the beginning, value).

    Parameters
    ----------
    rate : str or steps, optional
        Rate of the bottleneck's link; by default that of a `trace`. A `shaper` alone has the bottleneck's rate, and a
        link behind it that takes no time.
    rtt : str or steps, optional
        Base round-trip time without queueing and serialisation, by default that of a `trace` that has one, else 40 ms.
        A step holds from the moment a packet leaves the queue.
    buffer : str
        Queue in bytes, in BDPs of the first rate and RTT, or in packets of any size: ``"200kB"``, ``"2bdp"``,
        ``"100packets"``.
    jitter : Jitter, str or steps, optional
        A text is as `Jitter.parse` reads it, or the name of a recording whose jitter ships with cctrace.
    loss : str or steps, optional
        Random loss of data packets, ``"1%"``; by default that of a `trace` that has one, else none.
    loss_behind : bool
        Whether that loss is behind the bottleneck, which then has served what is lost, as a radio link; else before it.
    burst_loss : (float, float), optional
        Gilbert-Elliott: probability of entering and of leaving the state in which `loss` applies.
    ack_loss : str
        Random loss of ACKs.
    ack_burst_loss : (float, float), optional
        The same as `burst_loss`, for `ack_loss`.
    jitter_before : Jitter, str or steps, optional
        Jitter on the way to the queue, as netem in front of a router makes it; written as `jitter`, which is behind.
    delay_before : str, optional
        The part of `rtt` that data take to the queue: by default none, and with `jitter_before` all that the ACKs do
        not take, so that nothing but serialisation is behind the queue.
    reverse : str
        The part of `rtt` that the ACKs take.
    shared : bool
        Whether the ACKs pass the same queue and shaper as the data, `reverse` before it, as where both hosts are
        behind one tc: on a loopback device. Drop-tail only.
    aqm : str
        ``"droptail"``, or active management of the queue as Linux does it: ``"red"``, ``"pie"``, ``"codel"``,
        ``"fq_codel"``, ``"dualpi2"``, with parameters as in ``"pie:target=5ms"`` (`cctrace.sim.aqm.KINDS`). Packets of
        flows with ECN are marked where those of others are dropped, unless ``noecn`` is among the parameters.
    ecn_threshold : str, optional
        Queue (bytes or BDPs) from which packets of flows with ECN are marked, whatever `aqm` does.
    policer : (str, str), optional
        Rate and burst of a policer before the queue: ``("10Mbit", "100kB")``; what exceeds them is dropped.
    shaper : (str, str) or (str, str, "htb"), optional
        Rate and burst of a token bucket that empties the queue; what exceeds them waits, the burst leaves at `rate`, or
        at once without one.
        Linux's tbf takes the next packet from the AQM and lets it wait for its tokens; with ``"htb"`` the AQM chooses
        it when there are tokens, as below that qdisc, which lends a packet more than the burst. The AQM then sees the
        wait for tokens, too. htb: one rate, and with `aqm` only.
        The bucket's rate may vary in steps, each of which fills it, as in Linux (tbf_change):
        ``([(0, "40Mbit"), (10, "10Mbit")], "100kB")``.
    trace : str or LinkTrace, optional
        A Mahimahi trace or UCC log (file, or what `cctrace.read` made of it), repeated for an hour; replaces `rate`.
        A UCC log with PING columns also gives `rtt` (PINGMIN) and `loss` (PINGLOSS), each value until the next.

    Raises
    ------
    ArgumentError
        If a quantity is not positive or lacks its unit.

    Examples
    --------
    >>> Path(rate="40Mbit", rtt="40ms", buffer="2bdp").buffer_bytes
    400000
    >>> Path(rate="40Mbit", rtt=[(0, "40ms"), (10, "80ms")], loss=[(0, "0%"), (5, "2%")]).rtt_steps()[1].tolist()
    [40000000, 80000000]
    """

    rate: Varying = None
    rtt: Varying = None
    buffer: str = "1bdp"
    jitter: Jitter | Varying = None
    loss: Varying = None
    loss_behind: bool = False
    burst_loss: tuple[float, float] | None = None
    ack_loss: str = "0%"
    ack_burst_loss: tuple[float, float] | None = None
    jitter_before: Jitter | Varying = None
    delay_before: str | None = None
    reverse: str = "0ms"
    shared: bool = False
    aqm: str = "droptail"
    ecn_threshold: str | None = None
    policer: tuple[str, str] | None = None
    shaper: tuple[Any, str] | tuple[Any, str, str] | None = None
    trace: str | os.PathLike[str] | LinkTrace | None = None
    _steps: dict[str, Steps] = field(init=False, repr=False, compare=False)
    _origins: list[str] = field(init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        return brief(self, ("rate", "rtt", "buffer"), loss="0%")

    def __post_init__(self) -> None:
        if (self.rate is not None and self.trace is not None) or (self.has_only_shaper and self.shaper is None):
            raise ArgumentError("a path needs either rate or trace, or a shaper")
        steps, origins = ({}, {}) if self.trace is None else trace_steps(self.trace)
        if self.has_only_shaper:
            times, rates, _ = shaper_of(self.shaper)
            steps["rate"] = times, rates * 8
        for name in ("loss_behind", "shared"):
            check_argument(isinstance(getattr(self, name), bool), name, getattr(self, name), "True or False")
        for name, default in (("rtt", DEFAULT_RTT), ("loss", DEFAULT_LOSS)):
            if getattr(self, name) is None and name not in steps:
                object.__setattr__(self, name, default)
        given = {
            "rate": lambda value: rate_bps_of(value, "rate"),
            "rtt": lambda value: parse_time_ns(with_unit("rtt", value, "40ms"), "rtt"),
            "jitter": jitter_of,
            "jitter_before": jitter_of,
            "loss": lambda value: parse_share(value, "loss"),
        }
        for name, parse in given.items():
            if (value := getattr(self, name)) is not None or name.startswith("jitter"):
                steps[name] = steps_of(name, value, parse)
        object.__setattr__(self, "_steps", steps)
        object.__setattr__(self, "_origins", [text for name, text in origins.items() if getattr(self, name) is None])
        rate = steps["rate"]
        if not np.any(rate[1] > 0):
            raise ArgumentError("rate: no step has a positive rate, so nothing would ever be delivered")
        if min(steps["rtt"][1]) <= 0:
            raise ArgumentError(f"rtt={self.rtt!r} must be positive")
        if not 0 <= self.reverse_ns <= min(steps["rtt"][1]):
            raise ArgumentError(f"reverse={self.reverse!r} must lie between 0 and the RTT")
        self._check_before(int(min(steps["rtt"][1])) - self.reverse_ns)
        if self.buffer_bytes < PACKET_BYTES:
            raise ArgumentError(f"buffer={self.buffer!r} is less than one packet ({PACKET_BYTES} bytes)")
        check_argument(isinstance(self.aqm, str), "aqm", self.aqm, "a text, for example 'codel'")
        if self.shared and (self.aqm != "droptail" or self.policer is not None):
            raise ArgumentError("shared: data and ACKs can share a drop-tail queue, without aqm and policer")
        if self.aqm != "droptail":
            self.aqm_fields()
        self.world_fields()

    @classmethod
    def preset(cls, name: str, seed: int = 1, **changes: Any) -> Path:
        """Return a path by name, fitted or published (`cctrace.presets.path_names`), with some fields changed.

        Parameters
        ----------
        name : str
        seed : int
            Of a cellular path, whose rate is drawn second by second.
        **changes
            Fields of `Path`.

        Raises
        ------
        ArgumentError
            If there is no such path.

        Examples
        --------
        >>> Path.preset("wired_40mbit_40ms", loss="1%").rtt_ns // 1_000_000
        40
        """
        return cls(**presets.path_fields(name, seed) | changes)

    @property
    def rtt_ns(self) -> int:
        """Base RTT (the first), ns."""
        return int(self._steps["rtt"][1][0])

    @property
    def reverse_ns(self) -> int:
        """Delay of the ACK path, ns."""
        return parse_time_ns(with_unit("reverse", self.reverse, "10ms"), "reverse")

    @property
    def has_only_shaper(self) -> bool:
        """Whether only a shaper gives the rate: the link behind it takes no time."""
        return self.rate is None and self.trace is None

    @property
    def bdp_bytes(self) -> float:
        """Bandwidth-delay product of the first positive rate and the first RTT."""
        rates = self._steps["rate"][1]
        return rates[rates > 0][0] / 8 * self.rtt_ns / 1e9

    @property
    def buffer_bytes(self) -> int:
        """Queue limit, bytes, the packet in service included; of one in packets, what the largest would occupy."""
        if self.buffer_packets is not None:
            return self.buffer_packets * PACKET_BYTES
        return parse_size_bytes(self.buffer, self.bdp_bytes, "buffer")

    @property
    def buffer_packets(self) -> int | None:
        """Queue limit, packets, the one in service included; None if it is in bytes."""
        found = _PACKETS.fullmatch(str(self.buffer))
        return int(found[1]) if found else None

    @property
    def has_jitter(self) -> bool:
        """Whether there is jitter all the time, before the queue or behind it."""
        return any(all(jitter is not None for jitter in self._steps[name][1]) for name in ("jitter", "jitter_before"))

    @property
    def jitters_before(self) -> bool:
        """Whether the path's jitter is before the queue alone."""
        return self.jitter is None and self.jitter_before is not None

    def notes(self) -> list[str]:
        """Return remarks on where the values come from, a list of str."""
        return list(self._origins)

    def rate_steps(self) -> Steps:
        """Return (start ns, bit/s) of the rate's steps, as arrays."""
        return self._steps["rate"]

    def link_steps(self) -> Steps:
        """Return (start ns, bit/s) of the rate at which a packet that leaves the queue is sent, as arrays."""
        return (np.zeros(1, np.int64), np.array([MAX_BPS])) if self.has_only_shaper else self.rate_steps()

    def rtt_steps(self) -> Steps:
        """Return (start ns, base RTT in ns) of the delay's steps, as arrays."""
        return self._steps["rtt"]

    def jitter_steps(self, before: bool = False) -> Steps:
        """Return (start ns, `Jitter` or None) of the steps of the jitter behind the queue, or before it, as arrays."""
        return self._steps["jitter_before" if before else "jitter"]

    def before_ns(self, forward_ns: int) -> int:
        """Return the part (ns) of a forward delay that is before the queue."""
        if self.delay_before is not None:
            return min(parse_time_ns(with_unit("delay_before", self.delay_before, "5ms"), "delay_before"), forward_ns)
        return 0 if self.jitter_before is None else forward_ns

    def _check_before(self, forward_ns: int) -> None:
        """Refuse a delay before the queue that exceeds the forward delay, and bursts where none reach the queue."""
        if self.delay_before is not None:
            given_ns = parse_time_ns(with_unit("delay_before", self.delay_before, "5ms"), "delay_before")
            if not 0 <= given_ns <= forward_ns:
                raise ArgumentError(f"delay_before={self.delay_before!r} must lie between 0 and the RTT less `reverse`")
        drawn = [jitter for jitter in self._steps["jitter"][1] if jitter is not None]
        if self.before_ns(forward_ns) > 0 and any(jitter.per == "burst" for jitter in drawn):
            raise ArgumentError(
                "jitter per=burst behind the queue: a path with delay before it has no bursts there; use packet or slot"
            )

    def loss_steps(self) -> Steps:
        """Return (start ns, share from 0 to 1) of the random loss's steps, as arrays."""
        return self._steps["loss"]

    def max_rate_bps(self) -> float:
        """Return the largest rate."""
        return float(self._steps["rate"][1].max())

    def max_delay_ns(self) -> int:
        """Return an RTT that base delay and jitter practically never exceed."""
        steps = (self.jitter_steps(before)[1] for before in (False, True))
        spans = [max(0 if jitter is None else jitter.span_ns() for jitter in jitters) for jitters in steps]
        return int(self._steps["rtt"][1].max()) + sum(spans)

    def aqm_fields(self) -> dict[str, Any]:
        """Return the fields of the simulation's AQM record, of a path that is not drop-tail."""
        return Aqm.parse(with_unit("aqm", self.aqm, "codel")).fields(self.buffer_bytes, self.bdp_bytes)

    def world_fields(self) -> dict[str, Any]:
        """Return the fields of the simulation's WORLD record that describe this path; arrays are yet to be placed."""
        times, losses = self._steps["loss"]
        given = {"loss_ns": times, "loss_values": np.array(losses, np.float64), "loss_steps": len(times)}
        given |= {"loss_behind": int(self.loss_behind), "ack_loss": parse_share(self.ack_loss, "ack_loss")}
        given |= chances_of("loss", self.burst_loss) | chances_of("ack_loss", self.ack_burst_loss, "ack_burst_loss")
        given["buffer_packets"], given["shared"] = self.buffer_packets or 0, int(self.shared)
        if self.ecn_threshold is not None:
            given["ecn_threshold"] = max(parse_size_bytes(self.ecn_threshold, self.bdp_bytes, "ecn_threshold"), 1)
        if self.policer is not None:
            rate, bucket = bucket_of("policer", self.policer)
            given |= {"police": 1, "token_rate_Bps": rate, "police_bucket": bucket, "tokens": float(bucket)}
        if self.shaper is not None:
            times, rates, bucket = shaper_of(self.shaper)
            is_htb = len(self.shaper) > 2
            if is_htb and (self.aqm == "droptail" or len(rates) > 1):
                raise ArgumentError(f"shaper={self.shaper!r}: htb takes one rate, and a queue with an aqm")
            given |= {"shaping": HTB if is_htb else TBF, "shape_rate_Bps": rates[0], "shape_bucket": bucket}
            given["shape_tokens"] = bucket * 1e9 / rates[0] if rates[0] > 0 else 0.0  # ns, as those of sch_tbf
            given |= {"shape_ns": times, "shape_values": rates, "shape_steps": len(times)}
        return given

    def delay_steps(self, place: Callable[[Values], int], before: bool = False) -> tuple[Ints, Floats]:
        """Return the tables of `delay.next_delay`, behind the queue or before it, times from 0.

        `place` turns an array into its address.
        """
        (rtt_times, rtts), (jitter_times, jitters) = self._steps["rtt"], self.jitter_steps(before)

        def part_ns(rtt_ns: int) -> int:
            forward_ns = rtt_ns - self.reverse_ns
            return self.before_ns(forward_ns) if before else forward_ns - self.before_ns(forward_ns)

        times = np.union1d(rtt_times, jitter_times)
        words, reals = np.zeros((len(times), DELAY_WORDS), np.int64), np.zeros((len(times), DELAY_REALS))
        for k, time in enumerate(times):
            rtt = int(rtts[np.searchsorted(rtt_times, time, "right") - 1])
            jitter = jitters[np.searchsorted(jitter_times, time, "right") - 1]
            drawn: dict[str, Any] = {"jitter_kind": NO_JITTER} if jitter is None else jitter.fields(part_ns(rtt))
            table = drawn.get("jitter_table")
            integers = (drawn.get(f"jitter_{name}", 0) for name in ("kind", "per", "slot_ns"))
            address, samples = (0, 0) if table is None else (place(table), len(table))
            shift = part_ns(rtt) - part_ns(self.rtt_ns)
            words[k] = time, shift, jitter is not None and jitter.reorder, *integers, address, samples
            reals[k] = [drawn.get(f"jitter_{name}", 0.0) for name in ("rho", "a", "b", "floor")]
        return words, reals


def steps_of_lists(value: Any) -> Any:
    """Return the lists of TOML or JSON as the tuples in which `Path` takes steps and pairs."""
    return [tuple(step) if isinstance(step, list) else step for step in value] if isinstance(value, list) else value
