"""The systems that the four papers run, by controller: which paper, and what it is called there.

What differs in parameters only is the same controller (``obbr:mu=0.5``, ``bbr2:loss_thresh=0.2``).
Keys are the papers of `cctrace.papers`: kumar [Kumar19], bbr2plus [Yang22], obbr [Bi23], bbrx [Chung18].
"""

_PAPER_FORM = " as the paper describes it"

SYSTEMS: dict[str, dict[str, str]] = {
    "bbr2016": {"kumar": "BBR 2016", "bbrx": "BBR of Linux 4.15"},
    "bbr2019": {"kumar": "BBR 2019", "bbr2plus": "BBR of Linux 5.4"},
    "bbr2016_cbe": {"kumar": "BBR 2016 cbe"},
    "bbr2016_cmrt": {"kumar": "BBR 2016 cmrt"},
    "bbr2019_cbe": {"kumar": "BBR 2019 cbe"},
    "bbr2019_cmrt": {"kumar": "BBR 2019 cmrt"},
    "bbr2": {"bbr2plus": "BBRv2, BBRv2(alpha, beta)"},
    "bbr2plus": {"bbr2plus": "BBRv2+"},
    "bbr2plus_paper": {"bbr2plus": "BBRv2+" + _PAPER_FORM},
    "bbr2019_comp": {"bbr2plus": "BBR with BDP compensation"},
    "bbr2_comp": {"bbr2plus": "BBRv2 with BDP compensation"},
    "cubic": {"bbr2plus": "Cubic"},
    "orca": {"bbr2plus": "Orca"},
    "quic_bbr": {"obbr": "BBR"},
    "quic_bbr2": {"obbr": "BBRv2"},
    "quic_cubic": {"obbr": "CUBIC"},
    "obbr": {"obbr": "oBBR"},
    "bbr_s": {"obbr": "BBR-S"},
    "b3r": {"obbr": "B3R"},
    "quic_obbr_paper": {"obbr": "oBBR" + _PAPER_FORM},
    "quic_bbr_s_paper": {"obbr": "BBR-S" + _PAPER_FORM},
    "quic_b3r_paper": {"obbr": "B3R" + _PAPER_FORM},
    "obbr_paper": {"obbr": "oBBR" + _PAPER_FORM + ", on Linux BBR"},
    "bbr_s_paper": {"obbr": "BBR-S" + _PAPER_FORM + ", on Linux BBR"},
    "b3r_paper": {"obbr": "B3R" + _PAPER_FORM + ", on Linux BBR"},
    "cubic_paced": {"obbr": "CUBIC with pacing, on Linux"},
    "bbrx": {"bbrx": "BBRx"},
}
