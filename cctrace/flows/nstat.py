"""`nstat` counters of the sender for one connection: retransmissions by class, and their causes.

The kernel counts per host; with one connection in a network namespace the two are equal (compared by
`benchmarks/classes.py`). Names are those of [Linux] net/ipv4/proc.c.
"""

from typing import Any

import numpy as np

from cctrace.cc.linux import CA_LOSS, CA_RECOVERY, EVENT_TLP_RECOVERY
from cctrace.columns import Values
from cctrace.flows.packed import EventColumns
from cctrace.flows.state import DSACK, FAST, PROBE, TIMEOUT, UNEXPLAINED
from cctrace.schema import LINUX_EVENTS


def nstat(rows: EventColumns, log: Values, final: Any) -> dict[str, int]:
    """Count the recovery events of one connection.

    `rows`: its event stream, columns of `state.EVENT`. `log`: its retransmissions and D-SACKs, of `state.LOG`. `final`:
    its last state, of `state.TP`. The counters: ``TcpRetransSegs`` = ``TCPFastRetrans`` (loss detection asked for it;
    what no rule explains is counted here) + retransmitted probes + one per timeout + ``TCPSlowStartRetrans`` (what
    follows a timeout); ``TCPLossProbes`` (with those that sent new data), ``TCPLossProbeRecovery`` (a probe repaired a
    loss), ``TCPTimeouts``, ``TCPSackRecovery`` (fast recoveries), ``TCPLossUndo`` (timeouts that proved spurious),
    ``TCPLostRetransmit`` (segments sent three times or more, per time), ``TCPDSACKRecv``.
    """
    why = np.bincount(log["why"], minlength=DSACK + 1)
    entered = np.bincount(rows["arg"][rows["event"] == LINUX_EVENTS["set_state"]], minlength=CA_LOSS + 1)
    undone = (rows["event"] == LINUX_EVENTS["undo_cwnd"]) & (rows["ca_state"] == CA_LOSS)
    repaired = (rows["event"] == LINUX_EVENTS["cwnd_event"]) & (rows["arg"] == EVENT_TLP_RECOVERY)
    retransmitted_seq = log["seq"][(log["why"] != DSACK) & (log["why"] != PROBE)]
    return {
        "TcpRetransSegs": int(final["total_retrans"]),
        "TCPFastRetrans": int(why[FAST] + why[UNEXPLAINED]),
        "TCPSlowStartRetrans": int(why[TIMEOUT] - entered[CA_LOSS]),
        "TCPTimeouts": int(entered[CA_LOSS]),
        "TCPLossProbes": int(final["loss_probes"]),
        "TCPLossProbeRecovery": int(repaired.sum()),
        "TCPSackRecovery": int(entered[CA_RECOVERY]),
        "TCPLossUndo": int(undone.sum()),
        "TCPLostRetransmit": int(len(retransmitted_seq) - len(np.unique(retransmitted_seq))),
        "TCPDSACKRecv": int(why[DSACK]),
    }
