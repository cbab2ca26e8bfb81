"""Numbers and files on the command line have bounds: none makes the machine run out of memory, or runs for ever."""

import pytest

from cctrace import cli, datasets
from cctrace.errors import FormatError
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


def test_a_chunk_larger_than_the_capture_takes_no_more_memory_than_it(monkeypatch):
    from cctrace.io import frames, stream

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
    monkeypatch.setattr(jitter, "MOST_DELAYS", 3)
    (tmp_path / "delays").write_text("1\n" * 4)
    with pytest.raises(FormatError, match="more than 3 lines"):
        jitter.read_delays(tmp_path / "delays")
