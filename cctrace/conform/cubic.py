"""CUBIC: RFC 9438, checked on the sender's window.

W_cubic(t) = C (t - K)^3 + W_max with K = cbrt((W_max - cwnd_epoch) / C) must be followed within the resolution of a
kernel: a tick, a round trip by which the window lags, 1/32 s for which a step is kept, and 0.2 % of the cube root.
"""

from functools import partial

import numpy as np

from cctrace.cc.base import Counterpart
from cctrace.columns import Values
from cctrace.conform import cubic_steps
from cctrace.conform.cubic_steps import ALPHA, BETA, KEPT_S, C
from cctrace.conform.requirements import MUST, SHOULD, Found, Spec, Table, at_least, at_most, of_parts
from cctrace.conform.trace import Trace
from cctrace.conform.windows import CASES, CELLS, Epoch, common, cut_to, epochs
from cctrace.conform.wire import of_windows

_OF_LINUX = (
    Counterpart("W_est above the window before the loss", "grows by a segment per window", "by 0.53 as before", "4.3",
                "bictcp_update", ("w_est.alpha",)),
    Counterpart("after a spurious reduction", "cwnd, ssthresh, W_max, K, W_est restored",
                "cwnd and ssthresh restored", "4.9", "tcp_reno_undo_cwnd", ("undo.curve",)),
)  # fmt: skip
_OF_4_15 = Counterpart("limit of slow start", "cwnd is the limit", "twice what was out is a limit of its own", "4.10",
                       "tcp_is_cwnd_limited", ("slow_start.doubles",))  # fmt: skip
SLACK, SLACK_SHARE = 3.0, 0.03  # segments, and of the window
CURVE_AT_MOST, CURVE_AT_LEAST, FRIENDLY = "curve.at_most", "curve.at_least", "reno.friendly"

requirement = Table()
common(
    requirement,
    {
        "slow_start.growth": "4.10, RFC 5681 3.1",
        "slow_start.doubles": "4.10",
        "window.limited": "5.8",
        "slow_start.limited": "5.8",
        "loss.floor": "4.6",
        "timeout.window": "4.8",
        "recovery.window": "4.6",
    },
)
cut_to(requirement, "loss.beta", "4.6", BETA, SHOULD)


def _curve(epoch: Epoch, t: Values) -> Values:
    """Return W_cubic, segments; where the plateau falls it is lower by fast convergence (4.7)."""
    w_max = epoch.at_loss * ((1 + BETA) / 2 if epoch.at_loss < epoch.earlier else 1.0)
    origin = max(w_max, epoch.start)
    k = np.cbrt((origin - epoch.start) / C)
    return C * (t - k) ** 3 + origin


def _judge(r: Trace, kind: str) -> Found:
    """Return whether cwnd keeps to the curve: at most its value a round trip later, at least that of one before."""
    parts = []
    for epoch in epochs(r):
        if epoch.earlier == 0 and epoch.at_loss == 0:
            continue
        rows = epoch.rows
        t, rtt = r.time_s[rows] - epoch.start_s, r.ack("srtt_us8")[rows] / 8e6 + 0.004
        if kind == CURVE_AT_MOST:
            bound = np.maximum(_curve(epoch, t + rtt), epoch.reno(r))
        elif kind == CURVE_AT_LEAST:
            bound = np.minimum(_curve(epoch, np.maximum(t - 2 * rtt, 0)), 1.4 * epoch.start)
        else:
            bound = epoch.reno(r, ALPHA)[np.maximum(np.searchsorted(t, t - KEPT_S, side="right") - 1, 0)]
        parts.append((rows, r.before["snd_cwnd"][rows], bound))
    within = at_most if kind == CURVE_AT_MOST else at_least
    return within(*of_parts(len(r), parts), rel=SLACK_SHARE, within=SLACK)


for _bound, _section, _sentence, _level in (
    (CURVE_AT_MOST, "4.2, 4.4", "cwnd grows no faster than W_cubic, or than Reno would.", MUST),
    (CURVE_AT_LEAST, "4.4, 4.5", "cwnd grows along W_cubic.", SHOULD),
    (FRIENDLY, "4.3", "cwnd grows at least as fast as a Reno flow's with the same backoff.", SHOULD),
):
    requirement(_bound, _section, _sentence, level=_level)(partial(_judge, kind=_bound))


on_the_wire = Table()
of_windows(on_the_wire, BETA, ("4.10", "4.6"))
SPEC = Spec("cubic", "CUBIC (RFC 9438)", (*requirement.rows, *cubic_steps.requirement.rows), ("cubic", "cubic6"),
            tuple(on_the_wire.rows), {"cubic6": _OF_LINUX, "cubic": (*_OF_LINUX, _OF_4_15)},
            cells=CELLS, cases=CASES)  # fmt: skip
