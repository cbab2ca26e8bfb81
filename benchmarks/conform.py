"""How well `cctrace conform` tells conforming controllers from faulty ones: `python -m benchmarks.conform`.

Mutants have one change each: a condition inverted, a step left out, a number doubled, max for min, a sum for a
difference, or a parameter that is off; of `bbr_draft` and `cubic6` in a method of a subclass, of proportional rate
reduction (`prr`) in a function of the simulated stack. They are generated from the source in an order that `--seed`
draws; `--mutants N` of each are examined, case by case, until one is caught. What changes no decision, or only by what
rounding leaves open, is in `EQUIVALENT` with its reason and does not count.
"""

import argparse
import json
import os
import pickle
import random
import tempfile
import time
from pathlib import Path
from weakref import WeakSet

from benchmarks.conform_equivalent import EQUIVALENT
from benchmarks.mutants import as_class, changes, of_class, put_in_place, rewritten
from cctrace.cc import controller, own
from cctrace.cc.bbr_draft import BBRDraft
from cctrace.conform import spec_of
from cctrace.conform.controllers import run_case
from cctrace.conform.judge import intended
from cctrace.conform.runner import Runner
from cctrace.errors import CctraceError
from cctrace.sim.core import output, reduction
from cctrace.tcp.prr import prr_cwnd

# Subject: specification, the cells on which mutants are examined (the quickest first).
SUBJECTS = {
    "bbr_draft": ("bbr", (2, 3, 1, 5)),
    "cubic6": ("cubic", (2, 0, 4)),
    "prr": ("prr", (2, 0)),
}
SENDERS = {"prr": ("cubic6", "reno")}  # what runs on the stack whose functions are changed
OF_STACK = (prr_cwnd, reduction.cwnd_reduction, reduction.init_cwnd_reduction, reduction.end_cwnd_reduction)
# What was found in public implementations, as a change of a function here: said, function, its text, another text.
DEFECTS = {
    "bbr_draft": (
        ("pacing never engages (quinn#2481)", output.update_pacing, "f.paced == 1", "f.paced == 2"),
        ("whatever is sent counts as app-limited (hysteria#1105)", BBRDraft.check_full_bw_reached,
         "ack.rs_is_app_limited != 0", "ack.rs_is_app_limited >= 0"),
    ),
}  # fmt: skip
# Not the controller's: steps of the stack; and HyStart as Linux has it, which RFC 9438 leaves open.
SKIPPED = {
    "draw", "random_below", "packets_in_flight", "run_hystart", "leave_slow_start", "start_hystart_round", "clock",
    "burst_us",
}  # fmt: skip
PARAMS = {
    "bbr_draft": (
        "startup_pacing_gain=2.0", "startup_cwnd_gain=3.0", "drain_pacing_gain=1.0", "drain_pacing_gain=0.35",
        "drain_rounds=20", "up_pacing_gain=1.1", "up_pacing_gain=1.5", "down_pacing_gain=0.75", "down_pacing_gain=0.99",
        "probe_bw_cwnd_gain=1.5", "probe_bw_cwnd_gain=3.0", "up_cwnd_gain=2.0", "probe_rtt_cwnd_gain=1.0",
        "probe_rtt_win_ms=10000", "probe_rtt_ms=20", "min_rtt_win_sec=3", "full_bw_thresh=1.1", "full_bw_rounds=1",
        "full_bw_rounds=5", "full_loss_cnt=2", "loss_thresh=0.1", "loss_thresh=0.002", "loss_beta=0.5",
        "loss_beta=0.95",
        "inflight_headroom=0.5", "min_pipe_cwnd=1", "pacing_margin_percent=10", "extra_acked_rounds=1",
        "offload_quanta=0", "bw_probe_base_us=500000", "bw_probe_base_us=8000000", "bw_probe_rand_us=1",
    ),
    "cubic6": ("beta=0.5", "beta=0.9", "bic_scale=410", "bic_scale=4", "tcp_friendliness=0", "fast_convergence=0"),
    "prr": (),
}  # fmt: skip


def caught(name, subject, cells=None, seed=1):
    """Return (requirement, where) of the first violation, None if there is none."""
    spec_name, some = SUBJECTS[name]
    spec = spec_of(spec_name)
    known = intended(name, spec)
    for cell in (spec.cells[k] for k in (some if cells is None else cells)):
        runner, done = Runner(subject, cell, seed), WeakSet()
        for case in spec.cases:
            try:
                one = run_case(runner, spec, case, done)
            except (CctraceError, MemoryError) as error:
                return "refused", str(error)[:80]
            if one.found.row is not None and case.id not in known:
                return case.id, one.where
            for requirement, found in one.seen:
                if found is not None and found.row is not None and requirement not in known:
                    return requirement, one.where
    return None


def in_child(examine):
    """Return what a function returns in a forked child: what it changes in modules ends with it."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(examine(), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        written = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(written) if written else ("refused", "the process ended")


def pool_of(name):
    """Return [(what was changed, its source, the function of the stack or None)] of all single changes."""
    if name == "prr":
        return [(said, text, function) for function in OF_STACK for said, text in changes(function)]
    return [(said, text, None) for said, text in of_class(controller(name)[0], SKIPPED)]


def differing(name):
    """Return the changes of `pool_of` that change decisions; exit if `EQUIVALENT` names a change that is none."""
    pool, equivalent = pool_of(name), EQUIVALENT.get(name, {})
    if stale := equivalent.keys() - {said for said, *_ in pool}:
        raise SystemExit(
            f"benchmarks/conform_equivalent.py, {name}: no such change: {min(stale)} ({len(stale)} in all)"
        )
    return [one for one in pool if one[0] not in equivalent]


def defects_of(name):
    """Return the defects of a subject as `pool_of` returns its changes."""
    cls = controller(name)[0] if name in DEFECTS else None
    found = []
    for said, function, old, new in DEFECTS.get(name, ()):
        text = rewritten(function, old, new)
        of_stack = not hasattr(cls, function.__name__)
        found.append((said, text, function) if of_stack else (said, as_class(cls, function, text), None))
    return found


def judged(name, text, function, file):
    """Return what catches a mutant, None if nothing; raise `CctraceError` if it does not compile."""
    file.write_text(text)
    if function is None:
        own.load(f"{file}:Mutant")
        return caught(name, f"{file}:Mutant")

    def examine():
        put_in_place(function, file)
        return next(filter(None, (caught(name, sender) for sender in SENDERS.get(name, (name,)))), None)

    return in_child(examine)


def examine(name, count, seed, folder, matching=""):
    """Return [(mutant, what caught it or None)] of so many mutants of a subject and of its parameters."""
    found = [(params, caught(name, f"{name}:{params}")) for params in PARAMS[name] if matching in params]
    pool = [one for one in differing(name) if matching in one[0]]
    random.Random(seed).shuffle(pool)
    pool = [one for one in defects_of(name) if matching in one[0]] + pool
    for number, (said, text, function) in enumerate(pool):
        if len(found) >= count:
            break
        try:
            result = judged(name, text, function, Path(folder) / f"{name}_{number}.py")
        except CctraceError:
            continue  # it does not compile: no mutant
        found.append((said, result))
        print(f"{name} {len(found)}: {said}: {result or 'SURVIVES'}", flush=True)
    return found


def false_alarms(name, seeds):
    """Return the violations of the original over so many seeds, which take the paths in turn."""
    cells, senders = SUBJECTS[name][1], SENDERS.get(name, (name,))
    found = []
    for seed in range(1, seeds + 1):
        sender = senders[seed // len(cells) % len(senders)]
        alarm = caught(name, sender, (cells[seed % len(cells)],), seed)
        if alarm:
            found.append((seed, alarm))
            print(f"{name} alarm, seed {seed}: {alarm}", flush=True)
    return found


def case_times(name="bbr_draft", longest=8):
    """Print how many cases take more than 0.3 s of CPU time, compiled code loaded, and the longest of them."""
    spec, taken = spec_of(SUBJECTS[name][0]), []
    run_case(Runner(name, spec.cells[0], 1), spec, spec.cases[0], WeakSet())  # loads what is compiled
    for cell in spec.cells:
        runner, done = Runner(name, cell, 1), WeakSet()
        for case in spec.cases:
            began = time.process_time()
            run_case(runner, spec, case, done)
            taken.append((time.process_time() - began, case.id, str(cell)))
    taken.sort(reverse=True)
    total, slow = sum(one[0] for one in taken), sum(one[0] > 0.3 for one in taken)
    print(f"{name}: {len(taken)} cases take {total:.1f} s, {slow} of them more than 0.3 s; the longest:")
    print(*(f"  {seconds:.2f} s  {case} at {cell}" for seconds, case, cell in taken[:longest]), sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mutants", type=int, default=120, help="of each subject")
    parser.add_argument("--seeds", type=int, default=50, help="of the originals")
    parser.add_argument("--seed", type=int, default=1, help="of the choice of mutants")
    parser.add_argument("--only", choices=SUBJECTS)
    parser.add_argument("--matching", default="", metavar="TEXT", help="only mutants whose description has it")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--times", action="store_true", help="only the CPU time of each case")
    arguments = parser.parse_args()
    if arguments.times:
        case_times()
        return
    results = {}
    for name in [arguments.only] if arguments.only else SUBJECTS:
        began = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            found = examine(name, arguments.mutants, arguments.seed, folder, arguments.matching)
        survivors = [said for said, result in found if result is None]
        alarms = false_alarms(name, arguments.seeds)
        seconds = time.process_time() - began
        print(f"{name}: {len(found) - len(survivors)} of {len(found)} mutants caught; {len(alarms)} false alarms over "
              f"{arguments.seeds} seeds; {seconds:.0f} s of CPU time")  # fmt: skip
        print(*(f"  survives: {said}" for said in survivors), *(f"  alarm: {alarm}" for alarm in alarms), sep="\n")
        results[name] = {"mutants": len(found), "survivors": survivors, "alarms": alarms, "seeds": arguments.seeds}
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
