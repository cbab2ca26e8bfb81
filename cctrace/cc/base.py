"""What every controller shares: fields, parameters, entry points, random draws.

A controller is an ordinary class. Its state is what its annotated class attributes declare, its inputs are the
columns of its view (`schema.LINUX_VIEW` or `schema.QUIC_VIEW`), passed as the record `ack`; its outputs are state too
(`snd_cwnd`, `pacing_rate`, ...), because on both stacks the controller writes them in place.

So that `cctrace.lang` can compile a class, methods are written in a subset of Python:

* fields are declared with a type and a default: ``mode: int = 0`` (int64), ``share: float = 0.0`` (float64),
  ``pacing_gain: f32 = f32(2.885)``, ``idle_restart: bool = False``, ``ring = ints(100)`` (also `floats`);
* methods take scalars and return scalars (or nothing); functions may also be handed an array field (`self.bw_v`) and
  change it in place; both call ``self.step(...)``, ``super().step(...)`` and
  module-level functions of the `cctrace.cc` package or of the module the class is written in;
* constants are module-level numbers or tuples of numbers;
* no containers, strings, exceptions, generators, closures or attribute access on anything but `self` and `ack`;
* C arithmetic goes through `cctrace.cc.cmath`.
"""

import functools
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, cast

from cctrace.cc.ack import Ack
from cctrace.cc.cmath import f32, u32
from cctrace.cc.linux import segments_in_flight
from cctrace.errors import ArgumentError, suggestion


class Param(NamedTuple):
    """One row of a controller's parameter table: default, allowed range (inclusive), meaning with unit and source.

    `field`: the field that holds it, if that is not the parameter's own name: a kernel's constant may be named like a
    field that it is copied to (``cwnd_gain``).

    Examples
    --------
    >>> Param(717, 1, 1024, "window kept after a loss, of 1024").default
    717
    """

    default: int | float
    low: int | float
    high: int | float
    doc: str
    field: str = ""


class Counterpart(NamedTuple):
    """A decision that a specification and a released controller make differently, found by reading both.

    `what`: the decision. `here`, `there`: how the class that has the table decides, and how the other does.
    `section` of the specification, `function` of the release; `requirements`: ids of `cctrace.conform` that the
    release therefore fails.

    >>> Counterpart("drain gain", "0.5", "0.344", "5.3.2", "bbr_drain_gain", ("drain.gain",)).requirements
    ('drain.gain',)
    """

    what: str
    here: str
    there: str
    section: str
    function: str
    requirements: tuple[str, ...] = ()


class ArrayField(NamedTuple):
    """A fixed-length array field; every element starts at `fill` or, if that is a tuple, at its own value."""

    length: int
    fill: int | float | f32 | tuple[float, ...]

    def values(self) -> list[Any]:
        """Return the elements at the start, a list."""
        return list(self.fill) if isinstance(self.fill, tuple) else [self.fill] * self.length


# Of the socket; `linux.socket_rate` applies it.
MAX_PACING_RATE = Param(0, 0, 1 << 40, "SO_MAX_PACING_RATE, bytes/s; 0: no limit")


# Typed as the list that an instance holds, like `dataclasses.field`; the class holds the declaration.
def ints(length: int, fill: float | tuple[int, ...] = 0) -> list[int]:
    """Declare a field that is an array of int64."""
    return cast("list[int]", ArrayField(length, fill if isinstance(fill, tuple) else int(fill)))


def floats(length: int, fill: float | tuple[float, ...] = 0.0) -> list[float]:
    """Declare a field that is an array of float64."""
    return cast("list[float]", ArrayField(length, fill if isinstance(fill, tuple) else float(fill)))


class Controller:
    """Base of all controllers; subclass `LinuxController` or `QuicController`.

    `**params`: values for the class's parameter table; the rest keep their defaults. Raises `ArgumentError` if a
    parameter is unknown, not a number or out of its range.
    """

    view: ClassVar[str] = ""
    model_based: ClassVar[bool] = False  # it builds a model of the path, as BBR does, instead of answering each loss
    sets_pacing_rate: ClassVar[bool] = True  # and the stack paces by it
    pacing_overhead_bytes: ClassVar[int] = 0  # header bytes per segment that pacing counts
    bursts_by_min_rtt: ClassVar[bool] = False  # its bursts are longer on short paths, by the `min_rtt_us` it keeps
    slow_burst_segments: ClassVar[int] = 1  # the shortest burst below 1.2 Mbit/s
    app_limited_by_acks: ClassVar[bool] = False  # its kernel asks with every ACK whether the application limits it
    parts_as_v2: ClassVar[bool] = (
        False  # its kernel notes in the parts of a super-packet what v2alpha's tcp_fragment does
    )
    # The ECN feedback it needs: "classic"; "echoed" packet by packet (DCTCP); "accurate" (AccECN), which it asks for
    ecn_echo: ClassVar[str] = "classic"
    ect_1: ClassVar[bool] = False  # whether its packets are ECT(1), as scalable ones are [RFC9331], else ECT(0)
    params: ClassVar[dict[str, Param]] = {}
    phase_choices: ClassVar[int] = 0  # values of the one draw that a replay infers from the sends; 0: none
    # What a replay infers instead where draws decide how long to wait before probing: how many values each draw has, as
    # a number or the name of a parameter, in the order in which they are drawn; 0: a time, see `replaying.inference`.
    probe_draws: ClassVar[tuple[int | str, ...]] = ()
    # Golden-vector column -> field, where the names differ: {"s_bw": "bw_v[0]"}; see `replaying.vectors.golden_field`.
    golden_names: ClassVar[dict[str, str]] = {}
    # Golden-vector column -> why this class has no field for it; such a column must be constant in every vector.
    golden_absent: ClassVar[dict[str, str]] = {}
    # {registered name: how that controller differs}, of a class that is written from a specification.
    counterparts: ClassVar[dict[str, tuple[Counterpart, ...]]] = {}
    # Settings that are texts, not numbers: {name: function(cls, text)}; it returns the class to use, and caches it.
    named_settings: ClassVar[dict[str, Any]] = {}
    # Why this class cannot be compiled; empty where it can.
    interpreted_only: ClassVar[str] = ""
    # {(from_state, to_state): "why"} over the names in `states`; drawn in the docs, and no run may leave it.
    states: ClassVar[tuple[str, ...]] = ()
    transitions: ClassVar[dict[tuple[str, str], str]] = {}

    has_on_ack: ClassVar[bool] = False  # it sets cwnd with every ACK; otherwise the stack does in a recovery

    draws: int = 0  # random numbers drawn in the current call; the engine resets it before each call

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.has_on_ack = hasattr(cls, "on_ack")

    def __init__(self, **params: float) -> None:
        for name, field in declared_fields(type(self)).items():
            setattr(self, name, field.values() if isinstance(field, ArrayField) else field)
        for name, value in checked_params(type(self), params).items():
            setattr(self, self.params[name].field or name, value)

    def draw(self, ack: Ack) -> int:
        """Return the next raw random number recorded for this call (Linux: 32 bits, QUIC: 31 bits)."""
        self.draws = self.draws + 1
        if self.draws == 1:
            return ack.rand0
        if self.draws == 2:
            return ack.rand1
        if self.draws == 3:
            return ack.rand2
        return ack.rand3


def declared_fields(cls: "type[Controller]") -> dict[str, Any]:
    """Return {name: default or ArrayField} of a controller class, base classes first, parameters not included."""
    fields: dict[str, Any] = {}
    parameters = param_fields(cls).keys()  # a mixin declares it without a value
    for base in reversed(cls.__mro__):
        fields |= {name: getattr(cls, name) for name in _annotated(base) if name not in parameters}
        fields |= {name: value for name, value in vars(base).items() if isinstance(value, ArrayField)}
    return fields


@functools.lru_cache(maxsize=1024)
def _annotated(base: type) -> tuple[str, ...]:
    """Return the names that a class annotates itself, those of class variables not included."""
    return tuple(name for name, kind in inspect.get_annotations(base).items() if "ClassVar" not in str(kind))


def find_method(cls: type, name: str, after: type | None = None) -> tuple[Any, Any]:
    """Return (class, what it calls `name`) of the first class in the resolution order, `after` a given one if any."""
    mro = cls.__mro__
    rest = mro[mro.index(after) + 1 if after else 0 :]
    return next(((owner, vars(owner)[name]) for owner in rest if name in vars(owner)), (None, None))


def param_fields(cls: "type[Controller]") -> dict[str, str]:
    """Return {field: parameter}: what holds each parameter of a controller class."""
    return {row.field or name: name for name, row in cls.params.items()}


def checked_params(cls: "type[Controller]", given: Mapping[str, Any]) -> dict[str, float]:
    """Return the class's parameter values, defaults replaced by `given`; raise `ArgumentError` for a wrong one."""
    for name, value in given.items():
        if name not in cls.params:
            meant, allowed = suggestion(name, cls.params, likeness=0.4), ", ".join(cls.params) or "none"
            raise ArgumentError(f"{cls.__name__} has no parameter {name!r}{meant} (it has: {allowed})")
        param = cls.params[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ArgumentError(f"{cls.__name__}: {name}={value!r} is not a number")
        if not param.low <= value <= param.high:  # NaN too
            raise ArgumentError(f"{cls.__name__}: {name}={value!r} is outside [{param.low}, {param.high}]")
        if isinstance(param.default, int) and not isinstance(param.default, bool) and int(value) != value:
            raise ArgumentError(f"{cls.__name__}: {name}={value!r} must be an integer")
    return {name: type(p.default)(given.get(name, p.default)) for name, p in cls.params.items()}


def check_methods(cls: "type[Controller]") -> None:
    """Refuse a controller class that lacks a method that the stack cannot do without.

    The kernel refuses a module in the same way [Linux61] tcp_register_congestion_control; it also requires
    ``ssthresh`` and ``undo_cwnd`` with ``cong_control`` (``on_ack`` here).

    The stack would never call ``cong_avoid`` of a class with ``on_ack``: a class with both is refused, too.

    Raises `ArgumentError`, which names the method that is missing or superfluous.
    """
    if not cls.view:
        raise ArgumentError(f"{cls.__name__} belongs to no stack: subclass LinuxController or QuicController")
    if cls.has_on_ack:
        if hasattr(cls, "cong_avoid"):
            raise ArgumentError(
                f"{cls.__name__} has both on_ack and cong_avoid, which is never called where there is on_ack: keep one"
            )
        return
    allowed = "on_ack, or cong_avoid with ssthresh and undo_cwnd" if cls.view == "linux" else "on_ack"
    if cls.view == "quic" or not hasattr(cls, "cong_avoid"):
        raise ArgumentError(f"{cls.__name__} never sets its window: it needs the method {allowed}")
    if missing := [name for name in ("ssthresh", "undo_cwnd") if not hasattr(cls, name)]:
        raise ArgumentError(f"{cls.__name__} has cong_avoid without {' and '.join(missing)}: it needs {allowed}")


class LinuxController(Controller):
    """A congestion control of the Linux TCP stack; inputs are the columns of `schema.LINUX_VIEW`.

    The engine calls, in the order written down in `schema.LINUX_EVENTS`, those entry points that a class defines.

    Parameters
    ----------
    **params
        Values for the class's parameter table `params`; the rest keep their defaults.

    Raises
    ------
    ArgumentError
        If a parameter is unknown, not a number or out of its range.

    Examples
    --------
    A window of 20 segments, whatever happens; docs/own_controller.md has the entry points, in their order:

    >>> import cctrace as cct
    >>> class Fixed(LinuxController):
    ...     def on_ack(self, ack):
    ...         self.snd_cwnd = 20
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> int(cct.replay(flow, Fixed, mode="interpreted").decisions["snd_cwnd"].iloc[-1])
    20
    """

    view = "linux"
    params = {"hz": Param(1000, 100, 1000, "CONFIG_HZ of the sender: resolution of jiffies, 1/s")}

    # Written by the controller and by the rest of the stack in turn ("carried" in a replay, see schema).
    snd_cwnd: int = 10
    snd_cwnd_cnt: int = 0
    snd_ssthresh: int = 0x7FFFFFFF
    pacing_rate: int = -1  # bytes/s; ~0UL until a controller sets it
    app_limited: int = 0

    def init(self, ack: Ack) -> None:
        """Connection established [Linux61] tcp_congestion_ops.init."""

    def packets_in_flight(self, ack: Ack) -> int:
        """Segments believed to be in the network [Linux61] tcp_packets_in_flight."""
        return segments_in_flight(ack.packets_out, ack.sacked_out, ack.lost_out, ack.retrans_out)

    def in_slow_start(self) -> bool:
        """[Linux61] tcp_in_slow_start."""
        return self.snd_cwnd < self.snd_ssthresh

    def is_cwnd_limited(self, ack: Ack) -> bool:
        """Whether cwnd held the sender back; slow start may run ahead to twice what was used [Linux61] same name."""
        if ack.is_cwnd_limited != 0:
            return True
        return self.in_slow_start() and self.snd_cwnd < 2 * ack.max_packets_out

    def slow_start(self, acked: int) -> int:
        """Grow one by one up to ssthresh; return the ACKs left over [Linux61] tcp_slow_start."""
        cwnd = min(u32(self.snd_cwnd + acked), self.snd_ssthresh)
        acked = u32(acked - (cwnd - self.snd_cwnd))
        self.snd_cwnd = cwnd
        return acked

    def random_below(self, ack: Ack, bound: int) -> int:
        """Return a draw in [0, bound) [Linux61] prandom_u32_max, get_random_u32_below."""
        return (u32(self.draw(ack)) * bound) >> 32


class QuicController(Controller):
    """A congestion control of the nginx QUIC stack; inputs are the columns of `schema.QUIC_VIEW`.

    The entry points and their order are those of `schema.QUIC_EVENTS`. Windows and rates are in bytes and bytes/s,
    times in milliseconds of that stack's clock. Parameters are those of `LinuxController`.

    Examples
    --------
    >>> import cctrace as cct
    >>> parent, _ = cct.controller("quic_cubic")
    >>> issubclass(parent, QuicController), parent().cwnd
    (True, 0)
    """

    view = "quic"

    cwnd: int = 0  # congestion_window, bytes
    pacing_rate: int = 0  # bytes/s
    app_limited: int = 0

    def init(self, ack: Ack) -> None:
        """Connection established."""
