r"""Forecast of a minRTT collapse: the jitter at which BBR would collapse on a captured path, and the path's jitter.

The fitted path (rate, uncongested delay, distribution and process of the jitter, segments per ACK) is simulated in
closed loop with each controller, its jitter scaled until the flow gets less than half of the link (`threshold`).
The window's queueing delay :math:`\delta(\sigma)` of [Kumar19], the min_rtt samples and their dependence thus come
from the runs. Scaling multiplies every draw and leaves the jitter-free delay unchanged. The standard deviation is
defined as in `cctrace.Jitter`: a normal one before truncation at zero delay.

The error combines the search (scatter of its runs), the fitted shape, and SHAPE_ERROR for a shape that only
resembles the true one further out. The probability of a collapse is that of one run, whose seed decides near the
threshold: :math:`P = \Phi(\log(\sigma / \sigma_{1/2}) / s)`, with s the scatter of runs in log sd.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cctrace.arguments import as_list, check_progress, whole
from cctrace.columns import Floats
from cctrace.display import Progress, plain, silent
from cctrace.errors import ArgumentError, FitError
from cctrace.estimates import Z95, Estimate, Serialised, outermost
from cctrace.fit import constants as const
from cctrace.fit.components import floor_us, quick_jitter
from cctrace.fit.delays import of_counters
from cctrace.fit.filled import filled_rate, lowest_share
from cctrace.fit.forecast import Forecast, answer_text, chance_of, milli_text, updated_chance
from cctrace.fit.jitter import Jitter
from cctrace.fit.threshold import simulated_threshold
from cctrace.flows.counters import CounterFlow
from cctrace.path.arrays import central_sd
from cctrace.path.delays import delays_of
from cctrace.path.evidence import evidence_of
from cctrace.sim.jitter import Jitter as Simulated
from cctrace.sim.path import Path
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate
from cctrace.tcp.wire import PACKET_BYTES, WIRE_PER_PAYLOAD
from cctrace.units import format_percent, format_rate, format_share, format_time, parse_time_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from cctrace.fit.threshold import Threshold
    from cctrace.flows.flow import Flow
    from cctrace.path.delays import Delays
    from cctrace.path.evidence import PathEvidence
    from cctrace.path.queue import Steps
    from cctrace.path.sent import SentPackets
    from cctrace.sim.result import Simulation

CONTROLLERS = ("bbr2016", "bbr2019", "bbr2022")
TWINS = {"bbr2019": "bbr2022"}  # they differ in how equal RTTs refresh min_rtt; with jitter, RTTs are never equal


class Collapse(Serialised):
    """Estimator of minRTT collapse.

    Parameters
    ----------
    controllers : sequence of str
        Controllers to simulate.
    quick : bool
        Take about a second, as `cctrace analyze` does: fewer runs, families and packets, and no threshold if runs
        far above the path's jitter do not collapse.
    floor : str, optional
        The RTT that no jitter shortens, such as ``"30ms"``: where packets overtake each other, thresholds depend on it,
        and little jitter does not show it. By default `floor_us`: half of the RTT without jitter, or the shortest seen.
    seed : int
        Of the first run.

    Attributes
    ----------
    forecasts_ : dict of str to Forecast
    rate_bps_ : Estimate
    sd_us_ : Estimate
        Standard deviation of the path's jitter.
    process_ : str
        As `Jitter.process_`; "unknown" if the jitter is too small to determine it: the threshold is then that of
        normal draws per slot of 5 ms, and its interval includes draws per packet (with `quick` it has no upper
        end).
    place_ : str or None
        As `Delays.place`: jitter ``"before"`` the queue is simulated there, any other behind it.
    queue_us_ : float
        Mean queueing delay of the flow itself.
    floor_us_ : float
        The RTT that no simulated jitter shortens.
    fell_to_ : float or None
        Smallest share of the rate that this flow got over 5 s; None if it is at least one half, if the flow never
        had more than 0.8 in a second, if losses may be the cause, or if there is little jitter.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> Collapse(quick=True).fit(flow).forecasts_["bbr2022"].verdict
    'no'
    """

    card_title, fitted_by = "minRTT collapse", "forecasts_"

    def __init__(
        self, controllers: Sequence[str] = CONTROLLERS, quick: bool = False, seed: int = 1, *, floor: str | None = None
    ) -> None:
        self.controllers = tuple(as_list(controllers))
        for name in self.controllers:
            Sender(name)  # raises if unknown
        if floor is not None:
            parse_time_ns(floor, "floor")
        self.quick, self.seed, self.floor = quick, whole("seed", seed), floor

    def fit(self, source: Flow | Simulation | CounterFlow, progress: Progress = silent) -> Self:
        """Fit to a flow of a capture, or a simulation with ``packets=True``.

        Raises
        ------
        FitError
            If the flow does not reveal the path's rate or too few RTTs are known; says what would be needed.
        ArgumentError
            If `floor` is above the flow's mean RTT without a queue.
        """
        check_progress(progress)
        if isinstance(source, CounterFlow):
            raise FitError(of_counters(source))
        path = evidence_of(source)
        sent = path.require_sent()
        if self.quick and len(sent.acked) > const.QUICK_PACKETS:
            sent = sent.part(0.0, sent.sent_us[sent.acked[const.QUICK_PACKETS]])
        progress("rate of the bottleneck")
        steps = self._fit_rate(path, sent)
        is_shared = path.shared is not None and path.shared.is_common  # then nothing else asks for the rate alone
        is_known = sent is path.sent and not is_shared and path.steps.rate.tolist() == steps.rate.tolist()
        delays = path.delays if is_known else delays_of(path.transmissions, sent, steps)
        self.place_ = delays.place
        self._describe(path, delays, progress)
        self.floor_us_ = self._fit_floor_us(path.sender_min_rtt_us)
        self.ack_every_ = 2 if delays.segments_per_ack > 1.2 else 1
        self.queue_us_ = float(np.mean(delays.queue_us))
        lost = float(np.mean(path.lost))
        self.domain_ = self._domain(delays, lost)
        jittery = self.sd_us_.number > const.JITTERY_SHARE * self.delay_us_ and lost < const.LOSSY_SHARE / 2
        self.fell_to_ = lowest_share(sent, steps.rate[0]) if jittery else None
        forecasts: dict[str, Forecast] = {}
        for name in self.controllers:
            twin = TWINS.get(name, name)
            progress(f"threshold of {name}")
            forecasts[twin] = forecasts.get(twin) or self._forecast(twin)
        self.forecasts_ = {name: forecasts[TWINS.get(name, name)] for name in self.controllers}
        return self

    def _fit_rate(self, path: PathEvidence, sent: SentPackets) -> Steps:
        """Estimate the rate of the bottleneck; `FitError` if runs at it would take too long for a quick forecast."""
        steps, error = filled_rate(sent, path.constant_rate[0] if sent is path.sent else None)
        self.rate_bps_ = Estimate.around(steps.rate[0] * 8e6, steps.rate[0] * 8e6 * error)
        if self.quick and self.rate_bps_.number > const.QUICK_BPS:
            raise FitError(
                f"at {format_rate(self.rate_bps_.number)} the runs take more than a second; `cctrace fit collapse` "
                "makes them"
            )
        return steps

    def _fit_floor_us(self, min_rtt_us: float) -> float:
        """Return the RTT that no simulated jitter shortens; `min_rtt_us` is the sender's shortest."""
        if not self.delay_us_ > 0:
            raise FitError(
                "nothing is left of the RTTs without the queue that the rate of the path would cause: the rate or "
                "the capture's times are wrong"
            )
        floor = floor_us(self.delay_us_, min_rtt_us) if self.floor is None else parse_time_ns(self.floor) / 1e3
        if floor > self.delay_us_:
            mean = format_time(self.delay_us_ * 1e3)
            raise ArgumentError(f"floor={self.floor!r} must be below the flow's mean RTT without a queue, {mean}")
        return min(floor, self.base_us_)

    def _describe(self, path: PathEvidence, delays: Delays, progress: Progress) -> None:
        """Extract the jitter model for the runs; a normal one if the jitter is too small to reveal its process."""
        rtt = delays.rtt_us[delays.reveals]
        middle, spread = float(np.median(rtt)), central_sd(rtt)
        try:
            if self.quick:
                fit = None if spread < const.MIN_JITTER * middle / 2 else quick_jitter(path, delays, progress)
            else:
                fit = Jitter().fit(delays, progress)
        except FitError:
            fit = None
        if fit is None:
            sd = max(float(np.std(np.clip(rtt, 0, 2 * middle))), 1.0)
            self.sd_us_ = Estimate(min(spread, sd), 0.0, sd)
        else:
            self.sd_us_ = fit.sd_us_
        if fit is None or fit.process_.name == "unknown" or fit.sd_us_.number < const.MIN_JITTER * middle:
            self.process_, self.base_us_, self.delay_us_ = "unknown", middle, middle
            self._drawn: dict[str, Any] = {"kind": "normal", "sd_us": 1.0, "per": "packet", "reorder": False}
            self._shape_error = 0.0
            return
        self._shape_error = fit.ratio_error_
        drawn = fit.jitter()
        self.process_, self.delay_us_, self.base_us_ = fit.process_.name, fit.delay_us_.number, fit.base_us_
        self._drawn = {"kind": drawn.kind, "sd_us": fit.nominal_sd_us_, "per": drawn.per, "reorder": drawn.reorder}
        if drawn.kind != "normal":
            self._drawn["mean_us"] = fit.mean_us_.value
        if drawn.kind == "empirical":
            self._drawn["samples_us"] = (np.asarray(drawn.samples_ns) / 1e3).tolist()

    def _domain(self, delays: Delays, lost: float) -> str:
        reasons = []
        if delays.quiet_share < const.MIN_SHARE:
            others = format_percent(1 - delays.quiet_share)
            reasons.append(f"others' packets stood in the queue {others} of the time, and the runs have one flow")
        if lost > const.LOSSY_SHARE:
            reasons.append(f"{format_percent(lost, 1)} of the segments were lost, and the runs lose none")
        return f"outside: {'; '.join(reasons)}" if reasons else "inside"

    def jitter(self, sd_us: float, per: str | None = None) -> Simulated:
        """Return the path's `cctrace.Jitter` with another sd."""
        drawn, factor = self._drawn, sd_us / self._drawn["sd_us"]
        per, reorder = per or drawn["per"], drawn["reorder"]
        if drawn["kind"] == "empirical":
            samples_ns = 1e3 * factor * np.array(drawn["samples_us"])
            return Simulated("empirical", samples_ns=samples_ns, per=per, reorder=reorder)
        mean = f"{drawn['mean_us'] * factor:.4f}us" if "mean_us" in drawn else None
        return Simulated(drawn["kind"], sd=f"{sd_us:.4f}us", mean=mean, per=per, reorder=reorder)

    def path(self, sd_us: float, per: str | None = None, base_us: float | None = None) -> Path:
        """Return the fitted `cctrace.Path` with another sd of the jitter and a buffer that never overflows."""
        base_us = self.base_us_ if base_us is None else base_us
        drawn, is_before = self.jitter(sd_us, per), self.place_ == "before"
        longest_us = base_us + self.delay_us_ - self.base_us_ + sd_us
        return Path(
            rate=f"{self.rate_bps_.value:.0f}bit",
            rtt=f"{max(base_us, 1.0):.2f}us",
            reverse=f"{0.0 if is_before else min(self.floor_us_, base_us):.2f}us",
            buffer=f"{20 * max(self.rate_bps_.number / 8e6 * longest_us, PACKET_BYTES):.0f}B",
            jitter=None if is_before else drawn,
            jitter_before=drawn if is_before else None,
        )

    def share(
        self, sd_us: float, controller: str = CONTROLLERS[-1], base_us: float | None = None, duration: str = "60s"
    ) -> float:
        """Return the share of the link that a run of `controller` gets with another sd and base RTT."""
        return self._tail(self.path(sd_us, base_us=base_us), controller, duration, self.seed)[0]

    def delta_us(self, sds_us: Sequence[float], controller: str, runs: int = 3) -> Floats:
        r"""Return :math:`\delta(\sigma)` [Kumar19]_, the mean queueing delay over the jitter's sd, of `runs` runs each.

        Runs that collapse do not count: they have no queue because they collapsed. NaN if all do.
        """
        deltas_us = []
        for sd_us in sds_us:
            tails = [self._tail(self.path(sd_us), controller, "60s", self.seed + k) for k in range(runs)]
            queues_us = [queue_us for share, queue_us in tails if share >= 0.5]
            deltas_us.append(np.mean(queues_us) if queues_us else np.nan)
        return np.array(deltas_us)

    def _tail(self, path: Path, controller: str, duration: str, seed: int) -> tuple[float, float]:
        """Return the share of the link and the queueing delay (us) of a run after its first third."""
        flow = simulate(path, Sender(controller, ack_every=self.ack_every_), duration, seed).flows.iloc[0]
        return flow.tail_goodput_bps * WIRE_PER_PAYLOAD / self.rate_bps_.number, flow.tail_queue_delay_mean_us

    def _search(self, controller: str, per: str | None = None) -> Threshold:
        most, enough = self.delay_us_, None
        if self.quick:  # an sd at which runs without a collapse rule one out at the path's jitter
            largest = max(self.sd_us_.sides()[2], self._now_us)
            enough = max(largest / const.NO_COLLAPSE, const.FAR_SHARE * most)
        return simulated_threshold(
            lambda sd: self.path(sd, per),
            Sender(controller, ack_every=self.ack_every_),
            self.rate_bps_.number,
            most,
            now_us=self._now_us,
            enough_us=enough if enough is not None and enough < most else None,
            segments=const.QUICK_SEGMENTS if self.quick else const.SEGMENTS,
            seed=self.seed,
        )

    @property
    def _now_us(self) -> float:
        """The path's jitter sd, as `path` takes it."""
        return 0.0 if self.process_ == "unknown" else float(self._drawn["sd_us"])

    def _forecast(self, controller: str) -> Forecast:
        # Among order-preserving processes, slow ones are the worst for BBR.
        processes = [None] if self.process_ != "unknown" else [f"slot:{const.ASSUMED_SLOT_US:.0f}us", "packet"]
        results = [self._search(controller, per) for per in (processes[:1] if self.quick else processes)]
        first = next((result for result in results if result.sd_us is not None), results[0])
        errors = [np.hypot(np.hypot(result.error, const.SHAPE_ERROR), self._shape_error) for result in results]
        pairs = [(result, np.exp(Z95 * error)) for result, error in zip(results, errors, strict=True)]
        lows = [result.least_us if result.sd_us is None else result.sd_us / factor for result, factor in pairs]
        highs = [result.most_us if result.sd_us is None else result.sd_us * factor for result, factor in pairs]
        high = None if len(results) < len(processes) else outermost(max, highs)
        threshold = Estimate(first.sd_us, outermost(min, lows), high)
        windows_per_hour = 3600 / (const.LONGEST_S * 2 / 3)  # tails of the longest run
        chance = updated_chance(chance_of(threshold, self.sd_us_, first.spread), first)
        in_an_hour = (float(-np.expm1(windows_per_hour * np.log1p(-min(p, 1 - 1e-12)))) for p in chance.sides())
        return Forecast(
            threshold_sd_us=threshold,
            sd_us=self.sd_us_,
            probability=chance,
            probability_hour=Estimate(*in_an_hour),
            queue_delay_us=float(first.queue_us),
            spread=float(first.spread),
            runs=sum(result.runs for result in results),
            domain=self.domain_,
            trials=tuple(itertools.chain.from_iterable(result.trials for result in results)),
        )

    def predict(self, sd_us: float, controller: str = CONTROLLERS[-1]) -> float:
        """Return the probability that `controller` collapses on this path at a jitter sd of `sd_us`."""
        forecast = self.forecasts_[controller]
        return chance_of(forecast.threshold_sd_us, Estimate(sd_us, sd_us, sd_us), forecast.spread).number

    def to_dict(self) -> dict[str, Any]:
        """Return the output of `cctrace fit collapse --json`: an object per controller, and common fields."""
        forecasts = self.forecasts_.items()
        by_controller = {name: {**forecast._asdict(), "collapses": forecast.verdict} for name, forecast in forecasts}
        shared = {
            "process": self.process_,
            "place": self.place_,
            "rate_bps": self.rate_bps_,
            "delay_us": self.delay_us_,
            "queue_us": self.queue_us_,
            "fell_to_share": self.fell_to_,
        }
        return plain(by_controller | shared)

    def _restore(self) -> None:
        state = vars(self)
        self.place_, self.floor_us_ = state.get("place_"), state.get("floor_us_", 0.0)
        self.controllers = tuple(state["controllers"])
        self.forecasts_ = {
            name: Forecast(**forecast | {"trials": tuple(map(tuple, forecast.get("trials", ())))})
            for name, forecast in state["forecasts_"].items()
        }

    @property
    def _floor(self) -> str:
        return format_time(self.floor_us_ * 1e3)

    def line(self) -> str:
        """Return the forecast in one line, as `cctrace analyze` shows it."""
        drawn = "" if self.process_ == "unknown" else f", drawn per {self.process_}"
        if self.process_ == "reorder":
            drawn = f", drawn per packet; packets overtake each other, but no RTT is below {self._floor}"
        now = f"here there are {milli_text(self.sd_us_)} of it (standard deviations{drawn})"
        text = f"{answer_text(self.forecasts_)}; {now}"
        if self.fell_to_ is not None:
            rate = format_rate(self.rate_bps_.number)
            text += f"; this flow fell to {format_percent(self.fell_to_)} of its path's {rate}"
        return text if self.domain_ == "inside" else f"{text}; {self._domain_text}"

    def summary(self) -> str:
        """Return the result as text."""
        lines = [f"jitter: sd {self.sd_us_.text('{:.0f}')} us, process {self.process_}, no RTT below {self._floor}"]
        for name, f in self.forecasts_.items():
            chances = " now, ".join(format_share(each.number) for each in (f.probability, f.probability_hour))
            threshold = f.threshold_sd_us.text("{:.0f}")
            lines.append(f"{name}: collapses: {f.verdict}; threshold {threshold} us, {chances} within an hour")
        return "\n".join([*lines, self._domain_text])

    @property
    def _domain_text(self) -> str:
        where, _, why = self.domain_.partition(": ")
        return f"{where} the domain of the runs" + (f": {why}" if why else "")

    def plot(self, controller: str | None = None, axes: Axes | None = None) -> Axes:
        """Draw the share of the link over jitter sd and delay, with the flow's own point; see `plots`."""
        from cctrace.fit.plots import surface

        return surface(self, controller, axes)
