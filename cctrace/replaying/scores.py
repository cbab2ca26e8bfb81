"""How well a controller explains what a flow sent, interval by interval: a replay, scored by `likelihood.any_send`.

The sends of an interval say much the same, so their mean counts once. What no record shows (draws, ticks) is inferred
anew for each controller and each choice of its parameters, as in any replay.
"""

import numpy as np

from cctrace.cc.base import checked_params
from cctrace.replaying import midflow
from cctrace.replaying.follow import Follower
from cctrace.replaying.infer import infer

BLOCK_US = 200_000
UNKNOWN_LOG = -1.8  # log likelihood of a send that nothing explains, on the scale of `any_send`; see docs/identify.md


def firsts_of_intervals(times, step):
    """Return the row that comes first in each interval of `step`, from the first time on; ascending times.

    As ``np.unique(np.searchsorted(times, np.arange(times[0], times[-1], step)))``, but what it takes grows with the
    rows: a pause of years (a clock that was set) is no longer than one of a second.

    Examples
    --------
    >>> firsts_of_intervals(np.array([0, 1, 5, 9, 10**18]), 4)
    array([0, 2, 3, 4])
    """
    if not len(times):
        return np.zeros(0, np.int64)
    number = (times - times[0]) // step
    number = np.unique(np.concatenate([number, number + 1, np.maximum(number - 1, 0)]))
    edges = times[0] + number * ((times[0] + step) - times[0])  # as `arange` rounds
    return np.unique(np.append(0, np.searchsorted(times, edges[edges < times[-1]])))


def blocks(events):
    """Return the row that ends each interval of 0.2 s, and how many super-packets leave in it."""
    now_us = np.asarray(events.now_us)
    stops = np.append(firsts_of_intervals(now_us, BLOCK_US)[1:], len(now_us))
    sends = events.sends
    return stops, np.diff(np.searchsorted(sends["row"][sends["begins"] != 0], stops), prepend=0)


def replayed(flow, cls, given, stops, sent, hz_known):
    """Return the mean log likelihood of the sends of each interval that has any, and whether its HZ is but a guess.

    Parameters
    ----------
    flow : Flow
        Of a capture that was taken at the sender.
    cls : type
        A Linux controller.
    given : dict
        Its parameters; ``hz`` is that of the sender's kernel.
    stops, sent : ndarray
        Of `blocks`.
    hz_known : bool
        Whether ``hz`` is more than a guess.
    """
    events = flow.events
    params = checked_params(cls, given)
    follower = Follower(events, events.sends, cls, params)
    expiry = -1 if events.meta["complete"] or not cls.phase_choices else midflow.probe_rtt_row(events)
    script = infer(follower, expiry, hz_known).script
    likelihood = Follower(events, events.sends, cls, params).score(script, stops)
    guessed = not hz_known and follower.counts_ticks and hasattr(cls, "on_ack")  # else `infer` has found it
    return likelihood[sent > 0] / sent[sent > 0], guessed
