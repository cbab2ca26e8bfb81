"""Threads of one process, for work that is mostly compiled code, which does not hold the interpreter's lock."""

from __future__ import annotations

import contextlib
import os
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
