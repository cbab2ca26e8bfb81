"""Bi et al., *oBBR* (USENIX ATC 2023): the systems, and what its figures share.

The paper built all controllers in nginx-quic (section 5.1). The released module (`bpq233/oBBR`) has BBR, oBBR,
BBR-S, B3R and CUBIC: the names without addition. Where the text describes something else (`cctrace variants obbr
quic_obbr_paper`), its form is run as well, on the same QUIC stack: *paper form*.

Testbed: one machine, tc. Burst is 100 KB in all experiments that use tc: here a token bucket of that burst, fed at
1 Gbit/s, with the buffer in front of it; also where section 3 names no burst. Sessions of 1 GB take as long as the
link needs for 1 GB. The client is Chromium's: it decimates its ACKs. "Retransmitted" is relative to what was
delivered.

Sources: [Bi23].
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
# The text does not say how the client acknowledged. Three readings, the same in all figures made in the laboratory: as
# Chromium does (`cctrace.sim.acks`); ten packets per ACK from the first on, with or without gaps; and in slots, as a
# client or link that holds ACKs back. Only the first is run with all seeds.
CLIENT = "chromium"
CHROMIUM, TENTH, SLOTS = "client: Chromium", "client: an ACK per ten packets", "client: ACKs in slots of RTT/5"
CLIENTS = (CHROMIUM, TENTH, SLOTS)
BURST = "100kB"
FEED = "1Gbit"  # what reaches the token bucket
PAYLOAD = QUIC_MSS_BYTES / QUIC_PACKET_BYTES
SEEDS = (1, 2, 3)


class Bi23(Figure):
    """A figure of this paper; subclasses judge it by `claims`, or client by client by `of_client`."""

    paper = "oBBR"
    compares: ClassVar[bool] = False  # its claims compare all systems: none unless all were run

    def runs(self, p: Fields) -> list[tuple[Fields, Run]]:
        """The runs over what is `varied`; all seeds of one client, and one of the others."""
        return [
            (at, run)
            for at, run in super().runs(p)
            if at.get("client", CHROMIUM) == CHROMIUM or at["seed"] == min(p["seeds"])
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
    again, sent = (sum(flow[name] for flow in flows) for name in ("retransmitted", "sent"))
    return 100 * again / max(sent - again, 1)


def acks(client: str, rtt_ms: float) -> Fields:
    """Return how a client acknowledges: fields of `cctrace.Sender`.

    >>> acks(SLOTS, 40), acks(TENTH, 40)
    ({'ack_slot': '8ms'}, {'ack': 'every:10'})
    """
    return {"ack_slot": f"{rtt_ms / 5:g}ms"} if client == SLOTS else {"ack": "every:10" if client == TENTH else CLIENT}


Steps = list[tuple[float, float]]  # of a rate: second, Mbit/s


def link(rate: float | Steps, rtt_ms: float, buffer_bytes: float, loss_pct: float = 0.0) -> Fields:
    """Return the fields of `Path` of the testbed: a token bucket with a rate in Mbit/s, or steps of (second, rate).

    >>> link(20, 40, 1000)["shaper"]
    ['20Mbit', '100kB']
    """
    steps = f"{rate}Mbit" if isinstance(rate, int | float) else [[at, f"{mbps}Mbit"] for at, mbps in rate]
    path = {"rate": FEED, "shaper": [steps, BURST], "rtt": f"{rtt_ms}ms", "buffer": f"{round(buffer_bytes)}B"}
    return path | ({"loss": f"{loss_pct:g}%"} if loss_pct else {})


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
