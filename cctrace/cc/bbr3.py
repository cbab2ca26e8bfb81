"""BBRv3 as released (google/bbr, branch v3).

Model:  that of BBRv2 (`bbr2_model`, `bbr2`), with a probe that ends when the *bandwidth* stops growing instead of when
        the flight reaches 1.25 BDP, and with gentler gains.

      STARTUP --(bw plateau of 3 rounds, or 6 losses at > 2 %, or 2 rounds marked)--> DRAIN --(flight <= BDP)--> DOWN
                                                                                                                 |
        PROBE_BW:  REFILL --(1 round)--> UP --(flight at inflight_hi, or bw plateau of 3 rounds, or loss)--> DOWN |
                     ^                                                                          |              <--+
                     +------(2..3 s, or as many rounds as a Reno flow would take)---- CRUISE <--+ (flight <= BDP)

        PROBE_RTT: from any state, when no lower RTT was seen for 5 s; half a BDP for 200 ms and a round

Comments that begin with "draft:" quote the line of the IETF draft's pseudo-code (draft-ietf-ccwg-bbr) that a step
implements; inflight_hi is its inflight_longterm, bw_lo its bw_shortterm. One constant differs: here DRAIN paces at
88/256 = 0.344, not at 0.5.

Quirks of the release, kept:

* bw_probe_up_acks is not cleared while inflight_hi does not limit, so credit accumulates;
* UP restarts its plateau detector from the current sample, which may be an app-limited one;
* a timeout or an undo resets the detector but not full_bw_reached;
* ECN needs a route configured for it (TCP_ECN_LOW), which `ecn_enable` stands for;
* the branch's PLB (rehashing paths) is off, as by default.

Sources: [BBRv3] google/bbr, branch v3, net/ipv4/tcp_bbr.c; IETF 117, "BBRv3: algorithm bug fixes and public Internet
deployment".
Differs from bbr2 in:
* gains: STARTUP 2.77 and cwnd 2.0, DOWN 0.91, cwnd 2.25 in UP;
* the end of UP, and the plateau detector that it shares with STARTUP;
* 6 instead of 8 losses end STARTUP, and inflight_hi is kept at what was delivered then;
* only strictly lower RTTs refresh PROBE_RTT's clock;
* losses repaired by a tail-loss probe count; the latest delivery signals are kept across such a probe, and updated
  before the fast path;
* ECN: strictly above half, from the first eligible round, and reprobing when marks cease;
* bw_lo is at least 1, and no burst is below two segments.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import Param
from cctrace.cc.bbr2 import BBR2, FULL_BW_CNT, FULL_BW_THRESH
from cctrace.cc.bbr2_bounds import ECN_THRESH
from cctrace.cc.bbr2_model import BBR_SCALE, PROBE_BW, UP, in_256ths
from cctrace.cc.cmath import s32, u32
from cctrace.cc.linux import CA_LOSS, EVENT_TLP_RECOVERY, GSO_MAX_SIZE, MIN_TSO_SEGS

_SAME = {name: param for name, param in BBR2.params.items() if name != "bw_probe_pif_gain"}


class BBR3(BBR2):
    """BBRv3, decision for decision as the v3 branch; see the module's docstring.

    The release fixes its parameters at compile time; here they are parameters as those of `bbr2`.
    """

    slow_burst_segments = MIN_TSO_SEGS
    parts_as_v2 = False
    params = _SAME | {
        "startup_pacing_gain": Param(710 / 256, 1.0, 1023 / 256, "pacing gain of STARTUP, 4 ln 2"),
        "startup_cwnd_gain": Param(2.0, 1.0, 1023 / 256, "cwnd gain of STARTUP and DRAIN"),
        "down_pacing_gain": Param(0.91, 0.0, 1023 / 256, "pacing gain of PROBE_BW DOWN"),
        "probe_bw_cwnd_gain": Param(2.0, 0.0, 1023 / 256, "cwnd gain of PROBE_BW, but for UP"),
        "up_cwnd_gain": Param(2.25, 0.0, 1023 / 256, "cwnd gain of PROBE_BW UP"),
        "full_loss_cnt": Param(6, 1, 15, "loss events in a round that end STARTUP"),
        "ecn_enable": Param(0, 0, 1, "1: the route's CE marks come from a shallow threshold (TCP_ECN_LOW)"),
        "gso_max_bytes": Param(
            GSO_MAX_SIZE, GSO_MAX_SIZE, GSO_MAX_SIZE, "GSO_LEGACY_MAX_SIZE, burst at a min_rtt of 0"
        ),
        "ecn_reprobe_gain": Param(0.5, 0.0, 511 / 256, "first growth when marks cease, of inflight_hi; 0 off"),
    }
    transitions = BBR2.transitions | {
        ("UP", "DOWN"): "bw plateau of 3 rounds, in flight back at inflight_hi, or too much loss or too many marks"
    }

    full_bw_now: bool = False

    def init(self, ack: Ack) -> None:
        """The first round ends when something now unsent is delivered [BBRv3] bbr_init."""
        super().init(ack)
        self.next_rtt_delivered = ack.delivered

    def on_ack(self, ack: Ack) -> None:
        """Update the model and then the controls [BBRv3] bbr_main."""
        self.update_round(ack)
        self.update_ece(ack)
        self.calculate_bw_sample(ack)
        self.update_latest_delivery_signals(ack)  # draft: UpdateLatestDeliverySignals()
        if not self.run_fast_path(ack):
            self.update_control(ack)  # draft: UpdateControlParameters()
        self.advance_latest_delivery_signals(ack)  # draft: AdvanceLatestDeliverySignals()
        self.finish_ack(ack)

    # --- model ------------------------------------------------------------------------------------------------------
    def min_tso_segs(self) -> int:
        """Bursts of two segments at any rate [BBRv3] bbr_tso_segs_generic."""
        return MIN_TSO_SEGS

    def update_congestion_signals(self, ack: Ack) -> None:
        """The latest delivery signals are `on_ack`'s, so that the fast path has them [BBRv3] of the same name."""
        self.adapt_to_congestion(ack)

    def advance_latest_delivery_signals(self, ack: Ack) -> None:
        """A tail-loss probe keeps what was delivered before the loss [BBRv3] of the same name."""
        if not ack.rs_is_acking_tlp_retrans:
            super().advance_latest_delivery_signals(ack)

    def adapt_lower_bounds(self) -> None:
        """A bandwidth of 0 would never recover [BBRv3] bbr_adapt_lower_bounds."""
        super().adapt_lower_bounds()
        self.bw_lo = max(self.bw_lo, 1)

    def handle_queue_too_high_in_startup(self, ack: Ack) -> None:
        """The flight that the last round delivered is tolerable as well [BBRv3] of the same name."""
        super().handle_queue_too_high_in_startup(ack)
        self.inflight_hi = max(self.inflight_hi, self.inflight_latest)  # draft: max(BBR.bdp, BBR.inflight_latest)

    def is_lower_rtt(self, rtt_us: int) -> bool:
        """An equal RTT refreshes nothing: on a path of constant RTT PROBE_RTT comes [BBRv3] bbr_update_min_rtt."""
        return rtt_us < self.probe_rtt_min_us  # draft: RS.rtt < BBR.min_rtt

    def update_gains(self) -> None:
        """UP has room for its queue [BBRv3] bbr_update_gains."""
        super().update_gains()
        if self.mode == PROBE_BW and self.cycle_idx == UP:
            self.cwnd_gain = in_256ths(self.up_cwnd_gain)

    # --- ECN --------------------------------------------------------------------------------------------------------
    def can_use_ecn(self, ack: Ack) -> bool:
        """ECN negotiated on a route known for shallow thresholds [BBRv3] bbr_can_use_ecn."""
        return self.ecn_enable != 0 and ack.ecn_ok != 0

    def update_ece(self, ack: Ack) -> None:
        """Marks matter from eligibility on [BBRv3] bbr_main."""
        marked = ack.delivered_ce != self.seen_delivered_ce
        self.seen_delivered_ce = ack.delivered_ce
        self.ecn_in_round = self.ecn_in_round or (marked and self.ecn_eligible)

    def update_ecn_alpha(self, ack: Ack) -> None:
        """The average starts with eligibility [BBRv3] bbr_update_ecn_alpha."""
        if self.can_use_ecn(ack) and self.is_ecn_path():
            self.ecn_eligible = True
        delivered = s32(ack.delivered - self.alpha_last_delivered)
        delivered_ce = s32(ack.delivered_ce - self.alpha_last_delivered_ce)
        if self.ecn_eligible and delivered > 0 and delivered_ce >= 0:
            self.mix_ecn_alpha(ack, (delivered_ce << BBR_SCALE) // delivered)

    def is_ce_too_high(self, delivered: int, delivered_ce: int) -> bool:
        """More than half of a sample marked [BBRv3] bbr_is_inflight_too_high."""
        marked = delivered_ce > 0 and delivered > 0 and self.ecn_eligible
        return marked and delivered_ce > (delivered * ECN_THRESH) >> BBR_SCALE

    # --- the plateau detector, of STARTUP and of UP -----------------------------------------------------------------
    def reset_full_bw(self) -> None:
        """Restart the search for a plateau [BBRv3] bbr_reset_full_bw."""
        self.full_bw = 0  # draft: BBR.full_bw = 0
        self.full_bw_cnt = 0  # draft: BBR.full_bw_count = 0
        self.full_bw_now = False  # draft: BBR.full_bw_now = 0

    def check_full_bw_reached(self, ack: Ack) -> None:
        """Three rounds without a sample 25 % higher [BBRv3] bbr_check_full_bw_reached."""
        # draft: if (BBR.full_bw_now || !BBR.round_start || RS.is_app_limited) return
        # The release takes a higher sample at any time, and counts rounds only at their start.
        if self.full_bw_now or ack.rs_is_app_limited:
            return
        if self.sample_bw >= u32((self.full_bw * FULL_BW_THRESH) >> BBR_SCALE):  # draft: >= BBR.full_bw * 1.25
            self.reset_full_bw()
            self.full_bw = self.sample_bw  # draft: BBR.full_bw = RS.delivery_rate
        elif self.round_start:
            self.full_bw_cnt += 1  # draft: BBR.full_bw_count++
            self.full_bw_now = self.full_bw_cnt >= FULL_BW_CNT  # draft: BBR.full_bw_now = (BBR.full_bw_count >= 3)
            self.full_bw_reached = self.full_bw_reached or self.full_bw_now

    def start_bw_probe_up(self, ack: Ack) -> None:
        """UP looks for a plateau of its own [BBRv3] bbr_start_bw_probe_up."""
        super().start_bw_probe_up(ack)
        self.restart_full_bw()

    def restart_full_bw(self) -> None:
        """Measure growth from the current sample [BBRv3] bbr_reset_full_bw, where UP begins and where it is limited."""
        self.reset_full_bw()  # draft: ResetFullBW()
        self.full_bw = self.sample_bw  # draft: BBR.full_bw = RS.delivery_rate

    def is_probe_done(self, ack: Ack, inflight: int) -> bool:
        """Whether bandwidth has stopped growing, inflight_hi not being what limits it [BBRv3] same, UP."""
        # draft: if (C.is_cwnd_limited && C.cwnd >= BBR.inflight_longterm) ResetFullBW()
        if ack.is_cwnd_limited and self.snd_cwnd >= self.inflight_hi:
            self.restart_full_bw()
            return False
        return self.full_bw_now  # draft: else if (BBR.full_bw_now) return true

    def probe_inflight_hi_upward(self, ack: Ack) -> None:
        """Raise inflight_hi by one per bw_probe_up_cnt ACKed [BBRv3] bbr_probe_inflight_hi_upward."""
        # draft: if (!C.is_cwnd_limited || C.cwnd < BBR.inflight_longterm) return
        if not ack.is_cwnd_limited or self.snd_cwnd < self.inflight_hi:
            return
        if self.grow_inflight_hi(ack) > 0:  # draft: BBR.inflight_longterm += delta * C.SMSS
            self.try_fast_path = False
        if self.round_start:
            self.raise_inflight_hi_slope()  # draft: if (BBR.round_start) RaiseInflightLongtermSlope()

    # --- calls outside ACK processing -------------------------------------------------------------------------------
    def cwnd_event(self, ack: Ack) -> None:
        """Of the events, a loss repaired by a tail-loss probe is new [BBRv3] bbr_cwnd_event."""
        if ack.arg == EVENT_TLP_RECOVERY:
            self.run_loss_probe_recovery(ack)
        else:
            super().cwnd_event(ack)

    def run_loss_probe_recovery(self, ack: Ack) -> None:
        """Count the loss that the probe repaired, as one of the last flight [BBRv3] of the same name."""
        self.note_loss(ack)
        tx_in_flight = u32(self.inflight_latest + 1)
        if self.bw_probe_samples and self.is_inflight_too_high(1, tx_in_flight, 0, 0):
            self.handle_inflight_too_high(ack, tx_in_flight, ack.tlp_orig_data_app_limited)

    def undo_cwnd(self, ack: Ack) -> int:
        """[BBRv3] bbr_undo_cwnd."""
        self.full_bw_now = False
        self.try_fast_path = False
        return super().undo_cwnd(ack)

    def set_state(self, ack: Ack) -> None:
        """[BBRv3] bbr_set_state."""
        if ack.arg == CA_LOSS:
            self.reset_full_bw()
        super().set_state(ack)
