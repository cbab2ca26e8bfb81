"""Uncongested RTTs of a flow, and why counters cannot provide them."""

from cctrace.flows.counters import CounterFlow
from cctrace.flows.flow import Flow
from cctrace.path.delays import Delays
from cctrace.path.evidence import evidence_of
from cctrace.sim.result import Simulation


def uncongested_rtt(source: Flow | Simulation) -> Delays:
    """Return the RTTs that a flow would have had without a queue, as `Delays`.

    Parameters
    ----------
    source : Flow or Simulation
        A captured flow, or a simulation with ``packets=True``.

    Returns
    -------
    Delays
        Its `mean_us` is RTT_UCAV of [Kumar19].

    Raises
    ------
    FitError
        If too few RTTs are known, or the queue was never free of other flows' packets; says what would be needed.
    StreamError
        If the capture lacks the data or the acknowledgements.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("jitter_bbr_sd2ms", "sender.pcap.zst")).flow(0)
    >>> round(uncongested_rtt(flow).mean_us.value, -3)
    22000.0
    """
    path = evidence_of(source)
    path.require_sent()
    return path.delays


def of_counters(flow: CounterFlow) -> str:
    """Return why counters cannot provide the jitter, and what they do provide."""
    polls = flow.polls.frame()
    least, varies = (polls[name].where(polls[name] > 0).dropna() for name in ("min_rtt", "rttvar"))
    reported = [f"an RTT without queue of at most {least.min():.0f} us"] if len(least) else []
    if len(varies):
        reported.append(f"RTTs, queue included, that deviate by {varies.median():.0f} us from their smoothed mean")
    known = f"; these tell {' and '.join(reported)}" if reported else ""
    return (
        "counters hold smoothed RTTs, queue and jitter together, at the times of polls: neither distribution nor "
        f"process can be inferred from them{known}. A capture at the sender is needed (tcpdump, headers suffice)"
    )
