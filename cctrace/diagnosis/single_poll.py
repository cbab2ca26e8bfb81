"""Facts from a single poll (`ss -ti` pasted once, or the last one): an instant, and what cumulative counters add."""

import numpy as np

from cctrace.cc import is_model_based
from cctrace.diagnosis import constants as const
from cctrace.diagnosis import groups
from cctrace.diagnosis.common import is_at, sharing_of, socket_limit
from cctrace.diagnosis.facts import SINGLE_POLL, Facts
from cctrace.diagnosis.polled_facts import window_used
from cctrace.display import endpoint
from cctrace.flows.counters import CounterFlow
from cctrace.path.neighbours import Presence, matters
from cctrace.schema import U32_MAX
from cctrace.tcp.wire import LONE_ACK_US
from cctrace.units import format_rate, format_share, format_time

DESPITE = "neither a window nor the application was the limit"


class SinglePoll:
    """The last poll of a connection: columns by name, NaN unknown; and mean rates since the start."""

    def __init__(self, flow: CounterFlow, controller: str | None = None) -> None:
        self.flow, self.controller = flow, controller or flow.connection.get("cc")
        self.busy_us = self["busy_time_us"]
        self.rtt_us, self.least_us = (us if 0 < us < U32_MAX else groups.NAN for us in (self["rtt"], self["min_rtt"]))
        self.sent, self.retransmitted = self["data_segs_out"], self["total_retrans"]
        self.busy_bps = self["bytes_acked"] * 8e6 / self.busy_us if self.busy_us > 0 else groups.NAN
        self.estimate_bps = 8 * max(self["bbr_bw_Bps"], self["delivery_rate_Bps"], key=np.nan_to_num)
        self.has_model = self["bbr_min_rtt_us"] > 0
        self.is_idle = self["unacked"] == 0 and not self["notsent_bytes"] > 0
        self.is_waiting = self.is_idle or self["delivery_rate_app_limited"] == 1

    def __getitem__(self, name: str) -> float:
        return float(self.flow.values(name)[-1]) if len(self.flow.polls) else groups.NAN

    @property
    def tells_nothing(self) -> bool:
        """Whether no rule could use any of the fields."""
        return not any(self[name] >= 0 for name in ("unacked", "busy_time_us", "snd_cwnd", "delivery_rate_Bps"))

    @property
    def note(self) -> str:
        """Further facts of the poll, and that it is a single one."""
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
        return f"(A single poll: {', '.join(known) or 'no more is known'}; it does not show other times.)"

    def held(self, name: str) -> float:
        """Return a time counter as a share of the time with data."""
        return self[name] / self.busy_us if self.busy_us > 0 else groups.NAN


def facts_of(poll: SinglePoll) -> Facts:
    """Return the facts of one poll."""
    window, took = poll["snd_wnd"], poll.busy_bps / 8e6 * poll.rtt_us
    sent_share = poll["reord_seen"] / poll.sent if poll.sent > 0 else groups.NAN
    return Facts(
        SINGLE_POLL,
        0.0,
        poll["delivery_rate_Bps"] * 8,
        is_model_based=is_model_based(poll.controller) or poll.has_model,
        controller=poll.controller,
        has_polls=True,
        despite=DESPITE,
        rtt_us=poll.rtt_us,
        least_rtt_us=poll.least_us,
        window=groups.ReceiverWindow(
            receiver_share=poll.held("rwnd_limited_us"),
            window_used=window_used(poll.flow),
            window_average=min(1.0, took / window) if window > 0 else groups.NAN,
            advertised_bytes=window,
        ),
        send_buffer=groups.SendBuffer(poll.held("sndbuf_limited_us")),
        short_transfer=_short_transfer(poll),
        socket_limit=_socket_limit(poll),
        single_poll_use=_poll_use(poll),
        sharing=_sharing(poll),
        losses=_losses(poll),
        queue=groups.Queue(poll.rtt_us, poll.least_us, poll.least_us, retransmitted=poll.retransmitted),
        reordering=groups.Reordering(sent_share, poll["reord_seen"], groups.NAN, is_kernels=True),
        min_rtt=_min_rtt(poll),
    )


def _short_transfer(poll: SinglePoll) -> groups.ShortTransfer | None:
    """Return the busy time in minimum RTTs, of a connection that sent all its data without retransmissions."""
    if not poll.is_idle or poll.retransmitted > 0 or not poll.least_us > 0:
        return None
    return groups.ShortTransfer(
        poll.busy_us / poll.least_us, poll["bytes_acked"], poll.least_us, is_growing=True, is_complete=False
    )


def _socket_limit(poll: SinglePoll) -> groups.SocketLimit:
    limit, share = socket_limit(poll.flow.values("pacing_rate_Bps")[-1:], poll.flow.values("max_pacing_rate")[-1:])
    rate = max(poll["delivery_rate_Bps"], poll.busy_bps / 8, key=np.nan_to_num)
    return groups.SocketLimit(8 * limit, share, poll["delivery_rate_Bps"] * 8, is_at(rate, limit))


def _poll_use(poll: SinglePoll) -> groups.SinglePollUse:
    cwnd, used = poll["snd_cwnd"], poll.busy_bps / (poll.estimate_bps or groups.NAN)
    return groups.SinglePollUse(
        is_idle=poll.is_idle,
        is_waiting=poll.is_waiting,
        used_share=used,
        cwnd_used=poll["unacked"] / cwnd if cwnd > 0 else groups.NAN,
        cwnd_segments=cwnd,
        has_model=poll.has_model,
    )


def _min_rtt(poll: SinglePoll) -> groups.MinRtt | None:
    if not poll.has_model:
        return None
    used = poll.busy_bps / (poll.estimate_bps or groups.NAN)
    rate = poll["delivery_rate_Bps"] * 8
    return groups.MinRtt(poll["bbr_min_rtt_us"], poll.rtt_us, poll["rttvar"], used, rate, acts_as_bbr=True)


def _losses(poll: SinglePoll) -> groups.Losses | None:
    """Return the retransmissions, if they were evenly spread and frequent enough to explain the rate; a full queue
    drops far more at once.

    For a controller that treats losses as congestion, the mean window is then that of [Mathis97], sqrt(1.5 / p);
    BBR's start may overflow a queue by several bandwidth-delay products.
    """
    share = poll.retransmitted / poll.sent if poll.sent > 0 else groups.NAN
    mss, bw = poll["snd_mss"] or groups.NAN, poll["bbr_bw_Bps"]
    window = poll.busy_bps / 8e6 * poll.rtt_us / mss
    if bw > 0:
        at_start = const.START_LOSS_BDP * bw * poll.least_us / 1e6 / mss
        explains = share >= const.SINGLE_POLL_LOSSY and poll.retransmitted > at_start
    elif np.isfinite(window):
        explains = poll.retransmitted >= const.MIN_FOR_PATTERN and window < const.AMPLE_WINDOW_TIMES * np.sqrt(
            1.5 / share
        )
    else:
        explains = poll.retransmitted >= const.MIN_FOR_PATTERN and share >= const.SINGLE_POLL_LOSSY
    # At the end of a transfer the last ACK was delayed, and an eighth of that enters the smoothed RTT.
    delayed_us = LONE_ACK_US / 8 if poll.is_idle else 0
    if not explains or not poll.rtt_us < (1 + const.RTT_RISE) * poll.least_us + delayed_us:
        return None
    lost, span, room = int(poll.retransmitted), (0.0, 0.0), poll.rtt_us - poll.least_us
    return groups.Losses(lost, poll.sent, share, span, 0.5, 1, room, poll.least_us, is_gathered=lambda: False)


def _sharing(poll: SinglePoll) -> groups.Sharing | None:
    """Return the rates of the table's other connections to the same host (if known) while they had data."""
    table, mine, rates = poll.flow.table, poll.flow.connection, {}
    for index, known in enumerate(table.connections[: const.MAX_CONNECTIONS]):
        if known is mine or known.get("dst") != mine.get("dst"):
            continue
        other = SinglePoll(CounterFlow(table, index))
        up, its_up = (
            # A list without times describes one instant.
            Presence(
                np.nan_to_num(one["time_ns"]) / 1e3 - one.busy_us,
                np.nan_to_num(one["time_ns"]) / 1e3,
                one["bytes_acked"],
            )
            for one in (poll, other)
        )
        if min(poll.busy_us, other.busy_us) > 0 and matters(up, its_up):
            rates[endpoint(known.get("src"), known.get("sport"))] = other.busy_bps
    if not rates:
        return None
    return sharing_of(poll.busy_bps, rates, (0.0, 0.0), by_time=True, same_destination=bool(mine.get("dst")))
