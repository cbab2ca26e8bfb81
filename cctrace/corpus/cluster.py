"""The workers of a Dask cluster: a batch is a task, at most `WINDOW` of them are with the scheduler at a time.

Dask does all of the scheduling. Added here: a batch whose workers died one after another comes back to be cut in two,
and a restarted scheduler receives the uncommitted batches again.
"""

from __future__ import annotations

import logging
import queue
import time
from typing import TYPE_CHECKING, Any

from cctrace.corpus import batch
from cctrace.corpus.batch import Order
from cctrace.corpus.store import OutputError, open_store
from cctrace.corpus.tasks import Row
from cctrace.display import Progress
from cctrace.errors import CctraceError
from cctrace.extras import needed

if TYPE_CHECKING:
    from cctrace.corpus.runs import Tally

WINDOW = 2_000
ANSWER_S = 10.0  # for a scheduler's first response
PATIENCE_S = 60.0  # for a lost scheduler to come back


class ClusterError(CctraceError):
    """The scheduler cannot be reached, or was lost and did not come back."""


class Cluster:
    """Runs batches on the workers of a Dask scheduler.

    `address`: of the scheduler, "tcp://host:8786". `progress`: receives the address of the dashboard, and changes of
    the connection, as text. Raises `ClusterError` if it does not answer. Raises `MissingError` if Dask is not
    installed.
    """

    window = WINDOW

    def __init__(self, address: str, progress: Progress) -> None:
        self._distributed = needed("distributed", "cluster")
        for name in ("distributed", "tornado.application"):  # `progress` reports changes of the connection
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self.address, self._report = address, progress
        self._under_way: dict[str, tuple] = {}
        self._results: queue.SimpleQueue = queue.SimpleQueue()
        self._tally: Tally | None = None
        self._client = self._connect(ANSWER_S)

    def _connect(self, timeout: float) -> Any:
        try:
            client = self._distributed.Client(self.address, timeout=timeout, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            reason = " ".join(str(error).split())
            raise ClusterError(f"scheduler {self.address}: no answer within {timeout:g} s ({reason})") from error
        self._report(f"dashboard: {client.dashboard_link}")
        return client

    def begin(self, tally: Tally) -> None:
        """Start; `tally` counts the captures of every batch."""
        self._tally = tally

    def submit(self, order: Order) -> None:
        """Hand out a batch."""
        try:
            future = self._client.submit(
                batch.run, order, key=f"cctrace-{order.batch}-{time.monotonic_ns()}", pure=False
            )
        except Exception:  # the connection is gone; `next` notices and reconnects
            self._under_way[order.batch] = (order, None)
            return
        self._under_way[order.batch] = (order, future)
        future.add_done_callback(lambda future: self._results.put((order, future)))

    def next(self, timeout: float) -> tuple[Order, Row | None] | None:
        """Return (order, commit) of a finished batch, None after `timeout` seconds; raises the error of a batch.

        The commit is None where every worker that took the batch died.
        """
        if self._client.status != "running":
            self._reconnect()
        try:
            order, future = self._results.get(timeout=timeout)
        except queue.Empty:
            return None
        if self._under_way.get(order.batch, (None, None))[1] is not future:
            return None  # submitted to the scheduler that was lost
        if future.status not in ("finished", "error"):  # lost with the scheduler that had it
            self._reconnect()
            return None
        if future.status == "finished":  # the commit is in the store, even if the worker is gone
            del self._under_way[order.batch]
            return order, batch.committed(open_store(order.where), order.batch)
        try:
            error = future.exception(timeout=ANSWER_S)
        except Exception:  # the scheduler went away meanwhile
            self._reconnect()
            return None
        del self._under_way[order.batch]
        if isinstance(error, self._distributed.KilledWorker):
            return order, None
        if isinstance(error, CctraceError):
            raise error
        raise OutputError(f"batch {order.batch}: {type(error).__name__}: {' '.join(str(error).split())}") from error

    def _reconnect(self) -> None:
        """Connect to the scheduler once it is back, and submit the uncommitted batches again."""
        self._report(f"scheduler {self.address} lost: waiting for it to come back")
        end = time.monotonic() + PATIENCE_S
        self._abandon()
        while True:
            try:
                self._client = self._connect(min(5, PATIENCE_S))
                break
            except ClusterError:
                if time.monotonic() > end:
                    raise ClusterError(
                        f"scheduler {self.address} was lost and did not come back within {PATIENCE_S:g} s; what is "
                        "committed stays: run the same command again to go on"
                    ) from None
                time.sleep(0.5)
        for order, _ in list(self._under_way.values()):
            self.submit(order)

    def _abandon(self) -> None:
        try:
            self._client.close(timeout=2)
        except Exception:  # it is lost
            self._report("the connection was closed by the other side")

    def finished(self, captures: int) -> None:
        """Count the captures of a batch."""
        if self._tally is not None:
            self._tally.done += captures

    def close(self) -> None:
        """Disconnect from the scheduler; batches that it has not begun are cancelled."""
        for _, future in self._under_way.values():
            if future is not None and self._client.status == "running":
                future.cancel()
        self._abandon()
