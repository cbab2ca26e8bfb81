"""A corpus on one machine: what is found, what goes wrong, what a second run does, and that only captures decide."""

import errno
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile

import build_corpus
import numpy as np
import pandas as pd
import pytest

import cctrace as cct
from cctrace import cli, datasets
from cctrace.corpus import inputs, manifest, tables, zygote
from cctrace.corpus.guard import Guard, Zygote
from cctrace.corpus.inputs import Entry, Rules, listed
from cctrace.corpus.store import Local, OutputError, open_store
from cctrace.diagnosis.diagnose import diagnose
from cctrace.errors import ArgumentError

COUNT = 24


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    return build_corpus.write(tmp_path_factory.mktemp("captures"), COUNT, 200)


@pytest.fixture(scope="module")
def whole(captures, tmp_path_factory):
    """A corpus by one worker, compacted."""
    out = tmp_path_factory.mktemp("whole") / "out"
    summary = cct.corpus.run(captures, out, workers=1)
    assert (summary.captures, summary.errors, summary.packets) == (COUNT, {}, 200 * COUNT)
    cct.corpus.compact(out)
    return out


def results(out):
    """The bytes of all tables."""
    folders = [path for path in out.iterdir() if path.name not in ("_run", "manifest", "report")]
    return {str(f.relative_to(out)): f.read_bytes() for path in folders for f in path.rglob("*") if f.is_file()}


def errors(out):
    return cct.corpus.open(out).errors.frame()


# ---------------------------------------------------------------------------------------------------------------------
def test_rows_are_what_the_single_commands_say(captures, whole):
    corpus, path = cct.corpus.open(whole), str(sorted(captures.iterdir())[0])
    capture = cct.read(path)
    found = corpus.flows.frame(capture=path)
    assert len(found) == len(capture.flows)
    for name in ("src", "sport", "dst", "dport", "bytes_sent", "rtt_min_us", "goodput_bps", "start_ns"):
        assert found[name].tolist() == capture.flows[name].tolist()
    verdict = corpus.verdicts.frame(capture=path).iloc[0]
    told = diagnose(capture.flow(int(verdict["connection"])))
    assert (verdict["verdict"], verdict["text"]) == (told.verdicts[0].name, told.verdicts[0].text)
    assert verdict["network"] == "10.99.0.0/24"
    limits = corpus.limits.frame(capture=path)
    assert limits["seconds"].sum() == pytest.approx(sum(one.end_s - one.start_s for one in told.limits))


def test_only_the_captures_decide_the_bytes(captures, whole, tmp_path):
    names = [str(path) for path in sorted(captures.iterdir())]
    cct.corpus.run(names[COUNT // 2 :][::-1], tmp_path / "out", workers=2)
    cct.corpus.run(names[::-1], tmp_path / "out", workers=2)
    cct.corpus.compact(tmp_path / "out")
    assert results(tmp_path / "out") == results(whole)


def test_a_second_run_and_a_second_compaction_do_nothing(captures, whole):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}
    summary = cct.corpus.run(captures, whole, workers=2)
    assert (summary.captures, summary.already) == (0, COUNT)
    assert cct.corpus.compact(whole)["before"] == cct.corpus.compact(whole)["after"]
    assert before == {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}


def test_an_interrupted_run_goes_on(captures, whole, tmp_path):
    class Enough(Exception):
        pass

    def stop(text):
        if text.startswith(("5 of", "6 of", "7 of")):
            raise Enough

    with pytest.raises(Enough):
        cct.corpus.run(captures, tmp_path / "out", workers=2, progress=stop)
    partly = len(cct.corpus.open(tmp_path / "out").captures)
    left = tmp_path / "out" / "flows" / "date=2026-11-20" / "source=other" / f"part-{20:05d}.tmp"
    left.write_bytes(b"half")
    summary = cct.corpus.run(captures, tmp_path / "out", workers=2)
    assert 0 < partly < COUNT
    assert (summary.already, summary.captures) == (partly, COUNT - partly)
    left.unlink()
    cct.corpus.compact(tmp_path / "out")
    assert results(tmp_path / "out") == results(whole)


def test_parts_without_a_commit_are_not_rows(captures, whole, tmp_path):
    out = tmp_path / "out"
    cct.corpus.run(captures, out, workers=1)
    commit = sorted((out / "_run/commits").iterdir())[3]
    commit.unlink()
    assert len(cct.corpus.open(out).captures) == COUNT - 1
    assert cct.corpus.run(captures, out, workers=1).captures == 1
    cct.corpus.compact(out)
    assert results(out) == results(whole)


def test_a_compaction_that_was_interrupted_is_finished(captures, whole, tmp_path, monkeypatch):
    out = tmp_path / "out"
    cct.corpus.run(captures, out, workers=1)
    moved, move = [], Local.move

    def die(self, name, to):
        if len(moved) == 2:
            raise OutputError("gone")
        moved.append(name)
        move(self, name, to)

    monkeypatch.setattr(Local, "move", die)
    with pytest.raises(OutputError):
        cct.corpus.compact(out)
    monkeypatch.undo()
    cct.corpus.compact(out)
    assert results(out) == results(whole)


# ---------------------------------------------------------------------------------------------------------------------
def test_one_poisoned_capture_is_one_error(tmp_path):
    folder = build_corpus.write(tmp_path / "in", 12, 100)
    (folder / "0000005-poison.pcap").write_bytes(b"\xd4\xc3\xb2\xa1" + os.urandom(3000))
    summary = cct.corpus.run(folder, tmp_path / "out", workers=2)
    assert (summary.captures, sum(summary.errors.values())) == (13, 1)
    (row,) = errors(tmp_path / "out").to_dict("records")
    assert row["kind"] == "unreadable"
    assert row["capture"].endswith("0000005-poison.pcap")
    assert "\n" not in row["reason"]
    assert len(cct.corpus.open(tmp_path / "out").captures) == 12


def fifo(folder):
    """Put a pipe among the captures; return what names all of them, since a folder is listed without pipes."""
    os.mkfifo(folder / "0000003-stuck.pcap")
    return sorted(folder.iterdir())


def test_a_capture_that_never_ends_is_an_error_of_its_own(tmp_path):
    captures = fifo(build_corpus.write(tmp_path / "in", 6, 100))
    summary = cct.corpus.run(captures, tmp_path / "out", workers=1, seconds=0.2)
    assert summary.errors == {"time": 1}
    assert summary.captures == 7
    assert "0.2 s" in errors(tmp_path / "out")["reason"][0]


def test_a_capture_that_kills_its_process_is_an_error_of_its_own(tmp_path):
    captures = fifo(build_corpus.write(tmp_path / "in", 6, 100))

    def kill():
        """Whoever waits for the pipe: first a child that had done others, then a new one."""
        seen = set()
        while len(seen) < 2:
            for child in _children(os.getpid()):
                if child not in seen and build_corpus.opens(child, "stuck.pcap"):
                    seen.add(child)
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.05)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    summary = cct.corpus.run(captures, tmp_path / "out", workers=1)
    killer.join(60)
    assert summary.errors == {"crashed": 1}
    assert "SIGKILL" in errors(tmp_path / "out")["reason"][0]


def _children(pid):
    """All descendants of a process."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(entry), *_children(int(entry))]
    return found


def test_a_capture_that_needs_too_much_memory_is_an_error_of_its_own(tmp_path):
    folder = build_corpus.write(tmp_path / "in", 3, 100)
    (folder / "0000001-large.pcap").write_bytes(_repeated(300))
    summary = cct.corpus.run(folder, tmp_path / "out", workers=1, memory=64 << 20)
    assert summary.errors == {"memory": 1}
    assert summary.captures == 4


@pytest.mark.parametrize("hard", [resource.RLIM_INFINITY, 1 << 40])
def test_a_limit_beyond_what_the_kernel_allows_is_none(tmp_path, hard):
    program = f"""
import resource, cctrace as cct
resource.setrlimit(resource.RLIMIT_AS, ({hard}, {hard}))
print(cct.corpus.run({str(build_corpus.write(tmp_path / "in", 1, 100))!r}, "out", ["flows"], memory=10**30).errors)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "{}\n", done.stdout + done.stderr


@pytest.mark.parametrize(
    "start",
    [
        lambda folder: cct.corpus.run(folder, folder / "out", workers=10**30),
        lambda folder: cct.sweep(cct.Path(rate="1Mbit"), "reno", 1, duration="1s", workers=10**30),
    ],
)
def test_no_more_workers_are_taken_than_a_machine_has_processes(tmp_path, start):
    with pytest.raises(ArgumentError, match=r"workers=10+ must be an integer from 1 to 1024"):
        start(tmp_path)


def _repeated(times):
    """A pcap file of one piece of a recording, again and again."""
    ((_, data),) = build_corpus.pieces(1, 5000)
    return data + data[24:] * times


def test_a_full_disk_is_one_line_and_nothing_half_written(captures, whole, tmp_path, monkeypatch, capfd):
    out, fsync = tmp_path / "out", os.fsync

    def full(descriptor):
        if "/verdicts/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    assert cli.main(["corpus", "run", str(captures), "-o", str(out), "--workers", "2"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "verdicts" in line
    assert "No space left" in line
    assert not [name for name in os.walk(out) for name in name[2] if name.endswith(".tmp")]
    assert not list((out / "_run/commits").glob("*")) if (out / "_run/commits").exists() else True
    monkeypatch.undo()
    assert cct.corpus.run(captures, out, workers=2).captures == COUNT
    cct.corpus.compact(out)
    assert results(out) == results(whole)


def test_a_child_is_replaced_and_the_next_capture_is_well(captures):
    """A death in a child that had done others is tried again in a new one: nothing depends on what came before."""
    worker = Guard(Zygote(), 1 << 30, 60.0)
    entries = [Entry(str(path), path.stat().st_size, False, "other", "", []) for path in sorted(captures.iterdir())[:3]]
    first = list(worker.analyse(entries[0], ("flows",)))
    os.kill(worker._child.number, signal.SIGKILL)
    again = [told for entry in entries for told in worker.analyse(entry, ("flows",))]
    assert [list(told) for told in again] == [["rows", "date", "cpu"]] * 3
    assert again[0]["rows"] == first[0]["rows"]
    worker.close()
    worker.zygote.close()


def test_children_end_with_their_worker(captures):
    source = Zygote()
    child, connection = source.fork()
    source.close()
    end = time.monotonic() + 60
    while os.path.exists(f"/proc/{child}") and time.monotonic() < end:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{child}")
    connection.close()


# ---------------------------------------------------------------------------------------------------------------------
def archive(path, files):
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def test_archives_are_read_without_unpacking_and_counters_join(tmp_path):
    pieces = dict(build_corpus.pieces(3, 100))
    recording = {
        f"a/{name}": datasets.path("tso_bbr_300m_veth", name).read_bytes()
        for name in ("sender.pcap.zst", "tcpinfo.csv.zst")
    }
    folder = tmp_path / "in"
    folder.mkdir()
    archive(folder / "one.tgz", {"README": b"hello"} | recording | pieces | {"b/bad.pcap": b"no capture at all"})
    with zipfile.ZipFile(folder / "two.zip", "w") as zipped:
        for name, data in recording.items():
            zipped.writestr(name, data)
    before = set(tmp_path.iterdir())
    summary = cct.corpus.run(folder, tmp_path / "out", workers=1)
    assert (summary.captures, summary.errors) == (6, {"unreadable": 1})
    assert set(tmp_path.iterdir()) - before == {tmp_path / "out"}
    corpus = cct.corpus.open(tmp_path / "out")
    assert errors(tmp_path / "out")["capture"].tolist() == [f"{folder}/one.tgz:b/bad.pcap"]
    rows = corpus.captures.frame().set_index("capture")
    for name in ("one.tgz", "two.zip"):
        assert list(rows.loc[f"{folder}/{name}:a/sender.pcap.zst", "counters"]) == [
            f"{folder}/{name}:a/tcpinfo.csv.zst"
        ]
    assert set(corpus.verdicts.frame()["controller"].dropna()) == {"bbr"}


def test_a_cut_archive_tells_of_what_precedes_the_cut(tmp_path):
    whole = archive(tmp_path / "one.tgz", dict(build_corpus.pieces(6, 100)))
    data = whole.read_bytes()
    whole.write_bytes(data[: len(data) * 2 // 3])
    summary = cct.corpus.run(whole, tmp_path / "out", workers=1)
    assert summary.captures > 2
    assert "damaged or cut short" in errors(tmp_path / "out")["reason"].iloc[-1]


def test_counters_alone_are_connections_too(tmp_path):
    summary = cct.corpus.run(datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst"), tmp_path / "out", workers=1)
    assert summary.errors == {}
    assert len(cct.corpus.open(tmp_path / "out").flows) >= 1


def test_rules_join_counters_by_name():
    there = [
        "a.pcap.gz",
        "a.00001.jsonl.zst",
        "a.00000.jsonl.zst",
        "b.pcap",
        "b.ss.txt.gz",
        "sender.pcap",
        "tcpinfo.csv",
    ]
    joined = Rules().join(there)
    assert joined == {
        "a.pcap.gz": ["a.00000.jsonl.zst", "a.00001.jsonl.zst"],
        "b.pcap": ["b.ss.txt.gz"],
        "sender.pcap": ["tcpinfo.csv"],
    }
    assert Rules(["none"]).join(there) == {}
    assert Rules(["{name}:poll-{name}.txt"]).join(["x.pcap", "poll-x.txt.xz"]) == {"x.pcap": ["poll-x.txt.xz"]}
    with pytest.raises(ArgumentError, match="CAPTURE:COUNTERS"):
        Rules(["x"])


def test_inputs_may_be_patterns_folders_lists_and_urls(captures, tmp_path):
    names = sorted(str(path) for path in captures.iterdir())
    (tmp_path / "list.txt").write_text("# captures\n" + "\n".join(names[:3]) + "\n")
    assert [entry.capture for entry in listed(str(captures))] == names
    assert [entry.capture for entry in listed(f"{captures}/*.pcap")] == names
    assert [entry.capture for entry in listed([str(tmp_path / "list.txt"), names[1]])] == names[:3]
    assert [entry.capture for entry in listed(f"@{tmp_path}/list.txt")] == names[:3]
    assert [entry.capture for entry in listed(f"file://{captures}/*.pcap")] == [f"file://{name}" for name in names]
    of = listed(str(captures), source=r"-(\w+)\.pcap")
    assert {entry.source for entry in of} == set(build_corpus.RECORDINGS)


def test_urls_in_and_out_give_the_same_rows(captures, whole, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    names = [f"file://{path}" for path in sorted(captures.iterdir())[:4]]
    summary = cct.corpus.run(names, "memory://urls", workers=1)
    assert (summary.captures, summary.errors) == (4, {})
    assert cct.corpus.run(names, "memory://urls", workers=1).captures == 0
    assert len({name.partition("/")[0] for name in open_store("memory://urls").names()}) >= 6
    told = cct.corpus.compact("memory://urls")
    assert 4 <= told["after"] < told["before"]
    rows = cct.corpus.open("memory://urls").flows.frame()
    known = cct.corpus.open(whole).flows.frame()
    known["capture"] = "file://" + known["capture"]
    pd.testing.assert_frame_equal(rows, known[known["capture"].isin(names)].reset_index(drop=True))
    fsspec.filesystem("memory").rm("/urls", recursive=True)


def test_pandas_and_dask_read_the_folder_as_it_is(whole):
    frame = pd.read_parquet(whole / "flows")
    assert {"date", "source"} <= set(frame.columns)
    assert len(frame) == len(cct.corpus.open(whole).flows)
    pytest.importorskip("dask")
    assert len(cct.corpus.open(whole).flows.dask().compute()) == len(frame)


# ---------------------------------------------------------------------------------------------------------------------
def test_the_command_prints_what_programs_need(captures, tmp_path, capfd):
    arguments = [
        "corpus",
        "run",
        str(captures),
        "-o",
        str(tmp_path / "out"),
        "--workers",
        "2",
        "--json",
        "--tasks",
        "flows",
    ]
    assert cli.main(arguments) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["captures"] == COUNT
    assert told["errors"] == 0
    assert told["packets"] == 200 * COUNT
    assert told["seconds"] > 0
    assert not (tmp_path / "out" / "verdicts").exists()
    assert cli.main(["corpus", "compact", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["after"] == 2
    assert cli.main(["corpus", "info", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["captures"] == COUNT


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/nowhere/*.pcap"], "no file matches"),
        (["@/nowhere/list"], "/nowhere/list: no such file"),
        (["nosuch://bucket/*"], "cannot be listed"),
        (["CAPTURES", "--tasks", "flows,ponder"], "'ponder'; allowed are flows"),
        (["CAPTURES", "--tasks", "replay=nosuch"], "nosuch"),
        (["CAPTURES", "--workers", "0"], "'--workers': 0 is not in the range 1<=x<="),
        (["CAPTURES", "--memory", "1MB"], "at least 64 MB"),
        (["CAPTURES", "--time", "0s"], "--time 0s: a duration above 0"),
        (["CAPTURES", "--source", "("], "not a regular expression"),
        (["CAPTURES", "--counters", "x"], "CAPTURE:COUNTERS"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value).replace("/", "_"),
)
def test_bad_input_is_one_line_and_nothing_written(arguments, said, captures, tmp_path, capfd):
    arguments = [str(captures) if one == "CAPTURES" else one for one in arguments]
    assert cli.main(["corpus", "run", *arguments, "-o", str(tmp_path / "out")]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "out").exists()


def test_results_of_another_schema_or_of_other_tasks_are_refused(captures, tmp_path, capfd):
    out = tmp_path / "out"
    cct.corpus.run(sorted(captures.iterdir())[0], out, "flows", workers=1)
    assert cli.main(["corpus", "run", str(captures), "-o", str(out)]) == 2
    assert "--tasks flows" in capfd.readouterr().err
    identity = out / "_run/corpus.json"
    identity.write_text(json.dumps(json.loads(identity.read_text()) | {"schema": tables.VERSION + 1}))
    for command in (["run", str(captures), "-o"], ["compact"], ["info"], ["report"]):
        assert cli.main(["corpus", *command, str(out)]) == 2
        (line,) = capfd.readouterr().err.splitlines()
        assert f"schema version {tables.VERSION + 1}" in line
    assert cli.main(["corpus", "info", str(captures)]) == 2
    assert "no corpus" in capfd.readouterr().err
    assert cli.main(["corpus", "run", str(captures), "-o", str(captures)]) == 2
    assert "holds other files" in capfd.readouterr().err


# ---------------------------------------------------------------------------------------------------------------------
def test_batches_are_50_to_500_captures_an_archive_is_one_and_large_ones_are_few():
    def cut(count, size=1000, archive=False):
        entries = [Entry(f"{i:08d}", size, archive, "other", "", []) for i in range(count)]
        return np.unique(manifest._cut(entries, 0), return_counts=True)[1].tolist()

    assert cut(2000) == [50] * 40
    assert set(cut(30_000)) == {500}
    assert cut(80) == [2] * 40
    assert cut(3, archive=True) == [1, 1, 1]
    assert set(cut(2000, size=100 << 20)) == {2}


def test_batches_can_be_halved_until_one_capture_is_left(tmp_path):
    store = open_store(tmp_path)
    manifest.write(store, [Entry(f"{i:08d}", -1, False, "other", "", []) for i in range(200)])
    batch = next(iter(manifest.batches(store)))
    found, queue = [], [batch]
    while queue:
        one = queue.pop(0)
        names = [entry.capture for entry in manifest.entries_of(store, one.name)]
        assert len(names) == one.captures
        if one.captures == 1:
            found += names
        else:
            queue += manifest.halves(one)
    assert sorted(found) == [entry.capture for entry in manifest.entries_of(store, batch.name)]


def test_compacted_parts_are_large(monkeypatch, whole, tmp_path):
    from cctrace.corpus import compaction

    monkeypatch.setattr(compaction, "TARGET", 1500)
    monkeypatch.setattr(compaction, "ROWS", 3)
    rows = cct.corpus.open(whole).flows.dataset.to_table(tables.arrow_schema("flows").names)
    parts = list(compaction._written(rows))
    assert len(parts) > 2
    sizes = [len(part) for part in parts]
    assert min(sizes[:-1]) >= 1500


def test_dates_and_sources_come_from_names_where_nothing_else_tells():
    assert inputs.date_in("ndt/2020/01/31/x.pcap") == "2020-01-31"
    assert inputs.date_in("123-4567.pcap") == "unknown"
    (entry,) = [one for one in [inputs._MLAB.search("20200131T000000Z-pcap-mlab1-lga03-ndt.tgz")] if one]
    assert entry.group(1) == "mlab1-lga03"


def test_messages_survive_the_socket_whatever_their_size():
    import socket

    a, b = socket.socketpair()
    message = {"text": "ü" * 300_000}
    thread = threading.Thread(target=zygote.send, args=(a, message))
    thread.start()
    assert zygote.receive(b) == message
    thread.join()
    a.close()
    assert zygote.receive(b) is None
    b.close()
