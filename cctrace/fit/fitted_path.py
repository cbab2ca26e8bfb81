"""Fitted path of a flow: rate over time, base RTT, buffer, losses by cause, jitter, and what the flow left open.

    path = cct.fit.path(flow)                        # a cct.Path, with an estimate of each of its properties
    cct.simulate(path, "bbr2022", "20s")             # simulate anything over the same path
    print(path.summary()); path.export("netem")

The steps follow from their dependence: the rate is the one that explains the delays best (`bottleneck`); the rate
gives the queue; uncongested delays give base RTT and jitter (`delays`, `jitter`); the backlog at losses
distinguishes congestive from random loss and bounds the buffer (`losses`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.arguments import check_progress
from cctrace.columns import give_back
from cctrace.display import Progress, Public, of_summary, plain, shortened, silent
from cctrace.documents import of_shape
from cctrace.estimates import Estimate
from cctrace.fit.components import components_of
from cctrace.fit.draws import draws, fields_of, read_estimates
from cctrace.path.evidence import PathEvidence, evidence_of
from cctrace.path.losses import losses_of
from cctrace.path.own_queue import idle_us
from cctrace.sim.path import Path
from cctrace.units import format_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cctrace.flows.flow import Flow
    from cctrace.path.losses import Losses
    from cctrace.sim.result import Simulation

COUNTS = "payload and 66 bytes of headers per segment (as cctrace.Path)"


class FittedPath(Path, Public):
    """A `cctrace.Path` fitted to a flow.

    Attributes
    ----------
    estimates : dict
        ``rate_bps`` [{start_s, value, low, high}], ``base_rtt_us``, ``buffer_bytes``, ``loss`` {model, share, ...},
        ``jitter``, ``policer``, ``shaper``, ``aqm``, ``acks``, ``cross_traffic``, ``undetermined``, ``rate_counts``;
        and ``correlation`` of the rates, the base RTT and the jitter.

    Examples
    --------
    It can be simulated over, as any path:

    >>> import cctrace as cct
    >>> sim = cct.simulate(cct.Path(rate="20Mbit", rtt="40ms", buffer="1bdp"), ["cubic6"], "3s", seed=1, packets=True)
    >>> fitted = cct.fit.path(sim)
    >>> again = cct.simulate(fitted, ["cubic6"], "3s", seed=1)
    >>> bool(abs(again.flows["goodput_bps"][0] / sim.flows["goodput_bps"][0] - 1) < 0.01)
    True
    """

    estimates: dict[str, Any]

    @classmethod
    def of(cls, estimates: dict[str, Any]) -> FittedPath:
        """Return the path of these estimates; one-sided ones take their bound (an unobserved buffer twice that)."""
        fitted = cls(**fields_of(estimates))
        object.__setattr__(fitted, "estimates", estimates)
        return fitted

    @classmethod
    def from_json(cls, text: str | bytes | dict[str, Any]) -> FittedPath:
        """Return the fitted path that `to_json` wrote, or an object of ``cctrace fit path --json``.

        Raises
        ------
        FormatError
            If it is neither; says what is missing.

        Examples
        --------
        >>> import cctrace as cct
        >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
        >>> fitted = cct.fit.path(flow)
        >>> FittedPath.from_json(fitted.to_json()).to_dict() == fitted.to_dict()
        True
        """
        with of_shape("text", "a fitted path as JSON"), np.errstate(invalid="raise"):  # JSON may hold infinities
            fitted = cls.of(read_estimates(text))
            fitted.draws(1)
            fitted.summary()  # whatever they miss is refused here, not where it is used
        return fitted

    def draws(self, n: int = 100, seed: int = 1) -> list[Path]:
        """Return `n` plausible paths, drawn from the joint distribution of the estimates.

        One-sided estimates are drawn log-uniformly from their bound to ten times that.
        """
        return [Path(**fields_of(drawn)) for drawn in draws(self.estimates, n, seed)]

    def plot(self) -> Figure:
        """Draw rate, queue, delays and losses of the flow with the fit; needs matplotlib.

        Raises
        ------
        ArgumentError
            If the path was read from JSON: the flow is needed.
        MissingError
            If matplotlib is not installed.
        """
        from cctrace.fit.plots import path_figure

        return path_figure(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the output of `cctrace fit path --json`."""
        return plain(self.estimates)

    def to_json(self) -> str:
        """Return the estimates as JSON text, which `from_json` reads."""
        return self.export("json")

    def export(self, to: str) -> str:
        """Return a script that emulates the path: ``"netem"`` (tc), ``"mahimahi"``, or ``"json"`` (the estimates).

        Raises
        ------
        ArgumentError
            If `to` is another.
        """
        from cctrace.fit.export import export

        return export(self, to)

    def __repr__(self) -> str:
        return f"<FittedPath: {shortened('; '.join(self.summary().splitlines()))}>"

    def _repr_html_(self) -> str:
        return of_summary("Path, fitted", self.summary())

    def summary(self) -> str:
        """Return the result as text."""
        e = self.estimates
        rates = [(row["start_s"], Estimate(row["value"], row["low"], row["high"])) for row in e["rate_bps"]]
        lines = [f"rate from {start_s:.2f} s: {rate.scaled(1e-6).text()} Mbit/s" for start_s, rate in rates]
        lines.append(f"base RTT: {e['base_rtt_us'].text('{:.0f}')} us")
        for row in e.get("base_rtt_steps", [])[1:]:
            lines.append(f"base RTT from {row['start_s']:.2f} s: {row['value']:.0f} us")
        lines.append(f"buffer: {e['buffer_bytes'].text('{:.0f}')} bytes")
        lines.append(f"random loss: {e['loss']['model']}, {e['loss']['share'].scaled(100).text()} %")
        if e["jitter"] is not None:
            sd = e["jitter"]["sd_us"].text("{:.0f}")
            where = f", {place} the queue" if (place := e["jitter"].get("place")) else ""
            process = f"process {drawn}" if (drawn := e["jitter"]["process"]) == "unknown" else drawn
            most = e["jitter"]["sd_us"].high
            kind = "none" if most is not None and most < 0.5 else f"{e['jitter']['distribution']}, {process}"
            lines.append(f"jitter: {kind}, sd {sd} us{where}")
        for name in ("policer", "shaper"):
            if e[name] is not None:
                rate = e[name]["rate_bps"].scaled(1e-6).text()
                lines.append(f"{name}: {rate} Mbit/s, bucket {e[name]['bucket_bytes'].text('{:.0f}')} bytes")
        if e["acks"] is not None:
            slot = e["acks"]["aggregation_us"]
            gathered = f", gathered in slots of {slot.text('{:.0f}')} us" if slot else ""
            every = format_number(e["acks"]["every"].value)
            lines.append(f"ACKs: one for {'each segment' if every == '1' else f'{every} segments'}{gathered}")
        lines.append(f"queue: {e['aqm'] or 'too few drops to tell'}")
        lines.append(f"cross traffic: {e['cross_traffic']['kind']}")
        if e["undetermined"]:
            lines.append(f"undetermined: {', '.join(e['undetermined'])}")
        return "\n".join([*lines, f"intervals: 95 %; bytes are {COUNTS}"])


def path(source: Flow | Simulation, progress: Progress = silent) -> FittedPath:
    """Fit the path of a flow.

    Parameters
    ----------
    source : Flow or Simulation
        A captured flow (others of the same capture that share its bottleneck are taken into account), or a simulation
        with ``packets=True``.
    progress : callable, optional
        Receives lines of progress.

    Returns
    -------
    FittedPath
        A `cctrace.Path` with `estimates`, `summary()`, `export()` and `to_dict()`.

    Raises
    ------
    FitError
        If too little is known of the flow; says what would be needed.
    StreamError
        If the capture lacks the data or the acknowledgements.

    Examples
    --------
    >>> import cctrace as cct
    >>> sim = cct.simulate(cct.Path(rate="20Mbit", rtt="40ms", buffer="1bdp"), ["cubic6"], "3s", seed=1, packets=True)
    >>> print(path(sim).summary().splitlines()[1])
    base RTT: 40000 (39996 to 40004) us
    """
    check_progress(progress)
    evidence = evidence_of(source)
    fitted, traffic = path_of(evidence, progress), evidence.traffic
    if idle_us(evidence, traffic.sent, traffic.steps) > 0:
        return fitted
    # The fitted values reproduce the capture, as what-ifs need; what is known of the path itself is one side of each.
    known = {name: value for name, value in fitted.estimates.items() if name != "base_rtt_steps"}
    base, buffer = (known[name].sides() for name in ("base_rtt_us", "buffer_bytes"))
    most_us = max(base[-1], evidence.least_rtt_us)
    bounds = {"base_rtt_us": Estimate(None, None, most_us), "buffer_bytes": Estimate(None, buffer[1], None)}
    undetermined = sorted({*known["undetermined"], "base_rtt", "buffer"})
    bounded = FittedPath.of(known | bounds | {"undetermined": undetermined})
    object.__setattr__(bounded, "_parts", vars(fitted)["_parts"])  # for its plot
    return bounded


def path_of(evidence: PathEvidence, progress: Progress = silent, quick: bool = False) -> FittedPath:
    """Return the `FittedPath` from a flow's evidence; see `path`. It is computed once, and cached with the evidence.

    `quick`: fit fewer jitter families to fewer draws, and none if the jitter is too small to simulate. For the
    simulations of `cctrace analyze`, whose intervals are far wider.
    """
    cache = evidence.cache
    if (path_of, quick) not in cache:
        cache[path_of, quick] = _path_of(evidence, progress, quick)
    return cache[path_of, quick]


def _path_of(evidence: PathEvidence, progress: Progress, quick: bool) -> FittedPath:
    table = evidence.transmissions
    evidence.require_sent()
    progress("rate of the bottleneck")
    traffic = evidence.traffic
    progress("token buckets")
    shaper, policer = evidence.shaper or evidence.packet_bucket, evidence.policer
    progress("jitter")
    parts = components_of(evidence, quick)
    base, (rates, is_bounded) = parts.base(), parts.rates(traffic.sent)
    jitter, correlation = parts.as_jitter(), parts.correlation()
    quiet_share = None if parts.delays is None else parts.delays.quiet_share
    if quick and evidence.is_long:
        evidence.put_away("delays")
        parts = parts._replace(delays=None, jitter=None)
    give_back(len(table))
    losses = losses_of(evidence, parts.steps, parts.errors)
    unknown = {
        "rate": is_bounded,
        "base_rtt": quiet_share is None,  # other flows occupied the queue all the time
        "buffer": losses.buffer_bytes.value is None,
        "aqm": losses.aqm in (None, "other"),
        "jitter_place": jitter is not None and jitter["process"] != "unknown" and jitter["place"] is None,
    }
    estimates: dict[str, Any] = {
        "rate_bps": rates,
        "base_rtt_us": base,
        "buffer_bytes": losses.buffer_bytes,
        "loss": _loss(losses, evidence.loses_behind),
        "jitter": jitter,
        "policer": None if policer is None else policer.as_estimates(),
        "shaper": None if shaper is None else shaper.as_estimates(),
        "aqm": losses.aqm,
        "acks": None if evidence.acks is None else evidence.acks._asdict(),
        "cross_traffic": _cross_traffic(len(traffic.others), quiet_share or 0.0),
        "undetermined": [name for name, is_unknown in unknown.items() if is_unknown],
        "correlation": correlation,
        "rate_counts": COUNTS,
    }
    if traffic.route is not None and base.value is not None:
        estimates["base_rtt_steps"] = [
            {"start_s": float(start / 1e6), **base.shifted(shift).to_dict()}
            for start, shift in zip(*traffic.route, strict=True)
        ]
    if quick and evidence.is_long:
        evidence.put_away("backlogs")
        traffic.sent.put_away()
    fitted = FittedPath.of(estimates)
    if not quick:  # a quick fit is never drawn
        object.__setattr__(fitted, "_parts", (table, traffic.sent, parts))
    return fitted


def _cross_traffic(flows: int, quiet_share: float) -> dict[str, Any]:
    """Return what is known of cross traffic: unknown if, half of the time, other flows' packets were in the queue."""
    kind = "elastic" if flows else "unknown" if quiet_share < 0.5 else "none"
    return {"kind": kind, "flows_in_capture": flows, "quiet_share": quiet_share}


def _loss(losses: Losses, is_behind: bool) -> dict[str, Any]:
    model = "none" if not losses.random else "gilbert-elliott" if losses.burst else "bernoulli"
    loss = {"model": model, "share": losses.share, "congestive": losses.congestive, "random": losses.random}
    loss |= {"is_behind": True} if is_behind and losses.random else {}
    return loss | ({"burst": losses.burst} if losses.burst else {})
