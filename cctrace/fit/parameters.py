r"""Parameters of the sender's controller: every value is replayed, and the one that explains the sends best is kept.

    1. replay     the controller decides again on the recorded ACKs with a value of the parameter; unrecorded inputs
                  (random draws, ticks) are inferred anew for every value
    2. score      by what was sent and when (`replaying.engine.likelihood.any_send`); the sends within 0.2 s count once
    3. maximise   a grid over the allowed range, refined until some value explains the sends, then ever smaller
                  steps around its maxima
    4. interval   the values that are not clearly worse: those whose summed shortfall

                  .. math:: D(\theta) = \sum_b \left( s_b(\hat\theta) - s_b(\theta) \right)

                  is at most PROFILE_DROP, or at most SCORE_SPREAD times its own standard error

The second bound keeps the interval honest where the likelihood is not the sender's. With score variance :math:`V` and
curvature :math:`H` the shortfall of the true value is :math:`H \delta^2 / 2` with :math:`\delta \sim N(0, V/H^2)`.
Its standard error is :math:`\sqrt{V} |\delta|`. So their ratio is half a standard normal for any :math:`V/H`, which
would be 1 if the model were right [Royall03]_. The standard error is the long-run one, as neighbouring
intervals are correlated. No derivatives are used, because the likelihood has steps: windows are integers and gains
fixed point.

A parameter that had no effect on this flow gets no value, nor one bounded on one side only: see
`Parameters.unidentified_`. docs/fitting.md has the coverage of the intervals.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from cctrace.arguments import as_list, check_progress, short_repr
from cctrace.cc import controller as resolve
from cctrace.cc.base import Controller
from cctrace.cc.own import parts
from cctrace.columns import Floats
from cctrace.display import Jsonable, Progress, Summarized, plain, silent
from cctrace.errors import ArgumentError, FitError
from cctrace.estimates import Estimate
from cctrace.fit.constants import DRAWS, MIN_BLOCKS, SCORE_SPREAD
from cctrace.fit.surface import Axis, Surface
from cctrace.flows.flow import Flow
from cctrace.path.constants import PROFILE_DROP
from cctrace.path.transmissions import as_flow
from cctrace.replaying.inference.scores import UNKNOWN_LOG, replayed
from cctrace.replaying.inference.through_fq import at_hand_over
from cctrace.replaying.intervals import BLOCK_US, blocks
from cctrace.sim.result import Simulation
from cctrace.units import format_percent

MAX_PARAMETERS = 2


class Parameters(Summarized, Jsonable):
    """Estimator of a controller's parameters from a flow's sends.

    Parameters
    ----------
    controller : str or type
        A Linux controller, with known parameters: ``"bbr2022"``, ``"cubic6:hz=1000"``.
    parameters : sequence of str, or mapping of str to (low, high)
        One or two names, see `cctrace variants NAME`; with a search range, instead of the allowed one.

    Attributes
    ----------
    estimates_ : dict of str to Estimate
        An end that the flow does not bound is None, and so is the value then.
    unidentified_ : dict of str to str
        The reason, for each parameter without a value.
    correlation_ : float or None
        Of the errors of two parameters.
    explained_ : float
        Share of the intervals of 0.2 s whose sends the best values explain.
    intervals_ : int
        Number of intervals with sends.
    best_ : dict of str to float
        The likeliest values, even if others are as likely.
    spec_ : str
        The controller with these values, as `cctrace.replay` takes it.

    Examples
    --------
    >>> import cctrace as cct
    >>> path = cct.Path(rate="2Mbit", rtt="20ms", buffer="2bdp")
    >>> sim = cct.simulate(path, ["cubic6"], "4s", seed=1, packets=True)
    >>> fitted = Parameters("cubic6", ["beta"]).fit(sim.capture().flow(0))
    >>> round(fitted.estimates_["beta"].value, 1)
    0.7
    """

    card_title, fitted_by = "Parameters of a controller", "estimates_"

    def __init__(
        self,
        controller: str | type[Controller],
        parameters: str | Sequence[str] | Mapping[str, tuple[float, float] | None],
    ) -> None:
        self.cls, self.given = resolve(controller)
        self.controller = controller if isinstance(controller, str) else controller.__name__
        names = as_list(parameters)
        are_names = all(isinstance(name, str) for name in names)
        if not are_names or not 1 <= len(names) <= MAX_PARAMETERS or len(set(names)) < len(names):
            raise ArgumentError(f"parameters={short_repr(parameters)}: name one or two different parameters")
        if self.cls.view != "linux":
            raise ArgumentError(
                f"controller {self.controller!r} runs on the QUIC stack, of which no capture shows single sends: "
                "only parameters of Linux controllers are fitted"
            )
        ranges = parameters if isinstance(parameters, Mapping) else {}
        self.axes = [Axis.of(self.cls, self.controller, name, ranges.get(name)) for name in names]
        if fixed := set(names) & set(self.given):
            raise ArgumentError(f"controller {self.controller!r} sets {sorted(fixed)[0]!r}, which is to be fitted")

    def fit(self, source: Flow | Simulation, progress: Progress = silent) -> Self:
        """Fit to a flow of a capture taken at the sender, or to a simulation with ``packets=True``.

        Raises
        ------
        FitError
            If the capture was not taken at the sender, the flow is too short, no value explains the sends, or no
            parameter is identifiable on this flow; says what would be needed.
        """
        check_progress(progress)
        surface = self._surface(as_flow(source))
        best = surface.maximise(progress, UNKNOWN_LOG)
        self._best = surface.values(best)
        scores = surface.scores[best]
        self.intervals_, self.explained_ = len(scores), float(np.mean(scores > UNKNOWN_LOG))
        names = [axis.name for axis in self.axes]
        self.best_ = dict(zip(names, self._best, strict=True))
        if np.mean(scores) <= UNKNOWN_LOG:
            raise FitError(
                f"no value of {' and '.join(names)} lets {self.controller} explain what was sent (the best explains "
                f"{format_percent(self.explained_)} of the intervals); cctrace identify tells which controller does"
            )
        self.estimates_: dict[str, Estimate] = {}
        self.unidentified_: dict[str, str] = {}
        for k, axis in enumerate(self.axes):
            progress(f"interval of {axis.name}")
            low, high = surface.interval(k, self._accepts)
            self.estimates_[axis.name] = self._estimate(axis, surface, k, low, high)
        self._values = [surface.values(point) for point in surface.scores]
        self._scores = np.array(list(surface.scores.values()))
        self.correlation_ = self._correlation() if len(self.axes) > 1 else None
        if len(self.unidentified_) == len(self.axes) and all(e == (None,) * 3 for e in self.estimates_.values()):
            raise FitError("; ".join(f"{name} {why}" for name, why in self.unidentified_.items()))
        given = self.given | {n: e.value for n, e in self.estimates_.items() if e.value is not None}
        settings = ",".join(f"{name}={value:.6g}" for name, value in given.items())
        self.spec_ = parts(self.controller)[0] + (f":{settings}" if settings else "")
        return self

    def profile(self, name: str) -> tuple[Floats, Floats]:
        """Return the values tried for a parameter, ascending, and the shortfall of their log likelihood.

        The shortfall is summed over intervals of 0.2 s; of two parameters, at the best value tried of the other.
        """
        names = [axis.name for axis in self.axes]
        if name not in names:
            raise ArgumentError(f"profile({name!r}): {self.controller} was fitted for {', '.join(names)}")
        values = np.array([point[names.index(name)] for point in self._values], float)
        tried, place = np.unique(values, return_inverse=True)
        highest = np.full(len(tried), -np.inf)
        np.maximum.at(highest, place, [scores.sum() for scores in self._scores])
        return tried, highest.max() - highest

    def score(self, source: Flow | Simulation) -> float:
        """Return the mean log likelihood of another flow's sends under the likeliest values."""
        return float(np.mean(self._surface(as_flow(source)).replay(self.best_)))

    def _surface(self, flow: Flow) -> Surface:
        source = f"{flow.capture.packets.source}: connection {flow.index}"
        if flow.taken_at != "sender":
            raise FitError(f"{source}: a capture taken at the sender is needed, which shows what was sent, and when")
        flow = at_hand_over(flow, self.cls)
        stops, sent = blocks(flow.events)
        if np.count_nonzero(sent) < MIN_BLOCKS:
            raise FitError(
                f"{source}: something was sent in {np.count_nonzero(sent)} intervals of {BLOCK_US / 1e6:g} s; at least "
                f"{MIN_BLOCKS} are needed"
            )
        hz_known = "hz" in self.given or "hz" not in flow.events.meta["inferred"]
        given = {"hz": flow.hz} | self.given

        def replay(values: dict[str, float]) -> Floats:
            return replayed(flow, self.cls, given | values, stops, sent, hz_known)[0]

        return Surface(self.axes, replay)

    @staticmethod
    def _accepts(best: Floats, scores: Floats) -> bool:
        """Return whether values with these scores are not clearly worse than the best."""
        shortfall = best - scores
        return bool(shortfall.sum() <= max(PROFILE_DROP, SCORE_SPREAD * sum_error(shortfall)))

    def _estimate(self, axis: Axis, surface: Surface, k: int, low: float | None, high: float | None) -> Estimate:
        """Return the estimate of one parameter, or record why it has no value."""
        if low is not None and high is not None:
            return Estimate(surface.plateau(k), low, high)
        if low is None and high is None:
            flat = all(np.ptp(column) == 0 for column in np.array(list(surface.scores.values())).T)
            why = (
                "nothing that was sent depended on it"
                if flat
                else "what it changes is not more than chance (late timers, other processes) changes as well"
            )
            self.unidentified_[axis.name] = (
                f"is not identifiable on this flow: {self.controller} explains what was sent as well with any value "
                f"from {axis.low:g} to {axis.high:g}; {why}"
            )
            return Estimate(None, None, None)
        side, bound, limit = ("above", low, axis.high) if high is None else ("below", high, axis.low)
        self.unidentified_[axis.name] = (
            f"is bounded from one side only: values {side} {bound:.4g}, up to the {limit:g} that is allowed, explain "
            "what was sent as well; nothing that was sent depended on it there"
        )
        return Estimate(None, low, high)

    def _correlation(self) -> float | None:
        """Return the correlation of two estimates over resampled intervals of 0.2 s."""
        if any(estimate.value is None for estimate in self.estimates_.values()):
            return None
        points, scores = np.array(self._values), self._scores
        count = scores.shape[1]
        weights = np.random.default_rng(1).multinomial(count, np.full(count, 1 / count), DRAWS)
        drawn = points[np.argmax(scores @ weights.T, axis=0)]
        if np.any(np.ptp(drawn, axis=0) == 0):
            return 0.0
        return float(np.corrcoef(drawn.T)[0, 1])

    def summary(self) -> str:
        """Return the result as text."""
        lines = [
            f"{self.controller} explains {format_percent(self.explained_)} of {self.intervals_} intervals of 0.2 s"
        ]
        for name, estimate in self.estimates_.items():
            lines.append(f"{name}: {estimate.text()} (default {self.cls.params[name].default:g})")
        lines += [f"{name} {why}" for name, why in self.unidentified_.items()]
        if self.correlation_ is not None:
            lines.append(f"correlation of {' and '.join(self.estimates_)}: {self.correlation_:.2f}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the output of `cctrace fit parameters --json`."""
        return plain(
            {
                "controller": self.controller,
                "parameters": self.estimates_,
                "unidentified": self.unidentified_,
                "correlation": self.correlation_,
                "explained": self.explained_,
                "intervals": self.intervals_,
            }
        )


def sum_error(series: Floats) -> float:
    """Return the standard error of the sum of a dependent series, by Bartlett's weights [Newey87]_.

    >>> bool(abs(sum_error(np.random.default_rng(1).standard_normal(10_000)) - 100) < 10)
    True
    """
    x = np.asarray(series, float) - np.mean(series)
    n = len(x)
    lags = max(int(n ** (1 / 3)), 1)
    squares = float(x @ x)
    cross = sum((1 - k / (lags + 1)) * float(x[k:] @ x[:-k]) for k in range(1, min(lags, n - 1) + 1))
    return float(np.sqrt(max(squares + 2 * cross, squares)))
