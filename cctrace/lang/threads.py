"""Threads of one process, for work that is mostly compiled code, which does not hold the interpreter's lock."""

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

One = TypeVar("One")
Made = TypeVar("Made")


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
