"""The part of the Linux stack around a controller, reduced to clocks and counters: calls with everything it reads."""

from types import SimpleNamespace

import numpy as np

from cctrace import schema
from cctrace.replaying.engine.stack import STACK_WORDS, tcp_of

NEUTRAL = dict.fromkeys(schema.names(schema.LINUX_VIEW), 0) | {
    "mss": 1448,
    "tcp_min_rtt_us": schema.U32_MAX,
    "delivered": 1,
    "skb_segments": 1,
    "is_cwnd_limited": 1,
    "rs_delivered": -1,
    "rs_interval_us": -1,
    "rs_rtt_us": -1,
}


def tcp_record():
    """Return the state of a replayed stack (`engine.stack`), all zeros."""
    return tcp_of(np.zeros(STACK_WORDS, np.int64))


class Stack:
    """A connection that starts at 1 s; `ack` has the columns of the next call, `advance` moves the clocks."""

    def __init__(self, cls, **params):
        self.cc = cls(**params)
        self.ack = SimpleNamespace(**NEUTRAL)
        self.advance(1_000_000)

    def advance(self, us):
        self.ack.now_us += us
        self.ack.jiffies = 1_000_000 + self.ack.now_us * self.cc.hz // 1_000_000
        self.ack.clock_ns = self.ack.wstamp_ns = self.ack.now_us * 1000

    def set(self, **columns):
        vars(self.ack).update(columns)

    def call(self, event, **columns):
        """Make one call with these columns (they stay); store a returned value where the stack does."""
        self.set(**columns)
        self.cc.draws = 0
        result = getattr(self.cc, event)(self.ack)
        if event == "ssthresh":
            self.cc.snd_ssthresh = result
        elif event == "undo_cwnd":
            self.cc.snd_cwnd = result
        return result

    def round(self, segments, rtt_us, losses=0, **columns):
        """Let a round trip pass and one ACK deliver all that was in flight, `losses` more being lost."""
        self.advance(rtt_us)
        ack = self.ack
        ack.rs_prior_delivered, ack.delivered = ack.delivered, ack.delivered + segments
        ack.lost += losses
        sample = {"rs_delivered": segments, "rs_interval_us": rtt_us, "rs_rtt_us": rtt_us, "rs_losses": losses}
        counts = {"rs_acked_sacked": segments, "rs_prior_in_flight": segments, "packets_out": segments}
        stamps = {"delivered_mstamp_us": ack.now_us, "srtt_us8": 8 * rtt_us}
        self.call("on_ack", **(sample | counts | stamps | columns))


class SteadyFlow(Stack):
    """A sender that keeps one window in flight on a path of fixed rate and RTT; each ACK delivers `segments`."""

    def __init__(self, cls, rtt_us=40_000, segments=10, in_flight=100, **params):
        super().__init__(cls, **params)
        self.rtt_us, self.segments, self.in_flight = rtt_us, segments, in_flight
        self.set(srtt_us8=8 * rtt_us, tcp_min_rtt_us=rtt_us, packets_out=in_flight, rs_prior_in_flight=in_flight)
        self.call("init", delivered_mstamp_us=self.ack.now_us, ecn_ok=1, rand0=1 << 31)

    def deliver(self, count=1, ce=0, losses=0, rtt_us=None, **columns):
        """Let `count` ACKs arrive, each after `losses` were marked lost and with `ce` marks; `columns` are theirs."""
        for _ in range(count):
            ack = self.ack
            self.advance(self.rtt_us * self.segments // self.in_flight)
            self.set(delivered=ack.delivered + self.segments, delivered_ce=ack.delivered_ce + ce)
            self.set(lost=ack.lost + losses, delivered_mstamp_us=ack.now_us, arg=0)
            self.set(rs_delivered=self.in_flight, rs_interval_us=self.rtt_us, rs_rtt_us=rtt_us or self.rtt_us)
            self.set(rs_prior_delivered=max(ack.delivered - self.in_flight, 0), rs_acked_sacked=self.segments)
            self.set(rs_losses=losses, rs_lost=losses, rs_delivered_ce=ce, rs_tx_in_flight=self.in_flight)
            before = {name: getattr(ack, name) for name in columns}
            self.call("on_ack", **columns)
            self.set(**before)
        return self

    def rounds(self, count, **columns):
        return self.deliver(count * self.in_flight // self.segments, **columns)

    def until(self, *states, limit=2000):
        """Deliver ACKs until a flow of BBRv2 or v3 is in one of the states (modes or phases)."""
        for _ in range(limit):
            if self.state in states:
                return self
            self.deliver()
        raise AssertionError(f"still in {self.state}, never in {states}")

    @property
    def state(self):
        names, cc = type(self.cc).states, self.cc
        return names[4 + cc.cycle_idx] if names[cc.mode] == "PROBE_BW" else names[cc.mode]
