"""Kumar et al.: the testbed of section II varied, detail by detail, around the cliff of BBR 2016 and 2019.

What the paper leaves unsaid (or what Linux has changed since) and how much it decides: ACKs per segment, ACKs in
clumps, compressed SACKs, ticks, netem's table of the normal distribution (cut at four deviations), order, stack.
"""

from cctrace.papers.claims import judge
from cctrace.papers.figure import Figure
from cctrace.papers.kumar import FLOOR_US, JITTER, MEAN_US, figures_of, run_of
from cctrace.papers.netem import table

BASE = "as chosen"

# Name: (changes of the path, changes of the sender); a path may depend on the jitter.
VARIATIONS = {
    BASE: ({}, {}),
    "an ACK per segment": ({}, {"ack_every": 1}),
    "an ACK per 8 segments": ({}, {"ack_every": 8}),
    "ACKs in slots of 1 ms": ({}, {"ack_slot": "1ms"}),
    "compressed SACKs (Linux 4.18)": ({}, {"comp_sack_nr": 44}),
    "HZ 1000": ({}, {"hz": 1000}),
    "stack of the golden vectors": ({}, {"profile": "reference", "ack_every": 1}),
    "netem's table, cut at 4 sd": ("netem", {}),
    "in order": ("in order", {}),
    "slots of 5 ms": ("slots", {}),
}


class Testbed(Figure):
    """Throughput and window under each variation."""

    def runs(self, p):
        """One run per variation, controller, jitter and seed."""
        out = []
        for name in p["variations"]:
            path, sender = VARIATIONS[name]
            for cc in p["cc"]:
                for sd in p["sd_ms"]:
                    for seed in p["seeds"]:
                        labels = {"variation": name, "cc": cc, "sd_ms": sd, "seed": seed}
                        fields = _path(path, sd) if isinstance(path, str) else path
                        out.append((labels, run_of(cc, sd, seed, p["duration"], path=fields, sender=sender)))
        return out

    def row(self, labels, result, p):
        """What the paper plots."""
        return figures_of(result)

    def claims(self, made):
        """How far the details move the result, and which of them makes cwnd grow from 2016 to 2019."""
        sds = sorted(made.table.sd_ms.unique())
        low = sds[0]
        gain = {
            name: made.value("cwnd_segments", variation=name, cc="bbr2019", sd_ms=low)
            - made.value("cwnd_segments", variation=name, cc="bbr2016", sd_ms=low)
            for name in dict.fromkeys(made.table.variation)
        }
        near = [name for name, x in gain.items() if 100 <= x <= 300]
        rates = {
            name: "/".join(f"{x:.0f}" for x in made.column("throughput_mbps", "sd_ms", variation=name, cc="bbr2016")[1])
            for name in gain
        }
        return [
            judge(
                "2c",
                f"+200 MSS of cwnd in BBR 2019 at {low:g} ms, under which details of the testbed",
                {"as chosen": BASE in near, "under at least one variation": bool(near)},
                paper="+200 MSS",
                here="; ".join(f"{name} {x:+.0f}" for name, x in gain.items()),
                numbers=(200.0, gain[BASE]),
                mechanism="extra_acked is what came in excess of the estimate: the more ACKs clump, the more",
            ),
            judge(
                "2d",
                "BBR 2016 collapses whatever the details of the testbed",
                {
                    f"{name}: below half the link at {sds[-1]:g} ms": bool(
                        made.value("collapsed", variation=name, cc="bbr2016", sd_ms=sds[-1]) > 0.5
                    )
                    for name in gain
                },
                paper="one testbed",
                here="; ".join(f"{name} {x}" for name, x in rates.items()) + f" Mbit/s at {'/'.join(map(str, sds))} ms",
                mechanism="the packets' order decides: kept, hardly any RTT is low (slow jitter lies between). Without "
                "RACK, as in the stack of the golden vectors, reordering is taken for loss from 0.5 ms on",
            ),
        ]

    def plot(self, made):
        """Throughput over the variations, a line per controller and jitter."""
        from cctrace.plot import bars

        rows = made.table.assign(line=made.table.cc + ", " + made.table.sd_ms.map("{:g} ms".format))
        return bars(
            rows, "variation", "throughput_mbps", "line", title=f"Kumar: {self.title}", ylabel="throughput (Mbit/s)"
        )


def _path(name, sd_ms):
    if name == "netem":  # the whole delay is drawn; what remains is the propagation
        return {"jitter": table(MEAN_US, 1e3 * sd_ms, True), "rtt": f"{FLOOR_US}us"}
    return {"jitter": JITTER[name].format(sd=round(1000 * sd_ms))}


FIGURES = [
    Testbed(
        "testbed",
        "details of the testbed varied",
        {
            "variations": tuple(VARIATIONS),
            "cc": ("bbr2016", "bbr2019"),
            "sd_ms": (0.5, 1.0, 1.5),
            "seeds": (1, 2, 3),
            "duration": "10s",
        },
        {"cc": ("bbr2016", "bbr2019"), "sd_ms": (0.5, 1.5), "seeds": (1,), "duration": "1s"},
        ("variation", "cc", "sd_ms"),
    )
]
