"""Simulated flows whose cause is known: what is drawn for each cause, and the names of verdicts that are right.

A cause may have several right names (`RIGHT`): a rate that fell is `rate_change`, and `stale_bandwidth` if the sender
went on at the old one. Of those in `BESIDE` the verdict may stand anywhere in the list: what it tells of is no limit of
the flow by itself, and the controller's name is told, since only a model can be misled.
"""

import re

import numpy as np

import cctrace as cct
from cctrace.flows.capture import Capture
from cctrace.sim.capture import packets

BBR = ("bbr2016", "bbr2019", "bbr2022", "bbr2", "bbr2plus", "bbr3")
LOSS_BASED = ("cubic", "cubic6", "reno")
VARIANTS = BBR + LOSS_BASED
# Cause: names of verdicts that are right. What is clean is what its path gave.
RIGHT = {
    "clean": {"path_full"},
    "random_loss": {"random_loss"},
    "shallow_buffer": {"shallow_buffer"},
    "rate_drop": {"rate_change", "stale_bandwidth"},
    "collapse": {"collapse"},
    "policer": {"policer"},
    "receiver_limited": {"receiver_limited"},
    "application_limited": {"application_limited"},
    "competition": {"competition"},
    "reordering": {"reordering"},
    "ack_aggregation": {"ack_aggregation"},
    "ack_thinning": {"ack_thinning"},
    "aqm": {"aqm"},
    "bufferbloat": {"self_induced_queue"},
    "slow_start_only": {"slow_start_only"},
    "path_full": {"path_full"},
    "variable_link": {"rate_change"},
    "jitter": {"collapse", "reordering", "path_full", "jitter"},
    "ack_compression": {"ack_compression"},
    "fair_queueing": {"fair_queueing"},
    "shaper": {"shaper"},
    "poor_pacing": {"poor_pacing"},
    "inflated_min_rtt": {"inflated_min_rtt"},
    "app_limited_samples": {"app_limited_samples"},
    "ack_jitter": {"collapse", "ack_compression", "path_full", "jitter"},
    "slight_loss": {"random_loss", "path_full"},
    "deep_buffer": {"self_induced_queue", "path_full"},
    "rate_down": {"rate_change", "stale_bandwidth"},  # from here on causes that recordings name themselves
    "rate_up": {"rate_change"},
    "short_flows": {"slow_start_only"},
    "receiver_pauses": {"receiver_pauses", "receiver_limited"},
    "send_buffer_limited": {"send_buffer_limited", "window_limited"},
}
ACK_NS = 20_000  # of an ACK in the service of a reverse link of 20 Mbit/s
BESIDE = {"inflated_min_rtt", "app_limited_samples"}


def random_case(cause, number, seed=1):
    """Return (path, flows, duration) of flow `number` with this cause: what `cct.Path` and `cct.Sender` take."""
    rng = np.random.default_rng([seed, number, list(RIGHT).index(cause)])
    rate, rtt = 10 ** rng.uniform(np.log10(5), 2), 10 ** rng.uniform(1, np.log10(150))
    path = {"rate": f"{rate:.2f}Mbit", "rtt": f"{rtt:.2f}ms", "buffer": f"{rng.uniform(0.8, 2):.2f}bdp"}
    path["reverse"] = f"{rtt * rng.uniform(0, 0.5):.2f}ms"
    flow = {"cc": str(rng.choice(VARIANTS)), "ack_every": int(rng.integers(1, 3)), "hz": int(rng.choice([250, 1000]))}
    duration = f"{max(10.0, 100 * rtt / 1000):.1f}s"
    changed = globals()[f"_{cause}"](rng, path, flow, rate, rtt)
    return path, [flow, *([changed] if changed else [])], duration


def _clean(rng, path, flow, rate, rtt):
    pass


def _random_loss(rng, path, flow, rate, rtt):
    path["loss"] = f"{10 ** rng.uniform(-0.7, 0.5):.3f}%"


def _shallow_buffer(rng, path, flow, rate, rtt):
    bdp = max(rate * rtt / 8 * 1000, 40_000)
    path.update(
        rtt=f"{bdp * 8 / rate / 1000:.2f}ms", reverse="0ms", buffer=f"{max(rng.uniform(0.03, 0.2) * bdp, 6056):.0f}B"
    )


def _rate_drop(rng, path, flow, rate, rtt):
    path["rate"] = [
        (0, path["rate"]),
        (rng.uniform(0.4, 0.6) * max(10.0, rtt / 10), f"{rate / rng.uniform(3, 8):.2f}Mbit"),
    ]


def _collapse(rng, path, flow, rate, rtt):
    rtt = rng.uniform(15, 50)
    flow["cc"] = str(rng.choice(["bbr2016", "bbr2019", "bbr2022"]))
    path.update(rate=f"{rng.uniform(30, 100):.1f}Mbit", rtt=f"{rtt:.2f}ms", reverse="0ms", buffer="8bdp")
    path["jitter"] = f"normal:sd={rtt * rng.uniform(0.4, 0.6):.2f}ms"


def _collapsed(path, flow, duration, seed):
    """Return the path with so much jitter that the flow gets less than COLLAPSED of its rate; None if none does."""
    for more in (1, 1.5, 2, 3):
        sd = float(re.search(r"sd=([\d.]+)", path["jitter"])[1]) * more
        tried = path | {"jitter": f"normal:sd={sd:.2f}ms"}
        sim = cct.simulate(cct.Path(**tried), [cct.Sender(**flow)], duration, seed=seed, packets=True)
        rate = float(path["rate"].removesuffix("Mbit")) * 1e6
        if sim.capture().flows["goodput_bps"][0] < COLLAPSED * rate:
            return tried
    return None


def _policer(rng, path, flow, rate, rtt):
    policed = rate * rng.uniform(0.2, 0.6)
    path["policer"] = (f"{policed:.2f}Mbit", f"{max(policed * 125 * rng.uniform(20, 300), 15000):.0f}B")


def _receiver_limited(rng, path, flow, rate, rtt):
    bdp = rate * rtt / 8 * 1000
    flow["rwnd"] = f"{max(rng.uniform(0.2, 0.7) * bdp, 6 * 1448):.0f}B"


def _application_limited(rng, path, flow, rate, rtt):
    per_s = rate * 125_000 * rng.uniform(0.05, 0.35)
    every = rng.uniform(0.02, 0.5)
    flow["app"] = str(
        rng.choice(
            [
                f"chunks:size={max(per_s * every, 3000):.0f}B,every={every * 1000:.0f}ms",
                f"requests:size={rng.uniform(20, 200):.0f}kB,think={rng.uniform(0.3, 1):.2f}s",
            ]
        )
    )


def _competition(rng, path, flow, rate, rtt):
    path["buffer"] = f"{rng.uniform(0.5, 3):.2f}bdp"
    return flow | {"cc": str(rng.choice(VARIANTS)), "start": f"{rng.uniform(0, 1):.2f}s"}


def _reordering(rng, path, flow, rate, rtt):
    path["jitter"] = f"normal:sd={max(rtt * rng.uniform(0.02, 0.1), 0.5):.2f}ms,reorder"


def _ack_aggregation(rng, path, flow, rate, rtt):
    flow["ack_slot"] = f"{rtt * rng.uniform(0.3, 0.8):.2f}ms"


def _ack_thinning(rng, path, flow, rate, rtt):
    if rng.random() < 0.5:
        path["ack_loss"] = f"{rng.uniform(65, 85):.0f}%"
        flow["ack_every"] = 2
    else:
        flow["ack_every"] = int(rng.integers(6, 13))


def _aqm(rng, path, flow, rate, rtt):
    flow["cc"] = str(rng.choice(LOSS_BASED))
    path.update(aqm="codel", buffer="8bdp")


def _bufferbloat(rng, path, flow, rate, rtt):
    flow["cc"] = str(rng.choice(LOSS_BASED))
    path["buffer"] = f"{rng.uniform(8, 20):.1f}bdp"


def _slow_start_only(rng, path, flow, rate, rtt):
    path.update(rate=f"{rng.uniform(40, 200):.0f}Mbit", rtt=f"{rng.uniform(30, 150):.1f}ms")
    flow["app"] = f"bulk:size={rng.uniform(15, 150):.0f}kB"


def _shaper(rng, path, flow, rate, rtt):
    shaped = rate * rng.uniform(0.2, 0.6)
    path["buffer"] = f"{max(rng.uniform(0.8, 2) * shaped * rtt * 125, 6 * 1514):.0f}B"
    path["shaper"] = (f"{shaped:.2f}Mbit", f"{max(shaped * 125 * rng.uniform(1.2 * rtt, 4 * rtt), 30_000):.0f}B")


def _fair_queueing(rng, path, flow, rate, rtt):
    path["buffer"] = f"{rng.uniform(0.8, 2) * rate * rtt * 125:.0f}B"
    start = rng.uniform(0, 0.5) if rng.random() < 0.5 else rng.uniform(3, 5)
    return flow | {"cc": str(rng.choice(VARIANTS)), "start": f"{start:.2f}s"}


def _poor_pacing(rng, path, flow, rate, rtt):
    """A window-based sender, which does not pace, whose ACKs come in batches, before a buffer of less than one."""
    bdp = rate * rtt * 125
    flow["cc"] = str(rng.choice(LOSS_BASED))
    flow["ack_slot"] = f"{rtt * rng.uniform(0.3, 0.8):.2f}ms"
    path["buffer"] = f"{max(rng.uniform(0.05, 0.2) * bdp, 6 * 1514):.0f}B"


def _ack_compression(rng, path, flow, rate, rtt):
    flow.update(cc=str(rng.choice(BBR)), ack_every=int(rng.integers(1, 3)))
    path["reverse"] = f"{rtt * rng.uniform(0.3, 0.5):.2f}ms"


def _inflated_min_rtt(rng, path, flow, rate, rtt):
    """A BBR flow whose deep buffer another, loss-based, fills from the third second on."""
    path["buffer"] = "8bdp"
    flow["cc"] = str(rng.choice(BBR[:3]))
    return flow | {"cc": str(rng.choice(LOSS_BASED)), "start": "3s"}


def _app_limited_samples(rng, path, flow, rate, rtt):
    flow["cc"] = str(rng.choice(BBR))
    flow["app"] = f"onoff:on={rtt * rng.uniform(3, 6):.0f}ms,off={rtt * rng.uniform(0.7, 1.5):.0f}ms"


COLLAPSED = 0.65
CAUSES = [name for name in RIGHT if f"_{name}" in globals()]


def simulated_flow(cause, number, seed=1):
    """Return the captured flow of a simulated case, and the controller's name if it is to be told (`BESIDE`)."""
    path, flows, duration = random_case(cause, number, seed)
    if cause == "collapse":
        path = _collapsed(path, flows[0], duration, number + 1)
        if path is None:  # no jitter makes this one collapse: another is drawn
            return simulated_flow(cause, number + 1_000_003, seed)
    if cause == "fair_queueing":
        return _served_in_turn(path, flows, duration, number + 1).flow(0), None
    if cause == "inflated_min_rtt":
        duration = "25s"
    senders = [cct.Sender(**flow) for flow in flows]
    sim = cct.simulate(cct.Path(**path), senders, duration, seed=number + 1, packets=True)
    if cause == "inflated_min_rtt":  # what the capture does not show fills the queue
        return sim.capture(flow=0).flow(0), "bbr"
    if cause == "ack_compression":
        return _compressed(sim, path, number).flow(0), None
    return sim.capture().flow(0), "bbr" if cause in BESIDE else None


def _served_in_turn(path, flows, duration, seed):
    """Return the capture of two flows that each get half of the link, each with a queue of its own, while both send."""
    rate, start = float(path["rate"].removesuffix("Mbit")), float(flows[1]["start"].removesuffix("s"))
    rates = ([(0, f"{rate:.2f}Mbit"), (max(start, 1e-3), f"{rate / 2:.2f}Mbit")], f"{rate / 2:.2f}Mbit")
    ends = []
    for k, flow in enumerate(flows):
        own = cct.Path(**path | {"rate": rates[k]})
        ends += cct.simulate(own, cct.Sender(**flow), duration, seed=seed + 1000 * k, packets=True).ends
    return Capture(packets(ends, "sender", None))


def _compressed(sim, path, seed):
    """Return the capture with its ACKs held up on the way back every two RTTs, until a queue there has drained.

    They arrive at the reverse link's rate then, with the stamps of when they were sent; the sender paces, so that what
    it sends does not hang on them.
    """
    found, rng = sim.capture().packets, np.random.default_rng(seed)
    time = found.columns["time_ns"].astype(np.int64)
    acks = np.flatnonzero((found["payload"] == 0) & (found["direction"] == 1) & (time > time[0] + 500_000_000))
    rtt_ns = float(path["rtt"].removesuffix("ms")) * 1e6
    begin = np.arange(time[0], time[-1], 2 * rtt_ns)
    drained = begin + rng.uniform(0.5, 1.5, len(begin)) * rtt_ns  # others' data leave, and these ACKs after them
    place = np.searchsorted(begin, time[acks], "right") - 1
    own = ACK_NS * np.arange(len(acks))
    time[acks] = np.maximum.accumulate(np.maximum(time[acks], drained[place].astype(np.int64)) - own) + own
    found.columns["time_ns"] = time
    return Capture(found.sorted_by_time())
