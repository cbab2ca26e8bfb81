"""The fair judge of the replay: simulated flows, written as captures and read back as any other, where all is known.

    python -m benchmarks.replay_simulated [--variants bbr2022 cubic6] [--paths 10] [--condition clean loss jitter]
    python -m benchmarks.replay_simulated --issue                  three paths that are always the same, 15 s each
    python -m benchmarks.replay_simulated --show bbr2022 7 --condition loss      where run 7 departs, and in what

A run simulates one controller over a random path, writes what a capture at the sender would hold, reads that back as
any capture and replays it with the controller that had made it. What that controller held in the simulation is known:
the simulation's own calls through the same class, with its own random draws. Printed is the share of ACKs at which the
replay holds the same, over all runs of a variant and condition: bandwidth and min_rtt within 0.2 %, windows within two
segments (ssthresh 0.2 %), modes and gains exactly; of the controllers that draw random numbers also the share of draws
found (the replay draws within a min_rtt of the simulation, with the same outcome: the phase of a v1 cycle, the time of
the next probe of v2 and v3) and of cycles in step (the replay begins to probe within half a min_rtt of the simulation).
"""

import argparse
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

import cctrace as cct
from cctrace.cc import controller
from cctrace.flows.views import View
from cctrace.lang.fields import fields_of
from cctrace.schema import EVENT_CODES, LINUX_EVENTS

VARIANTS = ("bbr2016", "bbr2019", "bbr2022", "bbr2", "bbr2plus", "bbr3", "cubic", "cubic6", "reno")
CONDITIONS = ("clean", "loss", "jitter")
TICKS = (100, 250, 300, 1000)
EXACT, CLOSE, SEGMENTS = (0.0, 0.0), (2e-3, 0.0), (2e-3, 2.0)  # (relative, absolute)
# Quantity: tolerance.
QUANTITIES = {
    "pacing_gain": EXACT,
    "cwnd_gain": EXACT,
    "mode": EXACT,
    "bw": CLOSE,
    "min_rtt": CLOSE,
    "inflight_hi": CLOSE,
    "inflight_lo": CLOSE,
    "cwnd": SEGMENTS,
    "ssthresh": CLOSE,
}
FIELDS = (
    *("snd_cwnd", "snd_ssthresh", "mode", "cycle_idx", "pacing_gain", "cwnd_gain", "min_rtt_us", "inflight_hi"),
    *("inflight_lo", "bw_hi0", "bw_hi1", "bw_lo", "lt_use_bw", "lt_bw", "draws"),
)
PROBING_GAIN = 256  # above it a controller probes for bandwidth
UNKNOWN = -1


class Case(NamedTuple):
    """One path, and how its ends behave."""

    path: dict
    flow: dict
    duration: str


ISSUE = {
    "clean": Case({"rate": "23Mbit", "rtt": "47ms", "buffer": "1.3bdp"}, {}, "15s"),
    "loss": Case({"rate": "31Mbit", "rtt": "33ms", "buffer": "2bdp", "loss": "0.7%"}, {}, "15s"),
    "jitter": Case({"rate": "17Mbit", "rtt": "61ms", "buffer": "3bdp", "jitter": "normal:sd=2ms"}, {}, "15s"),
}


def random_case(condition, seed, number, duration="15s"):
    """Return path number `number`: rate, RTT, buffer and ticks at random, loss or jitter as `condition` says."""
    rng = np.random.default_rng([seed, number, CONDITIONS.index(condition)])
    rate, rtt = 10 ** rng.uniform(np.log10(5), np.log10(60)), 10 ** rng.uniform(np.log10(10), np.log10(100))
    path = {"rate": f"{rate:.1f}Mbit", "rtt": f"{rtt:.1f}ms", "buffer": f"{10 ** rng.uniform(-0.3, 0.6):.2f}bdp"}
    path["reverse"] = f"{rtt * rng.uniform(0, 0.5):.1f}ms"
    if condition == "loss":
        path["loss"] = f"{10 ** rng.uniform(-1, 0.2):.2f}%"
    if condition == "jitter":
        path["jitter"] = f"normal:sd={rtt * 10 ** rng.uniform(-1.7, -0.9):.2f}ms"
    start = rng.uniform(0, 100)  # where the kernel's ticks lie as the connection counts them
    return Case(path, {"hz": int(rng.choice(TICKS)), "start": f"{start:.3f}ms"}, duration)


class Steps(NamedTuple):
    """What a controller held after each ACK, and what it drew."""

    time_us: np.ndarray  # of each ACK
    held: dict  # {quantity: values}
    draw_us: np.ndarray
    drawn: np.ndarray  # the phase of the cycle that begins with the draw, v1
    probe_us: np.ndarray  # when the controller began to probe for bandwidth


def wanted(cls):
    """Return the fields of a controller class that a run records."""
    fields = fields_of(cls)
    return [name for name in FIELDS if name in fields] + (["bw_v[0]"] if "bw_v" in fields else [])


def quantities(held):
    """Return {name of QUANTITIES: values} of recorded fields."""
    renamed = {"cwnd": "snd_cwnd", "ssthresh": "snd_ssthresh", "min_rtt": "min_rtt_us"}
    found = {name: held[renamed.get(name, name)] for name in QUANTITIES if renamed.get(name, name) in held}
    if "bw_hi0" in held:
        found["bw"] = np.minimum(np.maximum(held["bw_hi0"], held["bw_hi1"]), held["bw_lo"])
    elif "bw_v[0]" in held:
        found["bw"] = np.where(held["lt_use_bw"] > 0, held["lt_bw"], held["bw_v[0]"])
    return found


def steps(time_us, held, last):
    """Return the `Steps` of fields recorded after every call; `last` are the rows that end an ACK."""
    after = {name: values[last] for name, values in quantities(held).items()}
    draw = np.flatnonzero(held["draws"] > 0)
    gain = held.get("pacing_gain", np.zeros(len(time_us)))
    probing = (gain > PROBING_GAIN) & (held.get("mode", gain) == 2)
    probe = np.flatnonzero(np.diff(probing.astype(np.int8), prepend=0) > 0)
    cycle = held.get("cycle_idx", np.zeros(len(time_us), np.int64))
    return Steps(time_us[last], after, time_us[draw], cycle[draw], time_us[probe])


def ends_of_acks(event, time_ns):
    """Return the last row of each ACK: before the row that begins the next one, or whatever else happens later."""
    begins = (event == LINUX_EVENTS["pkts_acked"]) | (np.diff(time_ns, prepend=time_ns[0]) > 0)
    group = np.cumsum(begins)
    last = np.flatnonzero(np.diff(group, append=group[-1] + 1))
    return last[np.isin(group[last], group[event == LINUX_EVENTS["pkts_acked"]])]


def truth(trace, cls, params):
    """Return the `Steps` of a simulated flow: its own calls, whose columns hold cwnd, ssthresh and draws."""
    decisions = cct.replay(trace, cls, record=wanted(cls), **params).decisions
    held = {name: decisions[name].to_numpy() for name in wanted(cls)}
    if not hasattr(cls, "on_ack"):  # the stack writes cwnd too, after the last call: what the next call finds
        for name in ("snd_cwnd", "snd_ssthresh"):
            held[name] = np.append(trace.carried[name][1:], held[name][-1])
    return steps(trace.columns["now_us"], held, ends_of_acks(trace.event, trace.columns["clock_ns"]))


def replayed(flow, cls, params):
    """Return the `Steps` of a capture's replay."""
    decisions = cct.replay(flow, cls, record=wanted(cls), **params).decisions
    held = {name: decisions[name].to_numpy() for name in wanted(cls)}
    time_ns = decisions["time_ns"].to_numpy()
    event = np.array([EVENT_CODES.get(name, UNKNOWN) for name in decisions["event"].cat.categories])
    last = ends_of_acks(event[decisions["event"].cat.codes], time_ns)
    return steps((time_ns - flow.facts["start_ns"]) // 1000 + 1_000_000, held, last)


def pairs(mine, theirs):
    """Return, for each ACK of the replay, the simulation's: in order if there are as many, else nearest in time."""
    if len(mine.time_us) == len(theirs.time_us):
        return np.arange(len(mine.time_us))
    after = np.clip(np.searchsorted(theirs.time_us, mine.time_us), 1, len(theirs.time_us) - 1)
    earlier = mine.time_us - theirs.time_us[after - 1] <= theirs.time_us[after] - mine.time_us
    return after - earlier


def agree(name, value, true):
    """Return whether values of a quantity are the same, within its tolerance."""
    rel, absolute = QUANTITIES[name]
    value, true = value.astype(np.float64), true.astype(np.float64)
    return np.abs(value - true) <= np.maximum(rel * np.abs(true), absolute)


def draws_found(mine, theirs, min_rtt_us, is_phase):
    """Return for each draw of the simulation whether the replay has it; those that nothing shows are left out."""
    found = []
    for k, when in enumerate(theirs.draw_us):
        near = np.flatnonzero(np.abs(mine.draw_us - when) <= min_rtt_us)
        if is_phase:
            found.append(any(mine.drawn[near] == theirs.drawn[k]))
            continue
        end = theirs.draw_us[k + 1] if k + 1 < len(theirs.draw_us) else np.inf
        probe = theirs.probe_us[(theirs.probe_us > when) & (theirs.probe_us < end)]
        if len(probe):
            found.append(len(near) > 0 and np.any(np.abs(mine.probe_us - probe[0]) <= min_rtt_us))
    return np.array(found, bool)


def in_step(mine, theirs, min_rtt_us):
    """Return for each probe of the simulation whether one of the replay begins within half a min_rtt of it."""
    return np.array([np.any(np.abs(mine.probe_us - when) <= min_rtt_us / 2) for when in theirs.probe_us], bool)


class Result(NamedTuple):
    """One run: what agreed at which ACK, and the run itself for `--show`."""

    agreed: dict  # {quantity: bool array}
    found: np.ndarray
    in_step: np.ndarray
    mine: Steps
    theirs: Steps
    paired: np.ndarray
    trace: View
    flow: object
    seconds: float  # of CPU, of the replay


def judge(variant, case, seed, folder, tell_hz=True, tso=False):
    """Simulate, write, read and replay one flow; return its `Result`."""
    sim = cct.simulate(
        cct.Path(**case.path), [cct.Sender(variant, **case.flow)], case.duration, seed, trace=True, packets=True
    )
    file = Path(folder) / "sender.pcap"
    sim.to_pcap(file, tso=tso)
    cls, params = controller(variant)
    hz = case.flow.get("hz", 1000)
    trace = sim.flow(0)
    theirs = truth(trace, cls, params | {"hz": hz})
    flow = cct.read(file, hz=hz if tell_hz else None).flow(0)
    start = time.process_time()
    mine = replayed(flow, cls, params)
    seconds = time.process_time() - start
    paired = pairs(mine, theirs)
    agreed = {name: agree(name, mine.held[name], theirs.held[name][paired]) for name in theirs.held}
    min_rtt_us = float(np.median(theirs.held["min_rtt"])) if "min_rtt" in theirs.held else 0.0
    found = draws_found(mine, theirs, min_rtt_us, cls.phase_choices > 0)
    return Result(agreed, found, in_step(mine, theirs, min_rtt_us), mine, theirs, paired, trace, flow, seconds)


def summary(results):
    """Return {quantity: share} over runs."""
    shares = {}
    for name in (*QUANTITIES, "draws", "in_step"):
        parts = [{"draws": r.found, "in_step": r.in_step}.get(name, r.agreed.get(name, ())) for r in results]
        total = sum(len(part) for part in parts)
        if total:
            shares[name] = sum(int(np.sum(part)) for part in parts) / total
    return shares


COLUMNS = (
    *("ca_state", "snd_una", "snd_nxt", "packets_out", "sacked_out", "lost_out", "retrans_out", "delivered", "lost"),
    *("data_segs_out", "delivered_mstamp_us", "srtt_us8", "mdev_us4", "rttvar_us4", "tcp_min_rtt_us"),
    *("is_cwnd_limited", "max_packets_out", "rs_delivered", "rs_interval_us", "rs_prior_delivered", "rs_rtt_us"),
    *("rs_losses", "rs_acked_sacked", "rs_prior_in_flight", "rs_is_app_limited", "rs_is_retrans", "rs_tx_in_flight"),
    *("rs_lost", "rs_prior_lost"),
)


def show(result, most=5):
    """Print where a replay departs from the simulation, and which columns of its calls did before."""
    mine, theirs, paired = result.mine, result.theirs, result.paired
    print(f"ACKs: replay {len(mine.time_us)}, simulation {len(theirs.time_us)}")
    for name, agreed in result.agreed.items():
        wrong = np.flatnonzero(~agreed)
        begins = wrong[np.diff(wrong, prepend=-2) > 1]
        print(f"{name}: {agreed.mean():.4f}, {len(begins)} stretches")
        for k in begins[:most]:
            until = k + int(np.argmax(np.append(agreed[k:], True)))
            value, true = mine.held[name][k], theirs.held[name][paired[k]]
            at = f"ACK {k} (for {until - k}) at {mine.time_us[k] / 1e6:.6f} s"
            print(f"    {at}: replay {value}, simulation {true}")
    for name, when in {"draws": "draw_us", "probes": "probe_us"}.items():
        here, there = getattr(mine, when), getattr(theirs, when)
        if len(there):
            print(f"{name}, s: replay {np.round(here / 1e6, 4).tolist()}")
            print(f"{' ' * len(name)}  simulation {np.round(there / 1e6, 4).tolist()}")
    print("columns of on_ack or pkts_acked:")
    columns(result, most)


def columns(result, most):
    """Print the columns of the reconstructed calls that are not the simulation's."""
    events, trace = result.flow.events, result.trace
    kind = "on_ack" if np.any(trace.event == LINUX_EVENTS["on_ack"]) else "pkts_acked"
    mine, theirs = events.of(kind), np.flatnonzero(trace.event == LINUX_EVENTS[kind])
    if len(mine) != len(theirs):
        print(f"    {len(mine)} calls reconstructed, {len(theirs)} made")
    for name in COLUMNS:
        n = min(len(mine), len(theirs))
        value, true = events[name][mine[:n]].astype(np.int64), trace.columns[name][theirs[:n]]
        wrong = np.flatnonzero(value != true)
        if len(wrong):
            first = ", ".join(f"call {k}: {value[k]} for {true[k]}" for k in wrong[:most])
            print(
                f"    {name}: {len(wrong) / n:.4f} differ, in the median by {np.median((value - true)[wrong])}; {first}"
            )


def table(rows):
    """Print shares, a line per variant and condition."""
    names = (*QUANTITIES, "draws", "in_step")
    print(f"{'variant':10}{'condition':10}{'runs':>5}" + "".join(f"{name:>12}" for name in names) + f"{'cpu s':>8}")
    for row in rows:
        cells = "".join(f"{row['shares'][n]:12.4f}" if n in row["shares"] else f"{'':12}" for n in names)
        print(f"{row['variant']:10}{row['condition']:10}{row['runs']:5}{cells}{row['replay_s']:8.1f}")


def main():
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--variants", nargs="+", default=VARIANTS, metavar="NAME")
    parser.add_argument("--condition", nargs="+", default=CONDITIONS, choices=CONDITIONS)
    parser.add_argument("--paths", type=int, default=5, help="random paths per variant and condition")
    parser.add_argument("--duration", default="15s", help="of each flow")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--delayed-acks", action="store_true", help="the receiver acknowledges every second segment")
    parser.add_argument("--bursts", action="store_true", help="the capture holds super-packets, as with TSO")
    parser.add_argument(
        "--hz-unknown", action="store_true", help="the replay is not told the ticks of the sender's kernel"
    )
    parser.add_argument("--issue", action="store_true", help="three given paths instead of random ones")
    parser.add_argument("--show", nargs=2, metavar=("VARIANT", "NUMBER"), help="one run in detail")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:

        def run(variant, condition, number):
            case = ISSUE[condition] if given.issue else random_case(condition, given.seed, number, given.duration)
            if given.delayed_acks:
                case = case._replace(flow=case.flow | {"ack_every": 2})
            return case, judge(variant, case, given.seed + number, folder, not given.hz_unknown, given.bursts)

        if given.show:
            case, result = run(given.show[0], given.condition[0], int(given.show[1]))
            print(case)
            show(result)
            return
        rows = []
        for variant, condition in itertools.product(given.variants, given.condition):
            results = []
            for number in range(1 if given.issue else given.paths):
                case, result = run(variant, condition, number)
                results.append(result._replace(trace=None, flow=None))
                shares = " ".join(f"{name}={share:.3f}" for name, share in summary(results[-1:]).items())
                print(f"{variant} {condition} {number} {case.path} {case.flow}: {shares}", file=sys.stderr, flush=True)
            replay_s = sum(result.seconds for result in results)
            rows.append({"variant": variant, "condition": condition, "runs": len(results), "replay_s": replay_s})
            rows[-1]["shares"] = summary(results)
    if given.json:
        print(json.dumps(rows, indent=1))
    else:
        table(rows)


if __name__ == "__main__":
    main()
