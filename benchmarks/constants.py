"""What the numbers of each package change: ``python -m benchmarks.constants [--only NAME ...] [--packages ...]``.

Every package that judges keeps its numbers in one table (`constants.py`: name, value, unit, kind, reason). This command
makes each a fifth larger and a fifth smaller, asks small simulated flows again, and counts the answers that change:
words (verdicts, senders, the family and the process of the jitter, the kind of the queue, what is not known) that are
others, and values that leave the interval they had. Each package is asked its own questions (`ASKED`) about its own
flows. The counts are written to `constants.json` beside this file, with how many flows read the number on the way to
their answers; where none does, it is not judged. Counts of other numbers stay. A number that a function takes as the
default of an argument, or that another is computed from on import, is not moved there.
"""

import argparse
import contextlib
import importlib
import importlib.util
import json
import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

import cctrace as cct
from benchmarks.explain_cases import simulated_flow
from benchmarks.identify import polled, simulated
from cctrace.counterfactual.effects import effects_of
from cctrace.errors import CctraceError
from cctrace.estimates import Estimate
from cctrace.path.evidence import evidence_of
from cctrace.path.markers import likely_marker

PACKAGES = ("path", "fit", "identification", "diagnosis", "counterfactual")
KINDS = ("definition", "accuracy", "set")
RESULTS = Path(__file__).with_suffix(".json")
PATHS = {
    "loss": ({"rate": "8Mbit", "rtt": "30ms", "buffer": "1bdp", "loss": "1%"}, "cubic6", "6s"),
    "jitter": ({"rate": "10Mbit", "rtt": "40ms", "buffer": "2bdp", "jitter": "normal:sd=2ms"}, "bbr2022", "6s"),
    "step": ({"rate": [(0, "12Mbit"), (3, "5Mbit")], "rtt": "30ms", "buffer": "60kB"}, "bbr2022", "6s"),
}
# Paths that only `path`'s numbers are asked about, with senders: a policer, then one for each law by which queues mark.
LINK = {"rate": "20Mbit", "rtt": "20ms", "buffer": "8bdp"}
POLICED = {"rate": "100Mbit", "rtt": "40ms", "buffer": "300kB", "policer": ("10Mbit", "200kB")}
MARKED = {
    "marked by step": (LINK | {"ecn_threshold": "12.5kB"}, ("reno",)),
    "marked by codel": (LINK | {"aqm": "codel"}, ("cubic6",)),
    "marked by red": (LINK | {"aqm": "red:min=12500B,max=37500B,probability=10%,avpkt=1500B"}, ("cubic6",)),
    "marked by pie": (LINK | {"aqm": "pie:target=15ms", "rtt": "40ms"}, ("prague",)),
    "marked by dualpi2": (LINK | {"aqm": "dualpi2"}, ("prague", "cubic6")),
}
# Causes of `benchmarks.explain_cases`, and senders with the side that they are seen from; one flow each.
CASES = (
    "random_loss", "shallow_buffer", "rate_drop", "collapse", "receiver_limited", "application_limited", "competition",
    "reordering", "ack_aggregation", "ack_thinning", "bufferbloat", "slow_start_only", "ack_compression",
    "fair_queueing", "poor_pacing", "inflated_min_rtt", "app_limited_samples",
)  # fmt: skip
SENDERS = (
    ("cubic6", "sender"), ("bbr3", "receiver"), ("reno", "receiver"), ("bbr2022", "ss"), ("cubic", "ss"),
    ("prague", "sender"),
)  # fmt: skip
SENT_BY = ("cubic6", "bbr2022")  # candidates for the sender of each of the paths above
ROW = re.compile(r"^([A-Z][A-Z0-9_]+)(?:: [^=]+)? = (.+?)  # ([^|]+) \| ([^|]+) \| (.+)$")


class Row(NamedTuple):
    """A line of a package's table."""

    package: str
    name: str
    value: object
    unit: str
    kind: str
    why: str


def table(package):
    """Return the rows of a package's table; none if the package has no table."""
    name = f"cctrace.{package}.constants"
    if importlib.util.find_spec(name) is None:
        return []
    module = importlib.import_module(name)
    matches = filter(None, map(ROW.match, Path(module.__file__).read_text(encoding="utf-8").splitlines()))
    return [Row(package, m[1], getattr(module, m[1]), *(m[k].strip() for k in (3, 4, 5))) for m in matches]


def times(value, factor):
    """Return a multiple of a number, or of each number of a table; whole numbers change by one at least."""
    if isinstance(value, dict):
        return {key: times(one, factor) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(times(one, factor) for one in value)
    multiple = type(value)(value * factor)
    return multiple + (1 if factor > 1 else -1) if isinstance(value, int) and multiple == value else multiple


@contextlib.contextmanager
def moved(row, factor):
    """Have every module that uses a number use a multiple of it meanwhile."""
    value = times(row.value, factor)
    users = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("cctrace.") and vars(module).get(row.name) is row.value
    ]
    for module in users:
        setattr(module, row.name, value)
    try:
        yield
    finally:
        for module in users:
            setattr(module, row.name, row.value)


def of_path(flow):
    """Return {question: answer} about a flow and its path; answers are words, or an `Estimate`."""
    flow.capture._kept.clear()  # computed with the number as it was
    if flow.ecn.delivered_ce:
        marker = likely_marker(evidence_of(flow.capture.flow(0)))
        law = marker.law and Estimate(marker.law.threshold_us, marker.law.low_us, marker.law.high_us)
        return {"marker": " ".join(marker.names), "threshold": law or Estimate(None)}
    found = {"verdicts": " ".join(sorted(verdict.name for verdict in cct.diagnose(flow.capture.flow(0)).verdicts))}
    try:
        path = cct.fit.path(flow.capture.flow(0)).estimates
    except CctraceError as refusal:
        return found | {"path": f"refused: {type(refusal).__name__}"}
    jitter = path["jitter"] or {"distribution": "none", "process": "none", "sd_us": Estimate(0.0)}
    words = {
        "rates": len(path["rate_bps"]),
        "aqm": path["aqm"],
        "undetermined": path["undetermined"],
        "loss": path["loss"]["model"],
    }
    words |= {name: jitter[name] for name in ("distribution", "process")}
    rate = path["rate_bps"][0]
    values = {"rate": Estimate(rate["value"], rate["low"], rate["high"]), "sd": jitter["sd_us"]}
    values |= {"base": path["base_rtt_us"], "buffer": path["buffer_bytes"], "share": path["loss"]["share"]}
    if path["policer"]:
        values |= {"policed": path["policer"]["rate_bps"], "bucket": path["policer"]["bucket_bytes"]}
    return found | {name: str(word) for name, word in words.items()} | values


def of_diagnosis(flow):
    """Return the verdicts on a flow, in order, those that count, and what limited it."""
    found = cct.diagnose(flow)
    return {
        "verdicts": " ".join(verdict.name for verdict in found.verdicts),
        "sure": " ".join(verdict.name for verdict in found.verdicts if verdict.confidence >= 0.5),
        "limits": " ".join(sorted({limit.name for limit in found.limits})),
    }


def of_identification(flow):
    """Return who is named as a flow's sender."""
    return {"group": " ".join(cct.identify(flow).group)}


def of_counterfactual(flow):
    """Return what each cause of a flow cost it."""
    diagnosis = cct.diagnose(flow)
    found = effects_of(flow, diagnosis, SENT_BY)
    return {
        f"{name} {part}": getattr(one.effect, part) for name, one in found.causes.items() for part in ("goodput", "rtt")
    }


ASKED = {
    "path": of_path,
    "fit": of_path,
    "diagnosis": of_diagnosis,
    "identification": of_identification,
    "counterfactual": of_counterfactual,
}


def differs(before, after):
    """Return whether an answer is another: another word, or a value outside the interval that it had."""
    if not isinstance(before, Estimate) or not isinstance(after, Estimate):
        return before != after
    if before.value is None or after.value is None:
        return (before.value is None) != (after.value is None)
    below = before.low is not None and after.value < before.low - 1e-9
    return below or (before.high is not None and after.value > before.high + 1e-9)


def flows(package):
    """Return the simulated flows that a package is asked about, by name."""
    if package == "diagnosis":
        return {cause: simulated_flow(cause, 1, 27)[0] for cause in CASES}
    if package == "identification":
        made = {}
        with tempfile.TemporaryDirectory() as folder:
            for number, (name, side) in enumerate(SENDERS):
                given = (name, number, 27, "4s", folder)
                made[f"{name} {side}"] = polled(*given) if side == "ss" else simulated(*given, side)
        return made
    made = {
        name: cct.simulate(cct.Path(**path), controller, duration, 1, packets=True)
        for name, (path, controller, duration) in PATHS.items()
        if package != "counterfactual" or name == "loss"  # effects take seconds
    }
    if package == "path":
        made["policer"] = cct.simulate(cct.Path(**POLICED), "cubic6", "8s", 1, packets=True)
        for name, (path, senders) in MARKED.items():
            sending = [cct.Sender(sender, ecn=True, ack_every=2) for sender in senders]
            made[name] = cct.simulate(cct.Path(**path), sending, "12s", 5, packets=True)
    return {name: sim.capture(0).flow(0) for name, sim in made.items()}


def changed(row, asked, before):
    """Return {"+20 %": answers that change, "-20 %": the same}."""
    counts = {}
    for label, factor in (("+20 %", 1.2), ("-20 %", 1 / 1.2)):
        with moved(row, factor):
            after = {name: attempt(row.package, flow) for name, flow in asked.items()}
        counts[label] = sum(
            bool(differs(answer, after[name].get(question)))
            for name, of in before.items()
            for question, answer in of.items()
        )
    return counts


def attempt(package, flow):
    """Return the answers about a flow, none where a number so moved makes them fail."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ASKED[package](flow)
        except (ArithmeticError, LookupError, ValueError):
            return {}


def names_read(package, flow):
    """Return the names of globals in the functions that run for the answers about a flow."""
    ran = set()

    def note(frame, event, _):
        if event == "call":
            ran.add(frame.f_code)

    sys.setprofile(note)
    try:
        attempt(package, flow)
    finally:
        sys.setprofile(None)
    return {name for code in ran for name in code.co_names}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="names (default: all that the results lack)")
    parser.add_argument("--packages", nargs="*", default=PACKAGES, choices=PACKAGES)
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    known = {f"{row.package}.{row.name}" for package in PACKAGES for row in table(package)}
    results = {key: found for key, found in results.items() if key in known}
    for package in options.packages:
        made = flows(package)
        before = {name: attempt(package, flow) for name, flow in made.items()}
        read = {name: names_read(package, flow) for name, flow in made.items()}
        for row in table(package):
            key = f"{package}.{row.name}"
            if row.name in options.only if options.only else key not in results:
                asked = {name: made[name] for name in made if row.name in read[name]}
                counts = changed(row, asked, {name: before[name] for name in asked})
                results[key] = {"value": row.value, "flows": len(asked)} | counts
                print(key, results[key], flush=True)
                RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
