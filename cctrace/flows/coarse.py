"""The coarse event stream: ACKs reconstructed between two polls of a sender's counters.

    poll            *-----------------*-----------------*        delivered, lost, RTT, in flight: known
    ACKs made up    .     .     .     |     .     .     |        one per RTT, each with its part of the difference

Between two polls that differ in `delivered`, one ACK per smoothed RTT is generated, the last of them at the poll. A
controller's rounds thus have the right length, but their contents are lost:

    rate sample     the kernel's own latest at a poll (`delivery_rate`), else the mean over the last RTT; a controller
                    with a maximum filter sees few of them
    RTT             at a poll the kernel's `min_rtt` if it fell since the last poll, else the mean that explains the
                    change of the smoothed RTT (QUIC: the latest RTT); a minimum that is not new is therefore too high,
                    unless few ACKs arrived since the last poll, as in PROBE_RTT. None between polls
    losses          segments retransmitted or marked lost since the last poll, all with the first ACK after it; a
                    recovery that started and ended between polls is derived from them, tail-loss probes included
    in flight       the polls', interpolated; without any, the deliveries of one RTT

Counters that start in mid-connection give no rate samples within the first RTT. Sources that count bytes count
segments of the MSS; a log of QUIC packets is a poll per ACK.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cctrace import schema
from cctrace.cc.linux import CA_CWR, CA_DISORDER, CA_LOSS, CA_RECOVERY, EVENT_COMPLETE_CWR, EVENT_LOSS, EVENT_TX_START
from cctrace.columns import Columns, Floats, Ints, Values, rows_of_spans
from cctrace.errors import StreamError
from cctrace.flows.events import Events
from cctrace.flows.state import EVENT
from cctrace.io.counters.tcpinfo import MISSING
from cctrace.tcp.wire import MSS_BYTES
from cctrace.units import format_time

if TYPE_CHECKING:
    from cctrace.flows.counters import CounterFlow

MAX_ACKS = 1000  # generated between two polls
MAX_ROWS = 2_000_000  # generated in total: 400 MB
CWND_FULL = 0.9  # share of cwnd in flight from which the flow is cwnd-limited
_CODE = schema.LINUX_EVENTS


def events_of(flow: CounterFlow, hz: int) -> Events:
    """Return the coarse `Events` of a `CounterFlow`; `StreamError` if the counters show no progress, or no RTT."""
    known = _Known(flow)
    acks = _acks(known)
    _fill_counts(acks, known)
    _fill_samples(acks, known)
    _fill_states(acks, known)
    rows = _calls(acks)
    first_ns = int(known.time_ns[0])
    rows["delivered_mstamp_us"] = rows["lsndtime_us"] = (rows["time_ns"] - first_ns) // 1000 + 1_000_000
    inferred = ("hz", "isn", "wscale", "sack_ok", "ecn_ok", "initial_cwnd")
    meta = {
        "mss": known.mss,
        "hz": hz,
        "isn": 0,
        "start_ns": first_ns,
        "handshake_rtt_us": int(known.rtt_us[0]) if known.complete else -1,
        "initial_cwnd": -1,
        "ecn_ok": False,
        "sack_ok": True,
        "complete": known.complete,
        "inferred": inferred if known.mss_known else (*inferred, "mss"),
        "coarse": {
            "polls": len(known.time_ns),
            "interval_ms": float(np.median(np.diff(known.time_ns))) / 1e6,
            "acks": len(acks.rows) - 1,
            "made_up": int((~acks.polled).sum()) - 1,
            "in_flight_known": not bool(np.isnan([*flow.outstanding(), *flow.values("bytes_in_flight")]).all()),
        },
    }
    return Events(rows, meta)


def caveats(events: Events) -> list[str]:
    """Return the caveats of results computed from a coarse stream, a list of one-line texts."""
    meta = events.meta["coarse"]
    return [
        f"coarse event stream: {meta['polls']} polls, typically {format_time(1e6 * meta['interval_ms'])} apart, and "
        f"{meta['made_up']} of {meta['acks']} ACKs made up between them; rates are means or single samples, RTTs means "
        "(so that minima are too high), gain cycles out of step, and windows that grow by the ACK not to be trusted"
    ]


class _Known:
    """Contents of the counters: progress at some instants, everything else at the polls."""

    def __init__(self, flow: CounterFlow) -> None:
        self.flow, polls = flow, flow.polls
        source = polls.source
        self.mss_known = flow.mss is not None
        self.mss = flow.mss or _datagram(flow.packets) or MSS_BYTES
        self.poll_ns = polls["time_ns"]
        time_ns, delivered = self.poll_ns, flow.values("delivered")
        if np.isnan(delivered).all():
            time_ns, acked = flow.acked()
            delivered = acked / self.mss + 1
        good = ~np.isnan(delivered) & (time_ns != MISSING)
        if len(time_ns) == len(self.poll_ns):
            good &= np.arange(len(good)) >= _begin(flow.rtt_us(), delivered)
        time_ns, delivered = time_ns[good], np.maximum(delivered[good], 1).astype(np.int64)
        later = np.flatnonzero(np.diff(time_ns, prepend=time_ns[:1] - 1) > 0)
        self.time_ns, self.delivered = time_ns[later], np.maximum.accumulate(delivered[later])
        if len(later) < 2 or self.delivered[-1] == self.delivered[0]:
            raise StreamError(f"{source}: no event stream: these counters do not show how far the connection had come")
        latest = flow.values("latest_rtt_us")
        self.smoothed = np.isnan(latest).all()
        self.rtt_polls = flow.rtt_us() if self.smoothed else latest
        if not (self.rtt_polls > 0).any():
            raise StreamError(f"{source}: no event stream: these counters have no RTT")
        self.rtt_us = self.between(self.rtt_polls, self.time_ns)
        self.complete = bool(self.delivered[0] <= 1)

    def between(self, values: Values, time_ns: Ints) -> Floats:
        """Return values of the polls, interpolated to other times, skipping unknown ones."""
        known = ~np.isnan(values)
        if not known.any():
            return np.full(len(time_ns), np.nan)
        zero = self.time_ns[0]
        return np.interp(time_ns - zero, (self.poll_ns - zero)[known], values[known])

    def after(self, values: Values, time_ns: Ints) -> Values:
        """Return the values of the first polls at or after other times; of the last poll after it."""
        at = np.minimum(np.searchsorted(self.poll_ns, time_ns), len(self.poll_ns) - 1)
        return values[at]

    def progress(self, time_ns: Ints) -> Ints:
        """Return the segments delivered by some times, int64."""
        zero = self.time_ns[0]
        return np.interp(time_ns - zero, self.time_ns - zero, self.delivered).astype(np.int64)

    def sampled_rtt_us(self) -> Floats:
        """Return the mean RTT since the previous poll, us, NaN where unknown.

        A smoothed RTT s takes an eighth of each sample, so n samples of mean r leave r + (s - r) (7/8)^n of it.
        There were at most as many samples as segments arrived, so the estimate errs towards s.
        """
        if not self.smoothed:
            return self.rtt_polls
        arrived = self.flow.values("segs_in")
        if np.isnan(arrived).all():
            arrived = self.progress(self.poll_ns).astype(float)
        kept = (7 / 8) ** np.maximum(np.diff(arrived, prepend=np.nan), 1)
        before = np.append(np.nan, self.rtt_polls[:-1])
        mean = (self.rtt_polls - before * kept) / (1 - kept)
        lowest = self.flow.values("min_rtt")
        mean = np.fmax(np.where(np.isnan(mean), self.rtt_polls, mean), lowest)
        so_far = np.fmin.accumulate(np.concatenate([[np.inf], lowest]))[:-1]
        return np.where(lowest < so_far, lowest, mean)

    def lost(self) -> Ints:
        """Return the segments lost by each poll: retransmitted, or newly marked lost."""
        retransmitted = self.flow.values("total_retrans")
        if np.isnan(retransmitted).all():
            retransmitted = self.flow.values("bytes_retrans") / self.mss
        waiting = np.nan_to_num(self.flow.values("lost")) - np.nan_to_num(self.flow.values("retrans"))
        if np.isnan(retransmitted).all() and self.flow.packets is not None:
            times = np.sort(self.flow.packets["time_ns"][self.flow.packets["kind"] == "lost"])
            retransmitted = np.searchsorted(times, self.poll_ns, side="right").astype(float)
        return np.maximum.accumulate(np.nan_to_num(retransmitted) + np.maximum(waiting, 0)).astype(np.int64)


def _begin(rtt_us: Values, delivered: Values) -> int:
    """Return the poll at which a connection starts: the first with an RTT, the last without data."""
    empty = np.flatnonzero(delivered <= 1)
    if not len(empty):
        return 0
    established = empty[rtt_us[empty] > 0]
    return int(established[0]) if len(established) else int(empty[-1])


def _datagram(packets: Columns | None) -> int | None:
    """Return the most common size of a log's larger packets, None without any."""
    if packets is None:
        return None
    sizes = packets["bytes"][(packets["kind"] == "sent") & (packets["bytes"] > 1000)]
    return int(np.bincount(np.minimum(sizes, 65_535)).argmax()) if len(sizes) else None


@dataclass
class _Acks:
    """One row per ACK, the first one for the start of the connection; before it is split into calls."""

    rows: np.ndarray
    polled: np.ndarray  # it is at a poll
    first: np.ndarray  # it is the first after a poll
    state: np.ndarray  # congestion state after it
    idle_ns: np.ndarray  # restart time after idle, 0 for none


def _acks(known: _Known) -> _Acks:
    """Return the ACKs at their times, with what they deliver."""
    step_ns, grown = np.diff(known.time_ns), np.diff(known.delivered)
    rtt_ns = np.maximum(known.rtt_us[1:], 1) * 1000
    most = np.clip(MAX_ROWS // len(step_ns), 1, MAX_ACKS)
    count = np.clip(np.ceil(step_ns / rtt_ns), 1, np.minimum(np.maximum(grown, 1), most)).astype(np.int64)
    count[grown == 0] = 0
    nth = rows_of_spans(1, count)
    of = np.repeat(np.arange(len(count)), count)
    rows = np.zeros(len(of) + 1, EVENT)
    rows["rs_send"] = -1
    rows["time_ns"][0], rows["delivered"][0] = known.time_ns[0], known.delivered[0]
    rows["time_ns"][1:] = known.time_ns[of] + step_ns[of] * nth // count[of]
    rows["delivered"][1:] = known.delivered[of] + grown[of] * nth // count[of]
    polled, first = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    polled[1:], first[1:] = nth == count[of], nth == 1
    return _Acks(rows, polled, first, np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64))


def _fill_counts(acks: _Acks, known: _Known) -> None:
    """Fill in what is outstanding, sent, lost and acknowledged."""
    rows, flow = acks.rows, known.flow
    time_ns, delivered = rows["time_ns"], rows["delivered"].astype(np.int64)
    rows["mss"] = known.mss
    rtt_ns = known.between(known.rtt_polls, time_ns) * 1000
    per_rtt = delivered - known.progress(time_ns - rtt_ns.astype(np.int64))
    outstanding = known.between(flow.outstanding(), time_ns)
    in_bytes = known.between(flow.values("bytes_in_flight"), time_ns) / known.mss
    outstanding = np.where(np.isnan(outstanding), np.where(np.isnan(in_bytes), per_rtt, in_bytes), outstanding)
    rows["packets_out"] = np.rint(np.maximum(outstanding, 0))
    for column, name in (("sacked_out", "sacked"), ("lost_out", "lost"), ("retrans_out", "retrans")):
        rows[column] = np.rint(np.nan_to_num(known.between(flow.values(name), time_ns)))
    rows["lost"] = known.after(known.lost(), time_ns)
    rows["lost"] -= rows["lost"][0]
    sent = known.between(flow.values("data_segs_out"), time_ns)
    rows["data_segs_out"] = np.where(np.isnan(sent), delivered + rows["packets_out"] + rows["lost"], sent)
    rows["delivered_ce"] = np.nan_to_num(known.after(flow.values("delivered_ce"), time_ns))
    rows["snd_una"] = rows["ack"] = (delivered - 1) * known.mss + 1
    rows["snd_nxt"] = rows["snd_una"] + rows["packets_out"].astype(np.int64) * known.mss
    rows["snd_wnd"] = np.nan_to_num(known.after(flow.values("snd_wnd"), time_ns), nan=schema.U32_MAX)
    rows["rs_acked_sacked"][1:] = np.diff(delivered)
    rows["rs_losses"][1:] = np.diff(rows["lost"].astype(np.int64))
    rows["rs_prior_in_flight"] = _in_flight(rows)
    rows["max_packets_out"] = rows["packets_out"]
    cwnd = known.between(flow.values("snd_cwnd"), time_ns)  # as the data in flight
    rows["is_cwnd_limited"] = np.where(np.isnan(cwnd), 1, rows["packets_out"] >= CWND_FULL * cwnd)


def _in_flight(rows: Values) -> Ints:
    counts = {name: rows[name].astype(np.int64) for name in ("packets_out", "sacked_out", "lost_out", "retrans_out")}
    return np.maximum(counts["packets_out"] - counts["sacked_out"] - counts["lost_out"] + counts["retrans_out"], 0)


def _fill_samples(acks: _Acks, known: _Known) -> None:
    rows, flow = acks.rows, known.flow
    time_ns, delivered = rows["time_ns"], rows["delivered"].astype(np.int64)
    srtt = known.between(flow.rtt_us() if np.any(flow.rtt_us() > 0) else known.rtt_polls, time_ns)
    rows["srtt_us8"] = srtt * 8
    rows["mdev_us4"] = rows["rttvar_us4"] = np.nan_to_num(known.between(flow.values("rttvar"), time_ns) * 4)
    taken = known.after(np.nan_to_num(known.sampled_rtt_us(), nan=-1), time_ns).astype(np.int64)
    rows["rs_rtt_us"] = np.where(acks.polled & (taken > 0), taken, -1)
    floor = known.after(np.fmin.accumulate(np.fmin(flow.values("min_rtt"), known.rtt_polls)), time_ns)
    rows["tcp_min_rtt_us"] = np.nan_to_num(floor, nan=schema.U32_MAX)
    # The sample: since the last ACK that the acknowledged segment's sender had seen, or since sending began again; at a
    # poll the kernel's own, unless it is still that of the poll before.
    back_us = np.maximum(known.between(known.rtt_polls, time_ns), 1).astype(np.int64)
    then_ns = time_ns - back_us * 1000
    _fill_idle(acks, known, then_ns)
    seen = np.searchsorted(time_ns, then_ns, side="right") - 1
    prior = delivered[np.maximum(seen, 0)]
    rows["rs_prior_delivered"] = prior
    began_ns = np.minimum(np.maximum(time_ns[np.maximum(seen, 0)], np.maximum.accumulate(acks.idle_ns)), then_ns)
    number, interval = delivered - prior, (time_ns - began_ns) // 1000
    rate = flow.values("delivery_rate_Bps")
    rate = np.where((rate > 0) & (np.diff(rate, prepend=np.nan) != 0), rate, np.nan)
    rate = np.where(acks.polled, known.after(rate, time_ns), np.nan)
    reported = ~np.isnan(rate)
    number[reported] = np.maximum(np.rint(rate[reported] * back_us[reported] / 1e6 / known.mss), 1)
    interval[reported] = np.rint(number[reported] * known.mss * 1e6 / rate[reported])
    unknown = (number < 1) | ((seen < 0) & (not known.complete) & ~reported)
    unknown[0] = True
    rows["rs_delivered"], rows["rs_interval_us"] = np.where(unknown, -1, number), np.where(unknown, -1, interval)
    limited = np.nan_to_num(known.after(flow.values("delivery_rate_app_limited"), time_ns))
    rows["rs_is_app_limited"] = limited > 0
    rows["app_limited"] = np.where(limited > 0, delivered + rows["rs_prior_in_flight"], 0)
    zero = time_ns[0]
    rows["rs_tx_in_flight"] = np.interp(then_ns - zero, time_ns - zero, rows["rs_prior_in_flight"])
    rows["rs_prior_lost"] = np.interp(then_ns - zero, time_ns - zero, rows["lost"])
    rows["rs_lost"] = rows["lost"].astype(np.int64) - rows["rs_prior_lost"]
    ce = np.interp(then_ns - zero, time_ns - zero, rows["delivered_ce"]).astype(np.int64)
    rows["rs_delivered_ce"] = rows["delivered_ce"].astype(np.int64) - ce


def _fill_idle(acks: _Acks, known: _Known, then_ns: Values) -> None:
    """Note when sending began again after a poll with nothing in flight: an RTT before the next ACK."""
    time_ns, poll_ns = acks.rows["time_ns"], known.poll_ns
    empty_ns = np.maximum.accumulate(np.where(known.flow.outstanding() == 0, poll_ns, time_ns[0] - 1))
    last_ns = empty_ns[np.maximum(np.searchsorted(poll_ns, time_ns[1:]) - 1, 0)]
    idle = 1 + np.flatnonzero((last_ns >= time_ns[:-1]) & (last_ns < time_ns[1:]))
    acks.idle_ns[idle] = np.maximum(then_ns[idle], last_ns[idle - 1])


def _fill_states(acks: _Acks, known: _Known) -> None:
    """Fill in the congestion state: the polls', and Recovery where segments were lost without any poll showing it."""
    reported = np.nan_to_num(known.after(known.flow.values("ca_state"), acks.rows["time_ns"])).astype(np.int64)
    state = reported.copy()
    losing = acks.rows["rs_losses"] > 0
    state[1:][losing[1:] & (reported[1:] < CA_CWR) & (reported[:-1] < CA_CWR)] = CA_RECOVERY
    acks.state = state
    before = np.append(state[:1], state[:-1])
    acks.rows["ca_state"] = before


def _calls(acks: _Acks) -> Values:
    """Return the rows of the stream: each ACK split into the calls that it causes, in the kernel's order."""
    rows, after, before = acks.rows, acks.state, acks.rows["ca_state"].astype(np.int64)
    ack = np.arange(1, len(rows))
    entered = ack[
        (after[ack] >= CA_CWR) & ((before[ack] < CA_CWR) | ((after[ack] == CA_LOSS) & (before[ack] < CA_LOSS)))
    ]
    changed = ack[after[ack] != before[ack]]
    most_lost = np.clip(MAX_ROWS // len(rows), 1, MAX_ACKS)
    grows = ack[(after[ack] <= CA_DISORDER) | (after[ack] == CA_LOSS)]
    calls = (
        ("init", np.zeros(1, np.int64), 0, False),
        ("cwnd_event", ack[acks.idle_ns[ack] > 0], EVENT_TX_START, False),
        ("pkts_acked", ack, rows["rs_acked_sacked"], False),
        ("skb_marked_lost", np.repeat(ack, np.minimum(rows["rs_losses"][ack], most_lost)), 0, False),
        ("ssthresh", entered, 0, False),
        ("set_state", changed, after, False),
        ("cwnd_event", changed[(before[changed] >= CA_CWR) & (before[changed] < CA_LOSS) & (after[changed] < CA_CWR)],
         EVENT_COMPLETE_CWR, True),
        ("cwnd_event", entered[after[entered] == CA_LOSS], EVENT_LOSS, False),
        ("on_ack", ack, 0, True),
        ("cong_avoid", grows, rows["rs_acked_sacked"], True),
    )  # fmt: skip
    of = np.concatenate([at for _, at, _, _ in calls])
    rank = np.concatenate([np.full(len(at), i) for i, (_, at, _, _) in enumerate(calls)])
    order = np.lexsort((rank, of))
    of, rank = of[order], rank[order]
    out = rows[of]
    out["event"] = np.array([_CODE[name] for name, _, _, _ in calls])[rank]
    for i, (_, _, arg, now) in enumerate(calls):
        mine = rank == i
        out["arg"][mine] = arg[of[mine]] if isinstance(arg, np.ndarray) else arg
        if now:
            out["ca_state"][mine] = after[of[mine]]
    starts = rank == 1
    out["time_ns"][starts] = acks.idle_ns[of[starts]]
    lost = rank == 3
    for column, source in (
        ("in_flight", "rs_tx_in_flight"),
        ("lost", "rs_prior_lost"),
        ("delivered", "rs_prior_delivered"),
    ):
        out[f"skb_tx_{column}"][lost] = out[source][lost]
    out["rs_tx_in_flight_v2"], out["skb_tx_in_flight_v2"] = out["rs_tx_in_flight"], out["skb_tx_in_flight"]
    out["skb_tx_has_mstamp"][lost] = out["skb_segments"][lost] = 1
    early = ~np.isin(out["event"], (_CODE["on_ack"], _CODE["cong_avoid"]))
    for column in ("rs_delivered", "rs_interval_us"):
        out[column][early] = -1
    return out
