"""A corpus on a Dask cluster: a scheduler and two workers as processes of their own, on loopback."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import build_corpus
import pytest

import cctrace as cct
from cctrace import cli

pytest.importorskip("distributed")

COUNT = 200


class Processes:
    """A scheduler and its workers."""

    def __init__(self, log):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self._log, self.workers = log, []
        self.start_scheduler()
        self.start_workers(2)

    def _start(self, *arguments):
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",  # whoever kills a worker is suspected at once
        }
        return subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdout=self._log,
            stderr=self._log,
            env=environment,
            start_new_session=True,
        )

    def start_scheduler(self):
        where = ("--host", "127.0.0.1", "--port", str(self.port))
        ends = ("--idle-timeout", "5 minutes")  # and its workers with it, if pytest is killed before `close`
        self.scheduler = self._start("distributed.cli.dask_scheduler", *where, *ends, "--no-dashboard", "--no-show")

    def start_workers(self, count):
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "0")
        self.workers += [self._start("distributed.cli.dask_worker", self.address, *options) for _ in range(count)]

    def close(self):
        for process in [*self.workers, self.scheduler]:
            process.kill()
            process.wait(10)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with open(tmp_path_factory.mktemp("log") / "log", "wb") as log:
        found = Processes(log)
        yield found
        found.close()


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    folder = build_corpus.write(tmp_path_factory.mktemp("captures"), COUNT, 60)
    (folder / "0000077-poison.pcap").write_bytes(b"\xd4\xc3\xb2\xa1" + b"\xff" * 2000)
    return folder


@pytest.fixture(scope="module")
def alone(captures, tmp_path_factory):
    """The results of one machine, compacted."""
    out = tmp_path_factory.mktemp("alone") / "out"
    cct.corpus.run(captures, out, workers=2)
    cct.corpus.compact(out)
    return out


def results(out):
    folders = [path for path in out.iterdir() if path.name not in ("_run", "manifest")]
    return {str(f.relative_to(out)): f.read_bytes() for path in folders for f in path.rglob("*") if f.is_file()}


@contextlib.contextmanager
def at(share, function):
    """Call a function, from another thread, when so much of a run is done; yields what `progress` has to be."""
    begun = threading.Event()

    def say(text):
        done = int(text.split(" of ")[0].replace(",", "")) if " of " in text else 0
        if done > share * COUNT:
            begun.set()

    def wait():
        if begun.wait(60):
            function()

    thread = threading.Thread(target=wait)
    thread.start()
    yield say
    begun.set()
    thread.join()


def check(summary, out, alone):
    assert summary.errors == {"unreadable": 1}
    assert summary.captures == COUNT + 1
    assert cct.corpus.open(out).errors.frame()["capture"].str.endswith("0000077-poison.pcap").tolist() == [True]
    cct.corpus.compact(out)
    assert results(out) == results(alone)


def test_a_cluster_finds_what_one_machine_finds(cluster, captures, alone, tmp_path):
    out = tmp_path / "out"
    check(cct.corpus.run(captures, out, scheduler=cluster.address), out, alone)
    assert cct.corpus.run(captures, out, scheduler=cluster.address).captures == 0


def test_a_worker_that_is_killed_takes_nothing_along(cluster, captures, alone, tmp_path):
    def kill():
        cluster.workers[0].kill()
        cluster.start_workers(1)

    with at(0.2, kill) as say:
        summary = cct.corpus.run(captures, tmp_path / "out", scheduler=cluster.address, progress=say)
    check(summary, tmp_path / "out", alone)


@pytest.mark.slow
def test_a_scheduler_that_is_restarted_loses_nothing(cluster, captures, alone, tmp_path):
    def restart():
        for process in [*cluster.workers, cluster.scheduler]:
            process.kill()
            process.wait(10)
        cluster.workers = []
        time.sleep(0.5)
        cluster.start_scheduler()
        cluster.start_workers(2)

    with at(0.2, restart) as say:
        summary = cct.corpus.run(captures, tmp_path / "out", scheduler=cluster.address, progress=say)
    check(summary, tmp_path / "out", alone)


def test_a_run_that_was_ended_goes_on_elsewhere(cluster, captures, alone, tmp_path):
    class Enough(Exception):
        pass

    def stop(text):
        if " of " in text and int(text.split(" of ")[0]) > 40:
            raise Enough

    with pytest.raises(Enough):
        cct.corpus.run(captures, tmp_path / "out", workers=2, progress=stop)
    summary = cct.corpus.run(captures, tmp_path / "out", scheduler=cluster.address)
    assert 0 < summary.already < COUNT
    cct.corpus.compact(tmp_path / "out")
    assert results(tmp_path / "out") == results(alone)


@pytest.mark.slow
def test_a_capture_that_brings_down_every_worker_is_found_by_halving(cluster, tmp_path):
    """A pipe that no one writes to; whoever works at it is killed, worker and all."""
    folder = build_corpus.write(tmp_path / "in", 90, 60)
    os.mkfifo(folder / "0000050-killer.pcap")
    captures = sorted(folder.iterdir())  # by name, since a folder is listed without pipes
    over = threading.Event()

    def hunt():
        while not over.wait(0.1):
            for worker in list(cluster.workers):
                if worker.poll() is None and _at_pipe(worker.pid):
                    os.killpg(worker.pid, signal.SIGKILL)
                    worker.wait(10)
                    cluster.workers.remove(worker)
                    cluster.start_workers(1)

    hunter = threading.Thread(target=hunt)
    hunter.start()
    try:
        summary = cct.corpus.run(captures, tmp_path / "out", scheduler=cluster.address)
    finally:
        over.set()
        hunter.join()
    assert summary.errors == {"worker": 1}
    assert summary.captures == 91
    (row,) = cct.corpus.open(tmp_path / "out").errors.frame().to_dict("records")
    assert row["capture"].endswith("killer.pcap")
    assert len(cct.corpus.open(tmp_path / "out").captures) == 90


def _at_pipe(session):
    return any(build_corpus.opens(pid, "killer.pcap") for pid in build_corpus.of_session(session))


def test_no_scheduler_is_one_line_and_nothing_written(captures, tmp_path, capfd, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    from cctrace.corpus import cluster as module

    monkeypatch.setattr(module, "ANSWER_S", 1.0)
    assert cli.main(["corpus", "run", str(captures), "-o", str(tmp_path / "out"), "--scheduler", address]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert address in line
    assert "no answer" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_scheduler_that_stays_lost_is_one_line_and_what_is_committed_stays(captures, tmp_path, monkeypatch):
    from cctrace.corpus import cluster as module

    monkeypatch.setattr(module, "PATIENCE_S", 1.0)
    with open(tmp_path / "log", "wb") as log:
        own = Processes(log)
        try:
            with at(0.1, own.close) as say, pytest.raises(module.ClusterError, match="did not come back"):
                cct.corpus.run(captures, tmp_path / "out", scheduler=own.address, progress=say)
        finally:
            own.close()
    done = len(cct.corpus.open(tmp_path / "out").captures)
    assert 0 < done < COUNT
    assert cct.corpus.run(captures, tmp_path / "out", workers=1).already >= done
