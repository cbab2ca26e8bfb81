"""Processes that end at once when interrupted, even during computations."""

import collections
import contextlib
import gc
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import Any, TypeVar

Made = TypeVar("Made")


@contextlib.contextmanager
def processes(workers: int, task: Callable[[int], Any] | None = None) -> Iterator[ProcessPoolExecutor]:
    """Give a `ProcessPoolExecutor`; an exception, Ctrl-C too, ends its processes instead of waiting for them.

    `task`: what `_of_task` calls; inherited with all that it refers to, not pickled.
    """
    before = set(multiprocessing.active_children())
    # Forked on every version of Python: a new interpreter would look for modules in the working directory first.
    fork = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(workers, mp_context=fork, initializer=_begin, initargs=(task,))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    pool.shutdown()


_AHEAD = 4  # results of each process that may be under way or wait to be asked for


def made_in_order(
    task: Callable[[int], Made], count: int, workers: int
) -> Generator[Made | BrokenProcessPool, None, None]:
    """Yield what a task returns for 0, 1, ... `count` - 1, made by processes that inherit the task.

    Only what it returns is pickled. Its warnings are given here, and its first error is raised; for a number that ends
    its process the error is yielded.

    >>> list(made_in_order(lambda k: k * k, 3, 2))
    [0, 1, 4]
    """
    if multiprocessing.current_process().daemon:  # of a `multiprocessing.Pool`, say: it must not have children
        yield from map(task, range(count))
        return
    at, most, given = 0, _AHEAD * workers, dict[Any, Any]()
    while at < count:
        try:
            with processes(workers, task) as pool:
                line = collections.deque(pool.submit(_of_task, k) for k in range(at, min(at + most, count)))
                while line:
                    made = line[0].result()
                    if (following := at + len(line)) < count:
                        line.append(pool.submit(_of_task, following))
                    line.popleft()
                    at += 1
                    yield _warned(made, given)
        except BrokenProcessPool:  # it does not say by which of those under way: each gets a process of its own
            for k in range(at, min(at + most, count)):
                at += 1
                yield _alone(task, k, given)


def _alone(task: Callable[[int], Made], k: int, given: dict[Any, Any]) -> Made | BrokenProcessPool:
    try:
        with processes(1, task) as pool:
            made = pool.submit(_of_task, k).result()
    except BrokenProcessPool as error:
        return error
    return _warned(made, given)


def _of_task(k: int) -> Any:
    """Return, in a process of `made_in_order`, what its task returns, and the warnings."""
    assert _task is not None
    with warnings.catch_warnings(record=True) as caught:
        found = _task(k)
    return found, [(one.message, one.category, one.filename, one.lineno) for one in caught]


def _warned(made: tuple[Made, list[Any]], given: dict[Any, Any]) -> Made:
    found, caught = made
    for message, category, file, line in caught:
        warnings.warn_explicit(message, category, file, line, registry=given)
    return found


_task: Callable[[int], Any] | None = None  # of this process


def _begin(task: Callable[[int], Any] | None) -> None:
    """Leave the terminal's Ctrl-C to the parent process, and end when that process is killed."""
    global _task
    _task = task
    gc.freeze()  # looking for garbage in what is inherited would copy its memory
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # A worker in the middle of a simulation would not notice that its result is no longer needed.
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
