"""draft-ietf-ccwg-bbr-06: the table of its requirements, and the grid of paths on which its cases run.

All pseudocode and text of section 5 are normative (5.1: "MUST be included in any BBRv3 implementation").
"""

from cctrace.cc.bbr_draft import BBRDraft
from cctrace.conform import bbr_losses, bbr_model, bbr_probe_rtt, bbr_states, log, wire
from cctrace.conform.bbr_changes import CASES
from cctrace.conform.requirements import Spec
from cctrace.conform.runner import TRAIN, Cell

# From 0.5 ms to 1 s and from 64 kbit/s to 10 Gbit/s (appendix A); at high rates a segment represents a train.
CELLS = (
    Cell("64kbit", "100ms"),
    Cell("1Mbit", "1s"),
    Cell("10Mbit", "40ms", 1448, 2),
    Cell("100Mbit", "10ms", 1448, 2),
    Cell("1Gbit", "500us", TRAIN, 2),
    Cell("1Gbit", "100ms", 32000, 2),
    Cell("10Gbit", "10ms", 32000, 8),
)

SPEC = Spec("bbr", "draft-ietf-ccwg-bbr-06 (BBRv3)",
            (*bbr_states.requirement.rows, *bbr_probe_rtt.requirement.rows, *bbr_model.requirement.rows,
             *bbr_losses.requirement.rows),
            ("bbr3", "bbr_draft"), tuple(wire.of_bbr().rows), BBRDraft.counterparts,
            log=tuple(log.of_bbr().rows), cells=CELLS, cases=CASES)  # fmt: skip
