"""How well a controller explains the sends of a flow in each interval: a replay, scored by `likelihood.any_send`.

The sends of an interval are correlated, so their mean counts once. Draws and ticks are inferred for each controller and
each choice of its parameters, as in any replay.
"""

from typing import Any

from cctrace.cc.base import Controller, checked_params
from cctrace.columns import Floats, Ints, Values
from cctrace.flows.flow import Flow
from cctrace.replaying.engine import midflow
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.inference.infer import Given, infer

UNKNOWN_LOG = -1.8  # log likelihood of an unexplained send, on the scale of `any_send`; see docs/identify.md


def replayed(
    flow: Flow,
    cls: type[Controller],
    given: dict[str, Any],
    stops: Ints,
    sent: Values,
    hz_known: bool,
) -> tuple[Floats, bool]:
    """Return the mean log likelihood of the sends of each interval with sends, and whether its HZ is only a guess.

    `flow`: of a capture taken at the sender. `given`: the controller's parameters, of which ``hz`` is that of the
    sender's kernel, `hz_known` if it is more than a guess. `stops`, `sent`: from `blocks`.
    """
    events = flow.events
    params = checked_params(cls, given)
    follower = Follower(events, events.sends, cls, params)
    script = infer(follower, Given(midflow.expiry(events, cls), hz_known, given, to_end=False)).script
    likelihood = Follower(events, events.sends, cls, params).score(script, stops)
    guessed = not hz_known and follower.counts_ticks and cls.has_on_ack  # otherwise `infer` has inferred it
    return likelihood[sent > 0] / sent[sent > 0], guessed
