"""What was chosen for the waits of BBRv2 and v3, for inferences of the same flow with other ticks of the kernel.

Ticks decide when min_rtt expires and when PROBE_RTT ends. Where neither comes within what the choice of a wait looks
at, and what the controller and the stack hold is the same but for its stamps in ticks, so is the choice.
"""

import hashlib
import weakref
from typing import NamedTuple

import numpy as np

from cctrace.flows.events import Events
from cctrace.replaying import stack as sk
from cctrace.replaying.follow import Follower
from cctrace.replaying.hypotheses import Phase, Subject

# Fields that count ticks, and their rate.
STAMPS = ("probe_rtt_min_stamp", "min_rtt_stamp", "probe_rtt_done_stamp", "hz")
NOT_STATE = [sk.HZ, sk.TICK_US, sk.STATE, sk.NEXT_DRAW, sk.TOTAL, sk.TOTAL_WAS_FULL]  # of the stack
OWN = "cctrace."  # package of the classes of which is known where they count ticks
_flows: weakref.WeakKeyDictionary[Events, "_Flow"] = weakref.WeakKeyDictionary()


class Chosen(NamedTuple):
    """The numbers of a wait, what was found if there was a choice, and the row up to which was looked."""

    numbers: tuple[int, ...]
    phase: Phase | None
    seen: int


class _Flow:
    """What was chosen for the waits of a flow, by what they depend on."""

    def __init__(self, follower: Follower) -> None:
        self.chosen: dict[tuple[object, ...], tuple[bytes, Chosen]] = {}  # with the state after the draw
        asked = np.array(follower.stream.rs_send, np.int32)
        asked[asked < 0] = len(follower.marks)
        self.oldest = np.minimum.accumulate(asked[::-1])[::-1]  # of the sends that a row or a later one asks for


class Wait:
    """A wait that the next call of `follower` draws."""

    def __init__(self, follower: Subject) -> None:
        self._follower = None
        if isinstance(follower, Follower) and follower.times_probe_rtt and follower.cls.__module__.startswith(OWN):
            self._follower = follower
            self._flow = _flows.get(follower.events) or _Flow(follower)
            _flows[follower.events] = self._flow
            self._key = follower.row, follower.key[0], self._state(follower)
            self._begun = b""

    def begins(self) -> None:
        """Look at the follower after it drew the first possible numbers."""
        follower = self._follower
        if follower is None or follower.get("mode") == follower.cls.states.index("PROBE_RTT"):
            return
        self._begun, params = self._state(follower), follower.params
        self._now_us, self._lead_us, self._hz = follower.now_us, int(follower.stack[sk.TICK_US]), params["hz"]
        windows = {STAMPS[0]: params["probe_rtt_win_ms"], STAMPS[1]: params["min_rtt_win_sec"] * 1000}
        windows[STAMPS[0]] = min(windows.values())
        self._expires = min(follower.get(name) + ms * self._hz // 1000 for name, ms in windows.items())

    def known(self, numbers: tuple[int, ...]) -> Chosen | None:
        """Return what was chosen for it with other ticks, if that holds for these; the first possible `numbers`."""
        follower = self._follower
        if follower is None or self._key not in self._flow.chosen:
            return None
        begun, chosen = self._flow.chosen[self._key]
        before = follower.save()
        follower.draw(numbers)
        follower.run(follower.row + 1)
        self.begins()
        follower.restore(before)
        return chosen if self._begun == begun and self._is_without_ticks(chosen.seen) else None

    def note(self, chosen: Chosen) -> Chosen:
        """Note what was chosen for it, and return that."""
        if self._follower is not None and self._begun and self._is_without_ticks(chosen.seen):
            self._flow.chosen[self._key] = self._begun, chosen
        return chosen

    def _is_without_ticks(self, seen: int) -> bool:
        """Return whether min_rtt does not expire before a row."""
        last_us = int(self._now_us[min(seen, len(self._now_us)) - 1]) + self._lead_us
        return sk.JIFFIES_START + last_us * self._hz // 1_000_000 < self._expires

    def _state(self, follower: Follower) -> bytes:
        """Return a digest of what a follower's next calls depend on, but for ticks."""
        slots, stack = follower.slots.copy(), follower.stack.copy()
        slots[[follower.slot(name) for name in STAMPS]], stack[NOT_STATE] = 0, 0
        marks = follower.marks[int(self._flow.oldest[max(follower.row - 1, 0)]) : int(stack[sk.NEXT_SEND])]
        return hashlib.blake2b(slots.tobytes() + stack.tobytes() + marks.tobytes(), digest_size=16).digest()
