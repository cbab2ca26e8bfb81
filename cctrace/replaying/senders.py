"""Controllers that may have sent a flow whose sender is not known."""

from typing import TypeAlias

from cctrace.cc import KERNEL_NAMES, REGISTRY
from cctrace.cc import controller as resolve
from cctrace.cc.base import Controller
from cctrace.cc.linux import GSO_MAX_SIZE_5_19
from cctrace.flows.flow import Flow
from cctrace.tcp.pacing import near_peer_bytes

Sender: TypeAlias = "str | type[Controller]"
# One per family whose sends differ: BBR before Linux 4.20 paces 1 % faster than today's; without marks DCTCP and Prague
# send as Reno.
L4S_SENDERS = ("prague", "prague2020")  # all that send ECT(1)
SENDERS = (*(name for name in KERNEL_NAMES.values() if name not in ("dctcp", "prague")), "bbr2016")
# BBRv2 as ported to Linux 5.19 and later: over a short path its bursts are so much longer that neither how it paced
# nor how long they are shows while the other is wrong.
PORTED = f"bbr2:gso_max_bytes={GSO_MAX_SIZE_5_19}"


def registered(cls: type[Controller] | None) -> str | None:
    """Return the name of a controller of this package, None for a class of the user's, which may not compile.

    Orca with a policy is the user's, too: by name alone it has none.
    """
    place = cls and f"{cls.__module__}:{cls.__qualname__}"
    return next((name for name, known in REGISTRY.items() if known == place and resolve(name)[0] is cls), None)


def senders_of(beginning: Flow) -> tuple[Sender, ...]:
    """Return who may have sent a flow that begins like this."""
    if beginning.facts["ecn"] == "accurate" and beginning.ecn.sent["ect1"] > 0:
        return L4S_SENDERS
    classic = (*SENDERS, "dctcp") if beginning.events["delivered_ce"].any() else SENDERS
    ported = near_peer_bytes(GSO_MAX_SIZE_5_19, beginning.events.last("tcp_min_rtt_us"))
    return (*classic, PORTED) if ported else classic
