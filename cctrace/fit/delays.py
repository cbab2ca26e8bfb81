"""The RTTs that a flow would have had without any queue."""

from typing import Any

from cctrace.path.delays import Delays, require_rtts
from cctrace.path.evidence import evidence_of


def uncongested_rtt(source: Any) -> Delays:
    """Return the RTTs that a flow would have had without any queue, as `Delays`.

    Parameters
    ----------
    source : Flow or Simulation
        A captured flow, or a simulation with ``packets=True``.

    Returns
    -------
    Delays
        Its `mean_us` is what [Kumar19] calls RTT_UCAV.

    Raises
    ------
    FitError
        If too few RTTs are known, or the path never was without a queue of others; says what would be needed.
    StreamError
        If the capture lacks the data or the acknowledgements.

    Examples
    --------
    >>> uncongested_rtt(flow).mean_us            # doctest: +SKIP
    Estimate(value=40130.2, low=40124.1, high=40136.3)
    """
    path = evidence_of(source)
    require_rtts(path.sent)
    return path.delays
