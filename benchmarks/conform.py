"""How well `cctrace conform` tells conforming controllers from faulty ones: `python -m benchmarks.conform`.

Mutants are subclasses of which one method has one change: a condition inverted, a step left out, a number doubled, max
for min, a sum for a difference; and parameters that are off. They are generated from the source in an order that
`--seed` draws; `--mutants N` of each controller are examined, case by case, until one is caught. One that the paths do
not tell from the original (the same decisions in all runs) counts as a survivor, too.
"""

import argparse
import ast
import inspect
import json
import random
import tempfile
import textwrap
import time
from pathlib import Path

from cctrace.cc import controller, own
from cctrace.conform import bbr, cubic, spec_of
from cctrace.conform.controllers import intended, play
from cctrace.conform.stage import Stage
from cctrace.errors import CctraceError

SUBJECTS = {"bbr_draft": ("bbr", bbr, (2, 3, 1, 5)), "cubic6": ("cubic", cubic, (2, 0, 4))}
OPPOSITE = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div,
}  # fmt: skip
SKIPPED = {"draw", "random_below", "packets_in_flight"}  # of the stack, not of the controller
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
    "cubic6": ("beta=0.5", "beta=0.9", "bic_scale=410", "bic_scale=4", "tcp_friendliness=0"),
}  # fmt: skip


class Change(ast.NodeTransformer):
    """Make change number `at`, counting all places where one can be made; `said` tells which it was."""

    def __init__(self, at):
        self.at, self.count, self.said = at, 0, None

    def here(self, node, said):
        self.count += 1
        if self.count - 1 == self.at:
            self.said = f"line {node.lineno}: {said}"
            return True
        return False

    def visit_Compare(self, node):
        self.generic_visit(node)
        kind = type(node.ops[0])
        if kind in OPPOSITE and self.here(node, f"inverted: {ast.unparse(node)}"):
            node.ops[0] = OPPOSITE[kind]()
        return node

    def visit_BoolOp(self, node):
        self.generic_visit(node)
        if self.here(node, f"and for or: {ast.unparse(node)}"):
            node.op = OPPOSITE[type(node.op)]()
        return node

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if type(node.op) in (ast.Add, ast.Sub) and self.here(node, f"sign: {ast.unparse(node)}"):
            node.op = OPPOSITE[type(node.op)]()
        return node

    def visit_Constant(self, node):
        if type(node.value) in (int, float) and self.here(node, f"number {node.value}"):
            return ast.copy_location(ast.Constant(node.value * 2 + (1 if node.value == 0 else 0)), node)
        if type(node.value) is bool and self.here(node, f"{node.value} inverted"):
            return ast.copy_location(ast.Constant(not node.value), node)
        return node

    def visit_Call(self, node):
        self.generic_visit(node)
        swapped = {"min": "max", "max": "min"}.get(getattr(node.func, "id", ""))
        if swapped and self.here(node, f"{swapped} instead: {ast.unparse(node)}"):
            node.func.id = swapped
        return node

    def visit_Assign(self, node):
        self.generic_visit(node)
        if isinstance(node.targets[0], ast.Attribute) and self.here(node, f"left out: {ast.unparse(node)}"):
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Constant):
            return node
        self.generic_visit(node)
        if self.here(node, f"left out: {ast.unparse(node)}"):
            return ast.copy_location(ast.Pass(), node)
        return node


def mutants(name):
    """Yield (what was changed, source of a module with a class Mutant) of all single changes."""
    cls, _ = controller(name)
    steps = {
        step: getattr(cls, step) for base in cls.__mro__[:-3] for step, f in vars(base).items() if inspect.isfunction(f)
    }
    for step, function in steps.items():
        text = textwrap.dedent(inspect.getsource(function))
        if "super()" in text or step in SKIPPED or step.startswith("__"):
            continue
        at = 0
        while True:
            tree = ast.parse(text)
            change = Change(at)
            change.visit(tree.body[0])
            if change.said is None:
                break
            body = textwrap.indent(ast.unparse(ast.fix_missing_locations(tree)), "    ")
            head = f"from {function.__module__} import *\nfrom {cls.__module__} import {cls.__name__}\n"
            yield f"{step}, {change.said}", f"{head}\n\nclass Mutant({cls.__name__}):\n{body}\n"
            at += 1


def caught(spec_name, subject, module, cells, seed=1):
    """Return (requirement, where) of the first violation, None if there is none."""
    spec = spec_of(spec_name)
    for cell in (module.CELLS[k] for k in cells):
        stage, done = Stage(subject, cell, seed), set()
        for case in module.CASES:
            try:
                one = play(stage, spec, case, done)
            except (CctraceError, MemoryError) as error:
                return "refused", str(error)[:80]
            if one.found.row is not None:
                return case.id, one.where
            for requirement, found, _ in one.seen:
                if found is not None and found.row is not None and requirement not in intended(subject, spec):
                    return requirement, one.where
    return None


def examine(name, count, seed, folder):
    """Return [(mutant, what caught it or None)] of so many mutants of a controller and of its parameters."""
    spec_name, module, cells = SUBJECTS[name]
    found = [(params, caught(spec_name, f"{name}:{params}", module, cells)) for params in PARAMS[name]]
    pool = list(mutants(name))
    random.Random(seed).shuffle(pool)
    for number, (said, text) in enumerate(pool):
        if len(found) >= count:
            break
        file = Path(folder) / f"{name}_{number}.py"
        file.write_text(text)
        try:
            own.load(f"{file}:Mutant")
            result = caught(spec_name, f"{file}:Mutant", module, cells)
        except CctraceError:
            continue  # it does not compile: no mutant
        found.append((said, result))
        print(f"{name} {len(found)}: {said}: {result or 'SURVIVES'}", flush=True)
    return found


def false_alarms(name, seeds):
    """Return the violations of the original over so many seeds, on its first path."""
    spec_name, module, cells = SUBJECTS[name]
    return [
        (seed, found) for seed in range(1, seeds + 1) if (found := caught(spec_name, name, module, cells[:1], seed))
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mutants", type=int, default=120, help="of each controller")
    parser.add_argument("--seeds", type=int, default=50, help="of the originals")
    parser.add_argument("--seed", type=int, default=1, help="of the choice of mutants")
    parser.add_argument("--only", choices=SUBJECTS)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    results = {}
    for name in [arguments.only] if arguments.only else SUBJECTS:
        began = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            found = examine(name, arguments.mutants, arguments.seed, folder)
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
