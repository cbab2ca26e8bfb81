"""Fuzz the readers and `cctrace analyze` for a while: a process each, replaced where one fails or after ten minutes.

A failure is any exception that is no `CctraceError`, more than 4 GB of address space, and a file that takes more than a
minute. Its input is kept in the folder of failures, where `python -m fuzz --again FILE` runs it once more.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TARGETS = ("read", "analyze")
MEMORY, SECONDS = 4 << 30, 60
SPELL_S = 600  # atheris keeps 13 kB for every run: a longer spell would come to MEMORY by itself
_TOP = Path(__file__).parent.parent
_RUNS = re.compile(rb"^(?:#|stat::number_of_executed_units: +)(\d+)", re.MULTILINE)


def main():
    """Run the targets in turn until the time is over; the exit status is 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="altogether (10)")
    parser.add_argument("--corpus", default="fuzz-corpus", help="folder of inputs that reached something new")
    parser.add_argument("--failures", default="fuzz-failures", help="folder of inputs that failed")
    parser.add_argument("--again", metavar="FILE", help="run both targets over one file, and stop")
    arguments = parser.parse_args()
    if arguments.again:
        from fuzz.targets import one

        data = Path(arguments.again).read_bytes()
        for target in TARGETS:
            one(target, data)
        return 0
    failures, runs = Path(arguments.failures), dict.fromkeys(TARGETS, 0)
    failures.mkdir(parents=True, exist_ok=True)
    end, before = time.monotonic() + 60 * arguments.minutes, len(list(failures.iterdir()))
    while (left := end - time.monotonic()) > 1:
        for number, target in enumerate(TARGETS):
            share = left / (len(TARGETS) - number)
            seconds = min(share, SPELL_S, max(1.0, end - time.monotonic()))
            runs[target] += _spell(target, seconds, arguments.corpus, failures)
    found = len(list(failures.iterdir())) - before
    print(f"{', '.join(f'{target}: {count:,} runs' for target, count in runs.items())}; {found} failures in {failures}")
    return 1 if found else 0


def _spell(target, seconds, corpus, failures):
    """Fuzz one target until the time is over or it fails; return the number of runs."""
    folder = Path(corpus) / target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as seeds:
        subprocess.run([sys.executable, "-m", "fuzz.targets", "--write-seeds", seeds], check=True, env=_environment())
        options = ["-print_final_stats=1", "-max_len=65536", "-rss_limit_mb=0", f"-timeout={SECONDS}"]
        options += [f"-max_total_time={max(1, int(seconds))}", f"-artifact_prefix={failures}/{target}-"]
        command = [sys.executable, "-m", "fuzz.targets", target, *options, str(folder), seeds]
        ran = subprocess.run(command, env=_environment(), capture_output=True, check=False, preexec_fn=_bounded)
    sys.stdout.write("".join(f"{target}: {line}\n" for line in _sayings(ran.stderr + ran.stdout)))
    return max((int(count) for count in _RUNS.findall(ran.stderr)), default=0)


def _sayings(output):
    """Return what a failed spell said: the traceback, and where the input is."""
    text = output.decode("utf-8", "replace")
    at = text.find("Uncaught Python exception")
    return (
        text[at:].splitlines()[:40] if at >= 0 else [line for line in text.splitlines() if "Test unit written" in line]
    )


def _environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join((str(_TOP), str(_TOP / "tests")))}


def _bounded():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


if __name__ == "__main__":
    sys.exit(main())
