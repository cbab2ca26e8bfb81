"""The draft's BBR as QUIC uses it (draft-ietf-ccwg-bbr-06): less room for offload, more where ACKs or sends wait.

Model:  that of `bbr_draft`, with another offload budget (5.5.8), which is the least that max_inflight may be:

            budget = send quantum  +  what pacing offload may hold  +  min(Ack-Eliciting Threshold, delay * max_bw)

The draft's pseudocode is the same for both transports but for this budget. What else it says of QUIC are inputs, which
its transport provides: a packet's number instead of the end of its sequence range (P.packet_id, 4.1), samples of
retransmitted data that are unambiguous (so none has to be rejected, 4.1.3), ACK ranges in place of SACK (2.2), losses
as RFC 9002 finds them (5.5.10.2), the maximum datagram size as C.SMSS (2.2). Simulations take these inputs from Linux's
stack, whose segments stand for datagrams: SACK and RACK give what ACK ranges and RFC 9002 would, and ambiguous samples
are left out.

Left open by the draft, and chosen here:

* The two additions are SHOULD and MAY, and depend on the sender and on a negotiated extension: both are parameters, 0.
* Persistent congestion (RFC 9002, 7.6) is not mentioned; Linux's timeout, at which C.cwnd is C.inflight + 1, stands for
  it.

Sources: [BBRdraft] draft-ietf-ccwg-bbr-06 at 4ce5e87, sections 2.2, 4.1 and 5.5.8.
Differs from bbr_draft in: the offload budget.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import Counterpart, Param
from cctrace.cc.bbr_draft import BBRDraft
from cctrace.cc.bbr_draft_model import whole_segments
from cctrace.cc.linux import USEC_PER_SEC

FROM_TCP = (
    Counterpart("offload budget",
                "one send quantum, what pacing offload may hold, and what ACK_FREQUENCY leaves unacknowledged",
                "three send quanta", "5.5.8 UpdateOffloadBudget", "update_offload_budget"),
)  # fmt: skip


class BBRDraftQuic(BBRDraft):
    """The draft's BBR with the offload budget of QUIC; see the module's docstring."""

    params = BBRDraft.params | {
        "offload_quanta": Param(1, 0, 16, "send quanta in the offload budget [BBRdraft] 5.5.8"),
        "pacing_offload_us": Param(0, 0, 1_000_000, "how far ahead of time pacing offload takes packets, us [same]"),
        "ack_threshold": Param(0, 0, 65535, "Ack-Eliciting Threshold of ACK_FREQUENCY, packets; 0: not used [same]"),
        "ack_delay_us": Param(25_000, 0, 1_000_000, "Requested Max Ack Delay of ACK_FREQUENCY, us [same]"),
    }
    counterparts = BBRDraft.counterparts | {"bbr_draft": FROM_TCP}

    def update_offload_budget(self, ack: Ack) -> None:  # 5.5.8 UpdateOffloadBudget, QUIC
        """Add what is on its way to the network, or received and not yet acknowledged."""
        super().update_offload_budget(ack)
        scale = float(USEC_PER_SEC) * ack.mss
        unacked = min(self.ack_threshold, whole_segments(self.ack_delay_us * self.max_bw / scale))
        self.offload_budget += whole_segments(self.pacing_offload_us * self.pacing_rate / scale) + unacked
