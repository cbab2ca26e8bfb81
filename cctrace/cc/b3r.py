"""B3R as oBBR's authors wrote it: QUIC BBR that probes for bandwidth less boldly after a loss.

Model:  gum (start 50):  a loss takes 2 off, not below 42, and sets the probing gain to gum/40 (1.25 ... 1.05);
        more than one min_rtt after that loss every ACK adds 2 again, up to 50.

        modes: as in quic_bbr.

Quirks, kept because decisions depend on them:

* the gain in use changes *only on a loss*, so what gum regains in between has no effect until the next one;
* the recovery counts ACKs, not time, so five ACKs after the first min_rtt undo all losses;
* in the source both are kept per process: the connections of one process share them.

Sources: [ngx_bbr] bpq233/oBBR nginx-quic/src/event/quic/ngx_bbr.c, commit 3ae3fc9 (`-C B3R`);
[Singhania21] through [Bi23].
Differs from quic_bbr in: on_ack (adds adapt_probe), cycle_gain.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.cmath import f32, u64_lt
from cctrace.cc.quic_bbr import B3R_COLUMNS, QuicBBR

GUM_MAX = 50
GUM_MIN = 42
GUM_STEP = 2
GUM_SCALE = 40


class B3R(QuicBBR):
    """B3R of oBBR's nginx-quic (`-C B3R`)."""

    golden_absent = {c: why for c, why in QuicBBR.golden_absent.items() if c not in B3R_COLUMNS}

    params = {name: row for name, row in QuicBBR.params.items() if name != "up_pacing_gain"}

    up_pacing_gain: float = 1.25  # replaced by `b3r_gain0`
    b3r_gum: int = GUM_MAX
    b3r_timer: int = 0  # ms of the last loss
    b3r_gain0: f32 = f32(1.25)  # pacing gain of the probing phase

    def on_ack(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_on_ack
        """Adapt the probing gain, then run BBR."""
        self.adapt_probe(ack)
        super().on_ack(ack)

    def adapt_probe(self, ack: Ack) -> None:
        """Probe less after a loss."""
        if ack.smp_loss:
            self.b3r_gum = max(GUM_MIN, self.b3r_gum - GUM_STEP)
            self.b3r_gain0 = f32(1.0 * self.b3r_gum / GUM_SCALE)
            self.b3r_timer = ack.now_ms
        if u64_lt(self.min_rtt_ms, ack.now_ms - self.b3r_timer):
            self.b3r_gum = min(GUM_MAX, self.b3r_gum + GUM_STEP)

    def cycle_gain(self) -> f32:
        """Return the pacing gain of this phase of PROBE_BW."""
        if self.cycle_idx == 0:
            return self.b3r_gain0
        return super().cycle_gain()
