"""Tools that fit the path of a flow, simulate over paths, and draw."""

import io
from collections.abc import Sequence
from typing import Any

from cctrace.arguments import check_choice, whole
from cctrace.errors import ArgumentError
from cctrace.extras import needed
from cctrace.mcp.answers import Picture, answer
from cctrace.mcp.captures import Captures, own_controller
from cctrace.sim.path import Path
from cctrace.sim.simulate import simulate as run
from cctrace.units import parse_rate_bps, parse_time_ns

LONGEST_S = 300  # of a simulation
MAX_SENDERS = 8
MAX_BPS = 10e9  # of a simulated path: a second of it takes about as long
GRAPHS = ("overview", "throughput", "rtt", "windows", "time-sequence", "ladder", "segment-sizes")
_DPI = 110


def fit_path(captures: Captures, file: str, flow: int | None = None) -> dict[str, Any]:
    """Infer the path of a flow: rate over time, base RTT, buffer, loss, jitter, policer, AQM, with 95 % intervals."""
    from cctrace.fit import path

    return answer({"file": file} | path(captures.flow(file, flow)).to_dict())


def what_if(
    captures: Captures,
    file: str,
    flow: int | None = None,
    controllers: Sequence[str] = (),
    rate: str | None = None,
    rtt: str | None = None,
    buffer: str | None = None,
    loss: str | None = None,
    draws: int = 5,
) -> dict[str, Any]:
    """Say what other controllers, or a changed path, would have made of a flow: goodput, RTT, retransmissions.

    Changes are values with a unit or factors: rate="40Mbit" or "x2", rtt="20ms", buffer="2bdp", loss="0%". First the
    flow's own controller is simulated over the inferred path; only if `reproduces` is true are the figures advice.
    """
    from cctrace.counterfactual.whatif import whatif

    given = {"rate": rate, "rtt": rtt, "buffer": buffer, "loss": loss}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    names = [own_controller(name) for name in controllers]
    whole("draws", draws, 3, 20)
    if len(names) > MAX_SENDERS:
        raise ArgumentError(f"controllers: {len(names)} given, at most {MAX_SENDERS}")
    found = whatif(captures.flow(file, flow), names, draws=draws, **changes)
    return answer(found.to_dict() | {"advice": found.advice(), "trust": found.trust()})


def simulate(
    captures: Captures,
    controllers: Sequence[str],
    rate: str,
    rtt: str,
    buffer: str = "1bdp",
    loss: str = "0%",
    duration: str = "20s",
    seed: int = 1,
) -> dict[str, Any]:
    """Simulate controllers that share a bottleneck: goodput, RTT, retransmissions of each, fairness, utilisation.

    For example controllers=["bbr2022", "cubic6"], rate="40Mbit", rtt="40ms", buffer="2bdp".
    """
    names = [own_controller(name) for name in controllers]
    if not 1 <= len(names) <= MAX_SENDERS:
        raise ArgumentError(f"controllers: {len(names)} given, allowed are 1 to {MAX_SENDERS}")
    if parse_time_ns(duration, "duration") > LONGEST_S * 10**9:
        raise ArgumentError(f"duration={duration!r}: at most {LONGEST_S} s")
    if parse_rate_bps(rate, "rate") > MAX_BPS:
        raise ArgumentError(f"rate={rate!r}: at most {MAX_BPS / 1e9:g} Gbit/s")
    found = run(Path(rate=rate, rtt=rtt, buffer=buffer, loss=loss), names, duration, seed)
    return answer({"flows": found.flows.to_dict("records"), "link": found.link, "notes": found.notes})


def plot(
    captures: Captures,
    file: str,
    flow: int | None = None,
    graph: str = "overview",
    from_s: float = 0.0,
    to_s: float | None = None,
    packets: int = 40,
) -> Picture:
    """Draw a flow as PNG: overview, throughput, rtt, windows, time-sequence, ladder or segment-sizes.

    `from_s` and `to_s` are for time-sequence, `from_s` and `packets` for ladder.
    """
    needed("matplotlib", "plot")
    import matplotlib as mpl

    mpl.use("Agg")
    from cctrace import plot as plots

    check_choice("graph", graph, GRAPHS)
    one = captures.flow(file, flow)
    if graph == "overview":
        drawing = plots.plot_flow(one)
    elif graph == "ladder":
        drawing = plots.ladder(one, from_s, packets)
    elif graph == "time-sequence":
        drawing = plots.time_sequence(one, from_s, to_s)
    else:
        drawing = getattr(plots, graph.replace("-", "_"))(one)
    out = io.BytesIO()
    drawing.savefig(out, format="png", dpi=_DPI)
    return Picture(out.getvalue())
