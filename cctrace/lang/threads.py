"""Threads of one process, for work that is mostly compiled code, which does not hold the interpreter's lock."""

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

One = TypeVar("One")
Made = TypeVar("Made")
_own = threading.local()  # `given_up`, of the thread of a `Guess`


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(function: Callable[[One], Made], items: Iterable[One]) -> list[Made]:
    """Return what a function returns for each item, in order, with a thread per core; the first error is raised.

    >>> each(abs, [-1, 2])
    [1, 2]
    """
    items = list(items)
    workers = min(cores(), len(items))
    if workers <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))


def ahead_of(items: Iterator[One], most: int) -> Iterator[One]:
    """Yield what `items` yields, made in another thread while the ones before are used; at most `most` wait.

    >>> list(ahead_of(iter("abc"), 2))
    ['a', 'b', 'c']
    """
    if cores() == 1:
        yield from items
        return
    line: queue.SimpleQueue[tuple[list[One], BaseException | None]] = queue.SimpleQueue()
    room, ended = threading.Semaphore(most), threading.Event()

    def produce() -> None:
        try:
            for item in items:
                room.acquire()
                if ended.is_set():
                    return
                line.put(([item], None))
                del item  # whoever takes it is the last one to know it
            line.put(([], None))
        except BaseException as error:  # handed over to the thread that asks
            line.put(([], error))

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        while True:
            made, error = line.get()
            room.release()
            if error is not None:
                raise error
            if not made:
                return
            yield made.pop()
    finally:
        ended.set()
        room.release()


@contextlib.contextmanager
def ahead(function: Callable[..., object], *args: object) -> Iterator[None]:
    """Call a function in another thread while the block runs, and wait for both; with a single core, do not call it.

    The function must cache its result; whoever needs it calls it anyway, and that call raises its errors.
    """

    def quietly() -> None:
        with contextlib.suppress(Exception):
            function(*args)

    thread = threading.Thread(target=quietly, daemon=True)
    if cores() > 1:
        thread.start()
    try:
        yield
    finally:
        if cores() > 1:
            thread.join()


class GivenUpError(Exception):
    """What a thread of a `Guess` computes is not needed."""


def check_wanted() -> None:
    """End a call that is no longer needed: raise `GivenUpError` in the thread of a `Guess` that was given up."""
    given_up: threading.Event | None = getattr(_own, "given_up", None)
    if given_up is not None and given_up.is_set():
        raise GivenUpError


class Guess(Generic[Made]):
    """What a function returns, called in another thread while this one finds out whether that is needed.

    A context manager. If it is not needed, the call ends at its next `check_wanted`. `result` calls the function itself
    if the thread was not begun, or the call failed.

    >>> with Guess(lambda: 1) as guess:
    ...     guess.begin()
    ...     guess.result()
    1
    """

    def __init__(self, function: Callable[[], Made]) -> None:
        self._function, self._made, self._given_up = function, list[Made](), threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Let another thread call the function, if there is a second core."""
        if self._thread is None and cores() > 1:
            self._thread = threading.Thread(target=self._call, daemon=True)
            self._thread.start()

    def _call(self) -> None:
        _own.given_up = self._given_up
        with contextlib.suppress(Exception):  # `result` raises it
            self._made.append(self._function())

    def __enter__(self) -> "Guess[Made]":
        return self

    def result(self) -> Made:
        """Return what the function returns, or raise its error."""
        if self._thread is not None:
            self._thread.join()
        return self._made.pop() if self._made else self._function()

    def give_up(self) -> None:
        """Let the call end, as its result is not needed."""
        self._given_up.set()

    def stop(self) -> None:
        """Give up, and wait until the call has ended."""
        self.give_up()
        if self._thread is not None:
            self._thread.join()
        self._made.clear()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
