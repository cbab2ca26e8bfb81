"""Which congestion control a sender's counters name, and the variant that follows from that.

The kernel's name of a controller is no more than a beginning: "bbr" is BBRv1, v2 or v3, as the kernel was built. Its
counters say which, by the length and the version byte of struct tcp_bbr_info or by gains that only v3 has; where they
do not, what was sent does (`identify`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cctrace.cc import BBR_GENERATIONS, KERNEL_NAMES, kernel_name

if TYPE_CHECKING:
    from cctrace.io.tcpinfo import TcpInfo

# Gains of v3 alone, in 256ths: pacing of STARTUP and of PROBE_BW down; cwnd of PROBE_BW up [BBRv3] bbr_pacing_gain.
_V3_PACING, _V3_CWND = (710, 232), 576


def generation(tcpinfo: TcpInfo | None) -> int | None:
    """Return the version of BBR that the counters of one connection give; None if they do not, or are another's."""
    if tcpinfo is None:
        return None
    version = int(tcpinfo["bbr_version"].max(initial=0))
    if version > 0:
        return version
    own = np.isin(tcpinfo["bbr_pacing_gain"], _V3_PACING) | (tcpinfo["bbr_cwnd_gain"] == _V3_CWND)
    return 3 if own.any() else None


def controller_name(tcpinfo: TcpInfo | None) -> str | None:
    """Return the kernel's name of a connection's congestion control, None if its counters do not give it.

    Of BBR it is the generation, where that is known: "bbr" (v1, or not known), "bbr2", "bbr3".
    """
    if tcpinfo is None:
        return None
    version, name = generation(tcpinfo), tcpinfo.connections[0].get("cc")
    if version in BBR_GENERATIONS:
        return BBR_GENERATIONS[version]
    return str(name) if name else "bbr" if (tcpinfo["bbr_bw_Bps"] >= 0).any() else None


def leaves_open(tcpinfo: TcpInfo | None, reported: str | None) -> bool:
    """Whether counters that name a controller leave it open which BBR it is."""
    return reported == "bbr" and generation(tcpinfo) is None


def sender(tcpinfo: TcpInfo | None, reported: str | None, *named: str) -> tuple[str | None, str | None]:
    """Return (kernel's name, variant) of a flow's sender; None for what is not known.

    Parameters
    ----------
    tcpinfo : TcpInfo or None
        Polls of the connection.
    told : str or None
        Its controller as `controller_name` gives it.
    *named : str
        The variants that an identification names (its group), the likeliest first. The first that agrees with the
        counters is believed; where none does, and the counters leave it open which BBR it is, the likeliest.
    """
    own = [name for name in named if reported in (None, kernel_name(name))]
    if not own and named and leaves_open(tcpinfo, reported) and kernel_name(named[0]) in BBR_GENERATIONS.values():
        own = [named[0]]
    if own:
        return kernel_name(own[0]), own[0]
    return reported, KERNEL_NAMES.get(reported or "", named[0] if named else None)
