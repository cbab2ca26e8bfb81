"""Shapers: token buckets that delay what exceeds them; `path.buckets` has the bucket and policers."""

import functools
import math

import numpy as np

from cctrace.columns import Floats
from cctrace.estimates import Estimate
from cctrace.path.arrays import central_sd
from cctrace.path.bottleneck import deviation
from cctrace.path.buckets import Bucket
from cctrace.path.constants import COMMON_GAIN, EXPLAINED_SHARE, RATE_GRID, SMALL_US, SPENT_QUANTILE, SURE_BACKLOG
from cctrace.path.minimise import least_within
from cctrace.path.queue import Steps, backlog, constant, left_at, work_done
from cctrace.path.sent import SentPackets, backlog_at, delivered_rate
from cctrace.tcp.wire import PACKET_BYTES


def shaper_of(flow: SentPackets, steps: Steps) -> Bucket | None:
    """Return the shaper that delayed the packets, a `Bucket`, or None.

    A bucket shortens the queue at the same rate by its size: once it is empty, every packet arrives bucket / rate
    earlier than from the queue alone, which is earlier than the minimum RTT allows. Without any bucket, so do packets
    of a flow that joins others and never meets their queue empty: one, at least, must have met half of the bucket full.
    The delays must be those of a queue: behind a bucket of the deficit that a fair queue's other flows leave, half of
    the packets seem to find it full, and whatever they waited for remains unexplained.
    """
    if len(steps.rate) > 1:
        return None
    rate, known = float(steps.rate[0]), flow.acked
    gone_us = flow.departures(steps)
    rest, least = (flow.acked_us - gone_us)[known], _least_us(flow, gone_us, rate)
    margin = max(500.0, 3 * PACKET_BYTES / rate, 0.03 * least)
    if np.quantile(rest, 0.6) > least - margin:
        return None

    alone = least + PACKET_BYTES / rate  # of a packet that passes with its tokens, and takes no time on a link

    def cost(rate: float, bucket: float, most: float, base: float = alone) -> float:
        return flow.deviation_behind(rate, bucket, base, SMALL_US, most)

    bucket = (alone - float(np.median(rest))) * rate
    if np.min((gone_us - flow.sent_us)[known]) > bucket / rate / 2:
        return None
    for _ in range(2):
        bucket = least_within(functools.partial(cost, rate), bucket / 1.3, bucket * 1.3, 41, 1e-4)[0]

        def of_rate(rate: float, most: float, bucket: float = bucket) -> float:
            return cost(rate, bucket, most)

        rate = least_within(of_rate, rate * 0.998, rate * 1.002, 21, 1e-6)[0]
    if cost(rate, bucket, math.inf) > (1 - COMMON_GAIN) * cost(rate, math.inf, math.inf):
        return None
    grid = np.exp(RATE_GRID)
    plain = least_within(lambda rate, most: cost(rate, 0.0, most, least), rate / grid, rate * grid, 41, 1e-4)[1]
    if plain < cost(rate, bucket, math.inf):
        return None
    error = max(PACKET_BYTES / 2, 0.5 * float(np.subtract(*np.quantile(rest, [0.6, 0.4]))) * rate)
    return Bucket(Estimate.around(rate, 5e-4 * rate), Estimate.around(bucket, error, PACKET_BYTES), None)


def _least_us(flow: SentPackets, gone_us: Floats, rate: float) -> float:
    """Return the RTT without queue and serialisation: of the ten shortest, or of packets that met no queue.

    Where a queue stands from the first round trip on, hardly ten packets met none.
    """
    known, service = flow.acked, flow.wire_bytes / rate
    rtt = flow.rtt_us[known]
    alone = rtt[(gone_us - flow.sent_us)[known] < 1.5 * service[known]]
    shortest = float(np.median(np.sort(rtt)[:10]))
    return min(shortest, float(np.median(alone)) if len(alone) else shortest) - PACKET_BYTES / rate


def refilled_shaper(flow: SentPackets, rate: float) -> Bucket | None:
    """Return a shaper with a lower rate than the one that explains the delays best, or None.

    When a sender pauses or slows down, tokens accumulate, and the link's own rate is visible while they last; a single
    rate then fits either phase. The shaper's rate is close to the rate delivered while delays were long; with its
    bucket, nearly all residual delays equal the base RTT, both with and without tokens.

    `rate`: the rate that explains the delays best, bytes/us.
    """
    known = flow.acked
    gone_us = flow.departures(constant(rate))
    least = _least_us(flow, gone_us, rate)
    margin = max(500.0, 3 * PACKET_BYTES / rate, 0.03 * least)

    def with_bucket(rate: float) -> tuple[float, Floats]:
        """Return the bucket and the residual delays with it, or without if there is none.

        Once the bucket is empty, packets arrive that much earlier than from the queue alone.
        """
        clock, behind = work_done(flow.sent_us, flow.wire_bytes, constant(rate))
        left = (flow.acked_us - left_at(flow.sent_us, clock, behind, constant(rate), 0.0))[known] - least
        bucket = -float(np.quantile(left, SPENT_QUANTILE)) * rate
        if bucket > 0:
            left = (flow.acked_us - left_at(flow.sent_us, clock, behind, constant(rate), bucket))[known] - least
        return bucket, left

    def cost(rate: float, most: float) -> float:
        return flow.deviation_with_bucket(rate, most, SPENT_QUANTILE, least)

    rest = (flow.acked_us - gone_us)[known]
    if np.quantile(rest - least, 0.8) < margin:
        return None
    _, delivered, delay = delivered_rate(flow, max(3e5, 2 * least))
    long = (delivered > 0) & (delay > (least + np.quantile(delay[delivered > 0], 0.9)) / 2)
    if long.sum() < 3:
        return None
    middle = float(np.median(delivered[long]))
    slow = least_within(cost, middle * 0.9, middle * 1.1, 80, 1e-4, upto=0.95 * rate)[0]
    if slow > 0.95 * rate:
        return None
    bucket, left = with_bucket(slow)
    if not bucket > 0:
        return None
    near = np.abs(left) < margin
    spent = backlog(flow.sent_us, flow.wire_bytes, constant(slow))[known] > bucket
    refills = int((np.diff(spent.astype(np.int8)) < 0).sum())
    if refills < 2 or spent.all() or min(near.mean(), near[spent].mean(), near[~spent].mean()) < EXPLAINED_SHARE:
        return None
    return Bucket(Estimate.around(slow, 5e-4 * slow), Estimate.around(bucket, margin * slow, PACKET_BYTES), None)


def packet_bucket(flow: SentPackets, steps: Steps, handshake_us: float) -> Bucket | None:
    """Return the token bucket of about one packet that serves a queue like a link does, a `Bucket`, or None.

    Full packets leave it one packet's service time earlier than a link of its rate, all of them: that might as well be
    a shorter path. The handshake tells. A link sends a SYN sooner than a full packet; the bucket passes both at once.

    `handshake_us`: its RTT, NaN if unknown.
    """
    if backlog_at(flow, steps, np.zeros(1))[0] > 0:
        return None  # the SYN may have waited
    rate = float(steps.rate[0])
    level_us = (flow.acked_us - flow.departures(steps, PACKET_BYTES))[flow.timed]
    beyond, scatter = (handshake_us - float(np.median(level_us))) * rate, central_sd(level_us) * rate  # bytes
    if not max(abs(beyond), scatter) < SURE_BACKLOG * PACKET_BYTES:
        return None
    if deviation(flow, steps) > (1 - COMMON_GAIN) * deviation(flow, constant(math.inf)):
        return None  # no queue that either would serve
    size = Estimate.around(PACKET_BYTES + max(beyond, 0.0), max(scatter, 1.0), PACKET_BYTES)
    return Bucket(Estimate(rate, rate, rate), size, None)
