"""A simulated flow that sends on request: the transport below an external application.

`simulate` knows the applications' writes in advance. Here the caller is the client: it requests bytes, waits until
they, or some of them, have arrived, and decides what comes next. Between requests the sender is idle, as a server's
is, with all consequences for its controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cctrace.arguments import check_choice, flag
from cctrace.cc.base import Controller
from cctrace.errors import ArgumentError
from cctrace.lang.fields import MODES
from cctrace.sim.capture import ends
from cctrace.sim.core.structs import LINUX, NEVER, RUNNING, SERVED
from cctrace.sim.core.world import FIRST_NS, World
from cctrace.sim.core.write_queue import discard_unsent
from cctrace.sim.path import Path
from cctrace.sim.result import Simulation, counters, link_figures, notes, table
from cctrace.sim.runner import Runner
from cctrace.sim.sender import Sender

MS = 1_000_000


class Served:
    """Client and server of one connection over a path; other flows may share it.

    A request takes the path's reverse delay to the server. Times are nanoseconds since the simulation began, in which
    the client never goes back. Use it in a ``with`` statement, or call `close`.

    `cc`: the server's controller, or a `Sender` with its ``app`` left as it is. `others`: flows beside it. `seed`,
    `mode`, `packets`, `common`: as in `simulate`. Raises `ArgumentError` for an application in `cc`, and as `simulate`.

    >>> from cctrace.sim.path import Path
    >>> with Served(Path(rate="1Mbit", rtt="40ms", buffer="20kB"), "reno", mode="interpreted") as connection:
    ...     connection.request(14_480)
    ...     first = connection.wait(1)
    ...     last = connection.wait(14_480)
    >>> first // 1_000_000, last // 1_000_000  # ms: the handshake, a round trip, and 9 more segments
    (93, 202)
    """

    def __init__(
        self,
        path: Path,
        cc: str | type[Controller] | Sender,
        others: Sequence[str | type[Controller] | Sender] = (),
        seed: int = 1,
        *,
        mode: str = "compiled",
        packets: bool = False,
        **common: Any,
    ) -> None:
        check_choice("mode", mode, MODES)
        packets = flag("packets", packets)
        flows = [one if isinstance(one, Sender) else Sender(one, **common) for one in (cc, *others)]
        flows = [replace(flow, **common) for flow in flows]
        if flows[0].app != "bulk":
            raise ArgumentError(f"app={flows[0].app!r} of {flows[0].name}: a served flow sends what is requested")
        self.path, self.flows = path, flows
        self._world = World(path, flows, seed, mode == "compiled", len(flows) == 1 or path.has_jitter)
        self._flow = self._world.flows[0]
        self._flow.app_kind, self._flow.app_bytes = SERVED, 0
        self._runner = Runner(self._world, mode, False, packets)
        self._base = 0  # bytes before the response
        self._cancelled = False  # the client wants no more of the last response
        self._cut_ns: int | None = None  # when the server hears that a response is not wanted any more
        self.now_ns = 0
        while self._flow.app_stage != RUNNING:
            self._advance(self.now_ns + MS)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def segment_bytes(self) -> int:
        """Bytes of application data in a packet."""
        return int(self._world.columns["mss"][0])

    def request(self, size_bytes: int) -> None:
        """Ask for so many bytes now; what was requested before has arrived, or is cancelled.

        Raises `ArgumentError` if the size is not positive, or a response is under way.
        """
        f = self._flow
        if size_bytes <= 0:
            raise ArgumentError(f"size_bytes={size_bytes!r} must be positive")
        if not self._cancelled and self._arrived() < f.app_end:
            raise ArgumentError("a response is under way: wait for it, or cancel it")
        heard_ns = self.now_ns + int(f.rev_ns)
        if self._cut_ns is not None:
            self._advance(heard_ns)  # the client hears nothing of the new response meanwhile
        self._cancelled = False
        f.app_bytes = self._whole(size_bytes)
        f.app_at = FIRST_NS + heard_ns
        self._base = int(f.app_end)

    def wait(self, size_bytes: int, until_ns: int | None = None) -> int:
        """Let time pass until so many bytes of the response have arrived, or until an instant; return it, ns."""
        f = self._world.columns[:1]
        wanted = self._base + self._whole(size_bytes)
        if self._arrived() < wanted:
            f["awaited"] = wanted
            self._advance(NEVER if until_ns is None else until_ns)
            f["awaited"] = 0
        return self.now_ns

    def received_bytes(self) -> int:
        """Return how many bytes of the response have arrived in order."""
        return max(self._arrived() - self._base, 0)

    def idle(self, until_ns: int) -> None:
        """Let time pass."""
        self._advance(until_ns)

    def cancel(self) -> None:
        """Say that the rest of the response is not wanted: the server stops when it hears of it."""
        self._cancelled, self._cut_ns = True, self.now_ns + int(self._flow.rev_ns)

    def result(self) -> Simulation:
        """Return the `Simulation` so far; its figures are for the whole time (no ``tail_*``)."""
        totals, w = counters(self._world), self._world
        captured = [ends(f, rows) for f, rows in zip(w.flows, self._runner.packets, strict=False)]
        return Simulation(
            table(self.flows, w, None, totals, self.now_ns),
            link_figures(w, totals, self.path, self.now_ns),
            None,
            self.path,
            self.now_ns / 1e9,
            [],
            notes(self.path, self.flows, w),
            captured,
        )

    def close(self) -> None:
        """Forget the simulation."""
        self._world.close()

    def _arrived(self) -> int:
        """Return how many bytes have arrived in order."""
        f = self._world.columns
        return int(f["rcv_nxt"][0]) * self.segment_bytes - int(f["rcv_lack"][0])

    def _whole(self, size_bytes: float) -> int:
        """Round a response up to what is sent: only profile linux has packets that are not full."""
        packets = 1 if self._world.columns["profile"][0] == LINUX else self.segment_bytes
        return -(-int(size_bytes) // packets) * packets

    def _advance(self, until_ns: int) -> None:
        """Let events happen until an instant, or until what is awaited is there."""
        f = self._world.columns
        while True:
            if self._cut_ns is not None and self.now_ns >= self._cut_ns:
                discard_unsent(self._flow)
                self._cut_ns = None
            if self.now_ns >= until_ns or 0 < f["awaited"][0] <= self._arrived():
                return
            stop_ns = until_ns if self._cut_ns is None else min(until_ns, self._cut_ns)
            self.now_ns = min(self._runner.to(FIRST_NS + stop_ns) - FIRST_NS, stop_ns)
