"""A sender of a simulation: controller, application, receiver, stack."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from cctrace.arguments import check_argument, check_choice, short_repr, whole
from cctrace.cc import called, controller
from cctrace.cc.base import Controller
from cctrace.display import Public, brief
from cctrace.errors import ArgumentError
from cctrace.sim.acks import AckPolicy, ack_policy
from cctrace.sim.core import structs
from cctrace.sim.core.structs import KERNELS, PROFILES
from cctrace.tcp.wire import HEADER_BYTES, MSS_BYTES, QUIC_HEADER_BYTES, QUIC_MSS_BYTES
from cctrace.units import parse_rate_bps, parse_size_bytes, parse_time_ns

# Application: its kind and what it must be given.
_APPS = {
    "bulk": (structs.BULK, ()),
    "chunks": (structs.CHUNKS, ("size", "every")),
    "onoff": (structs.ON_OFF, ("on", "off")),
    "requests": (structs.REQUESTS, ("size", "think")),
}
_OF_LINUX = ("ecn", "max_pacing_rate", "fq", "send_buffer")  # which profile linux has alone
MAX_MSS = 32_000  # two of them are the largest burst that a sender hands over


class Application(NamedTuple):
    """A parsed application: kind, bytes per write, interval, on-time."""

    kind: int
    size_bytes: int
    period_ns: int
    on_ns: int


@dataclass(frozen=True)
class Sender(Public):
    """One sender of a simulation.

    Parameters
    ----------
    cc : str or class
        Controller, ``"bbr2022"``, ``"obbr:mu=0.5"`` or a class of your own.
    start, stop : str
        When it starts and stops, from the beginning of the simulation.
    rtt : str, optional
        Base RTT of this flow, if it is not the path's.
    app : str
        ``"bulk"``, ``"bulk:size=1MB"``, ``"chunks:size=13kB,every=20ms"``, ``"onoff:on=1s,off=2s"`` or
        ``"requests:size=100kB,think=1s"`` (the next request follows the complete answer by `think`).
    ack_every : int
        Segments per ACK (1: each; 2: delayed ACKs, in profile linux with the quick ACKs of a Linux receiver).
    ack : str, optional
        The receiver's policy by name, in place of `ack_every`: ``"every:10"``; ``"linux"`` (as `ack_every` 2); of QUIC
        ``"rfc9000"`` (every second packet, or max_ack_delay, and gaps at once) and ``"chromium"`` (the same for 100
        packets, then every tenth, or a quarter of the RTT).
    ack_slot : str, optional
        ACKs leave in batches at the ends of such slots (aggregation).
    comp_sack_nr : int
        ACKs of disorder that a Linux receiver may hold back for up to a millisecond, 0 for none (the sysctl of that
        name; profile linux, `ack_every` above 1).
    rwnd : str, optional
        Receive window; by default it grows as a Linux receiver's (profile linux), or is 64 MB.
    send_buffer : str, optional
        What the application asks for by SO_SNDBUF (profile linux), e.g. ``"64kB"``. The kernel takes twice that, counts
        the overhead of its packet buffers in it, and keeps the size; by default the buffer grows with the window.
    profile : {"linux", "reference"}
        The stack around a Linux controller; QUIC controllers have their own.
    hz : int
        Ticks per second of the sender's kernel.
    kernel : {"6.18", "6.12", "6.1"}
        Linux release of both hosts (profile linux): how receive windows grow, and how super-packets are cut, changed.
    max_pacing_rate : str, optional
        SO_MAX_PACING_RATE (profile linux), e.g. ``"8Mbit"``: the socket paces, and no faster.
    fq : bool
        The sender's device has the fq qdisc (profile linux): it paces, of every controller, and TCP hands super-packets
        over ahead of time.
    push_late : str, optional
        A QUIC push timer fires late by up to this much, at random (default: see `simulate`, ``exact``).
    ecn : bool or str
        Negotiate ECN (profile linux), and how marks are reported: ``"classic"``, echoed until answered [RFC3168];
        ``"accurate"``, counted [RFC9768]. True: as the controller needs it, of these or packet by packet (DCTCP, and
        controllers whose parameter ``ecn_enable`` is on, as ``"bbr2:ecn_enable=1"``).
    mss : int, optional
        Data bytes of a segment (66 more on the wire) of a Linux controller: 1448 by default, 8948 with jumbo frames. Up
        to 32,000 stand for trains of packets, which a sender of gigabits hands over in one piece anyway.

    Raises
    ------
    ArgumentError
        If a value is not what it should be, or the controller unknown.

    Examples
    --------
    >>> import cctrace as cct
    >>> late = Sender("cubic6", start="1s", app="chunks:size=13kB,every=20ms")
    >>> sim = cct.simulate(cct.Path(rate="20Mbit", rtt="40ms", buffer="1bdp"), [Sender("bbr2022"), late], "5s", seed=1)
    >>> sim.flows["cc"].tolist()
    ['bbr2022', 'cubic6']
    """

    cc: str | type[Controller]
    start: str = "0s"
    stop: str | None = None
    rtt: str | None = None
    app: str = "bulk"
    ack_every: int = 1
    ack: str | None = None
    ack_slot: str | None = None
    comp_sack_nr: int = 44
    rwnd: str | None = None
    send_buffer: str | None = None
    profile: str = "linux"
    hz: int = 1000
    kernel: str = "6.18"
    max_pacing_rate: str | None = None
    fq: bool = False
    push_late: str | None = None
    ecn: bool | str = False
    mss: int | None = None

    def __repr__(self) -> str:
        return brief(self)

    def __post_init__(self) -> None:
        view = controller(self.cc)[0].view
        if not isinstance(self.ecn, bool | str) or self.ecn not in (False, True, "classic", "accurate"):
            raise ArgumentError(f"ecn={short_repr(self.ecn)} for {self.name}: use True, classic or accurate")
        check_argument(isinstance(self.fq, bool), "fq", self.fq, "True or False")
        check_choice("profile", self.profile, PROFILES)
        stack = "QUIC stack" if view == "quic" else f"profile {self.profile}"
        for argument in _OF_LINUX:
            value = getattr(self, argument)
            if value is not None and value is not False and stack != "profile linux":
                raise ArgumentError(f"{argument}={short_repr(value)} for {self.name}: the {stack} has none")
        if self.mss is not None and (view == "quic" or not isinstance(self.mss, int) or not 536 <= self.mss <= MAX_MSS):
            problem = "is the stack's own with QUIC" if view == "quic" else f"must be an integer from 536 to {MAX_MSS}"
            raise ArgumentError(f"mss={short_repr(self.mss)} for {self.name}: {problem}")
        for name, least, most in (("ack_every", 1, 10_000), ("comp_sack_nr", 0, 255), ("hz", 100, 1000)):
            whole(name, getattr(self, name), least, most)
        if self.ack is not None and self.ack_every != 1:
            raise ArgumentError(f"ack={self.ack!r} and ack_every={self.ack_every} say the same thing: give one")
        _ = self.ack_policy, self.start_ns, self.push_late_ns
        if self.max_pacing_rate is not None and self.max_pacing_rate_Bps < 1000:
            raise ArgumentError(f"max_pacing_rate={self.max_pacing_rate!r} must be at least 8 kbit/s")
        check_choice("kernel", self.kernel, KERNELS)
        if self.rtt_ns is not None and self.rtt_ns <= 0:
            raise ArgumentError(f"rtt={self.rtt!r} of a flow must be positive")
        if self.stop_ns is not None and self.stop_ns <= self.start_ns:
            raise ArgumentError(f"stop={self.stop!r} must be later than start={self.start!r}")
        if self.ack_slot is not None and self.ack_slot_ns <= 0:
            raise ArgumentError(f"ack_slot={self.ack_slot!r} must be positive")
        if self.rwnd is not None and parse_size_bytes(self.rwnd, name="rwnd") < 2 * self.sizes[0]:
            raise ArgumentError(f"rwnd={self.rwnd!r} is less than two segments")
        if self.send_buffer is not None and not 1 <= self.send_buffer_bytes < 1 << 30:
            raise ArgumentError(f"send_buffer={self.send_buffer!r} must be from 1 byte to 1 GiB")
        _ = self.application

    @property
    def name(self) -> str:
        """The controller as given, or the name of its class."""
        return called(self.cc)

    @property
    def feedback(self) -> str:
        """How marks are reported: none, classic, echoed or accurate (`structs.FEEDBACK`)."""
        cls, params = controller(self.cc)
        if self.ecn is not True and not (self.ecn is False and cls.ecn_echo == "accurate"):
            return str(self.ecn or "none")
        return "echoed" if params.get("ecn_enable", 0) else cls.ecn_echo

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of data in a segment, and on the wire."""
        if controller(self.cc)[0].view == "quic":
            return QUIC_MSS_BYTES, QUIC_MSS_BYTES + QUIC_HEADER_BYTES
        mss = self.mss or MSS_BYTES
        return mss, mss + HEADER_BYTES

    @property
    def start_ns(self) -> int:
        """Start, ns."""
        return parse_time_ns(self.start, "start")

    @property
    def stop_ns(self) -> int | None:
        """Stop, ns, or None."""
        return None if self.stop is None else parse_time_ns(self.stop, "stop")

    @property
    def rtt_ns(self) -> int | None:
        """Base RTT, ns, or None for the path's."""
        return None if self.rtt is None else parse_time_ns(self.rtt, "rtt")

    @property
    def max_pacing_rate_Bps(self) -> int:
        """Limit of the pacing rate, bytes/s, or 0 for none."""
        limit = self.max_pacing_rate
        return 0 if limit is None else int(parse_rate_bps(limit, "max_pacing_rate") // 8)

    @property
    def ack_policy(self) -> AckPolicy:
        """When the receiver acknowledges."""
        quic = controller(self.cc)[0].view == "quic"
        return ack_policy(f"every:{self.ack_every}" if self.ack is None else self.ack, quic)

    @property
    def ack_slot_ns(self) -> int:
        """Aggregation slot, ns, 0 for none."""
        return 0 if self.ack_slot is None else parse_time_ns(self.ack_slot, "ack_slot")

    @property
    def push_late_ns(self) -> int:
        """Lateness of a QUIC push timer, ns, at most."""
        return 0 if self.push_late is None else parse_time_ns(self.push_late, "push_late")

    @property
    def send_buffer_bytes(self) -> int:
        """What SO_SNDBUF asks for, bytes; 0 if the application does not set it."""
        return 0 if self.send_buffer is None else parse_size_bytes(self.send_buffer, name="send_buffer")

    @property
    def application(self) -> Application:
        """The `Application` that `app` describes; only profile linux has segments that are not full."""
        kind, _, rest = str(self.app).partition(":")
        given = dict(re.findall(r"(\w+)=([^,]+)", rest))
        check_choice("app", kind, _APPS)
        code, needed = _APPS[kind]
        if set(given) != set(needed) and (kind, set(given)) != ("bulk", {"size"}):
            raise ArgumentError(f"app={self.app!r}: {kind} takes {', '.join(needed) or 'nothing, or size'}")
        size = parse_size_bytes(given["size"], name="size") if "size" in given else structs.UNLIMITED
        if self.profile == "reference" or controller(self.cc)[0].view == "quic":
            size = -(-size // self.sizes[0]) * self.sizes[0]
        times = {name: parse_time_ns(given[name], name) for name in ("every", "off", "think", "on") if name in given}
        if size < 1 or any(t < 1000 for t in times.values()):
            raise ArgumentError(f"app={self.app!r}: sizes must be positive, times at least a microsecond")
        period = times.get("every", times.get("off", times.get("think", 0)))
        return Application(code, size, period, times.get("on", 0))
