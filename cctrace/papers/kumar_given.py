"""Kumar et al., Fig. 8: the bandwidth or the RTT given to both kernels (section IV)."""

from collections.abc import Iterator

import numpy as np

from cctrace.papers.claims import NEAR, Claim, Stated, listed
from cctrace.papers.figure import Reproduction
from cctrace.papers.kumar import (
    BY,
    FULL,
    LINK_MBPS,
    QUICK,
    READ,
    SHORTER,
    STARTING,
    UCAV_US,
    OverJitter,
    never_leaves,
    three,
)


class Fig8(OverJitter):
    """The two fixes in both kernels: the bandwidth given (cbe), the RTT given (cmrt)."""

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """What section IV says of Fig. 8."""
        for base in ("bbr2016", "bbr2019"):
            yield from self._given(made, base)
        flat = list(self.over(made, "srtt_ms", "bbr2019_cmrt").values())
        cbe, plain, collapsed = (
            self.over(made, column, cc)
            for column, cc in (("cwnd_segments", "bbr2019_cbe"), ("cwnd_segments", "bbr2019"), ("collapsed", "bbr2019"))
        )
        yield Stated(
            "8d", "the smoothed RTT of bbr2019 with the RTT given is almost constant over the jitter", "almost constant"
        ).judged({}, f"{three(flat)} ms", {"largest over smallest": (1.0, max(flat) / min(flat))})
        yield from never_leaves(made, "8e", "bbr2016_cmrt")
        jittered = [s for s in plain if s > 0]
        for reading, sds in (
            ("mean over the jitters", jittered),
            ("mean over those where bbr2019 collapses", [s for s in jittered if collapsed[s] > 0.5]),
        ):
            more = float(np.mean([cbe[s] - plain[s] for s in sds])) if sds else 0.0
            yield Stated("8e", "cwnd of bbr2019 with the bandwidth given is about 120 MSS higher", "+120 MSS").judged(
                {"higher": more > 0}, f"{more:+.0f} MSS", {"MSS": (120.0, more)}, reading=reading
            )
        yield from self._window_given(made)

    def _window_given(self, made: Reproduction) -> Iterator[Claim]:
        """Section IV on BBR 2016 with the RTT given: window and queue."""
        cwnd, plain = (self.over(made, "cwnd_segments", cc) for cc in ("bbr2016_cmrt", "bbr2016"))
        queue, other = (self.over(made, "queue_ms", cc) for cc in ("bbr2016_cmrt", "bbr2016"))
        most = max(cwnd)
        high = [s for s in cwnd if s >= 0.75]
        yield Stated(
            "8e",
            "with the RTT given, cwnd of bbr2016 decreases somewhat where the jitter is high",
            "decreases somewhat",
        ).judged(
            {"2 to 25 % lower than without jitter": 0.02 <= 1 - cwnd[most] / cwnd[0.0] <= NEAR},
            f"{three(cwnd.values())} segments",
        )
        yield Stated(
            "8d",
            "with the RTT given, bbr2016 has a higher cwnd, and so a longer queue",
            "significantly higher, higher queueing delay",
        ).judged(
            {
                "a quarter more cwnd where the jitter is high": all(cwnd[s] >= (1 + NEAR) * plain[s] for s in high),
                "a longer queue there": all(queue[s] > other[s] for s in high),
            },
            f"queue {three(queue.values())} against {three(other.values())} ms",
        )

    def _given(self, made: Reproduction, base: str) -> Iterator[Claim]:
        plain, cbe, cmrt = (self.over(made, "goodput_mbps", base + tail) for tail in ("", "_cbe", "_cmrt"))
        jittered = [s for s in plain if s > 0]
        most = jittered[-1]
        yield Stated(
            "8a", f"with the bandwidth given, {base} gets more, and still collapses at high jitter", "softens"
        ).judged(
            {
                "no less at any jitter (to 5 %)": all(cbe[s] >= 0.95 * plain[s] for s in jittered),
                f"more at {most:g} ms": cbe[most] > 1.1 * plain[most],
                f"below half the link at {most:g} ms": cbe[most] < LINK_MBPS / 2,
            },
            f"{listed(cbe.values(), '{:.0f}')} against {listed(plain.values(), '{:.0f}')} Mbit/s",
        )
        for last in (1.0, 1.5):
            if last in cmrt:
                least = min(rate for sd, rate in cmrt.items() if sd <= last)
                yield Stated("8a", f"with the RTT given, {base} does not collapse", "very high throughput").judged(
                    {"at least 90 % of the link at every jitter": least >= 0.9 * LINK_MBPS},
                    listed(cmrt.values(), "{:.0f}") + " Mbit/s",
                    reading=f"jitters of Fig. 2's axis, up to {last:g} ms"
                    if last == 1
                    else f"jitters up to {last:g} ms",
                )
        for jitter in made.each("jitter"):
            if jitter not in STARTING:
                yield from (self._delay_2016 if base == "bbr2016" else self._delay_2019)(made, jitter)

    def _delay_2016(self, made: Reproduction, jitter: str) -> Iterator[Claim]:
        """How much delay the bandwidth adds that is given to BBR 2016: around 2 ms."""
        srtt, of_cbe = (self.over(made, "srtt_ms", cc, jitter) for cc in ("bbr2016", "bbr2016_cbe"))
        for reading, base_ms in (
            ("over bbr2016", srtt),
            ("over the uncongested RTT", dict.fromkeys(srtt, UCAV_US / 1e3)),
        ):
            longer = {s: of_cbe[s] - base_ms[s] for s in srtt}
            most = max(longer[s] for s in srtt if s > 0)  # without jitter the queue is any BBR's
            yield Stated("8d", "with the bandwidth given, bbr2016 adds little delay, around 2 ms", "+2 ms").judged(
                {"no more at any jitter (by a quarter)": most <= 2 * (1 + NEAR)},
                "smoothed RTT " + ", ".join(f"{x:+.1f}" for x in longer.values()) + f" ms at {three(srtt)} ms",
                {"most (ms)": (2.0, most)},
                reading=f"{reading}; {jitter}",
            )

    def _delay_2019(self, made: Reproduction, jitter: str) -> Iterator[Claim]:
        """Whether the bandwidth that is given to BBR 2019 makes its queue, or its RTT, "slightly" longer."""
        for column, reading in (("queue_ms", "its queue"), ("srtt_ms", "its smoothed RTT")):
            plain, given = (self.over(made, column, cc, jitter) for cc in ("bbr2019", "bbr2019_cbe"))
            jittered = [s for s in plain if s > 0]
            yield Stated(
                "8d", "with the bandwidth given, bbr2019 has slightly more delay, by its queue", "slightly higher"
            ).judged(
                {"longer on average": np.mean([given[s] - plain[s] for s in jittered]) > 0},
                f"{three(given.values())} against {three(plain.values())} ms at {three(plain)} ms",
                reading=f"{reading}; {jitter}",
            )


CONTROLLERS = ("bbr2016", "bbr2016_cbe", "bbr2016_cmrt", "bbr2019", "bbr2019_cbe", "bbr2019_cmrt")
FEWER = {name: (length, min(seeds, 2)) for name, (length, seeds) in SHORTER.items()}
FEWER |= {name: (length, 1) for name, (length, _) in READ.items()}
FIGURES = [Fig8("8", "the bandwidth or the RTT given", FULL | {"cc": CONTROLLERS, "jitter": FEWER}, QUICK, BY)]
