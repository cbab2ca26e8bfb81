"""The event loop in one of its modes, run from one instant to the next."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError

import numpy as np

from cctrace.columns import Ints
from cctrace.lang.machine import Machine
from cctrace.schema import EVENT_CODES
from cctrace.sim.core.check import check_books
from cctrace.sim.core.loop import run, run_world, tap_room, trace_room
from cctrace.sim.core.structs import NATURALS, PROFILES, QUIC, TAP_WIDTH, TRACE_WIDTH, known_values
from cctrace.sim.core.world import FIRST_NS, World
from cctrace.sim.result import Recorder

_run_world = Machine(run_world, naturals=NATURALS)
_run_known = {  # by profile, None: of several; and whether all have the defaults of a `Sender`
    p: {usual: Machine(run_world, known_values(p, usual), NATURALS) for usual in (True, False)}
    for p in (*PROFILES.values(), QUIC, None)
}
SLICE_PACKETS = 1 << 17  # that the link can send in the first slice; the next is twice as long if it took < SHORT_S
SLICE_NS = 60_000_000_000  # of simulated time in the first slice, at most: an idle link has timers, too
SHORT_S = 0.1


class Runner:
    """The event loop in one of its modes, and the traces it fills.

    `is_fixed`: only the loop changes the world from now on, so that the variant of the loop is chosen once.
    """

    def __init__(
        self,
        world: World,
        mode: str,
        trace: bool,
        packets: bool,
        stop: threading.Event | None = None,
        untraced: Sequence[str] = (),
        is_fixed: bool = False,
    ) -> None:
        self.world, self.stop = world, stop
        self.recorders: list[Recorder] = []
        self.packets: list[list[Ints]] = [[] for _ in world.flows] if packets else []
        if mode == "compiled" and world.compiled:
            profiles = set(world.columns["profile"].tolist())
            profile = profiles.pop() if len(profiles) == 1 else None

            def loop() -> Machine:
                known = (machine for usual, machine in _run_known[profile].items() if world.has(profile, usual))
                return next(known, _run_world)

            chosen = loop() if is_fixed else None

            def advance(until: int) -> int:
                reached = (chosen or loop())(world.worlds, until)
                world.check()
                return reached

        else:
            check = check_books if mode == "debug" else None

            def advance(until: int) -> int:
                with np.errstate(over="ignore"):  # random numbers are made modulo 2**64
                    return run(world.record, until, check)

        self.advance = advance
        most_Bps, least = world.array(world.record.steps_Bps).view(np.float64).max(), world.columns["wire_bytes"].min()
        self._first_slice_ns = int(min(SLICE_PACKETS * 1e9 * least / most_Bps, SLICE_NS))
        self._slice_ns = self._first_slice_ns
        self._reached_ns = 0
        if trace:
            self.recorders = [Recorder("quic" if f.profile == QUIC else "linux") for f in world.flows]
            world.flows.untraced = sum(1 << EVENT_CODES[name] for name in untraced)
        self.empty()

    def to(self, until: int) -> int:
        """Advance to `until`, or until a flow has delivered the awaited data, emptying traces; return the time.

        In slices of a fraction of a second of wall-clock time, because compiled code reacts neither to Ctrl-C nor
        to `stop`, which ends it with `CancelledError`.
        """
        while True:
            stop, began = min(max(self._reached_ns, FIRST_NS) + self._slice_ns, until), time.monotonic()
            self._reached_ns = int(self.advance(stop))
            self.empty()
            if self._reached_ns >= until or self.there():
                return self._reached_ns
            if self.stop is not None and self.stop.is_set():
                raise CancelledError
            if self._reached_ns >= stop:
                self._slice_ns = self._slice_ns * 2 if time.monotonic() - began < SHORT_S else self._first_slice_ns

    def there(self) -> bool:
        """Whether a flow has delivered the data awaited."""
        f = self.world.columns
        got = f["rcv_nxt"] * f["mss"] - f["rcv_lack"]
        return bool(((f["awaited"] > 0) & (got >= f["awaited"])).any())

    def empty(self) -> None:
        """Take the rows out of traces and taps, and make room for what one event can add."""
        for pieces, f in zip(self.packets, self.world.flows, strict=False):
            if f.tap_size > 0:
                pieces.append(self.world.array(f.tap_buffer)[: f.tap_rows * TAP_WIDTH].reshape(-1, TAP_WIDTH).copy())
                f.tap_rows = 0
            elif f.profile != QUIC:
                f.tap_size = tap_room(f) + 65_536
                f.tap_buffer = self.world.place(np.zeros(f.tap_size * TAP_WIDTH, np.int64))
        for recorder, f in zip(self.recorders, self.world.flows, strict=False):
            if f.trace_size > 0:
                recorder.take(self.world.array(f.trace_buffer)[: f.trace_rows * TRACE_WIDTH].reshape(-1, TRACE_WIDTH))
                f.trace_rows = 0
            wanted = max(4096, 2 * trace_room(f))
            if wanted > f.trace_size:  # doubled, because the world keeps each buffer
                f.trace_size = max(wanted, 2 * f.trace_size)
                f.trace_buffer = self.world.place(np.zeros(f.trace_size * TRACE_WIDTH, np.int64))
