"""The workers of one machine: threads of this process, each with its own child that does the work."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from cctrace.corpus import batch
from cctrace.corpus.guard import Stopped
from cctrace.lang.threads import cores

if TYPE_CHECKING:
    from cctrace.corpus.batch import Order
    from cctrace.corpus.runs import Tally
    from cctrace.corpus.tasks import Row


class Threads:
    """Runs batches in `workers` threads (None: one per core); `window` of them are handed out at a time."""

    def __init__(self, workers: int | None) -> None:
        self.workers = workers or cores()
        self.window = 2 * self.workers
        self._orders: queue.SimpleQueue = queue.SimpleQueue()
        self._results: queue.SimpleQueue = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._tick, self._under_way = lambda: None, 0

    def begin(self, tally: Tally) -> None:
        """Start; `tally` counts every capture."""
        self._tick = tally.tick

    def submit(self, order: Order) -> None:
        """Hand out a batch."""
        if len(self._threads) < self.workers:
            thread = threading.Thread(target=self._work, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._under_way += 1
        self._orders.put(order)

    def next(self, timeout: float) -> tuple[Order, Row] | None:
        """Return (order, what was committed) of a batch, None after `timeout` seconds; raises the error of one."""
        try:
            order, done, error = self._results.get(timeout=timeout)
        except queue.Empty:
            return None
        if error is not None:
            raise error
        self._under_way -= 1
        return order, done

    def finished(self, captures: int) -> None:
        """Do nothing: every capture was counted by `tick`."""

    def _work(self) -> None:
        try:
            while (order := self._orders.get()) is not None:
                self._results.put((order, batch.run(order, self._tick), None))
        except Stopped:
            pass
        except BaseException as error:  # raised in the thread that waits
            self._results.put((None, None, error))
        finally:
            batch.leave()

    def close(self) -> None:
        """End the workers, even in the middle of an analysis."""
        for _ in self._threads:
            self._orders.put(None)
        if self._under_way:
            batch.stop()
        for thread in self._threads:
            thread.join(10)
