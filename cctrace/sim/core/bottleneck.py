"""The bottleneck: random loss, policer, queue, shaper.

The bottleneck is a FIFO, so a packet's departure is known on arrival: ``free_at`` is when the server finishes
everything queued, and the ring ``q_ns``/``q_bytes`` holds the pending departures (including the packet in service),
which is all that drop-tail needs.
"""

import numpy as np

from cctrace.lang.memory import reals, words
from cctrace.sim.core import structs
from cctrace.sim.core.delay import forward_delay, in_order, insert
from cctrace.sim.core.events import schedule
from cctrace.sim.core.histogram import count
from cctrace.sim.core.rng import PATH_STREAM, uniform

POLL_SOONEST_NS, POLL_LATEST_NS = 1000, 50_000  # after it is due: select(2) counts in microseconds; timer_slack_ns
MAX_LATE_NS = 10_000  # largest delay of an interrupt after its timer: processes that poll, or change a rate, run
MIN_DELTA_NS = 500  # of a timer [Linux612] arch/um/kernel/time.c TIMER_MIN_DELTA


def service_end(w, start_ns, size):
    """Return when `size` bytes put into service at `start_ns` have left, at a piecewise constant rate."""
    left = float(size)
    now = start_ns
    last = w.steps - 1
    while w.step < last and words(w.steps_ns)[w.step + 1] <= now:
        w.step += 1
    step = w.step
    if size == w.served_bytes and step == w.served_step:  # as most packets: this saves a division
        done = start_ns + w.served_ns
        if step == last or done <= words(w.steps_ns)[step + 1]:
            return done
    while True:
        rate = reals(w.steps_Bps)[step]
        end = words(w.steps_ns)[step + 1] if step < last else structs.NEVER
        if rate > 0.0:
            done = now + np.int64(left * 1e9 / rate)
            if done <= end:
                if now == start_ns:
                    w.served_bytes, w.served_step, w.served_ns = size, step, done - now
                return done
            left -= rate * (end - now) / 1e9
        elif end == structs.NEVER:
            return structs.NEVER
        now = end
        step += 1


def queue_now(w, now):
    """Forget what has departed by `now`; return the bytes that wait or are in service."""
    while w.q_head != w.q_tail and words(w.q_ns)[w.q_head] <= now:
        w.queue_bytes -= words(w.q_bytes)[w.q_head]
        w.q_head = (w.q_head + 1) & w.q_mask
    return w.queue_bytes


def queued_packets(w):
    """Return the packets that wait or are in service, as `queue_now` left them."""
    return (w.q_tail - w.q_head) & w.q_mask


def losing(w, state, p, r):
    """Gilbert-Elliott: enter the loss state with probability p, leave it with r; Bernoulli (p = 0) stays in it."""
    if p == 0.0:
        return 1
    u = uniform(w, PATH_STREAM)
    return 1 if (u < p if state == 0 else u >= r) else 0


def random_loss(w, now):
    """Whether a packet sent at `now` is randomly lost; the share may change in steps."""
    if now >= w.loss_next_ns:
        while w.loss_step + 1 < w.loss_steps and words(w.loss_ns)[w.loss_step + 1] <= now:
            w.loss_step += 1
        w.loss = reals(w.loss_values)[w.loss_step]
        w.loss_next_ns = words(w.loss_ns)[w.loss_step + 1] if w.loss_step + 1 < w.loss_steps else structs.NEVER
    if w.loss == 0.0:
        return False
    w.loss_state = losing(w, w.loss_state, w.loss_p, w.loss_r)
    return w.loss_state == 1 and uniform(w, PATH_STREAM) < w.loss


def fill_shaper(w, until):
    """Add tokens, nanoseconds of the link, to the shaper's bucket; a new rate fills it (tbf_change)."""
    most = float(structs.NEVER)
    while w.shape_step + 1 < w.shape_steps and words(w.shape_ns)[w.shape_step + 1] <= until:
        w.shape_step += 1
        w.shape_at = words(w.shape_ns)[w.shape_step]
        w.shape_rate_Bps = reals(w.shape_values)[w.shape_step]
        w.shape_tokens = most = shaper_ns(w, w.shape_bucket)
    w.shape_tokens = min(most, w.shape_tokens + (until - w.shape_at))
    w.shape_at = until


def shaper_ns(w, size):
    """psched_l2t_ns: the shaper's time for so many bytes, integer nanoseconds."""
    return float(np.int64(size * 1e9 / w.shape_rate_Bps)) if w.shape_rate_Bps > 0.0 else 0.0


def shaper_wait(w, start, size):
    """How long (ns) the token bucket delays `size` bytes that could be sent at `start`; takes their tokens.

    The timer of waiting packets stays set when the rate changes (tbf_dequeue); without a rate it waits for the next
    one.
    """
    fill_shaper(w, start)
    if w.shape_rate_Bps > 0.0:
        w.shape_tokens = min(shaper_ns(w, w.shape_bucket), w.shape_tokens)
        wait = np.int64(max(shaper_ns(w, size) - w.shape_tokens, 0.0))
    else:
        step = w.shape_step + 1
        while reals(w.shape_values)[step] == 0.0:
            step += 1
        wait = words(w.shape_ns)[step] - start
    fill_shaper(w, start + wait)
    w.shape_tokens -= shaper_ns(w, size)
    return wait


def htb_debt(w, now, size):
    """Take the tokens of `size` bytes, and return how long (ns) they are owed: a class with none left may send one
    packet more (htb_charge_class, htb_class_mode).
    """
    fill_shaper(w, now)
    w.shape_tokens = min(shaper_ns(w, w.shape_bucket), w.shape_tokens) - shaper_ns(w, size)
    return np.int64(max(-w.shape_tokens, 0.0))


def ask_again(w, now):
    """A packet arrives, and the token bucket is asked for the one that has waited since before a change (tbf_dequeue).

    That one leaves at once, and those behind it sooner than was known when they arrived.
    """
    step = w.shape_asked
    while step + 1 < w.shape_steps and words(w.shape_ns)[step + 1] <= now:
        step += 1
    if step == w.shape_asked:
        return
    w.shape_asked = step
    queue_now(w, words(w.shape_ns)[step])
    rate_Bps, head = reals(w.shape_values)[step], w.q_head
    w.step = 0  # service_end finds the link's at `now`
    if head == w.q_tail or rate_Bps == 0.0 or words(w.q_ns)[head] <= service_end(w, now, words(w.q_bytes)[head]):
        return
    w.shape_step, w.shape_at, w.shape_rate_Bps, w.free_at = step, now, rate_Bps, now
    w.shape_tokens = shaper_ns(w, w.shape_bucket)
    while head != w.q_tail:
        size = words(w.q_bytes)[head]
        end = service_end(w, w.free_at + shaper_wait(w, w.free_at, size), size)
        which, sooner_ns = words(w.q_which)[head], words(w.q_ns)[head] - end
        if which > structs.NO_DATA:
            arrive_sooner(w, which, sooner_ns)
        elif which < structs.NO_DATA:
            f, order = structs.flows(w.flows)[which_ack(which) % w.n], which_ack(which) // w.n
            structs.acks(f.ack)[order & f.ack_mask].ns -= sooner_ns
            schedule(w, f)
        words(w.q_ns)[head] = w.free_at = end
        head = (head + 1) & w.q_mask


def which_ack(which):
    """Turn the number of an ACK into its name in the queue, negative below `NO_DATA`, and back."""
    return structs.NO_DATA - 1 - which


def arrive_sooner(w, which, sooner_ns):
    """A transmission leaves the queue sooner than expected, and so arrives sooner; jitter and losses stay."""
    f, order = structs.flows(w.flows)[which % w.n], which // w.n
    k = f.arr_head
    while k < f.arr_tail and structs.coming(f.arr)[k & f.mask].order != order:
        k += 1
    if k == f.arr_tail:
        return  # lost behind the queue
    at = step_up(w, structs.coming(f.arr)[k & f.mask].ns - sooner_ns, structs.ARRIVALS)
    leg = structs.legs(f.behind)[0]
    if leg.reorder == 0 and k > f.arr_head:
        at = max(at, structs.coming(f.arr)[(k - 1) & f.mask].ns)
    insert(f.arr, f.mask, f.arr_head, k, order, at)
    leg.latest = structs.coming(f.arr)[(f.arr_tail - 1) & f.mask].ns
    schedule(w, f)


def mark(f, order):
    """Mark a transmission if its flow supports ECN; return whether it does."""
    if structs.transmissions(f.tx)[order & f.mask].marks & structs.ECT == 0:
        return False
    if structs.transmissions(f.tx)[order & f.mask].marks & structs.CE == 0:
        f.n_marked += 1
    structs.transmissions(f.tx)[order & f.mask].marks |= structs.CE
    return True


def drop(f, order):
    """Drop a transmission in the queue, and its mark, if any."""
    f.drops_queue += 1
    f.n_marked -= structs.transmissions(f.tx)[order & f.mask].marks & structs.CE > 0


def first_departure(w, since):
    """Return when the first packet leaves the queue from a time on, of those that are in it; NEVER if none does."""
    k = w.q_head
    while k != w.q_tail:
        at = words(w.q_ns)[k]
        if at >= since:
            return at - at % w.timer_step_ns + (w.timer_step_ns if at % w.timer_step_ns > 0 else 0)
        k = (k + 1) & w.q_mask
    return structs.NEVER


def given_loss(f, order):
    """Return where a transmission is lost according to the prescribed losses, in ascending order; 0 if it is not."""
    while f.lost_at < f.lost_given and words(f.lost_orders)[f.lost_at] >> 2 < order:
        f.lost_at += 1
    if f.lost_at < f.lost_given and words(f.lost_orders)[f.lost_at] >> 2 == order:
        return words(f.lost_orders)[f.lost_at] & 3
    return 0


def leave(w, f, order, since, start, end):
    """A transmission that came to the queue at `since` is on the link from `start` to `end`.

    Return when it arrives; NEVER if it is lost.
    """
    f.qdelay_sum_ns += start - since
    f.qdelay_count += 1
    count(f.queue_tally, start - since)
    given = f.losses_given == 1 and structs.transmissions(f.tx)[order & f.mask].marks & structs.GETS_LOST > 0
    if given or (w.loss_behind == 1 and random_loss(w, since)):
        f.drops_random += 1
        return structs.NEVER
    left = step_up(w, end, structs.NOT_GIVEN)
    leg = structs.legs(f.behind)[0]
    if f.delays_given > 0:
        return in_order(leg, left + words(f.delays)[min(order + structs.HANDSHAKE, f.delays_given - 1)])
    return reach(w, leg, left + forward_delay(w, f, left))


def reach(w, leg, at):
    """When a packet that is due at `at` behind the bottleneck reaches the receiver, by its host's clock.

    Netem with a rate, which keeps its jitter from reordering, sends packets as far apart as that rate does.
    """
    if w.one_host == 0 or leg.apart_ns == 0:
        return in_order(leg, step_up(w, at, structs.ARRIVALS))
    leg.latest = in_order(leg, at) + leg.apart_ns
    leg.reached = max(step_up(w, leg.latest, structs.ARRIVALS), leg.reached)
    return leg.reached


def step_up(w, at, kind):
    """When a timer for `at` fires, by its host's clock: if prescribed, when a packet of its `kind` was recorded.

    A clock that advances in steps hides the time of an interrupt within a step: the next timer is set as much late,
    and one that seems early is waited for again, at least half a microsecond (User Mode Linux, itimer_next_event).
    The first interrupt after a poll is due wakes the polling process, which reads the clock before anything else; where
    instants are prescribed, they say what that delays.
    """
    if w.one_host == 0:
        return at
    given = instant_near(w, at, MAX_LATE_NS, kind)
    if given != structs.NEVER and (kind != structs.SENDS or given % w.timer_step_ns == 0):
        return given  # a ns later an ACK let it go, not pacing's timer
    told = words(w.instants)[0] < words(w.instants)[structs.NOT_GIVEN]
    if kind == structs.NOT_GIVEN and told:
        return at  # the prescribed instant of the next packet counts
    real = at + w.timer_phase_ns + 1
    if real // w.timer_step_ns * w.timer_step_ns < at:
        real += MIN_DELTA_NS + 1
    if not told and may_wake_poll(w, real) and real // w.poll_ns != w.polled:
        w.polled = real // w.poll_ns
        real += w.poll_lasts_ns
    w.timer_phase_ns = real % w.timer_step_ns
    return real - w.timer_phase_ns


def may_wake_poll(w, now):
    """Whether an interrupt at `now` wakes the process that polls the counters, unless one did since it was due."""
    return w.poll_ns > 0 and POLL_SOONEST_NS <= now % w.poll_ns < POLL_LATEST_NS


def instant_near(w, at, late_ns, kind):
    """Return the first prescribed instant of a kind within `late_ns` from a time on, or NEVER."""
    instants = words(w.instants)
    k = first_instant(w, at - w.timer_step_ns, kind)
    return instants[k] if k < instants[kind + 1] and instants[k] < at + late_ns else structs.NEVER


def first_instant(w, since, kind):
    """Return the place of the first prescribed instant of a kind from a time on; behind the last if there is none."""
    instants = words(w.instants)
    low, high = instants[kind], instants[kind + 1]
    while low < high:
        middle = (low + high) >> 1
        if instants[middle] < since:
            low = middle + 1
        else:
            high = middle
    return low


def has_turn(w, now):
    """When the process that a packet wakes at `now` runs: it waits for the one that polls, if that has the CPU."""
    instants = words(w.instants)
    k = first_instant(w, now + 1, structs.FREE)
    if k < instants[structs.FREE + 1] and instants[k - instants[structs.FREE] + instants[structs.BUSY]] <= now:
        return instants[k]
    return now


def serve(w, end, size, which):
    """Add to the queue a packet in service until `end`; `which` says whose transmission it is."""
    w.free_at = end
    words(w.q_ns)[w.q_tail] = end
    words(w.q_bytes)[w.q_tail] = size
    if w.shaping == structs.TBF:  # else nobody asks
        words(w.q_which)[w.q_tail] = which
    w.q_tail = (w.q_tail + 1) & w.q_mask
    w.queue_bytes += size
