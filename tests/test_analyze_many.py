"""Many flows of a capture are shared by processes, and nothing that is said of them depends on it."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
import warnings

import pytest

import cctrace as cct
from cctrace.analysis import analyze as module
from cctrace.cli import main
from cctrace.errors import PartFailed, StreamError
from cctrace.flows import large
from cctrace.identification import identify as identifying
from cctrace.lang.processes import made_in_order
from cctrace.report import overview
from cctrace.wireshark.annotate import annotate

FLOWS = 8


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """A capture of 8 flows of about 300 kB."""
    path = cct.Path(rate="25Mbit", rtt="20ms", buffer="2bdp")
    sim = cct.simulate(path, ["cubic6"] * FLOWS, "1s", seed=3, packets=True)
    file = tmp_path_factory.mktemp("many") / "many.pcap"
    sim.to_pcap(file)
    return file


@pytest.fixture(autouse=True)
def _shared_early(monkeypatch):
    """Share all flows but two, by as many processes as there are; do not simulate."""
    monkeypatch.setattr(module, "SIMULATED", 2)
    monkeypatch.setattr(module, "FLOWS_PER_PROCESS", 2)
    monkeypatch.setattr(large, "FLOWS_PER_PROCESS", 2)
    monkeypatch.setattr(overview, "_MANY", 2)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # Python 3.12 and later, under xdist's threads
def test_reports_do_not_depend_on_the_number_of_processes(capture, tmp_path, capsys):
    said, files = [], []
    for workers in (1, 2, 5):
        folder = tmp_path / str(workers)
        assert main(["analyze", str(capture), "--no-effects", "--json", f"--workers={workers}", "-o", str(folder)]) == 0
        out = capsys.readouterr()
        said.append((out.out, [line for line in out.err.splitlines() if "warning" in line]))
        files.append({file.name: file.read_bytes() for file in folder.iterdir()})
    assert said[0] == said[1] == said[2]
    assert files[0] == files[1] == files[2]
    assert len(files[0]) > FLOWS


def test_causes_of_many_flows_are_counted(capture, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(overview, "_FEW", FLOWS - 1)
    assert main(["analyze", str(capture), "--no-effects", "-o", str(tmp_path)]) == 0
    counts = next(
        line for line in capsys.readouterr().out.splitlines() if line.startswith(f"causes of {FLOWS} flows: ")
    )
    assert sum(int(count) for count in re.findall(r" (\d+)(?: ·|$)", counts)) == FLOWS
    assert counts in (tmp_path / "report.html").read_text()
    monkeypatch.setattr(overview, "_FEW", FLOWS)
    assert main(["analyze", str(capture), "--no-effects", "-o", str(tmp_path)]) == 0
    assert "causes of" not in capsys.readouterr().out + (tmp_path / "report.html").read_text()


def test_flows_of_files_too_large_for_the_memory_are_shared_with_the_same_results(capture, monkeypatch):
    monkeypatch.setattr("cctrace.flows.large.LARGE_FILE", 1)
    monkeypatch.setattr("cctrace.flows.large.BATCH", 1500)

    def found(workers):
        kept = []
        analyses = cct.analyze(capture, effects=False, workers=workers, keep=lambda flow: kept.append(flow.key))
        return [one.to_dict() for one in analyses], kept

    assert found(1) == found(3)


def test_a_shared_flow_is_that_of_this_process(capture):
    analyses = cct.analyze(capture, effects=False, workers=2)
    assert len(analyses) == FLOWS
    assert len({id(one.flow.capture) for one in analyses}) == 1
    assert all(one.flow.key == tuple(one.row[name] for name in ("src", "sport", "dst", "dport")) for one in analyses)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_one_flow_is_a_note_on_that_flow_alone(capture, monkeypatch, workers):
    analysed = module.of_capture

    def of_capture(file, flow, *given):
        if flow.index == FLOWS - 1:
            raise ZeroDivisionError("of this flow")
        return analysed(file, flow, *given)

    monkeypatch.setattr(module, "of_capture", of_capture)
    with pytest.warns(PartFailed, match="ZeroDivisionError: of this flow"):
        analyses = cct.analyze(capture, effects=False, workers=workers)
    (failed,) = (one for one in analyses if one.diagnosis is None)
    assert failed.flow is None or failed.flow.index == FLOWS - 1
    assert "ZeroDivisionError" in failed.notes[0]


def test_a_process_that_is_killed_loses_only_its_flow(capture, monkeypatch):
    analysed = module.of_capture

    def of_capture(file, flow, *given):
        if flow.index == FLOWS - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return analysed(file, flow, *given)

    with monkeypatch.context() as patched:
        patched.setattr(module, "of_capture", of_capture)
        analyses = cct.analyze(capture, effects=False, workers=2)
    expected = cct.analyze(capture, effects=False, workers=1)
    for one, other in zip(analyses, expected, strict=True):
        if one.flow.index == FLOWS - 1:
            assert one.notes == (module.KILLED,)
        else:
            assert one.to_dict() == other.to_dict()


def test_senders_do_not_depend_on_the_number_of_processes(capture, monkeypatch):
    def found(processes):
        monkeypatch.setattr(large, "cores", lambda: processes)
        return [(flow.key, one.candidates, one.reason) for _, flow, one in identifying.identify_files([capture])]

    assert found(1) == found(3)
    assert len(found(3)) == FLOWS


def test_annotations_do_not_depend_on_the_number_of_processes(capture, tmp_path, monkeypatch):
    def found(processes):
        monkeypatch.setattr(large, "cores", lambda: processes)
        result = annotate(capture, tmp_path / "annotated.pcapng")
        return result, [file.read_bytes() for file in sorted(tmp_path.iterdir())]

    assert found(1) == found(3)
    assert len(found(3)[0].flows) == FLOWS


def test_an_identification_whose_process_is_killed_is_refused(capture, monkeypatch):
    here = os.getpid()
    monkeypatch.setattr(large, "cores", lambda: 2)
    monkeypatch.setattr(
        identifying, "identify", lambda flow: os.getpid() == here or os.kill(os.getpid(), signal.SIGKILL)
    )
    refused = [one for _, _, one in identifying.identify_files([capture])]
    assert [(type(one), str(one)) for one in refused] == [(StreamError, module.KILLED)] * FLOWS


def test_tables_are_written_here_where_a_process_that_writes_them_is_killed(capture, tmp_path, monkeypatch):
    here, tables = os.getpid(), overview._tables
    analyses = cct.analyze(capture, effects=False)

    def tables_of(analysis):
        if analysis is analyses[3] and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return tables(analysis)

    monkeypatch.setattr(overview, "_tables", tables_of)
    overview.write_report(analyses, tmp_path, workers=2)
    assert {f"flow{i}-events" for i in range(FLOWS)} <= {file.name.partition(".")[0] for file in tmp_path.iterdir()}


def test_warnings_of_processes_are_given_here_in_order_once():
    def task(k):
        warnings.warn(f"number {k // 2}", PartFailed, stacklevel=1)
        return k

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        assert list(made_in_order(task, 6, 3)) == [0, 1, 2, 3, 4, 5]
    of_task = [str(one.message) for one in caught if one.category is PartFailed]
    assert of_task == ["number 0", "number 1", "number 2"]


def test_an_error_of_a_task_is_raised():
    with pytest.raises(ZeroDivisionError):
        list(made_in_order(lambda k: 1 // (3 - k), 10, 2))


def squares():
    return list(made_in_order(lambda k: k * k, 5, 2))


def test_a_process_of_a_pool_which_must_not_have_children_does_it_alone():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(squares) == [0, 1, 4, 9, 16]


INTERRUPTED = """
import signal, time
from cctrace.lang.processes import made_in_order

signal.signal(signal.SIGINT, signal.default_int_handler)  # which the shell had ignored for a command in the background
print("at work", flush=True)
list(made_in_order(lambda k: time.sleep(600), 4, 2))
"""


def test_ctrl_c_ends_it_and_all_its_processes():
    """They hold the other end of the pipe, which therefore ends with the last of them."""
    command = [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdout.readline() == b"at work\n"
        time.sleep(1)
        running.send_signal(signal.SIGINT)
        assert running.stdout.read() == b""
        assert running.wait(60) != 0
