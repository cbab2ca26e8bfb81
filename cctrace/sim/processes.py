"""A pool of processes that ends at once when it is interrupted, in the middle of what they compute."""

import contextlib
import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor


@contextlib.contextmanager
def processes(workers):
    """Give a `ProcessPoolExecutor`; an exception, Ctrl-C too, ends its processes instead of waiting for them.

    Parameters
    ----------
    workers : int
    """
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, initializer=_leave_interrupts)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    pool.shutdown()


def _leave_interrupts():
    """Ignore the terminal's Ctrl-C: who made the pool ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
