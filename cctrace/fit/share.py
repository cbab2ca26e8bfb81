r"""Shares of a bottleneck that BBR and loss-based flows competed for, compared with models.

    R, buffer   of the path fitted to the flow that sent most (`fit.path`, which includes the other flows' packets)
    g           data that a BBR flow keeps in flight while it probes for bandwidth, over its own estimate of the BDP,
                from a replay of its controller: the window's gain, including bursts and aggregation
    p, N        the loss-based flows' share of the deliveries, and the number of flows of each kind
    predicted   BBR's share by oBBR's Q_r [Bi23]_, Ware [Ware19]_ and Mishra [Mishra22]_ (`cctrace.analytic.share`),
                each with its domain of validity

Shares refer to the time in which all flows were active, except its first fifth, in which they converge. Intervals
come from a bootstrap over blocks of that time; those of predictions propagate the errors of R and g, not the
model's own, which docs/models.md shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from cctrace.analytic import share as models
from cctrace.arguments import check_argument, check_progress
from cctrace.cc import controller as resolve
from cctrace.cc import is_model_based
from cctrace.cc.bbr1_model import PROBE_BW
from cctrace.cc.bbr2_model import BW_UNIT
from cctrace.columns import Floats, Ints
from cctrace.display import Jsonable, Progress, Summarized, connection, plain, silent
from cctrace.errors import ArgumentError, FitError
from cctrace.estimates import Estimate
from cctrace.fit.constants import BIN_NS, MIN_COMMON_S, MIN_SHARE, MIN_SHARE_BYTES, SETTLING_SHARE, SHARE_DRAWS
from cctrace.fit.fitted_path import path_of
from cctrace.flows.capture import Capture
from cctrace.flows.flow import Flow
from cctrace.path.blocks import block_length
from cctrace.path.evidence import evidence_of
from cctrace.replaying.inference.scores import UNKNOWN_LOG, replayed
from cctrace.replaying.intervals import blocks
from cctrace.replaying.run import replay
from cctrace.sim.result import Simulation
from cctrace.tcp.wire import PACKET_BYTES
from cctrace.units import format_percent

SENDERS = ("bbr2016", "bbr2022", "bbr2", "bbr3", "cubic6", "cubic", "reno")


class Prediction(NamedTuple):
    """BBR's share by one model, and whether the case lies in the model's domain."""

    bbr_share: Estimate
    domain: str


class FlowShare(NamedTuple):
    """Result of a fitted `Share` for one of its flows."""

    fit: Share
    number: int

    def to_dict(self) -> dict[str, Any]:
        """Return the output of `cctrace fit share --json`."""
        name, share = self.fit.flows_[self.number]
        return plain({"controller": name, "share": share}) | self.fit.to_dict()

    def summary(self) -> str:
        """Return the result as text."""
        return self.fit.summary()


class Share(Summarized, Jsonable):
    """Estimator of how flows shared a bottleneck.

    Parameters
    ----------
    senders : mapping of int to str, optional
        Controllers of flows, by flow number; those of the others are identified by replaying SENDERS.

    Attributes
    ----------
    flows_ : dict of int to (str, Estimate)
        By flow number: the controller, and the share of all deliveries.
    bbr_share_, loss_based_share_ : Estimate
        Of each kind together; the latter is p.
    bbr_flows_, loss_based_flows_ : int
        N of each kind.
    ratio_, gain_ : Estimate
        R, buffer over BDP, and g.
    buffer_bytes_, rate_bps_, base_rtt_us_ : Estimate
        Of the path, as in `cct.Path`.
    predicted_ : dict of str to Prediction
    common_s_ : float
        Time over which shares are computed, seconds.

    Examples
    --------
    >>> import cctrace as cct
    >>> path = cct.Path(rate="20Mbit", rtt="40ms", buffer="4bdp")
    >>> sim = cct.simulate(path, ["bbr2022", "cubic6"], "20s", seed=1, packets=True)
    >>> Share().fit(sim.capture()).predicted_["ware"].domain.split(":")[0]
    'outside'
    """

    card_title, fitted_by = "Shares of a bottleneck", "flows_"

    def __init__(self, senders: Mapping[int, str] | None = None) -> None:
        check_argument(senders is None or isinstance(senders, Mapping), "senders", senders, "{number of a flow: name}")
        self.senders = dict(senders or {})
        for name in self.senders.values():
            if resolve(name)[0].view != "linux":
                raise ArgumentError(f"senders has {name!r}, which no capture of TCP shows")

    def fit(self, source: Capture | Simulation, progress: Progress = silent) -> Self:
        """Fit to a capture, or a simulation with ``packets=True``, of at least two flows through one bottleneck.

        Raises
        ------
        FitError
            If the capture was not taken at the sender, flows do not overlap long enough, or BBR or loss-based flows
            are missing; says what would be needed.
        """
        check_progress(progress)
        capture = source.capture() if isinstance(source, Simulation) else source
        if not isinstance(capture, Capture):
            raise ArgumentError(f"{source!r}: a share is fitted to a capture, or a simulation with packets=True")
        flows = capture.bulk(MIN_SHARE_BYTES)
        if len(flows) < 2:
            raise FitError(
                f"a share needs at least two flows of {MIN_SHARE_BYTES / 1e6:g} MB, and this capture has {len(flows)}"
            )
        for flow in flows:
            if flow.taken_at != "sender":
                raise FitError("a capture taken at the sender is needed")
        flows, begin, end = competitors(flows)
        senders: dict[int, str] = {}
        for flow in flows:
            progress(f"sender of {connection(*flow.key)}")
            senders[flow.index] = self.senders.get(flow.index) or sender_of(flow)
        kinds = {k: "bbr" if is_model_based(name) else "loss-based" for k, name in senders.items()}
        if len(set(kinds.values())) < 2:
            raise FitError(
                f"all {len(flows)} flows are {next(iter(kinds.values()))} "
                f"({', '.join(sorted(set(senders.values())))}): the models need both BBR and loss-based flows"
            )
        self._count(flows, senders, kinds, begin, end)
        progress("path")
        self._describe_path(flows, progress)
        progress("gain")
        self.gain_ = gain_of([f for f in flows if kinds[f.index] == "bbr"], senders, begin, end)
        self._predict()
        return self

    def _count(
        self, flows: Sequence[Flow], senders: dict[int, str], kinds: dict[int, str], begin: int, end: int
    ) -> None:
        self.common_s_ = (end - begin) / 1e9
        bins = np.array([delivered(flow, begin, end) for flow in flows], float)
        draws = resampled(bins)
        of = {flow.index: k for k, flow in enumerate(flows)}
        observed, total = bins.sum(axis=1) / bins.sum(), draws.sum(axis=0)
        self.flows_ = {k: (senders[k], Estimate.of_draws(observed[row], draws[row] / total)) for k, row in of.items()}
        bbr = [row for k, row in of.items() if kinds[k] == "bbr"]
        self.bbr_flows_, self.loss_based_flows_ = len(bbr), len(flows) - len(bbr)
        self.bbr_share_ = Estimate.of_draws(observed[bbr].sum(), draws[bbr].sum(axis=0) / total)
        value, low, high = self.bbr_share_.sides()
        self.loss_based_share_ = Estimate(1 - value, 1 - high, 1 - low)

    def _describe_path(self, flows: Sequence[Flow], progress: Progress) -> None:
        largest = max(flows, key=lambda flow: flow.row["bytes_sent"])
        estimates = path_of(evidence_of(largest, one_bottleneck=True), progress).estimates
        rates = estimates["rate_bps"]
        if len(rates) > 1:
            raise FitError("the rate of the path changed; shares are of one rate: cut the capture where it changes")
        if "rate" in estimates["undetermined"] or rates[0]["value"] is None:
            raise FitError("the flows never filled the path together, so they did not compete")
        self.rate_bps_ = Estimate(rates[0]["value"], rates[0]["low"], rates[0]["high"])
        self.base_rtt_us_, self.buffer_bytes_ = estimates["base_rtt_us"], estimates["buffer_bytes"]
        bdp = self.rate_bps_.number * self.base_rtt_us_.number / 8e6
        buffer = self.buffer_bytes_
        errors = [relative(e) for e in (self.rate_bps_, self.base_rtt_us_, buffer)]
        if buffer.value is None:
            self.ratio_ = Estimate(None, None if buffer.low is None else buffer.low / bdp, None)
        else:
            middle = buffer.value / bdp
            self.ratio_ = Estimate.around(middle, middle * float(np.sqrt(np.square(errors).sum())), 0.0)

    def _predict(self) -> None:
        self.predicted_: dict[str, Prediction] = {}
        if self.ratio_.value is None or self.ratio_.value <= 0:
            return
        rng = np.random.default_rng(1)
        spread = relative(self.ratio_)
        ratio = np.maximum(self.ratio_.value * (1 + spread * rng.standard_normal(SHARE_DRAWS)), 0.01)
        gain = np.maximum(self.gain_.number * (1 + relative(self.gain_) * rng.standard_normal(SHARE_DRAWS)), 0.01)
        base_s, packets = self.base_rtt_us_.number / 1e6, self.rate_bps_.number / 8 / PACKET_BYTES
        n, m, r = self.bbr_flows_, self.loss_based_flows_, self.ratio_.value
        laws = {
            "obbr": (lambda x, g: 1 - models.loss_based_share(g, x), models.share_domain(r, n, m)),
            "ware": (
                lambda x, g: models.ware_bbr_share(x, base_s, packets, n, self.common_s_),
                models.ware_domain(r, base_s, self.common_s_, n, m),
            ),
            "mishra": (lambda x, g: np.mean(models.mishra_bounds(x, m), axis=0), models.mishra_domain(r, n, m)),
        }
        for name, (model, domain) in laws.items():
            value = float(model(r, self.gain_.number))
            self.predicted_[name] = Prediction(Estimate.of_draws(value, model(ratio, gain)), domain.text)

    def of(self, number: int) -> FlowShare:
        """Return the result for one flow, by its number in the capture.

        Raises
        ------
        FitError
            If the flow did not compete: it was active for less than half of the longest flow's time.
        """
        if number not in self.flows_:
            raise FitError(f"this flow was up for less than {format_percent(MIN_SHARE)} of the time of the longest")
        return FlowShare(self, number)

    def to_dict(self) -> dict[str, Any]:
        """Return the output of `cctrace fit share --json` for every flow."""
        shares = ("bbr_share", "loss_based_share", "bbr_flows", "loss_based_flows", "gain", "ratio")
        path = ("buffer_bytes", "rate_bps", "base_rtt_us", "common_s")
        common = {key: getattr(self, f"{key}_") for key in shares + path}
        predicted = {name: prediction._asdict() for name, prediction in self.predicted_.items()}
        return plain(common | {"predicted": predicted})

    def summary(self) -> str:
        """Return the result as text."""
        lines = [f"flow {k} ({name}): {share.text('{:.3f}')}" for k, (name, share) in self.flows_.items()]
        ratio, gain = self.ratio_.text("{:.2f}"), self.gain_.text("{:.2f}")
        lines.append(
            f"BBR together {self.bbr_share_.text('{:.3f}')} of {self.common_s_:.0f} s; R = {ratio} BDP, g = {gain}, "
            f"N = {self.bbr_flows_} against {self.loss_based_flows_}"
        )
        if not self.predicted_:
            lines.append("no prediction: the buffer never overflowed, so that R is only bounded")
        for name, (share, domain) in self.predicted_.items():
            lines.append(f"{name}: {share.text('{:.3f}')}; the case is {domain}")
        return "\n".join(lines)


def competitors(flows: Sequence[Flow]) -> tuple[list[Flow], int, int]:
    """Return the flows that were active together, and the capture times between which shares are computed.

    Flows active for less than half of the longest one's time are excluded, as is the first fifth.
    """
    spans = {flow.index: (int(flow.events["time_ns"][0]), int(flow.events["time_ns"][-1])) for flow in flows}
    longest = max(last - first for first, last in spans.values())
    flows = [f for f in flows if spans[f.index][1] - spans[f.index][0] >= MIN_SHARE * longest]
    begin = max(spans[flow.index][0] for flow in flows)
    end = min(spans[flow.index][1] for flow in flows)
    begin += int(SETTLING_SHARE * max(end - begin, 0))
    if len(flows) < 2 or end - begin < MIN_COMMON_S * 1e9:
        raise FitError(
            f"{len(flows)} flows are up together for {max(end - begin, 0) / 1e9:.1f} s after settling; at least two "
            f"for {MIN_COMMON_S:g} s are needed"
        )
    return flows, begin, end


def delivered(flow: Flow, begin: int, end: int) -> Ints:
    """Return the segments delivered in each bin between two capture times."""
    time_ns, segments = np.asarray(flow.events["time_ns"]), np.asarray(flow.events["delivered"], np.int64)
    edges = np.arange(begin, end + 1, BIN_NS)
    return np.diff(segments[np.minimum(np.searchsorted(time_ns, edges), len(segments) - 1)])


def resampled(bins: Floats) -> Floats:
    """Return sums per flow over SHARE_DRAWS circular block resamples of the bins, shape (flows, SHARE_DRAWS)."""
    count = bins.shape[1]
    length = min(max(block_length(row) for row in bins), max(count // 4, 1))
    rng = np.random.default_rng(1)
    starts = rng.integers(count, size=(SHARE_DRAWS, -(-count // length)))
    places = (starts[:, :, None] + np.arange(length)).reshape(SHARE_DRAWS, -1)[:, :count] % count
    return bins[:, places].sum(axis=2)


def sender_of(flow: Flow) -> str:
    """Return the one of SENDERS whose replay explains the sends of a flow best. Raises `FitError` if none does."""
    stops, sent = blocks(flow.events)
    hz_known = "hz" not in flow.events.meta["inferred"]
    scores = {}
    for name in SENDERS:
        cls, given = resolve(name)
        scores[name] = float(np.mean(replayed(flow, cls, given | {"hz": flow.hz}, stops, sent, hz_known)[0]))
    best = max(scores, key=scores.__getitem__)
    if scores[best] <= UNKNOWN_LOG:
        raise FitError(
            f"flow {flow.index}: no controller of {', '.join(SENDERS)} explains what it sent; name it with "
            f"Share(senders={{{flow.index}: ...}})"
        )
    return best


def gain_of(flows: Sequence[Flow], senders: dict[int, str], begin: int, end: int) -> Estimate:
    """Return g: BBR's data in flight in PROBE_BW over its estimated BDP; medians of bins."""
    medians: list[float] = []
    for flow in flows:
        name = senders[flow.index]
        wanted = "bw_v[0]" if name.startswith(("bbr2016", "bbr2019", "bbr2022")) else "bw_hi1"
        run = replay(flow, name, record=["mode", "min_rtt_us", wanted])
        decisions = run.decisions
        source = run.source if isinstance(run.source, Flow) else flow  # with hand-over times if it was sent through fq
        rows, time_ns = source.events, np.asarray(decisions["time_ns"])
        bdp = np.asarray(decisions[wanted], float) / BW_UNIT * np.asarray(decisions["min_rtt_us"], float)
        flight = np.asarray(rows["rs_prior_in_flight"], float)
        use = (np.asarray(decisions["mode"]) == PROBE_BW) & (time_ns >= begin) & (time_ns < end)
        use &= (bdp > 0) & (flight > 0)
        bins = (time_ns[use] - begin) // BIN_NS
        ratio = flight[use] / bdp[use]
        medians += [float(np.median(ratio[bins == k])) for k in np.unique(bins)]
    if len(medians) < 4:
        raise FitError("BBR was hardly in PROBE_BW while the flows competed; longer flows are needed")
    ratios = np.array(medians)
    draws = resampled(ratios[None])[0] / len(ratios)
    return Estimate.of_draws(float(ratios.mean()), draws)


def relative(estimate: Estimate) -> float:
    """Return the relative standard error of an interval; 0 if there is none."""
    return estimate.error / abs(estimate.number) if estimate.value and None not in estimate else 0.0
