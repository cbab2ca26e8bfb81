"""Kumar et al., Figs. 5 to 7: the paper's model compared with the testbed.

The model (section III): RTTs without queue X ~ N(mu, sd) cut at the propagation delay, with queue Y ~ N(mu + delta,
sd); min_rtt is the least of N = 160 X and M = 10,000 Y (Eq. 9), a collapse the least of L = 10,000 Y below half the
mean (Eq. 11), the bandwidth estimate Eq. 5 iterated over probe cycles. Delta, the queueing delay, is measured (Fig. 6).

After a collapse the queue is empty, so a delta averaged over the run might follow from the collapse that it is to
predict. It does not: with jitter before the queue, as in the testbed, the queue before a collapse shrinks as the one
over the run does (Fig. 6). Delta is taken in three ways: over the run (as in the paper), before the collapse (there is
none where the flow never filled the link), and as zero.

Sources: [Kumar19] Eqs. 5, 9, 11.
"""

import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd

from cctrace.analytic import Collapse, TruncatedNormal, closedloop, jittered
from cctrace.columns import Bools, Floats
from cctrace.papers.claims import NEAR, Claim, Stated, listed
from cctrace.papers.figure import Fields, Reproduction, chosen, drawing
from cctrace.papers.kumar import (
    COLLAPSED,
    FLOOR_US,
    LINK_MBPS,
    OVER_JITTER,
    QUICK,
    SDS_MS,
    SHORTER,
    UCAV_US,
    OverTestbed,
    run_of,
)
from cctrace.papers.runs import Run
from cctrace.special import special
from cctrace.tcp.wire import PACKET_BYTES

CYCLE_US = 8 * UCAV_US  # a probe cycle: eight RTTs
LINK_PACKETS = 1e9 / 8e6 / PACKET_BYTES  # per us
TESTBED = "testbed"
MODELS = {"model, queue over the run": "queue_ms", "model, queue before": "queue_before_ms", "model, no queue": None}
IN_LOOP = "model in its loop"


def bandwidth(sd_us: float, queue_us: float, duration_s: float, seed: int) -> float:
    """Return the mean of Eq. 5 over a session, payload Mbit/s, from drawn RTTs and their running minimum.

    `sd_us`, `queue_us`: jitter and delta. `seed`: of the draws.
    """
    rng = np.random.default_rng(seed)
    log_mass = special.log_ndtr((UCAV_US + queue_us - FLOOR_US) / sd_us)
    share, least, total = 1.0, UCAV_US, 0.0
    cycles = int(duration_s * 1e6 / CYCLE_US)
    for u in rng.random(cycles):
        total += share
        packets = max(share * LINK_PACKETS * CYCLE_US, 1.0)
        # The least of n draws exceeds x with probability S(x)**n.
        exceeded = np.exp(np.log(u) / packets + log_mass)
        least = min(least, max(UCAV_US + queue_us - sd_us * special.ndtri(exceeded), FLOOR_US))
        share *= min(2 * least, UCAV_US) / UCAV_US
    return total / cycles * LINK_MBPS


class _ModelAndTestbed(OverTestbed):
    """Runs of bbr2016 over reordering jitter, and the model's rows beside them."""

    varied = {"sd_ms": "sd_ms"}

    def run(self, at: Fields, p: Fields) -> Run:
        """One of Fig. 2's runs."""
        return run_of("bbr2016", at["sd_ms"], at["seed"], p["duration"])

    def derived(self, frame: pd.DataFrame, p: Fields) -> pd.DataFrame:
        """Add the model's results, for each delta."""
        duration_s, rows = float(p["duration"].removesuffix("s")), []
        for name, column in MODELS.items():
            for sd in sorted(p["sd_ms"]):
                queue_us = 0.0 if column is None else 1e3 * float(chosen(frame, sd_ms=sd)[column].mean())
                if np.isfinite(queue_us):
                    rows += [_modelled(name, sd, queue_us, duration_s, seed) for seed in p["seeds"]]
        return pd.concat([frame.assign(source=TESTBED), pd.DataFrame(rows)], ignore_index=True)


def _modelled(name: str, sd_ms: float, queue_us: float, duration_s: float, seed: int) -> Fields:
    """Return the row of the model for one delta and seed."""
    least_us, mbps, chance = float(UCAV_US), LINK_MBPS, 0.0
    if sd_ms > 0:
        model = Collapse(mean_us=UCAV_US, sd_us=1e3 * sd_ms, floor_us=FLOOR_US, queue_delay_us=queue_us)
        least_us, chance = float(model.expected_min_rtt()), float(model.probability())
        mbps = bandwidth(1e3 * sd_ms, queue_us, duration_s, seed)
    row = {"source": name, "sd_ms": sd_ms, "seed": seed, "queue_ms": queue_us / 1e3, "min_rtt_ms": least_us / 1e3}
    return row | {"bw_mbps": mbps, "goodput_mbps": mbps, "collapsed": chance, "degraded": chance}


def _both(made: Reproduction, column: str, model: str) -> tuple[Floats, Floats, Floats]:
    """Return (sd, testbed, model) of a column, where both are known."""
    testbed, modelled = (made.means(column, "sd_ms", source=source) for source in (TESTBED, model))
    sds = [sd for sd in testbed if np.isfinite(testbed[sd]) and np.isfinite(modelled.get(sd, np.nan))]
    return np.array(sds), np.array([testbed[sd] for sd in sds]), np.array([modelled[sd] for sd in sds])


class Fig5(_ModelAndTestbed):
    """Bandwidth estimate, min_rtt and throughput: experiment and model."""

    drawn = drawing("lines", "sd_ms",
                    [("bw_mbps", "bandwidth estimate (Mbit/s)"),
                     ("min_rtt_ms", "min_rtt (ms)", {"level": UCAV_US / 2e3}),
                     ("goodput_mbps", "throughput (Mbit/s)")], "source", columns=3,
                    xlabel=OVER_JITTER)  # fmt: skip

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """What section III-E says of Fig. 5."""
        yield from (_follows(made, name, share) for name in MODELS for share in COLLAPSED.values())
        sds, rates = made.column("goodput_mbps", "sd_ms", source=TESTBED)
        half, at = LINK_MBPS / 2, _turn(rates < LINK_MBPS / 2)
        yield Stated("5c", "the cliff lies between 0.5 and 1.25 ms", "0.5 to 1.25 ms").judged(
            {
                "above half the link at 0.5 ms and below": (rates[sds <= 0.5] >= half).all(),
                "below it at 1.25 ms and above": (rates[sds >= 1.25] < half).all(),
            },
            f"{'{:g} to {:g} ms'.format(*sds[at]) if at else 'nowhere'} (throughput crosses half the link)",
        )


def _follows(made: Reproduction, name: str, share: float) -> Claim:
    sds, here, model = _both(made, "min_rtt_ms", name)
    off = 100 * (model / here - 1)
    _, rate_here, rate_model = _both(made, "goodput_mbps", name)
    sides = (rate_here < share * LINK_MBPS) == (rate_model < share * LINK_MBPS)
    wrong = [f"{sd:g}" for sd, same in zip(sds, sides, strict=True) if not same]
    return Stated(
        "5", "the analytical results closely follow the experiment", "close, small deviation at a few jitters"
    ).judged(
        {"collapsed or not at the same jitters": not wrong},
        f"min_rtt {off.min():+.0f} to {off.max():+.0f} %; throughput {listed(rate_model, '{:.0f}')} for "
        f"{listed(rate_here, '{:.0f}')} Mbit/s"
        + (f"; throughput on the other side of {share:.0%} of the link at {', '.join(wrong)} ms" if wrong else ""),
        {f"min_rtt at {sd:g} ms": (run, law) for sd, run, law in zip(sds, here, model, strict=True)},
        reading=f"{name}; collapse: below {share:.0%} of the link",
    )


def _turn(is_so: Bools) -> slice | None:
    """Return the first two neighbours of which only the second is so."""
    turns = np.flatnonzero(is_so[1:] & ~is_so[:-1])
    return slice(turns[0], turns[0] + 2) if len(turns) else None


class Fig6(_ModelAndTestbed):
    """Backlog and queueing delay at the router, over the run and before the collapse."""

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Whether delta is a function of the jitter."""
        sds, over = made.column("queue_ms", "sd_ms", source=TESTBED)
        _, before = made.column("queue_before_ms", "sd_ms", source=TESTBED)
        yield Stated(
            "6",
            "the queueing delay is a function of the jitter, and falls as jitter grows",
            "delta(sd), from the router's average backlog",
        ).judged(
            {"falls from each jitter to the next": (np.diff(over) < 0).all()},
            f"over the run {_ms(over)} ms, before a collapse {_ms(before)} ms (-: never filled the link), "
            f"at {_ms(sds)} ms of jitter",
        )

    drawn = drawing("lines", "sd_ms", [("packets", "router backlog (packets)"), ("ms", "queueing delay (ms)")],
                    "when", xlabel=OVER_JITTER)  # fmt: skip

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """Queue over the run and before the collapse."""
        rows, out = made.rows(source=TESTBED), []
        for name, column in (("over the run (as the paper)", "queue_ms"), ("before the collapse", "queue_before_ms")):
            part = rows[["sd_ms"]].assign(when=name, ms=rows[column], ms_sd=rows[f"{column}_sd"])
            out.append(part.assign(packets=part.ms * 1e3 * LINK_PACKETS, packets_sd=part.ms_sd * 1e3 * LINK_PACKETS))
        return pd.concat(out)


def _ms(values: Floats) -> str:
    return "/".join("-" if not np.isfinite(v) else f"{v:.2g}" for v in values)


class Fig7(_ModelAndTestbed):
    """Probability of a collapse: Eq. 11, the model in its loop, and the share of collapsed runs."""

    drawn = drawing("lines", "sd_ms", [("collapsed", "probability, or share of the runs", {"top": 1.05})], "source",
                    columns=1, xlabel=OVER_JITTER)  # fmt: skip

    def derived(self, frame: pd.DataFrame, p: Fields) -> pd.DataFrame:
        """Add Eq. 11 for each delta, and the closed loop of `cctrace.analytic.closedloop`."""
        out = super().derived(frame, p)
        rows = []
        for sd in p["sd_ms"]:
            chance = 0.0
            if sd > 0:
                delay = TruncatedNormal(UCAV_US, 1e3 * sd, FLOOR_US)
                link = jittered.Link(1e9, delay, ordered=False, ack_every=1)
                chance = closedloop.collapse_probability(link, jittered.SENDERS["bbr2016"])
            rows += [
                {"source": IN_LOOP, "sd_ms": sd, "seed": seed, "collapsed": chance, "degraded": chance}
                for seed in p["seeds"]
            ]
        return pd.concat([out, pd.DataFrame(rows)], ignore_index=True)

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """What section III-E says of Fig. 7."""
        sds, share = made.column("collapsed", "sd_ms", source=TESTBED)
        for name, fell in itertools.product((*MODELS, IN_LOOP), COLLAPSED):
            at, here, model = _both(made, fell, name)
            apart = np.abs(here - model)
            yield Stated(
                "7", "the probability of collapse agrees strongly with the experiment", "0, a cliff, 1"
            ).judged(
                {
                    "within 0.25 at every jitter": (apart <= NEAR).all(),
                    "0 at the smallest jitter, 1 at the largest": model[0] < 0.05 and model[-1] > 0.95,
                },
                f"model {listed(model)}, runs {listed(here)} at {listed(at, '{:g}')} ms",
                reading=f"{name}; collapse: below {COLLAPSED[fell]:.0%} of the link",
                ours=name == IN_LOOP,
            )
        threshold = float(Collapse(mean_us=UCAV_US, floor_us=FLOOR_US).threshold("sd_us")) / 1e3
        turn = _turn(share >= 0.5)
        half = float(np.interp(0.5, share[turn], sds[turn])) if turn else float("nan")
        yield Stated(
            "7",
            "the threshold of Eq. 11 (probability one half, no queue) is where runs collapse",
            f"{threshold:.2f} ms (Eq. 11, L = 10,000)",
        ).judged(
            {},
            f"half of the runs collapse at {half:.2f} ms" if np.isfinite(half) else "no crossing in this run",
            {"ms": (threshold, half)},
            ours=True,
        )


_FINER = tuple(sorted({*SDS_MS, 0.875, 1.125}))
_PARAMETERS = {"sd_ms": SDS_MS, "seeds": (1, 2, 3, 4, 5), "duration": SHORTER["reordering"][0]}
_QUICK = {"sd_ms": QUICK["sd_ms"], "seeds": (1,), "duration": QUICK["jitter"]["reordering"][0]}
_BY = ("source", "sd_ms")
FIGURES = [
    Fig5("5", "experiment and model: estimates and throughput of BBR 2016", _PARAMETERS, _QUICK, _BY),
    Fig6("6", "router backlog and queueing delay of BBR 2016", _PARAMETERS, _QUICK, _BY),
    Fig7("7", "probability of collapse", _PARAMETERS | {"sd_ms": _FINER}, _QUICK, _BY),
]
