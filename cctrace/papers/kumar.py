"""Kumar et al., *TCP BBR for Ultra-Low Latency Networking* (IFIP Networking 2019): Figs. 2 and 8, the testbed.

Set-up (section II): 1 Gbit/s, 1,000 packets of buffer, 75 us of propagation, netem adds a normal delay of mean 5 ms and
standard deviation 0 to 1.5 ms; one flow, 90 s; Linux 4.12 (`bbr2016`) and 5.1-rc3 (`bbr2019`). Figs. 5 to 7, where the
model meets the testbed, are in `kumar_model`.

Chosen here, for the paper does not say: the receiver (Ubuntu 18.04, Linux 4.15) acknowledges every other segment and
does not compress SACKs, which came with 4.18; HZ is 250, Ubuntu's. The figure `testbed` varies all of it. netem draws a
delay per packet and lets packets overtake each other ("reordering"); the paper's i.i.d. delays without overtaking are
"in order", jitter slower than a packet is "slots".

Sources: [Kumar19].
"""

import numpy as np

from cctrace.cc.bbr2_model import BW_UNIT
from cctrace.papers.claims import judge
from cctrace.papers.figure import Figure
from cctrace.papers.runs import Run
from cctrace.tcp.wire import MSS_BYTES, PACKET_BYTES, WIRE_PER_PAYLOAD

RATE = "1Gbit"
BUFFER = "1000packets"
FLOOR_US = 75  # propagation: what is left when netem's draw is cut at zero
MEAN_US = 5000
UCAV_US = MEAN_US + FLOOR_US  # RTT_UCAV
LINK_BPS = 1e9 / WIRE_PER_PAYLOAD  # payload
BDP_SEGMENTS = 1e9 / 8 / PACKET_BYTES * UCAV_US / 1e6
JITTER = {
    "reordering": "normal:sd={sd}us,reorder",
    "in order": "normal:sd={sd}us",
    "slots": "normal:sd={sd}us,per=slot:5ms",
}
STARTUP = 0
WATCH = ("min_rtt_us", "bw_v", "mode")


def run_of(cc, sd_ms, seed, duration, jitter="reordering", sample="100ms", path=None, sender=None):
    """Return the `Run` of one flow over the paper's testbed, with some fields of `Path` or `Sender` changed."""
    fields = {"rate": RATE, "rtt": f"{UCAV_US}us", "reverse": f"{FLOOR_US}us", "buffer": BUFFER}
    if sd_ms > 0:
        fields["jitter"] = JITTER[jitter].format(sd=round(sd_ms * 1000))
    flow = {"cc": cc, "ack_every": 2, "comp_sack_nr": 0, "hz": 250} | (sender or {})
    arguments = {"path": fields | (path or {}), "flows": [flow], "duration": duration, "seed": seed}
    return Run(arguments | {"sample": sample, "watch": list(WATCH)})


def figures_of(result):
    """Return what the paper plots of a run: throughput, and the means over time of BBR's estimates."""
    flow, mean, before = result["flows"][0], result["means"][0], result["before"][0]
    return {
        "throughput_mbps": flow["goodput_bps"] / 1e6,
        "bw_mbps": _mbps(mean["bw_v"]),
        "min_rtt_ms": mean["min_rtt_us"] / 1e3,
        "cwnd_segments": mean["cwnd_segments"],
        "rtt_ms": (flow["rtt_mean_us"] or np.nan) / 1e3,
        "queue_ms": flow["queue_delay_mean_us"] / 1e3,
        "queue_before_ms": np.nan if before["queue_delay_us"] is None else before["queue_delay_us"] / 1e3,
        "retransmitted_pct": 100 * flow["retransmit_ratio"],
        "startup_share": float(mean["mode"] == STARTUP),
        "collapsed": float(flow["goodput_bps"] < LINK_BPS / 2),
    }


def _mbps(bw):
    """Payload Mbit/s of a bandwidth in segments/us << 24."""
    return bw / BW_UNIT * MSS_BYTES * 8


class _OverJitter(Figure):
    """What all figures over the jitter share."""

    def runs(self, p):
        """One run per controller, process of jitter, standard deviation and seed."""
        out = []
        for cc in p["cc"]:
            for jitter, (duration, seeds) in p["jitter"].items():
                for sd in p["sd_ms"]:
                    for seed in range(1, seeds + 1):
                        labels = {"cc": cc, "jitter": jitter, "sd_ms": sd, "seed": seed}
                        out.append((labels, run_of(cc, sd, seed, duration, jitter.partition(",")[0])))
        return out

    def row(self, labels, result, p):
        """What the paper plots."""
        return figures_of(result)

    def plot(self, made):
        """Bandwidth estimate, min_rtt, cwnd and throughput over the jitter, a column per process."""
        from cctrace.plot import lines

        return lines(
            made.table,
            "sd_ms",
            [
                ("bw_mbps", "bandwidth estimate (Mbit/s)"),
                ("min_rtt_ms", "min_rtt (ms)", {"level": UCAV_US / 2e3}),
                ("cwnd_segments", "cwnd (segments)", {"level": BDP_SEGMENTS}),
                ("throughput_mbps", "throughput (Mbit/s)"),
                ("queue_ms", "queueing delay (ms)"),
            ],
            "cc",
            panel_by="jitter",
            title=f"Kumar, Fig. {self.name}: {self.title}",
            xlabel="standard deviation of the delay (ms)",
        )


SDS_MS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
# Process of the jitter: length of the runs, number of seeds. Fig. 2 shows what 90 s, the paper's length, change.
SHORTER = {"reordering": ("30s", 5), "in order": ("10s", 3), "slots": ("10s", 3)}
FEWER = {"reordering": ("30s", 2), "in order": ("10s", 1), "slots": ("10s", 1)}
FULL = {"sd_ms": SDS_MS, "jitter": SHORTER | {"reordering, 90 s": ("90s", 2)}}
QUICK = {"sd_ms": (0.0, 0.75, 1.5), "jitter": {"reordering": ("3s", 1), "in order": ("2s", 1)}}


class Fig2(_OverJitter):
    """Bandwidth estimate, min_rtt, cwnd and throughput of both kernels."""

    def claims(self, made):
        """What section II says of Fig. 2."""
        v, sds = made.value, sorted(made.table.sd_ms.unique())
        most = sds[-1]
        here = {
            cc: made.column("throughput_mbps", "sd_ms", cc=cc, jitter="reordering") for cc in ("bbr2016", "bbr2019")
        }
        order = {
            cc: made.column("throughput_mbps", "sd_ms", cc=cc, jitter="in order")[1] for cc in ("bbr2016", "bbr2019")
        }
        old, new = here["bbr2016"][1], here["bbr2019"][1]
        small = [x for s, x in zip(*here["bbr2016"], strict=True) if s <= 0.5]
        listed = {cc: "/".join(f"{x:.0f}" for x in values) for cc, (_, values) in here.items()}
        lost = 100 * (1 - new[-1] / new[0])
        return [
            *([] if "reordering, 90 s" not in set(made.table.jitter) else [_length(made)]),
            judge(
                "2d",
                "throughput close to the link at small jitter, collapsing to very little as jitter grows (BBR 2016)",
                {
                    "at least 90 % of the link up to 0.5 ms": min(small) >= 0.9 * LINK_BPS / 1e6,
                    f"at most 10 % at {most:g} ms": old[-1] <= 0.1 * LINK_BPS / 1e6,
                },
                paper="near 1 Gbit/s, then very small",
                here=f"{listed['bbr2016']} Mbit/s at {'/'.join(f'{s:g}' for s in sds)} ms of reordering jitter; "
                f"in order {order['bbr2016'][-1]:.0f} at {most:g} ms",
                mechanism="min_rtt catches the least of all draws; once it is below half the mean RTT the window no "
                "longer covers the path. Only where packets overtake is the least draw seen: in order a packet waits "
                "for its predecessor, and at 83 packets/ms nearly all RTTs are near the running maximum",
                recording="Linux 6.18, 300 Mbit/s, sd 1.5 of 5 ms, reordering: 39 and 54 Mbit/s (docs/simulation.md)",
            ),
            judge(
                "2d",
                "BBR 2019 still loses around 95 % of its throughput at high jitter",
                {"at least 90 % lost": lost >= 90, "at most 98 % lost": lost <= 98},
                paper="95 % lost",
                here=f"{lost:.0f} % lost at {most:g} ms ({listed['bbr2019']} Mbit/s)",
                numbers=(95.0, lost),
                mechanism="extra_acked and three bursts are added to a window that is short by a factor, not by a sum",
            ),
            judge(
                "2d",
                "BBR 2019 loses less than BBR 2016",
                {
                    "no less at any jitter (to 2 %)": bool(np.all(new >= 0.98 * old)),
                    f"more at {most:g} ms": new[-1] > old[-1],
                },
                paper="2019 above 2016",
                here=f"{listed['bbr2019']} against {listed['bbr2016']} Mbit/s",
                mechanism="extra_acked widens the window as long as there is jitter to be seen in the ACKs",
            ),
            judge(
                "2c",
                "the collapse comes where cwnd falls below the BDP",
                _same_side(made, "cwnd_segments", BDP_SEGMENTS),
                paper="BDP about 450 segments",
                here=f"BDP {BDP_SEGMENTS:.0f}; cwnd "
                + "/".join(
                    f"{x:.0f}" for x in made.column("cwnd_segments", "sd_ms", cc="bbr2016", jitter="reordering")[1]
                ),
                mechanism="the cwnd that BBR sets is an average over a run that collapses somewhere within it",
            ),
            judge(
                "2b",
                "the collapse comes where min_rtt is less than half the mean RTT",
                _same_side(made, "min_rtt_ms", UCAV_US / 2e3),
                paper="min_rtt below half",
                here="min_rtt "
                + "/".join(f"{x:.2f}" for x in made.column("min_rtt_ms", "sd_ms", cc="bbr2016", jitter="reordering")[1])
                + f" ms, half the RTT {UCAV_US / 2e3:.2f}",
                mechanism="the window also holds three bursts and the estimate exceeds the throughput by 10 to 30 %, "
                "so min_rtt has to fall further than to one half (docs/models.md)",
            ),
            judge(
                "2c",
                "BBR 2016 never leaves STARTUP without jitter",
                {"STARTUP for the whole run": v("startup_share", cc="bbr2016", jitter="reordering", sd_ms=0.0) == 1},
                paper="gains stay 2/ln 2",
                here=f"cwnd {v('cwnd_segments', cc='bbr2016', jitter='reordering', sd_ms=0.0):.0f} segments, "
                f"STARTUP for the whole run in {v('startup_share', cc='bbr2016', jitter='reordering', sd_ms=0.0):.0%}",
                mechanism="the released code of 4.12 leaves STARTUP after three rounds without growth; nothing in it "
                "depends on jitter. Something of the testbed must keep the estimate growing, or limit the application",
            ),
            _more_window(made),
        ]


def _length(made):
    sds, short = made.column("throughput_mbps", "sd_ms", cc="bbr2016", jitter="reordering")
    _, long = made.column("throughput_mbps", "sd_ms", cc="bbr2016", jitter="reordering, 90 s")
    half = LINK_BPS / 2e6
    return judge(
        "2",
        "runs of 30 s show what the paper's of 90 s show (a check of ours)",
        {
            "the same jitters below half the link": bool(((short < half) == (long < half)).all()),
            "within 10 % where there is no collapse": bool((abs(long / short - 1)[short >= half] <= 0.1).all()),
        },
        paper="90 s",
        here=f"{_list_of(short)} in 30 s, {_list_of(long)} Mbit/s in 90 s, at {_list_of(sds)} ms",
        mechanism="at the cliff a longer run has more time to collapse in",
    )


def _same_side(made, column, level):
    """Conditions: runs below half the link lie below the level, the others above it, both kernels, reordering."""
    out = {}
    for cc in ("bbr2016", "bbr2019"):
        rows = made.runs[(made.runs.cc == cc) & (made.runs.jitter == "reordering") & (made.runs.sd_ms > 0)]
        down = rows[rows.collapsed == 1]
        out[f"{cc}: collapsed runs below"] = bool((down[column] < level).all()) and len(down) > 0
        out[f"{cc}: the others above"] = bool((rows[rows.collapsed == 0][column] >= level).all())
    return out


def _more_window(made):
    found = {}
    for jitter in dict.fromkeys(made.table.jitter):
        rows = made.table[(made.table.jitter == jitter) & (made.table.sd_ms > 0)]
        wide = rows.pivot_table(index="sd_ms", columns="cc", values=["cwnd_segments", "collapsed"])
        held = wide[(wide["collapsed"] == 0).all(axis=1)]["cwnd_segments"]
        if len(held):
            found[jitter] = held["bbr2019"] - held["bbr2016"]
    means = {jitter: float(gains.mean()) for jitter, gains in found.items()}
    first = means.pop("reordering", float("nan"))
    return judge(
        "2c",
        "cwnd of BBR 2019 is about 200 MSS higher for most jitter values",
        {
            "100 to 300 MSS with reordering, which the collapse needs": 100 <= first <= 300,
            "100 to 300 MSS with jitter of another kind": any(100 <= x <= 300 for x in means.values()),
        },
        paper="+200 MSS",
        here="; ".join(
            f"{jitter} {_list_of(gains)} MSS at {_list_of(gains.index)} ms" for jitter, gains in found.items()
        )
        + " (jitters without collapse)",
        numbers=(200.0, first),
        mechanism="extra_acked, what ACKs bring in excess of the estimate, is added to the window. In order they clump "
        "behind a late packet; reordering spreads them evenly and leaves no excess (figure `testbed`)",
    )


class Fig8(_OverJitter):
    """The two fixes in both kernels: the bandwidth given (cbe), the RTT given (cmrt)."""

    def claims(self, made):
        """What section IV says of Fig. 8."""
        sds = sorted(made.table.sd_ms.unique())
        jittered = [s for s in sds if s > 0]
        get = {
            cc: dict(zip(*made.column("throughput_mbps", "sd_ms", cc=cc, jitter="reordering"), strict=True))
            for cc in dict.fromkeys(made.table.cc)
        }
        out = []
        for base in ("bbr2016", "bbr2019"):
            plain, cbe, cmrt = (get[base + tail] for tail in ("", "_cbe", "_cmrt"))
            rtt = {
                s: made.value("rtt_ms", cc=f"{base}_cbe", jitter="reordering", sd_ms=s)
                - made.value("rtt_ms", cc=base, jitter="reordering", sd_ms=s)
                for s in jittered
            }
            out += [
                judge(
                    "8a",
                    f"with the bandwidth given, {base} gets more, and still collapses at high jitter",
                    {
                        "no less at any jitter (to 5 %)": all(cbe[s] >= 0.95 * plain[s] for s in jittered),
                        f"more at {jittered[-1]:g} ms": cbe[jittered[-1]] > 1.1 * plain[jittered[-1]],
                        f"below half the link at {jittered[-1]:g} ms": cbe[jittered[-1]] < LINK_BPS / 2e6,
                    },
                    paper="softens",
                    here=_listed(cbe) + " against " + _listed(plain) + " Mbit/s",
                    mechanism="bandwidth no longer feeds back on itself, so the window is short by min_rtt's error "
                    "once, not by its power. Near the cliff it has less queue, sees lower RTTs, and gives way earlier",
                ),
                judge(
                    "8a",
                    f"with the RTT given, {base} does not collapse",
                    {
                        "at least half of the link at every jitter": min(cmrt.values()) >= 0.5 * LINK_BPS / 1e6,
                        "at least 90 % of it": min(cmrt.values()) >= 0.9 * LINK_BPS / 1e6,
                    },
                    paper="close to the link",
                    here=_listed(cmrt) + " Mbit/s",
                    mechanism="the window covers the path whatever the draws; what is lacking at high jitter is lost "
                    "to reordering taken for loss",
                ),
                judge(
                    "8d",
                    f"{base} with the bandwidth given adds little delay (around 2 ms)",
                    {"at most 3 ms more at every jitter": max(rtt.values()) <= 3.0},
                    paper="+2 ms",
                    here="mean RTT " + ", ".join(f"{x:+.1f}" for x in rtt.values()) + f" ms at {_list_of(jittered)} ms",
                    numbers=(2.0, max(rtt.values())),
                    mechanism="it paces at the rate that is given, which no lucky sample exceeds: hardly a queue",
                ),
            ]
        flat = [made.value("rtt_ms", cc="bbr2019_cmrt", jitter="reordering", sd_ms=s) for s in sds]
        stays = made.value("startup_share", cc="bbr2016_cmrt", jitter="reordering", sd_ms=0.0)
        more = [
            made.value("cwnd_segments", cc="bbr2019_cbe", jitter="reordering", sd_ms=s)
            - made.value("cwnd_segments", cc="bbr2019", jitter="reordering", sd_ms=s)
            for s in jittered
        ]
        return [
            *out,
            judge(
                "8d",
                "the smoothed RTT of bbr2019 with the RTT given is almost constant over the jitter",
                {"largest over smallest at most 1.2": max(flat) / min(flat) <= 1.2},
                paper="almost constant",
                here=f"{_list_of(flat)} ms",
                mechanism="a window of two BDPs, given the RTT, holds the same queue whatever the jitter",
            ),
            judge(
                "8e",
                "bbr2016 with the RTT given never leaves STARTUP without jitter",
                {"STARTUP for the whole run": stays == 1},
                paper="as plain BBR 2016 in Fig. 2",
                here=f"in STARTUP at {stays:.0%} of the runs",
                mechanism="as for Fig. 2c",
            ),
            judge(
                "8e",
                "cwnd of bbr2019 with the bandwidth given is about 120 MSS higher",
                {"at least 30 MSS": float(np.mean(more)) >= 30, "60 to 240 MSS": 60 <= float(np.mean(more)) <= 240},
                paper="+120 MSS",
                here=f"{np.mean(more):+.0f} MSS (mean over the jitters)",
                numbers=(120.0, float(np.mean(more))),
            ),
        ]


def _list_of(values):
    return "/".join(f"{v:.3g}" for v in values)


def _listed(by_sd):
    return "/".join(f"{x:.0f}" for x in by_sd.values())


CONTROLLERS = ("bbr2016", "bbr2016_cbe", "bbr2016_cmrt", "bbr2019", "bbr2019_cbe", "bbr2019_cmrt")
_BY = ("cc", "jitter", "sd_ms")
FIGURES = [
    Fig2("2", "estimates, cwnd and throughput over the jitter", FULL | {"cc": ("bbr2016", "bbr2019")}, QUICK, _BY),
    Fig8("8", "the bandwidth or the RTT given", FULL | {"cc": CONTROLLERS, "jitter": FEWER}, QUICK, _BY),
]
