"""The congestion control named by a sender's counters, and its variant.

The kernel's name is not sufficient: "bbr" is BBRv1, v2 or v3, depending on the kernel. Counters distinguish them by
the length and version byte of struct tcp_bbr_info, or by gains that only v3 has; otherwise the sends do
(`identify`).
"""

import numpy as np

from cctrace.cc import BBR_GENERATIONS, KERNEL_NAMES, kernel_name
from cctrace.io.counters.tcpinfo import TcpInfo

# Gains of v3 only, in 256ths: pacing of STARTUP and PROBE_BW down; cwnd of PROBE_BW up [BBRv3] bbr_pacing_gain.
_V3_PACING, _V3_CWND = (710, 232), 576


def generation(tcpinfo: TcpInfo | None) -> int | None:
    """Return the version of BBR that a connection's counters give; None if they do not, or are not BBR's."""
    if tcpinfo is None:
        return None
    version = int(tcpinfo["bbr_version"].max(initial=0))
    if version > 0:
        return version
    is_v3 = np.isin(tcpinfo["bbr_pacing_gain"], _V3_PACING) | (tcpinfo["bbr_cwnd_gain"] == _V3_CWND)
    return 3 if is_v3.any() else None


def controller_name(tcpinfo: TcpInfo | None) -> str | None:
    """Return the kernel's name of a connection's congestion control, None if the counters lack it.

    For BBR the name includes the generation if known: "bbr" (v1, or unknown), "bbr2", "bbr3".
    """
    if tcpinfo is None:
        return None
    version, name = generation(tcpinfo), tcpinfo.connections[0].get("cc")
    if version in BBR_GENERATIONS:
        return BBR_GENERATIONS[version]
    return str(name) if name else "bbr" if (tcpinfo["bbr_bw_Bps"] >= 0).any() else None


def leaves_open(tcpinfo: TcpInfo | None, reported: str | None) -> bool:
    """Whether counters that name BBR leave its version open."""
    return reported == "bbr" and generation(tcpinfo) is None


def sender(tcpinfo: TcpInfo | None, reported: str | None, *named: str) -> tuple[str | None, str | None]:
    """Return (kernel's name, variant) of a flow's sender; None if unknown.

    Parameters
    ----------
    tcpinfo : TcpInfo or None
        Polls of the connection.
    reported : str or None
        Its controller according to `controller_name`.
    *named : str
        The variants of an identification (its group), most probable first. The first one that agrees with the
        counters is returned or, if none does and the counters leave the version of BBR open, the most probable.
    """
    kernels = {name: kernel_name(name) for name in named}
    agreeing = [name for name in named if reported in (None, kernels[name])]
    if not agreeing and named and leaves_open(tcpinfo, reported) and kernels[named[0]] in BBR_GENERATIONS.values():
        agreeing = [named[0]]
    if agreeing:
        return kernels[agreeing[0]], agreeing[0]
    return reported, KERNEL_NAMES.get(reported or "", named[0] if named else None)
