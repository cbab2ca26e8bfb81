"""Bi et al., *oBBR* (USENIX ATC 2023): the systems, and what its figures share.

The paper built all controllers in nginx-quic (section 5.1). The released module (`bpq233/oBBR`) has BBR, oBBR,
BBR-S, B3R and CUBIC: the names without addition. Where the text describes something else (`cctrace variants obbr
quic_obbr_paper`), its form is run as well, on the same QUIC stack: *paper form*.

Testbed: tc, and a burst of 100 KB in all experiments that use it: a token bucket of that burst, fed at 1 Gbit/s, with
the buffer in front of it; also where section 3 names no burst. The scripts of the artifact [oBBR-AE] put netem, and tbf
below it, on the loopback device, on which server and client meet. Data and ACKs then wait in the same queue, which an
RTT contains twice, and half of the RTT is before it, in either direction. Sessions of 1 GB take as long as the link
needs for 1 GB. The client is Chromium's. "Retransmitted" is relative to what was delivered (section 5.2.1); "packet
loss ratio" is what that is elsewhere, and where the text says that BBR bears 20 % of it: lost over sent.

Sources: [Bi23]; [oBBR-AE] `nginx-quic/scripts` of bpq233/oBBR.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pandas as pd

from cctrace.papers import figure
from cctrace.papers.claims import Claim
from cctrace.papers.figure import Fields, Figure, Reproduction
from cctrace.papers.measure_streaming import streamed
from cctrace.papers.runs import Result, Run
from cctrace.tcp.wire import QUIC_MSS_BYTES, QUIC_PACKET_BYTES

BBR, BBR2, CUBIC, BBR_S, B3R = "BBR", "BBRv2", "CUBIC", "BBR-S", "B3R"
PAPER = " paper form"
MUS = (0.5, 0.75, 1.0)


def obbr(mu: float, form: str = "") -> str:
    """Return the name of oBBR with a mu, as the paper writes it."""
    return f"oBBR-{mu:g}{form}"


def obbrs(form: str = "") -> list[str]:
    """Return the names of oBBR with each of `MUS`."""
    return [obbr(mu, form) for mu in MUS]


SYSTEMS = {
    BBR: "quic_bbr",
    BBR2: "quic_bbr2",
    CUBIC: "quic_cubic",
    BBR_S: "bbr_s",
    B3R: "b3r",
    BBR_S + PAPER: "quic_bbr_s_paper",
    B3R + PAPER: "quic_b3r_paper",
    **{obbr(mu): f"obbr:mu={mu:g}" for mu in MUS},
    **{obbr(mu, PAPER): f"quic_obbr_paper:mu={mu:g}" for mu in MUS},
}
OBBRS = (*obbrs(), *obbrs(PAPER))
FORMS = {"released": "", "paper form": PAPER}
# What the text leaves open of the laboratory: four readings, the same in all its figures. tc on the loopback device,
# Chromium's client, and nginx's timers up to a millisecond late (it counts them in milliseconds), or up to one period
# of its push timer (both hosts on four cores). tc between two hosts, ten packets per ACK, with or without gaps, or ACKs
# in slots, as a client or link that holds them back. Only the first is run with several seeds.
CLIENT = "chromium"
LOOPBACK, LATE = "tc on loopback", "tc on loopback, timers up to 3 ms late"
TENTH, SLOTS = "client: an ACK per ten packets", "client: ACKs in slots of RTT/5"
TESTBEDS = {
    LOOPBACK: {"ack": CLIENT, "push_late": "1ms"},
    LATE: {"ack": CLIENT, "push_late": "3ms"},
    TENTH: {"ack": "every:10"},
    SLOTS: {},
}
CLIENTS = tuple(TESTBEDS)
BURST_KB = 100
BURST = f"{BURST_KB}kB"
KB = 1024  # bytes, of tc's KB
FEED = "1Gbit"  # what reaches the token bucket
PAYLOAD = QUIC_MSS_BYTES / QUIC_PACKET_BYTES
SEEDS = (1, 2, 3)
OF_LAB = SEEDS[:2]


class Bi23(Figure):
    """A figure of this paper; subclasses judge it by `claims`, or client by client by `of_client`."""

    paper = "oBBR"
    compares: ClassVar[bool] = False  # its claims compare all systems: none unless all were run

    def runs(self, p: Fields) -> list[tuple[Fields, Run]]:
        """The runs over what is `varied`; all seeds of one testbed, and one of the others."""
        return [
            (at, run)
            for at, run in super().runs(p)
            if at.get("client", LOOPBACK) == LOOPBACK or at["seed"] == min(p["seeds"])
        ]

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """What is `measured` of the first flow."""
        return measures(result["flows"][0], *self.measured)

    def claims(self, made: Reproduction) -> Iterable[Claim]:
        """Judge the rows of each client, and name it among the readings."""
        if self.compares and not complete(made):
            return
        for client in made.each("client"):
            for claim in self.of_client(replace(made, table=made.rows(client=client))):
                yield replace(claim, reading="; ".join(filter(None, [claim.reading, client])))

    def of_client(self, made: Reproduction) -> Iterable[Claim]:
        """Return the claims of the paper, judged by the rows of one client."""
        raise NotImplementedError


def measures(flow: Mapping[str, Any], *names: str) -> dict[str, float]:
    """Return some of `MEASURES` of a flow; retransmissions are relative to what was delivered, as in section 5.2.1.

    >>> measures({"retransmit_ratio": 0.2, "sent": 10, "retransmitted": 2}, "retransmitted_pct")
    {'retransmitted_pct': 25.0}
    """
    found = figure.measures(flow, *names)
    return found | ({"retransmitted_pct": retransmitted_pct([flow])} if "retransmitted_pct" in found else {})


def retransmitted_pct(flows: Sequence[Mapping[str, Any]]) -> float:
    """Return the retransmissions of flows over their original transmissions, per cent."""
    retransmitted, sent = (sum(flow[name] for flow in flows) for name in ("retransmitted", "sent"))
    return 100 * retransmitted / max(sent - retransmitted, 1)


def loss_ratio_pct(retransmitted_pct: float) -> float:
    """Return packets lost over packets sent, per cent, from retransmissions over what was delivered.

    >>> loss_ratio_pct(25.0)
    20.0
    """
    return 100 * retransmitted_pct / (100 + retransmitted_pct)


def acks(client: str, rtt_ms: float) -> Fields:
    """Return how both ends of a testbed behave: fields of `cctrace.Sender`.

    >>> acks(SLOTS, 40), acks(TENTH, 40)
    ({'ack_slot': '8ms'}, {'ack': 'every:10'})
    """
    return {"ack_slot": f"{rtt_ms / 5:g}ms"} if client == SLOTS else dict(TESTBEDS[client])


Steps = list[tuple[float, float]]  # of a rate: second, Mbit/s


def link(
    rate: float | Steps,
    rtt_ms: float,
    buffer_bytes: float,
    loss_pct: float = 0.0,
    client: str = LOOPBACK,
    burst_kb: float = BURST_KB,
) -> Fields:
    """Return the fields of `Path` of a testbed: a token bucket with a rate in Mbit/s, or steps of (second, rate).

    >>> link(20, 40, 1000, client=TENTH)["shaper"], link(20, 40, 1000)["buffer"]
    (['20Mbit', '100kB'], '1024B')
    """
    steps = f"{rate}Mbit" if isinstance(rate, int | float) else [[at, f"{mbps}Mbit"] for at, mbps in rate]
    path = {"rate": FEED, "shaper": [steps, f"{burst_kb:g}kB"], "rtt": f"{rtt_ms}ms"}
    path |= {"buffer": f"{round(buffer_bytes)}B"} | ({"loss": f"{loss_pct:g}%"} if loss_pct else {})
    return on_loopback(path, rtt_ms) if client in (LOOPBACK, LATE) else path


def on_loopback(path: Fields, rtt_ms: float) -> Fields:
    """Return a path with tc's netem and tbf on a loopback device: data and ACKs share delay, losses and queue."""
    rate, burst = path["shaper"]
    return path | {
        **both_ways(rtt_ms),
        "ack_loss": path.get("loss", "0%"),
        "buffer": f"{round(int(path['buffer'].removesuffix('B')) * KB / 1000)}B",
        "shaper": [rate, f"{int(burst.removesuffix('kB')) * KB}B"],
    }


def both_ways(rtt_ms: float) -> Fields:
    """Return the fields of `Path` that put both directions through one queue, behind half of the least RTT.

    >>> both_ways(40)["reverse"]
    '20ms'
    """
    return {"reverse": f"{rtt_ms / 2:g}ms", "delay_before": f"{rtt_ms / 2:g}ms", "shared": True}


def bdp_bytes(mbps: float, rtt_ms: float) -> float:
    """Return the bandwidth-delay product."""
    return mbps * 1e3 / 8 * rtt_ms


def run_of(
    systems: list[str], path: Fields, seed: int, duration_s: float, client: Fields | None = None, **more: Any
) -> Run:
    """Return the `Run` of some systems (names, or controllers) over a path; `client`: fields of their `Sender`."""
    flows = [{"cc": SYSTEMS.get(system, system)} | (client or {"ack": CLIENT}) for system in systems]
    return Run({"path": path, "flows": flows, "duration": f"{duration_s:g}s", "seed": seed} | more)


def session_of(system: str, path: Fields, seed: int, minutes: float, rule: str) -> Run:
    """Return the `Run` of a video over a path."""
    cc = SYSTEMS[system]
    arguments = {"path": path, "cc": cc, "seed": seed, "minutes": minutes, "rule": rule, "ack": CLIENT}
    return Run(arguments, streamed, (cc,), ("streaming",))


def by_form(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with a column ``form``, and systems without it: a panel each for release and paper form.

    What has one form only (BBR, BBRv2, CUBIC) is in both.
    """
    form = table.system.str.endswith(PAPER).map({True: "paper form", False: "released"})
    one = table[table.system.isin([BBR, BBR2, CUBIC])].assign(form="paper form")
    apart = table.assign(form=form, system=table.system.str.removesuffix(PAPER))
    return pd.concat([apart[apart.form == "released"], one, apart[apart.form != "released"]])


def complete(made: Reproduction) -> bool:
    """Say whether a `Reproduction` has all systems: what the paper claims compares them."""
    return set(SYSTEMS) <= set(made.table.system)
