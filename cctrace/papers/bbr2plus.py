"""Yang et al., *BBRv2+* (Computer Networks 206, 2022): the systems, and what its figures share.

Every figure runs the released code; where the paper describes something else (`cctrace variants bbr2plus
bbr2plus_paper`), the paper's form is run as well. BBR is that of Linux 5.4, on which the authors' kernel is based.
The paper's section 5 sets alpha, the loss threshold, to 20 %, the module keeps BBRv2's 2 %: one column changes
alpha alone. The paper says that BBRv2 forgets min_rtt after 5 s; the code probes for it every 5 s and forgets it
after 10.

Testbed (section 3.1): Mininet with netem on one host, iperf3, five runs of each. Here five seeds; receivers
acknowledge every other segment, Linux 5.4's stack is that of profile linux.

Sources: [Yang22].
"""

from typing import Any

from cctrace.papers.figure import Fields, Figure
from cctrace.papers.runs import Run
from cctrace.tcp.wire import WIRE_PER_PAYLOAD

BBR, BBR2, CUBIC = "BBR", "BBRv2", "CUBIC"
BBR2_20, BBR2_20_0 = "BBRv2(20 %, 0.3)", "BBRv2(20 %, 0)"
PLUS, PLUS_20, PLUS_PAPER = "BBRv2+ released", "BBRv2+ released, alpha 20 %", "BBRv2+ paper form"
PLUS_SMOOTHED = "BBRv2+ paper form, smoothed tries"
BBR_COMP, BBR2_COMP = "BBR compensated", "BBRv2 compensated"
PLUS_19, PLUS_18 = "BBRv2+ released, alpha 19 %", "BBRv2+ released, alpha 18 %"
SINGLE, SINGLE_20, SINGLE_PAPER = "released, no dual mode", "alpha 20 %, no dual mode", "paper form, no dual mode"
SINGLE_SMOOTHED = "smoothed tries, no dual mode"
SYSTEMS = {
    BBR: "bbr2019",
    BBR2: "bbr2",
    BBR2_20: "bbr2:loss_thresh=0.2",
    BBR2_20_0: "bbr2:loss_thresh=0.2,beta=0",
    PLUS: "bbr2plus",
    PLUS_20: "bbr2plus:loss_thresh=0.2",
    PLUS_19: "bbr2plus:loss_thresh=0.19",
    PLUS_18: "bbr2plus:loss_thresh=0.18",
    PLUS_PAPER: "bbr2plus_paper",
    PLUS_SMOOTHED: "bbr2plus_paper:smoothed_tries=1",
    BBR_COMP: "bbr2019_comp",
    BBR2_COMP: "bbr2_comp",
    SINGLE: "bbr2plus:switch_to_bbr2_thresh=0",
    SINGLE_20: "bbr2plus:switch_to_bbr2_thresh=0,loss_thresh=0.2",
    SINGLE_PAPER: "bbr2plus_paper:eta1=0",
    SINGLE_SMOOTHED: "bbr2plus_paper:eta1=0,smoothed_tries=1",
    CUBIC: "cubic",
}
FORMS = (PLUS, PLUS_20, PLUS_PAPER)  # of BBRv2+
TRYING = (*FORMS, PLUS_SMOOTHED)  # where what a try compares may matter
RATE_MBPS, RTT_MS = 40, 40
LINK_MBPS = RATE_MBPS / WIRE_PER_PAYLOAD  # payload
SEEDS = (1, 2, 3, 4, 5)


class Yang22(Figure):
    """A figure of this paper."""

    paper = "BBRv2+"


def flow(system: str, **fields: Any) -> Fields:
    """Return the fields of a `Sender` of a system."""
    return {"cc": SYSTEMS[system], "ack_every": 2} | fields


def run_of(systems: list[Any], seed: int, duration: str, path: Fields | None = None, **more: Any) -> Run:
    """Return the `Run` of some systems (names, or fields of `Sender`) over the paper's path, with changes."""
    fields = {"rate": f"{RATE_MBPS}Mbit", "rtt": f"{RTT_MS}ms"} | (path or {})
    flows = [flow(system) if isinstance(system, str) else system for system in systems]
    return Run({"path": fields, "flows": flows, "duration": duration, "seed": seed} | more)
