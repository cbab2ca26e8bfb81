"""The part of the Linux stack around a controller, reduced to clocks and counters: calls with everything it reads."""

from types import SimpleNamespace

from cctrace import schema

NEUTRAL = dict.fromkeys(schema.names(schema.LINUX_VIEW), 0) | {
    "mss": 1448,
    "tcp_min_rtt_us": schema.U32_MAX,
    "delivered": 1,
    "is_cwnd_limited": 1,
    "rs_delivered": -1,
    "rs_interval_us": -1,
    "rs_rtt_us": -1,
}


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

    def call(self, event, **columns):
        """Make one call with these columns (they stay); store a returned value where the stack does."""
        vars(self.ack).update(columns)
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
