"""What a corpus costs: rate by workers, overhead per capture, planning of a million entries, by task.

    python -m benchmarks.corpus speed [--captures 2000]       two workers against one; overhead beside the analysis
    python -m benchmarks.corpus plan [--entries 1000000]      listing, manifest, batches: seconds and memory
    python -m benchmarks.corpus tasks [--captures 40]         CPU time per capture and task, extrapolated to a million
    python -m benchmarks.corpus cluster [--captures 2000]     a Dask scheduler and two workers on this machine

Captures are pieces of the shipped recordings of `--packets` packets each. The clock is the machine's: under other load
only the CPU times mean something.
"""

import argparse
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cctrace as cct
from benchmarks.ingest import machine
from cctrace.corpus import batch, inputs, manifest
from cctrace.corpus.guard import _cpu_seconds
from cctrace.corpus.store import open_store
from tests import build_corpus

_PATHS = os.pathsep.join([str(Path(__file__).parent.parent), *sys.path])


def cpu(who=resource.RUSAGE_CHILDREN):
    """CPU seconds of the processes that this one has waited for, or of itself."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def run_seconds(*arguments, **options):
    """Clock seconds of a run; CPU seconds of all its processes and of the analyses alone, the first start left out."""
    cct.corpus.run(arguments[0] / "0000000-loss_cubic_1pct.pcap", f"{arguments[1]}-warm", workers=1)
    (zygote,) = batch._zygotes
    warm, before, own = _cpu_seconds(zygote._process.pid), cpu(), cpu(resource.RUSAGE_SELF)
    summary = cct.corpus.run(*arguments, **options)
    batch.shut_down()
    return summary.seconds, cpu() - before - warm + cpu(resource.RUSAGE_SELF) - own, summary.cpu_seconds


def analysis_seconds(folder, tasks=("flows", "explain")):
    """CPU and clock seconds of the analyses alone: a loop in a process of one thread, nothing around it."""
    script = (
        "import sys, time; from cctrace.corpus import capture, zygote; zygote._warm()\n"
        "paths, tasks = open(sys.argv[2]).read().split(), tuple(sys.argv[1].split(','))\n"
        "capture.analyse(paths[0], paths[0], [], 0, tasks)\n"
        "cpu, clock = time.process_time(), time.perf_counter()\n"
        "for path in paths: capture.analyse(path, path, [], 0, tasks)\n"
        "print(time.process_time() - cpu, time.perf_counter() - clock)"
    )
    from cctrace.corpus.guard import _ENVIRONMENT

    with tempfile.NamedTemporaryFile("w", suffix=".txt") as names:
        names.write("\n".join(str(path) for path in sorted(Path(folder).iterdir())))
        names.flush()
        command = [sys.executable, "-c", script, ",".join(tasks), names.name]
        told = subprocess.run(command, env=os.environ | _ENVIRONMENT, capture_output=True, text=True, check=True)
    return tuple(map(float, told.stdout.split()))


def speed(captures, packets):
    with tempfile.TemporaryDirectory() as temporary:
        folder = build_corpus.write(Path(temporary) / "in", captures, packets)
        found = {n: run_seconds(folder, Path(temporary) / f"out{n}", workers=n) for n in (1, 2)}
    for workers, (took, used, analyses) in found.items():
        print(
            f"{workers} workers: {captures / took:.0f} captures/s by the clock; {1000 * analyses / captures:.2f} ms of "
            f"CPU a capture for its analysis, {1000 * (used - analyses) / captures:.2f} ms beside it: "
            f"{analyses / used:.0%} of the CPU time is analysis"
        )
    print(f"two workers reach {found[1][0] / found[2][0] / 2:.0%} of twice the rate of one, by the clock")


def plan(entries):
    """In a process of its own: the peak of the memory is of the planning alone."""
    with tempfile.TemporaryDirectory() as temporary:
        names = Path(temporary) / "list.txt"
        with names.open("w") as file:
            for i in range(entries):
                day = f"2020/{i % 12 + 1:02d}/{i % 28 + 1:02d}"
                file.write(f"s3://archive/ndt/pcap/{day}/ndt-mlab1-lga{i % 90:02d}_{i:09x}.pcap.gz\n")
        script = f"from benchmarks import corpus; corpus._plan({str(names)!r}, {temporary!r})"
        subprocess.run([sys.executable, "-c", script], check=True, env=os.environ | {"PYTHONPATH": _PATHS})


def _plan(names, folder):
    inputs._beside_in = lambda folder: []  # of a bucket that is not there
    began, cpu_began = time.perf_counter(), time.process_time()
    entries = inputs.listed(f"@{names}")
    listed = time.perf_counter()
    store = open_store(f"{folder}/out")
    manifest.write(store, entries)
    batches = list(manifest.batches(store))
    done, cpu_done = time.perf_counter(), time.process_time()
    known = manifest.known(store)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    size = os.path.getsize(store.path("manifest/part-00000.parquet")) / 1e6
    print(
        f"{len(entries):,} entries: listed in {listed - began:.1f} s, {len(batches):,} batches planned in "
        f"{done - listed:.1f} s ({cpu_done - cpu_began:.1f} s of CPU both), "
        f"read again for a second run in {time.perf_counter() - done:.1f} s ({len(known):,}); "
        f"peak memory {peak:.2f} GB, manifest {size:.0f} MB"
    )


def tasks(captures, packets):
    with tempfile.TemporaryDirectory() as temporary:
        folder = build_corpus.write(Path(temporary) / "in", captures, packets)
        for task in ("flows", "explain", "identify", "fit", "replay=bbr2"):
            seconds, _ = analysis_seconds(folder, (task,))
            each = seconds / captures
            print(
                f"{task}: {1000 * each:.1f} ms of CPU a capture of {packets} packets, "
                f"{each * 1e6 / 3600:.1f} core hours a million"
            )


def cluster(captures, packets):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    scheduler = (
        "distributed.cli.dask_scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--no-dashboard",
        "--no-show",
    )
    worker = (
        "distributed.cli.dask_worker",
        address,
        "--nthreads",
        "1",
        "--no-nanny",
        "--memory-limit",
        "0",
        "--no-dashboard",
    )
    environment = os.environ | {"PYTHONPATH": _PATHS}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [
        subprocess.Popen([sys.executable, "-m", *which], env=environment, **quiet)
        for which in (scheduler, worker, worker)
    ]
    try:
        with tempfile.TemporaryDirectory() as temporary:
            folder = build_corpus.write(Path(temporary) / "in", captures, packets)
            warm = build_corpus.write(Path(temporary) / "few", 80, packets)
            cct.corpus.run(warm, Path(temporary) / "warm", scheduler=address)
            _, alone = analysis_seconds(folder)
            took = cct.corpus.run(folder, Path(temporary) / "out", scheduler=address).seconds
        print(f"cluster of two workers: {captures / took:.0f} captures/s, {alone / took / 2:.0%} of 2 x one core")
    finally:
        for process in processes:
            process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("speed", "plan", "tasks", "cluster"))
    parser.add_argument("--captures", type=int)
    parser.add_argument("--packets", type=int, default=300)
    parser.add_argument("--entries", type=int, default=1_000_000)
    told = parser.parse_args()
    print(machine())
    if told.what == "plan":
        plan(told.entries)
    elif told.what == "tasks":
        tasks(told.captures or 40, told.packets)
    else:
        {"speed": speed, "cluster": cluster}[told.what](told.captures or 2000, told.packets)


if __name__ == "__main__":
    main()
