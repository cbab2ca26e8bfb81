"""The row loop of a replay: the controller's calls and the recorded sends of a flow, in order of time.

A row of the event stream is one call that tcp_ack, tcp_write_xmit or a timer makes to the controller
(`tcp_congestion_ops`). `call_row` first processes the packets that were sent before it, then does what the stack does
before the call, makes the call, and does what the stack does with its result (`stack`). Random numbers that the
controller asks for are given in `draws`. `trying`, `branches` and `together` run the same rows with other values, and
compare how likely these make the recorded sends (`likelihood`).

Plain functions over numpy records, interpreted or compiled (`cctrace.lang.machine`). They share these arguments:

    replay   (ctx, rows, sends, marks, acks, likelihood): all but the state
      ctx          parameters (`context`)
      rows         (calls, states, steady): the event stream, packed (`flows.packed`)
      sends        the packets that were sent (`schema.SENDS`)
      marks        of each packet, whether it was sent application-limited, and what waited behind it (`context`)
      acks         one record `ack`: what the controller reads in its call (`schema.LINUX_VIEW`)
      likelihood   [0]: log likelihood of the sends so far; [1 + k]: the most that sends from `k` on can add
    draws    the known random numbers: rows of (row of the call, four raw 32-bit numbers)
    slots    the controller's fields, 64-bit words
    stack    the stack's own state, 64-bit words; `tcp` is the same as a record (`stack.STACK`)
"""

import numpy as np

from cctrace import schema
from cctrace.cc.linux import CA_RECOVERY, EVENT_CWND_RESTART, EVENT_TX_START
from cctrace.lang.memory import call as call_compiled
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import stack as sk
from cctrace.replaying.engine.likelihood import (
    OTHER_LIMIT,
    any_send,
    full_flight,
    is_written,
    paced_send,
    paced_send_bound,
    timed_send,
)
from cctrace.replaying.engine.waiting import is_flag_doubted, is_limit_replayed, is_paced, take_waiting
from cctrace.tcp.pacing import TSO_WIN_DIVISOR

LONG_AGO = 1 << 20  # ticks, more than any window at any HZ
CHECKPOINT_ROWS = 64  # rows between copies of the state; calls that draw, before which it is restored, are rare
LONG_PHASE_RTTS = 2  # minimum RTTs, within which a probe or a drain reaches its end condition


def observe(row, rest, start_ns, ack):
    """Copy what all calls of one state (`row`, `rest`) read to `ack`; `observe_call` copies what differs."""
    ack.ca_state = row.ca_state
    ack.ack = row.ack
    ack.snd_una = row.snd_una
    ack.snd_nxt = row.snd_nxt
    ack.sacked_out = row.sacked_out
    ack.lost_out = row.lost_out
    ack.retrans_out = row.retrans_out
    ack.data_segs_out = row.data_segs_out
    ack.delivered = row.delivered
    ack.delivered_ce = rest.delivered_ce
    ack.lost = rest.lost
    ack.srtt_us8 = row.srtt_us8
    ack.mdev_us4 = row.mdev_us4
    ack.rttvar_us4 = rest.rttvar_us4
    ack.tcp_min_rtt_us = rest.tcp_min_rtt_us
    ack.mss = rest.mss
    ack.rs_prior_delivered = row.rs_prior_delivered
    ack.rs_rtt_us = row.rs_rtt_us
    ack.rs_losses = rest.rs_losses
    ack.rs_is_retrans = rest.rs_is_retrans
    ack.rs_is_ack_delayed = rest.rs_is_ack_delayed
    ack.rs_is_acking_tlp_retrans = rest.rs_is_acking_tlp_retrans
    ack.tlp_orig_data_app_limited = rest.tlp_orig_data_app_limited
    ack.rs_tx_in_flight = row.rs_tx_in_flight
    ack.rs_prior_lost = rest.rs_prior_lost
    ack.skb_tx_in_flight = rest.skb_tx_in_flight
    ack.skb_tx_lost = rest.skb_tx_lost
    ack.skb_tx_delivered = rest.skb_tx_delivered
    ack.skb_tx_has_mstamp = rest.skb_tx_has_mstamp
    ack.skb_segments = rest.skb_segments
    ack.clock_ns = row.time_ns - start_ns + schema.CLOCK_START_US * 1000
    ack.now_us = ack.clock_ns // 1000


def observe_call(call, row, rest, ack):
    """Copy to `ack` what differs between the calls of one state, and what `read_row` may have changed."""
    ack.arg = call.arg
    ack.packets_out = row.packets_out
    ack.delivered_mstamp_us = call.delivered_mstamp_us
    ack.is_cwnd_limited = row.is_cwnd_limited
    ack.max_packets_out = row.max_packets_out
    ack.rs_delivered = row.rs_delivered if call.sampled else -1
    ack.rs_interval_us = row.rs_interval_us if call.sampled else -1
    ack.rs_acked_sacked = row.rs_acked_sacked if call.sampled else 0
    ack.rs_prior_in_flight = row.rs_prior_in_flight
    ack.rs_is_app_limited = row.rs_is_app_limited
    ack.rs_lost = row.rs_lost if call.sampled else -1
    ack.rs_delivered_ce = row.rs_delivered_ce if call.sampled else -1
    ack.skb_tx_app_limited = rest.skb_tx_app_limited


def process_send(replay, handed_over_ns, srtt_us8, slots, tcp):
    """Process the next packet: score it, mark it, and compute when pacing releases the one after it.

    `handed_over_ns`: the time by which TCP had passed it to the qdisc. `srtt_us8`: the smoothed RTT before it.
    """
    ctx, _, sends, marks, _, likelihood = replay
    k = tcp.next_send
    send = sends[k]
    if ctx[cx.STORES_BOUNDS] != 0:
        likelihood[1 + k] = paced_send_bound(send, tcp, ctx[cx.TIME_ERROR]) if send.begins != 0 else 0.0
    if send.begins != 0:
        if ctx[cx.SCORE] == cx.PACED_SENDS and (ctx[cx.UNTIL_NS] == 0 or send.tx_ns < ctx[cx.UNTIL_NS]):
            likelihood[0] += paced_send(
                sends, k, slots, tcp, ctx[cx.OWN_MIN_RTT], ctx[cx.SLOW_BURST], ctx[cx.TIME_ERROR]
            )
        elif ctx[cx.SCORE] == cx.ALL_SENDS:
            gap_us = ctx[cx.USUAL_GAP_US]
            likelihood[0] += any_send(sends, k, slots, tcp, gap_us, srtt_us8, ctx[cx.OWN_MIN_RTT], ctx[cx.SLOW_BURST])
        elif ctx[cx.SCORE] == cx.TIMED_SENDS or (ctx[cx.SCORE] == cx.OWN_SENDS and not is_written(send, tcp)):
            likelihood[0] += timed_send(sends, k, slots, tcp, ctx[cx.USUAL_GAP_US])
        sk.begin_skb(send.tx_ns, handed_over_ns, tcp)
    if ctx[cx.MARKED] == 0:
        marks[k] = 1 if slots[sk.APP_LIMITED] != 0 else 0
    segments = np.int64(send.segments)
    sk.pace_skb(np.int64(send.payload) + segments * ctx[cx.OVERHEAD], segments, slots[sk.PACING], tcp)
    tcp.next_send = k + 1
    if send.retransmitted == 0:
        tcp.unanswered_acks, tcp.new_data_end = 0, k + 1
    if k + 1 == sends.size or sends[k + 1].begins != 0:
        free = slots[sk.CWND] - np.int64(send.in_flight)
        limited = free <= 0 if is_limit_replayed(ctx, sends, slots) else free * TSO_WIN_DIVISOR < slots[sk.CWND]
        sk.validate_cwnd(limited, np.int64(send.packets_out), send.snd_nxt, tcp.snd_una, tcp)
    tcp.silent_since_ack = 0


def process_sends(replay, i, slots, tcp):
    """Process all packets sent before row `i`.

    To a sender behind fq, a packet that leaves after its departure time is not late if TCP had handed it over by then.
    But where the question is whether there was fq at all (TIMED_SENDS, OWN_SENDS), it counts as late: otherwise fq
    would explain any timer's lateness.
    """
    ctx, rows, sends, _, _, _ = replay
    clock_ns = sk.state_of(rows, i).time_ns - ctx[cx.START_NS] + schema.CLOCK_START_US * 1000
    prior = sk.state_of(rows, max(i - 1, 0))
    may_wait_in_fq = ctx[cx.HANDS_OVER] != 0 and ctx[cx.SCORE] < cx.TIMED_SENDS
    while tcp.next_send < sends.size and sends[tcp.next_send].row <= i:
        send = sends[tcp.next_send]
        if i > 0 and not (send.app_limited != 0 and sk.waited_for_pacing(sends, tcp.next_send, tcp)):
            sk.mark_app_limited(send, np.int64(prior.delivered), slots, tcp, ctx[cx.BY_ACKS] != 0)
        handed_over_ns = clock_ns if may_wait_in_fq else np.int64(send.tx_ns)
        process_send(replay, handed_over_ns, prior.srtt_us8, slots, tcp)


def read_row(replay, i, slots, tcp):
    """Fill `ack` with what the controller reads in the call of row `i`."""
    ctx, rows, sends, marks, acks, _ = replay
    calls, states, steady = rows
    ack = acks[0]
    call = calls[i]
    row = states[call.of]
    rest = steady[row.steady]
    if ctx[cx.OBSERVED] != call.of:
        observe(row, rest, ctx[cx.START_NS], ack)
        ctx[cx.OBSERVED] = call.of
    observe_call(call, row, rest, ack)
    hz = tcp.hz
    ack.wstamp_ns = max(ack.clock_ns, tcp.wstamp_ns)
    ack.jiffies = schema.JIFFIES_START + (ack.now_us + tcp.tick_us) * hz // 1_000_000
    ack.lsndtime = schema.JIFFIES_START + (row.lsndtime_us + tcp.tick_us) * hz // 1_000_000
    ack.prior_cwnd_tp = tcp.prior_cwnd
    ack.ecn_ok = ctx[cx.ECN_OK]
    if ctx[cx.PARTS_AS_V2] != 0:
        ack.rs_tx_in_flight, ack.skb_tx_in_flight = row.rs_tx_in_flight_v2, rest.skb_tx_in_flight_v2
    doubted = tcp.is_cwnd_limited == 0 and is_flag_doubted(row)
    if doubted or is_limit_replayed(ctx, sends, slots):
        ack.is_cwnd_limited, ack.max_packets_out = tcp.is_cwnd_limited, tcp.max_packets_out
    if ctx[cx.TIME_ERROR] > 1 and ctx[cx.GAIN_SLOT] >= 0:
        sk.lean(slots[ctx[cx.GAIN_SLOT]], is_overlong_phase(ctx, slots, ack), ack)
    if ctx[cx.DRAINS_END] != 0:
        sk.end_drain(slots[ctx[cx.GAIN_SLOT]], tcp, ack)
    if ctx[cx.STAMP_SLOT] >= 0 and call.event == schema.ON_ACK:
        starts = starts_probe_rtt(ctx, i, tcp)
        slots[ctx[cx.STAMP_SLOT]] = ack.jiffies - (LONG_AGO if starts else 0)
        if ctx[cx.DONE_SLOT] >= 0:
            sk.reach_probe_rtt(starts, slots[ctx[cx.DONE_SLOT]], tcp, ack)
    if row.rs_send >= 0:
        marked = marks[row.rs_send] & cx.APP_LIMITED
        if call.event == schema.SKB_MARKED_LOST:
            ack.skb_tx_app_limited = marked
        else:
            ack.rs_is_app_limited = marked


def starts_probe_rtt(ctx, i, tcp):
    """Whether the recorded sender was seen to enter PROBE_RTT at row `i`; must be called in order of rows."""
    k = tcp.next_probe_rtt
    while k < ctx[cx.PROBE_RTTS] and ctx[cx.CONTEXT_SIZE + k] < i:
        k += 1
    tcp.next_probe_rtt = k
    return k < ctx[cx.PROBE_RTTS] and ctx[cx.CONTEXT_SIZE + k] == i


def is_overlong_phase(ctx, slots, ack):
    """Whether the current phase of BBRv2's or v3's cycle has lasted so long that it must have ended in the kernel."""
    if ctx[cx.CYCLE_SLOT] < 0 or ctx[cx.MIN_RTT_SLOT] < 0:
        return False
    return ack.delivered_mstamp_us - slots[ctx[cx.CYCLE_SLOT]] > LONG_PHASE_RTTS * slots[ctx[cx.MIN_RTT_SLOT]]


def set_random_numbers(ctx, draws, i, tcp, ack):
    """Set the random numbers that the call of row `i` may take; return whether they are known."""
    k = tcp.next_draw
    if k < draws.shape[0] and draws[k, 0] == i:
        ack.rand0, ack.rand1, ack.rand2, ack.rand3 = draws[k, 1], draws[k, 2], draws[k, 3], draws[k, 4]
        tcp.next_draw = k + 1
        return True
    unknown = ctx[cx.UNKNOWN_DRAW]
    ack.rand0, ack.rand1, ack.rand2, ack.rand3 = unknown, unknown, unknown, unknown
    return False


def call_row(replay, draws, i, slots, stack):
    """Process row `i` and the packets sent before it; return whether the controller took an unknown random number."""
    ctx, rows, sends, marks, acks, likelihood = replay
    ack, tcp = acks[0], sk.tcp_of(stack)
    if tcp.next_send < sends.size and sends[tcp.next_send].row <= i:
        process_sends(replay, i, slots, tcp)
    calls, states, _ = rows
    call = calls[i]
    if i > 0 and call.of != calls[i - 1].of:
        later_ns = states[call.of].time_ns - states[calls[i - 1].of].time_ns
        if later_ns != 0:
            tcp.earlier_row = i - 1
        if later_ns > 0:
            take_waiting(ctx, rows, i, sends, marks, slots, tcp)
    event = np.int64(call.event)
    has_entry = ctx[cx.ENTRIES] >> event & 1
    if not has_entry and (event >= schema.SKB_MARKED_LOST or event == schema.INIT):
        return False
    row = states[call.of]
    read_row(replay, i, slots, tcp)
    starts = event == schema.CWND_EVENT and (call.arg == EVENT_TX_START or call.arg == EVENT_CWND_RESTART)
    k = tcp.next_send
    if starts and k < sends.size and not sk.waited_for_pacing(sends, k, tcp):
        sk.mark_app_limited(sends[k], ack.delivered, slots, tcp, ctx[cx.BY_ACKS] != 0)
    if event == schema.ON_ACK:
        if ctx[cx.BY_ACKS] != 0:
            sk.mark_app_limited_by_ack(rows, i, sends, ctx[cx.HANDS_OVER] != 0, ack, slots, tcp)
        if ctx[cx.SCORE] == cx.FULL_FLIGHTS:
            likelihood[0] += full_flight(row, slots[sk.CWND])
        tcp.acked_ns, tcp.silent_since_ack = ack.clock_ns, 1
        if ctx[cx.SCORE] != cx.NOTHING:
            tcp.cwnd_was_full = was_full(ctx, row, ack, slots, tcp)
    sk.before_call(event, ack, slots, tcp, ctx[cx.REDUCES])
    if event == schema.ON_ACK:
        tcp.snd_una = ack.snd_una
    ack.prior_cwnd_tp = tcp.prior_cwnd
    is_known = set_random_numbers(ctx, draws, i, tcp, ack)
    slots[sk.DRAWS] = 0
    returned = slots[sk.SSTHRESH] if event == schema.SSTHRESH else slots[sk.CWND]
    if has_entry:
        answer = call_compiled(ctx[cx.ADDRESS], event, tcp.slots_address, ctx[cx.ACK])
        slots[slots.size - 1] = answer  # `fields.RETURNED`
        if ctx[cx.RETURNS] >> event & 1:
            returned = answer
        elif event == schema.UNDO_CWND:
            returned = slots[sk.CWND]
    sk.after_call(event, ack, slots, tcp, ctx[cx.REDUCES], tcp.hz, returned)
    if ctx[cx.PACED_SLOT] >= 0:
        sk.update_pacing_rate(event, ack, slots, tcp, is_paced(ctx, slots), slots[ctx[cx.MAX_RATE_SLOT]])
    tcp.ca_state = ack.ca_state
    tcp.min_rtt_us = ack.tcp_min_rtt_us
    return slots[sk.DRAWS] > 0 and not is_known


def was_full(ctx, row, ack, slots, tcp):
    """Whether an ACK found no room in cwnd for what waits to be sent, see `stack.cwnd_was_full`.

    Before Recovery, TCP waits for room for a super-packet [Linux618] tcp_tso_should_defer, at most a third of cwnd.
    """
    if ctx[cx.SCORE] >= cx.ALL_SENDS and row.is_cwnd_limited == 0:
        return OTHER_LIMIT
    room = slots[sk.CWND] - ack.rs_prior_in_flight
    if room <= 0 or ack.ca_state >= CA_RECOVERY or room * TSO_WIN_DIVISOR >= slots[sk.CWND]:
        return 1 if room <= 0 else 0
    return 1 if room < sk.least_burst(slots, tcp, ctx[cx.OWN_MIN_RTT], ctx[cx.SLOW_BURST]) else 0


def run(replay, draws, slots, stack, checkpoint, recording):
    """Replay rows from FIRST to before LAST and record; stop before the first call that takes an unknown number.

    Returns the row reached. `checkpoint`: room for a copy of slots and stack; empty if the class takes no random
    numbers. Whether a call takes one is known after it, so the state is restored from the checkpoint, and the rows up
    to that call are called again. This is done in the same loop because LLVM inlines `call_row` only where it is called
    in one place of a function (docs/design.md, "A call in one place").
    """
    ctx, _, _, _, _, likelihood = replay
    size, checkpoint_row, checkpoint_likelihood, end = slots.size, ctx[cx.FIRST], likelihood[0], ctx[cx.LAST]
    i = ctx[cx.FIRST]
    while i < end:
        if checkpoint.size and (i - ctx[cx.FIRST]) % CHECKPOINT_ROWS == 0:
            checkpoint[:size], checkpoint[size:] = slots, stack
            checkpoint_row, checkpoint_likelihood = i, likelihood[0]
        drew_unknown = call_row(replay, draws, i, slots, stack)
        if drew_unknown and checkpoint.size:
            slots[:], stack[:], likelihood[0] = checkpoint[:size], checkpoint[size:], checkpoint_likelihood
            i, end = checkpoint_row, i
        else:
            if drew_unknown:
                ctx[cx.GUESSED] += 1
            record(ctx, i, slots, recording)
            i += 1
    return end


def record(ctx, i, slots, recording):
    """Record the fields that row `i` left, if there is room; `recording`: their slots, and a column of values a row."""
    recorded, values = recording
    column = i - ctx[cx.RECORDED_FROM]
    if column < values.shape[1]:
        for k in range(recorded.size):
            values[k, column] = slots[recorded[k]]


def score(stops, sums, replay, draws, slots, stack, checkpoint, recording):
    """Replay as `run` does; fill ``sums[k]`` with the log likelihood of the sends before row ``stops[k]``."""
    ctx, _, _, _, _, likelihood = replay
    row, last = ctx[cx.FIRST], ctx[cx.LAST]
    while ctx[cx.BLOCK] < stops.size:
        stop = min(stops[ctx[cx.BLOCK]], last)
        ctx[cx.FIRST], ctx[cx.LAST] = row, stop
        row = run(replay, draws, slots, stack, checkpoint, recording)
        if row < stop or stop < stops[ctx[cx.BLOCK]]:
            return row
        sums[ctx[cx.BLOCK]] = likelihood[0]
        likelihood[0] = 0.0
        ctx[cx.BLOCK] += 1
    return row
