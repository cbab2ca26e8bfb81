"""The facts of a single look at a connection's counters: `ss -ti` pasted once, or the last poll.

A look is an instant: nothing moves in it, and only what the kernel counted since the beginning tells of before.
"""

from __future__ import annotations

import numpy as np

from cctrace.cc import is_model_based
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.facts import LOOK, Facts
from cctrace.diagnosis.groups import (
    NAN,
    Instant,
    Losses,
    MinRtt,
    Queue,
    ReceiverWindow,
    Reordering,
    SendBuffer,
    Sharing,
    SocketLimit,
    Start,
)
from cctrace.diagnosis.polled_facts import window_used
from cctrace.diagnosis.socket_limit import is_at, socket_limit
from cctrace.flows.counters import CounterFlow
from cctrace.path.neighbours import Presence, matters
from cctrace.units import format_rate, format_share, format_time

DESPITE = "neither a window nor the application was the limit"


class Look:
    """The last poll of a connection: columns by name, NaN unknown; and rates since the beginning."""

    def __init__(self, flow: CounterFlow, controller: str | None = None) -> None:
        self.flow, self.controller = flow, controller or flow.connection.get("cc")
        self.busy_us = self["busy_time_us"]
        self.rtt_us, self.least_us = (us if 0 < us < const.NEVER_US else NAN for us in (self["rtt"], self["min_rtt"]))
        self.sent, self.again = self["data_segs_out"], self["total_retrans"]
        self.busy_bps = self["bytes_acked"] * 8e6 / self.busy_us if self.busy_us > 0 else NAN
        self.estimate_bps = 8 * max(self["bbr_bw_Bps"], self["delivery_rate_Bps"], key=np.nan_to_num)
        self.has_model = self["bbr_min_rtt_us"] > 0
        self.is_idle = self["unacked"] == 0 and not self["notsent_bytes"] > 0
        self.is_waiting = self.is_idle or self["delivery_rate_app_limited"] == 1

    def __getitem__(self, name: str) -> float:
        return float(self.flow.values(name)[-1]) if len(self.flow.polls) else NAN

    @property
    def tells_nothing(self) -> bool:
        """Whether nothing is known that a rule could ask for."""
        return not any(self[name] >= 0 for name in ("unacked", "busy_time_us", "snd_cwnd", "delivery_rate_Bps"))

    @property
    def note(self) -> str:
        """What else the look tells, and that it is one look."""
        known = []
        if self["delivery_rate_Bps"] > 0:
            known.append(f"it delivered {format_rate(self['delivery_rate_Bps'] * 8)}")
        if self.rtt_us > 0:
            known.append(f"RTT {format_time(self.rtt_us * 1000)}")
        if self.least_us > 0:
            known.append(f"at least {format_time(self.least_us * 1000)}")
        window, buffer = self.held("rwnd_limited_us"), self.held("sndbuf_limited_us")
        if window >= 0:
            known.append(
                f"so far {format_share(window)} of its time held back by the receiver's window and "
                f"{format_share(np.nan_to_num(buffer))} by its own buffer"
            )
        return f"(One look: {', '.join(known) or 'no more is known'}; nothing tells how it was before or after.)"

    def held(self, name: str) -> float:
        """Return an account of time as a share of the time with data."""
        return self[name] / self.busy_us if self.busy_us > 0 else NAN


def facts_of(look: Look) -> Facts:
    """Return the facts of one look."""
    window, took = look["snd_wnd"], look.busy_bps / 8e6 * look.rtt_us
    sent_share = look["reord_seen"] / look.sent if look.sent > 0 else NAN
    return Facts(
        LOOK,
        0.0,
        look["delivery_rate_Bps"] * 8,
        is_model_based=is_model_based(look.controller) or look.has_model,
        has_polls=True,
        despite=DESPITE,
        rtt_us=look.rtt_us,
        least_rtt_us=look.least_us,
        window=ReceiverWindow(
            receiver_share=look.held("rwnd_limited_us"),
            window_used=window_used(look.flow),
            window_average=min(1.0, took / window) if window > 0 else NAN,
            advertised_bytes=window,
        ),
        send_buffer=SendBuffer(look.held("sndbuf_limited_us")),
        start=_start(look),
        socket_limit=_socket_limit(look),
        instant=_instant(look),
        sharing=_sharing(look),
        losses=_losses(look),
        queue=Queue(look.rtt_us, look.least_us, look.least_us, retransmitted=look.again),
        reordering=Reordering(sent_share, look["reord_seen"], NAN, is_kernels=True),
        min_rtt=_min_rtt(look),
    )


def _start(look: Look) -> Start | None:
    """Return how many least RTTs it has had data, of a connection that sent all it had, and nothing again."""
    if not look.is_idle or look.again > 0 or not look.least_us > 0:
        return None
    return Start(look.busy_us / look.least_us, look["bytes_acked"], look.least_us, is_growing=True, is_complete=False)


def _socket_limit(look: Look) -> SocketLimit:
    limit, share = socket_limit(look.flow.values("pacing_rate_Bps")[-1:], look.flow.values("max_pacing_rate")[-1:])
    rate = max(look["delivery_rate_Bps"], look.busy_bps / 8, key=np.nan_to_num)
    return SocketLimit(8 * limit, share, look["delivery_rate_Bps"] * 8, is_at(rate, limit))


def _instant(look: Look) -> Instant:
    cwnd, used = look["snd_cwnd"], look.busy_bps / (look.estimate_bps or NAN)
    return Instant(
        is_idle=look.is_idle,
        is_waiting=look.is_waiting,
        used_share=used,
        cwnd_used=look["unacked"] / cwnd if cwnd > 0 else NAN,
        cwnd_segments=cwnd,
        has_model=look.has_model,
    )


def _min_rtt(look: Look) -> MinRtt | None:
    if not look.has_model:
        return None
    used = look.busy_bps / (look.estimate_bps or NAN)
    rate = look["delivery_rate_Bps"] * 8
    return MinRtt(look["bbr_min_rtt_us"], look.rtt_us, look["rttvar"], used, rate, acts_as_bbr=True)


def _losses(look: Look) -> Losses | None:
    """Return what was sent again, if as much, evenly, as explains the rate; a full queue drops far more at once.

    Of a controller that takes losses for congestion the window on average is then that of [Mathis97], sqrt(1.5 / p);
    BBR's start may overflow a queue by some of its bandwidth-delay products.
    """
    share = look.again / look.sent if look.sent > 0 else NAN
    mss, bw = look["snd_mss"] or NAN, look["bbr_bw_Bps"]
    if bw > 0:
        explains = share >= const.LOSSY_LOOK and look.again > const.START_LOSES * bw * look.least_us / 1e6 / mss
    else:
        window = look.busy_bps / 8e6 * look.rtt_us / mss
        explains = look.again >= const.LEAST_RESENT and (
            window < const.AMPLE * np.sqrt(1.5 / share) if np.isfinite(window) else share >= const.LOSSY_LOOK
        )
    # At the end of a transfer the last ACK was delayed, which an eighth of goes into the smoothed RTT.
    if not explains or not look.rtt_us < const.UNQUEUED * look.least_us + (const.DELAYED_US / 8 if look.is_idle else 0):
        return None
    lost, span, room = int(look.again), (0.0, 0.0), look.rtt_us - look.least_us
    return Losses(lost, look.sent, share, span, 0.5, 1, room, look.least_us, is_gathered=lambda: False)


def _sharing(look: Look) -> Sharing | None:
    """Return what other connections of the table, to the same host as far as known, got while they had data."""
    table, mine, rates = look.flow.table, look.flow.connection, {}
    for index, known in enumerate(table.connections[: const.MOST_CONNECTIONS]):
        if known is mine or known.get("dst") != mine.get("dst"):
            continue
        other = Look(CounterFlow(table, index))
        up, its_up = (
            # A list without times is of one moment.
            Presence(
                np.nan_to_num(one["time_ns"]) / 1e3 - one.busy_us,
                np.nan_to_num(one["time_ns"]) / 1e3,
                one["bytes_acked"],
            )
            for one in (look, other)
        )
        if min(look.busy_us, other.busy_us) > 0 and matters(up, its_up):
            rates[f"{known.get('src')}:{known.get('sport')}"] = other.busy_bps
    if not rates:
        return None
    best, total = max(rates, key=lambda name: rates[name]), sum(rates.values())
    return Sharing(
        flows=1 + len(rates),
        share=look.busy_bps / (look.busy_bps + total),
        mine_bps=look.busy_bps,
        their_rate_bps=total,
        best=best,
        best_bps=rates[best],
        span=(0.0, 0.0),
        by_time=True,
        same_destination=bool(mine.get("dst")),
    )
