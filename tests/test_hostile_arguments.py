"""Numbers and files on the command line have bounds: none makes the machine run out of memory, or runs for ever."""

import re

import pytest

from cctrace import cli, corpus, datasets, read, whatif
from cctrace.errors import ArgumentError, FormatError
from cctrace.learn import Agent, simulated
from cctrace.sim import jitter

CAPTURE = str(datasets.path("loss_cubic_1pct", "sender.pcap.zst"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["sweep", "--rate", "1Mbit", "--cc", "reno", "--seeds", "1000000000"], "--seeds"),
        (["sweep", "--rate", "1Mbit", "--cc", "reno", "--workers", "1000000000"], "--workers"),
        (["reproduce", "--workers", "1000000000"], "--workers"),
        (["convert", CAPTURE, "x.parquet", "--chunk", "99999999999999"], "--chunk"),
        (["convert", CAPTURE, "x.parquet", "--chunk", "0"], "--chunk"),
        (["whatif", CAPTURE, "--draws", "1000000000"], "--draws"),
        (["corpus", "run", CAPTURE, "-o", "out", "--workers", "1000000000"], "--workers"),
        (["learn", "--flows", "1000000000"], "--flows"),
        (["simulate", "reno", "--rate", "1Mbit", "--ack-every", "1000000000"], "--ack-every"),
        (["predict", "share", "--flows", "1000000000000"], "--flows"),
        (["plot", "flow", "ladder", CAPTURE, "--packets", "1000000000000"], "--packets"),
        (["corpus", "run", "@/dev/zero", "-o", "out"], "/dev/zero"),
        (["flows", "/dev/zero"], "/dev/zero"),
        (["simulate", "reno", "--rate-steps", "/dev/zero"], "/dev/zero"),
    ],
)
def test_what_no_machine_can_do_is_refused_by_its_name(arguments, named, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    assert named in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"memory": None}, "memory=None must be a number of bytes, at least 64 MB"),
        ({"memory": 1000}, "memory=1000 must be"),
        ({"seconds": "1s"}, "seconds='1s' must be a number of seconds above 0"),
        ({"workers": 1.5}, "workers=1.5 must be an integer from 1"),
        ({"limit": "1GB"}, "limit='1GB' must be an integer from 1"),
        ({"tasks": [None]}, "tasks=[None] must be names of tasks, as texts"),
        ({"source": 3}, "source=3 must be a regular expression, as a text"),
        ({"counters": None}, "counters=None must be rules, as texts"),
    ],
)
def test_a_wrong_argument_of_a_corpus_is_named_and_nothing_written(given, named, tmp_path):
    with pytest.raises(ArgumentError, match=re.escape(named)):
        corpus.run(CAPTURE, tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((None,), "agent=None must be an Agent, to be changed in place"),
        ((Agent(), "1"), "seed='1' must be an integer from 0"),
        ((Agent(), 1, ["a"]), "bins='a' must be an integer from 0 to"),
    ],
)
def test_a_wrong_argument_of_what_learns_is_named(given, named):
    with pytest.raises(ArgumentError, match=re.escape(named)):
        simulated(*given)


def test_more_draws_than_can_be_simulated_are_refused():
    with pytest.raises(ArgumentError, match=r"draws=1000.* must be an integer from 3 to 10000"):
        whatif(read(CAPTURE).flow(0), ["reno"], draws=10**30)


def test_a_chunk_larger_than_the_capture_takes_no_more_memory_than_it(monkeypatch):
    from cctrace.io import stream
    from cctrace.io.captures import frames

    asked = []
    longer = frames._longer
    monkeypatch.setattr(
        frames, "_longer", lambda arrays, used, more, *rest: asked.append(more) or longer(arrays, used, more, *rest)
    )
    (part,) = stream(CAPTURE, chunk=99_999_999_999_999)
    assert len(part) == 9381
    assert max(asked) <= frames._TRUSTED


def test_a_scenario_that_names_a_device_without_an_end_is_refused(tmp_path, capsys):
    file = tmp_path / "scenario.toml"
    file.write_text('[path]\nrate = "10Mbit"\njitter = "empirical:file=/dev/zero"\n[[senders]]\ncc = "bbr2022"\n')
    assert cli.main(["simulate", "--scenario", str(file)]) == 2
    assert "/dev/zero, line 1: " in capsys.readouterr().err


def test_delays_without_an_end_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(jitter, "MAX_DELAYS", 3)
    (tmp_path / "delays").write_text("1\n" * 4)
    with pytest.raises(FormatError, match="more than 3 lines"):
        jitter.read_delays(tmp_path / "delays")
