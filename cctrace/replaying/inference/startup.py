"""How many rounds a recorded BBR stayed in STARTUP longer than its replay would.

bbr_check_full_bw_reached ends STARTUP after three rounds without more bandwidth. It does not count a round that begins
with an application-limited sample. A sender that fills its send buffer each time room returns is application-limited
whenever its write queue happens to be empty at a write: it writes at once, no send is late, and the capture shows
nothing. But a further round of STARTUP shows, as it sends eight times as fast as DRAIN.

Sources: [Linux618] net/ipv4/tcp_bbr.c bbr_check_full_bw_reached; net/ipv4/tcp.c tcp_sendmsg_locked.
"""

import math

import numpy as np

from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine.script import Edit
from cctrace.replaying.inference.hypotheses import FALSE_ALARM, LARGEST_DRAW, Inference, raw_draw

ROUNDS = "full_bw_cnt"
MOST = 3  # further rounds that are tried: the buffer grows with cwnd, and soon holds more than a round's data
LOOK_ROUNDS = 1, 3  # rounds after STARTUP's end whose sends are compared; three outlast an application's pause


def stay_in_startup(work: Inference) -> None:
    """Let a replay that is in STARTUP stay there for as many rounds as make the sends clearly likelier.

    It is left where STARTUP would have ended without the last of these rounds, or where it was if there is none.
    """
    follower = work.follower
    states = follower.cls.states
    if ROUNDS not in follower.fields or "DRAIN" not in states or not follower.times_probe_rtt:
        return
    drain = states.index("DRAIN")
    for _ in range(MOST):
        if follower.get("mode") != states.index("STARTUP"):
            break
        watch = ("mode", drain)
        _, ends, drains = follower.trials(len(follower.rows), [(0,)], score=cx.NOTHING, watch=watch)
        if not drains[0] and ends[0] == len(follower.rows):
            break
        row = int(ends[0]) - 1  # DRAIN may begin and end in one call, whose draw then ended the trial
        if not is_likelier(work, row):
            break
        follower.run(row)
        follower.set(ROUNDS, follower.get(ROUNDS) - 1)
        work.edits.append(Edit(row, ROUNDS, -1))


def is_likelier(work: Inference, row: int) -> bool:
    """Return whether the sends are clearly likelier with a further round of STARTUP after `row`."""
    follower, sure = work.follower, math.log(MOST / FALSE_ALARM)
    likelihood, end = np.zeros(1), row
    for rounds in LOOK_ROUNDS:
        if abs(likelihood[0]) <= sure:
            end = work.rounds_after(rounds, max(follower.srtt_us(row), 1), row)
            likelihood = follower.scan(np.array([row]), end, {}, {ROUNDS: -1})
    if likelihood[0] > sure and follower.cls.phase_choices:
        likelihood = likelihood - gain_of_phase(work, row, end)
    return bool(likelihood[0] > sure)


def gain_of_phase(work: Inference, row: int, end: int) -> float:
    """Return the log likelihood ratio of the likeliest phase of BBR v1's gain cycle to the one that `scan` draws.

    If STARTUP leaves no queue, DRAIN ends in the call that begins it, and the phase is drawn at once.
    """
    follower, choices = work.follower, work.follower.cls.phase_choices
    before = follower.save()
    follower.run(row)
    draws = [(LARGEST_DRAW,), *((raw_draw(choice, choices),) for choice in range(choices))]
    likelihood, _, _ = follower.trials(end, draws, score=cx.PACED_SENDS, watch=("mode", -1))
    follower.restore(before)
    return float(likelihood.max() - likelihood[0])
