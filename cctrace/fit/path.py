"""The path of a flow: rate over time, base RTT, buffer, losses by cause, jitter, and what the flow could not see.

    path = cct.fit.path(flow)                        # a cct.Path, and an estimate of everything in it
    cct.simulate(path, "bbr2022", "20s")             # the same path, whatever is to be asked of it
    print(path.summary()); path.export("netem")

The order is that of what depends on what: the rate explains the delays best (`bottleneck`), the queue follows from the
rate, delays without queue give base RTT and jitter (`delays`, `jitter`), the backlog that lost packets met tells
congestion from chance and bounds the buffer (`losses`).
"""

import numpy as np

from cctrace.display import of_summary
from cctrace.errors import FitError
from cctrace.fit.blocks import block_means
from cctrace.fit.bottleneck import constant, delivered_rate, deviation, rate_errors, sent
from cctrace.fit.buckets import policer_of, shaper_of
from cctrace.fit.delays import LEAST_SAMPLES, delays_of
from cctrace.fit.jitter import Jitter
from cctrace.fit.losses import losses_of
from cctrace.fit.results import Estimate, plain
from cctrace.fit.shared import companions, together
from cctrace.fit.transmissions import as_flow, transmissions
from cctrace.sim.path import Path

SEEN = 0.01  # share by which the deviation of the delays must fall when the queue is taken into account
UNSURE = 0.2  # standard error of a rate, relative, from which on it is no estimate
COUNTS = "payload and 66 bytes of headers per segment (as cctrace.Path)"


class FittedPath(Path):
    """A `cctrace.Path` fitted to a flow.

    Attributes
    ----------
    estimates : dict
        ``rate_bps`` [{start_s, value, low, high}], ``base_rtt_us``, ``buffer_bytes``, ``loss`` {model, share, ...},
        ``jitter``, ``policer``, ``shaper``, ``aqm``, ``cross_traffic``, ``unseen``, ``rate_counts``.
    """

    estimates: dict

    @classmethod
    def of(cls, estimates, jitter):
        """Return the path of these estimates; what is only bounded takes its bound (an unseen buffer twice that)."""
        rates = [(row["start_s"], _middle(row)) for row in estimates["rate_bps"]]
        base_us = _known(estimates["base_rtt_us"])
        # Of what the clock does not resolve the process is unknown, and it would change nothing.
        drawn = None if jitter is None or jitter.process_.name == "unknown" else jitter.jitter()
        if drawn is not None and drawn.kind != "normal":
            base_us -= jitter.mean_us_.value  # cct.Path adds such a jitter to the base RTT
        buffer = estimates["buffer_bytes"]
        room = buffer.value if buffer.value is not None else 2 * buffer.low
        loss, burst = estimates["loss"], estimates["loss"].get("burst")
        share = loss["share"].value
        policer, shaper = (_bucket(estimates[name]) for name in ("policer", "shaper"))
        fitted = cls(
            rate=rates if len(rates) > 1 else rates[0][1],
            rtt=f"{max(base_us, 1.0):.1f}us",
            buffer=f"{max(room, 1514):.0f}B",
            jitter=drawn,
            loss="100%" if burst else f"{100 * share:.6f}%",
            burst_loss=tuple(side.value for side in burst) if burst else None,
            policer=policer,
            shaper=shaper,
        )
        object.__setattr__(fitted, "estimates", estimates)
        return fitted

    def as_object(self):
        """Return what `cctrace fit path --json` prints."""
        return plain(self.estimates)

    def export(self, to):
        """Return a script that emulates the path: ``"netem"`` (tc), ``"mahimahi"``, or ``"json"`` (the estimates).

        Raises
        ------
        ArgumentError
            If `to` is another.
        """
        from cctrace.fit.export import export

        return export(self, to)

    def _repr_html_(self):
        return of_summary("Path, fitted", self.summary())

    def summary(self):
        """Return what was found, as text."""
        e = self.estimates
        lines = [f"rate from {row['start_s']:.2f} s: {_mbit(row)} Mbit/s" for row in e["rate_bps"]]
        lines.append(f"base RTT: {e['base_rtt_us'].text('{:.0f}')} us")
        lines.append(f"buffer: {e['buffer_bytes'].text('{:.0f}')} bytes")
        lines.append(f"random loss: {e['loss']['model']}, {e['loss']['share'].scaled(100).text('{:.3g}')} %")
        if e["jitter"] is not None:
            sd = e["jitter"]["sd_us"].text("{:.0f}")
            lines.append(f"jitter: {e['jitter']['distribution']}, {e['jitter']['process']}, sd {sd} us")
        for name in ("policer", "shaper"):
            if e[name] is not None:
                rate = e[name]["rate_bps"].scaled(1e-6).text()
                lines.append(f"{name}: {rate} Mbit/s, bucket {e[name]['bucket_bytes'].text('{:.0f}')} bytes")
        lines.append(f"cross traffic: {e['cross_traffic']['kind']}")
        if e["unseen"]:
            lines.append(f"not seen: {', '.join(e['unseen'])}")
        warned = "intervals are of chance within the flow, too narrow: simulated paths lay in 48 to 88 % of them"
        return "\n".join([*lines, f"{warned}; bytes are {COUNTS}"])


def path(source, say=lambda text: None):
    """Fit the path of a flow.

    Parameters
    ----------
    source : Flow or Simulation
        A captured flow (others of the same capture that share its bottleneck are taken into account), or a simulation
        with ``packets=True``.
    say : callable, optional
        Told what is being done.

    Returns
    -------
    FittedPath
        A `cctrace.Path` with `estimates`, `summary()`, `export()` and `as_object()`.

    Raises
    ------
    FitError
        If too little is known of the flow; says what would be needed.
    StreamError
        If the capture lacks the data or the acknowledgements.
    """
    captured = as_flow(source)
    table = transmissions(captured)
    alone = sent(table)
    if len(alone.known) < LEAST_SAMPLES:
        raise FitError(
            f"only {len(alone.known)} RTTs are known; at least {LEAST_SAMPLES} are needed, so capture a longer flow"
        )
    say("rate of the bottleneck")
    others = companions(captured)
    flow, steps, sharing = together(others, table, alone, say)
    unseen = []
    rates = _rates(flow, steps, unseen)
    say("token buckets")
    shaper = shaper_of(flow, steps)
    policer = None
    if shaper is None:  # whose full queue drops like a policer that delays
        policer = policer_of([table, *others], table.start_ns, float(np.nanquantile(table.rtt_us, 0.05)))
    delays, jitter = None, None
    say("jitter")
    try:
        delays = delays_of(table, flow, steps if shaper is None else constant(shaper.rate.value), _bytes(shaper))
        jitter = Jitter().fit(delays)
    except FitError:
        pass
    if delays is None:  # others' packets stood in the queue all the time
        unseen.append("base_rtt")
    base = Estimate(None, None, float(np.nanmin(table.rtt_us))) if delays is None else _base(delays, jitter)
    losses = losses_of(table, flow, steps, None if policer is None else policer.explained)
    if losses.buffer_bytes.value is None:
        unseen.append("buffer")
    if losses.droptail is None:
        unseen.append("aqm")
    estimates = {
        "rate_bps": rates,
        "base_rtt_us": base,
        "buffer_bytes": _less(losses.buffer_bytes, _bytes(shaper)),
        "loss": _loss(losses),
        "jitter": None if jitter is None else jitter.as_estimates(),
        "policer": None if policer is None else policer.as_estimates(),
        "shaper": None if shaper is None else shaper.as_estimates(),
        "aqm": None if losses.droptail is None else "droptail" if losses.droptail else "other",
        "cross_traffic": _cross_traffic(delays, sharing),
        "unseen": unseen,
        "rate_counts": COUNTS,
    }
    return FittedPath.of(estimates, jitter)


def _rates(flow, steps, unseen):
    """Return the rows of ``rate_bps``; a rate that no queue showed is bounded by what was delivered."""
    errors = rate_errors(flow, steps)
    window = max(200_000.0, flow.least_rtt_us)
    _, rate, _ = delivered_rate(flow, window)
    fastest = float(np.quantile(rate[rate > 0], 0.99)) * 8e6
    with_queue, without = deviation(flow, steps), deviation(flow, constant(1e6))
    if len(steps.rate) == 1 and (without - with_queue < SEEN * without or errors[0] > UNSURE):
        unseen.append("rate")
        return [{"start_s": 0.0, "value": fastest, "low": fastest, "high": None}]
    rows = []
    for start, value, error in zip(steps.start_us, steps.rate * 8e6, errors, strict=True):
        estimate = Estimate.around(value, value * max(error, 2e-4), 0.0)
        rows.append({"start_s": float(start / 1e6)} | estimate.as_object())
    return rows


def _base(delays, jitter):
    """Return the mean RTT without queue and serialisation, the jitter's mean included."""
    if jitter is not None and jitter.process_.name != "unknown":
        return jitter.delay_us_
    rtt = delays.rtt_us
    middle = float(np.median(rtt))
    means = block_means(np.clip(rtt, *np.quantile(rtt, [0.05, 0.95])), max(len(rtt) // 20, 1))
    error = means.std(ddof=1) / np.sqrt(len(means)) if len(means) > 1 else 0.0
    return Estimate.around(middle, max(error, 5.0), 0.0)


def _loss(losses):
    found = {"model": "none", "share": losses.share, "congestive": losses.congestive, "random": losses.random}
    if losses.random:
        found["model"] = "gilbert-elliott" if losses.burst else "bernoulli"
    if losses.burst:
        found["burst"] = losses.burst
    return found


def _cross_traffic(delays, sharing):
    """Return what else went through the bottleneck, as far as it shows."""
    quiet = 0.0 if delays is None else delays.quiet_share
    found = {"kind": "none", "flows_in_capture": sharing, "quiet_share": quiet}
    if sharing:
        found["kind"] = "elastic"
    elif quiet < 0.5:
        found["kind"] = "unknown"  # more than the flow's own queue stood before it half of the time
    return found


def _less(estimate, size):
    return Estimate(*(None if side is None else max(side - size, 1514.0) for side in estimate))


def _bytes(shaper):
    return 0.0 if shaper is None else shaper.size_bytes.value


def _bucket(found):
    if found is None:
        return None
    return (
        f"{found['rate_bps'].value:.0f}bit",
        f"{max(found['bucket_bytes'].value or found['bucket_bytes'].low, 1514):.0f}B",
    )


def _middle(row):
    return row["value"] if row["value"] is not None else row["low"]


def _known(estimate):
    return next(side for side in estimate if side is not None)


def _mbit(row):
    return Estimate(row["value"], row["low"], row["high"]).scaled(1e-6).text()
