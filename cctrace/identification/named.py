"""What a sender's counters tell of its congestion control, and the variant that follows from that.

The kernel's name of a controller is no more than a beginning: "bbr" is BBRv1, v2 or v3, as the kernel was built. Its
counters tell which, by the length and the version byte of struct tcp_bbr_info or by gains that only v3 has; where they
do not, what was sent does (`identify`).
"""

import numpy as np

from cctrace.cc import BBR_GENERATIONS, KERNEL_NAMES, kernel_name

# Gains of v3 alone, in 256ths: pacing of STARTUP and of PROBE_BW down; cwnd of PROBE_BW up [BBRv3] bbr_pacing_gain.
_V3_PACING, _V3_CWND = (710, 232), 576


def generation(tcpinfo):
    """Return the version of BBR that the counters of one connection tell; None if they do not, or are another's."""
    if tcpinfo is None:
        return None
    version = int(tcpinfo["bbr_version"].max(initial=0))
    if version > 0:
        return version
    own = np.isin(tcpinfo["bbr_pacing_gain"], _V3_PACING) | (tcpinfo["bbr_cwnd_gain"] == _V3_CWND)
    return 3 if own.any() else None


def controller_name(tcpinfo):
    """Return the kernel's name of a connection's congestion control, None if its counters do not tell.

    Parameters
    ----------
    tcpinfo : TcpInfo or None
        Polls of one connection.

    Returns
    -------
    str or None
        Of BBR its generation, where that is told: "bbr" (v1, or not told), "bbr2", "bbr3".
    """
    if tcpinfo is None:
        return None
    if generation(tcpinfo) in BBR_GENERATIONS:
        return BBR_GENERATIONS[generation(tcpinfo)]
    if tcpinfo.connections[0].get("cc"):
        return tcpinfo.connections[0]["cc"]
    return "bbr" if (tcpinfo["bbr_bw_Bps"] >= 0).any() else None


def leaves_open(tcpinfo, told):
    """Whether counters that name a controller leave it open which BBR it is."""
    return told == "bbr" and generation(tcpinfo) is None


def sender(tcpinfo, told, *named):
    """Return (kernel's name, variant) of a flow's sender; None for what nobody knows.

    Parameters
    ----------
    tcpinfo : TcpInfo or None
        Polls of the connection.
    told : str or None
        Its controller as `controller_name` gives it.
    *named : str
        The variants that an identification names (its group), the likeliest first: the first of those that the counters
        tell is believed, which never tell these apart. Only where none is, and the counters leave it open which BBR it
        is, the likeliest is.
    """
    own = [name for name in named if told in (None, kernel_name(name))]
    if not own and named and leaves_open(tcpinfo, told) and kernel_name(named[0]) in BBR_GENERATIONS.values():
        own = [named[0]]
    if own:
        return kernel_name(own[0]), own[0]
    return told, KERNEL_NAMES.get(told, named[0] if named else None)
