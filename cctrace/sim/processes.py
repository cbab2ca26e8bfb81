"""A process pool that ends at once when interrupted, even during computations."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import wait


@contextlib.contextmanager
def processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Give a `ProcessPoolExecutor`; an exception, Ctrl-C too, ends its processes instead of waiting for them."""
    before = set(multiprocessing.active_children())
    # Forked on every version of Python: a new interpreter would look for modules in the working directory first.
    fork = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(workers, mp_context=fork, initializer=_begin)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    pool.shutdown()


def _begin() -> None:
    """Leave the terminal's Ctrl-C to the parent process, and end when that process is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # A worker in the middle of a simulation would not notice that its result is no longer needed.
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
