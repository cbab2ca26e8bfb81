"""The words people use on the command line, and the words that they get back."""

import json
import os
import pty
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from wire import ipv6, pcap, tcp

from cctrace import datasets
from cctrace.cc import canonical
from cctrace.cli.analyze import _verdicts
from cctrace.cli.common import lines_of
from cctrace.errors import ArgumentError
from cctrace.replaying.words import in_words

CAPTURE = str(datasets.path("loss_cubic_1pct", "sender.pcap.zst"))
COUNTERS = str(datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst"))


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("bbr", "bbr2022"),
        ("BBR", "bbr2022"),
        ("Cubic", "cubic"),
        ("bbrv3", "bbr3"),
        ("BBRv2+", "bbr2plus"),
        ("NewReno", "reno"),
        ("OBBR:mu=0.5", "obbr:mu=0.5"),
    ],
)
def test_a_controller_is_known_by_what_people_call_it(said, meant):
    assert canonical(said) == meant


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", CAPTURE, "--controller", "cubik"], "--controller cubik: .*did you mean 'cubic'.*known: b3r"),
        (["analyze", CAPTURE, "--controller", "bbr2o22"], "--controller bbr2o22: .*did you mean 'bbr2022'"),
        (["simulate", "--rate", "40Mbit", "--cc", "cubic,renno"], "--cc renno: .*did you mean 'reno'"),
        (["predict", "collapse", "--mean", "5ms", "--sd", "1ms", "--variant", "bbr99"], "--variant bbr99: "),
        (["simulate", "--rate", "40Mbit", "--cc", "cubic", "--jitter", "foo:1"], "--jitter foo:1: .*normal, gamma"),
        (
            ["simulate", "--rate", "40Mbit", "--cc", "cubic", "--jitter", "normal:sd=-1ms"],
            "--jitter normal:sd=-1ms: .*ms",
        ),
        (["simulate", "--rate", "40Mbit", "--cc", "cubic", "--loss", "120%"], "--loss='120%' .*between 0 and 1"),
        (["simulate", "--rate", "40Mbit", "--cc", "cubic", "-o", CAPTURE], "--output .*sender.pcap.zst is a file"),
        (["analyze", CAPTURE, "-o", "/proc/nothing"], "--output /proc/nothing: nothing can be written in /proc"),
        (["simulate", "--rate", "40Mbit", "--cc", "cubic", "--policer", "10Mbit"], "--policer 10Mbit: give RATE,BURST"),
        (["whatif", CAPTURE, "--aqm", "foo"], "--aqm='foo' is not one of droptail, codel"),
        (["conform", "cubic", "--spec", "foo"], "--spec='foo' is not one of bbr, cubic"),
        (["convert", CAPTURE, "x.xyz"], "x.xyz: the extension names no format.*allowed: parquet, csv, pcap, qlog"),
        (["convert", CAPTURE, "x.csv", "--to", "xls"], "--to xls; allowed: parquet, csv, pcap, qlog"),
        (["replay", CAPTURE, "--cc", "cubic", "-o", "/tmp"], "--output /tmp is a folder: give a file"),
        (["whatif", CAPTURE, "--cc", "cubik"], "--cc cubik: .*did you mean 'cubic'"),
        (["whatif", CAPTURE, "--own", "cubik"], "--own cubik: .*did you mean 'cubic'"),
        (["whatif", CAPTURE, "--rate", "fast"], "--rate='fast' is not a rate"),
        (["whatif", CAPTURE, "--jitter", "foo:1"], "--jitter foo:1: "),
        (["whatif", CAPTURE], "give --cc NAME"),
        (["whatif", CAPTURE, "--cc", "bbr", "--flow", "7"], "--flow 7: .* no such connection; allowed: 0"),
        (["whatif", CAPTURE, "--buffer", "lots"], "--buffer lots: .*200kB, 64KiB, 2bdp"),
        (["whatif", CAPTURE, "--rwnd", "lots"], "--rwnd='lots' is not a size"),
        (["whatif", CAPTURE, "--rtt", "x0"], "--rtt x0: a factor above 0"),
        (["whatif", CAPTURE, "--cc", "bbr", "--draws", "0"], "'--draws': 0 is not in the range 3<=x<=10000"),
        (["simulate", "--rate", "1Mbit", "--cc", "bbr", "--buffer", "0"], "--buffer 0: .*2bdp"),
        (["simulate", "--rate", "1Mbit", "--cc", "bbr", "--duration", "0s"], "--duration 0s: a duration above 0"),
        (["predict", "share", "--ratio", "2", "--gain", "-1"], "'--gain': -1.0 is not in the range x>0"),
        (["replay", CAPTURE, "--cc", "bbr", "-o", "/nosuch/x.parquet"], "--output /nosuch/x.parquet: .*no folder"),
        (["replay", CAPTURE, "--cc", "bbr", "-o", "x.csv"], "--output x.csv: the extension must be .parquet"),
        (["sweep", "--cc", "cubic"], "give --rate, or vary it"),
        (["predict", "collapse", "--mean", "5ms", "--sd", "0ms"], "--sd 0ms: a duration above 0"),
        (
            ["predict", "collapse", "--mean", "5ms", "--sd", "1ms", "--floor", "10ms"],
            "--floor is 10 ms; .* below --mean",
        ),
        (["simulate", "--rate", "1Mbit", "--cc", "bbr", "--reverse", "80ms"], "--reverse='80ms' must lie between 0"),
        (["simulate", "--rate", "1Mbit", "--cc", "bbr", "--ack", "every:0"], "--ack='every:0': use linux"),
        (
            ["predict", "collapse", *["--mean", "5ms", "--sd", "1ms", "--rate", "1Mbit", "--variant", "cubic"]],
            "--variant='cubic6?' is",
        ),
        (["fit", "parameters", CAPTURE, "--cc", "cubic", "--parameter", "gain"], "--parameter gain: cubic .*beta"),
        (["corpus", "run", "nosuch", "-o", "x"], "nosuch: no such file or folder"),
        (["corpus", "run", CAPTURE, "-o", "/proc/nothing"], "--output /proc/nothing: nothing can be written"),
        (["corpus", "run", CAPTURE, "-o", "x", "--time", "0s"], "--time 0s: a duration above 0"),
        (["corpus", "info", "nosuch"], "nosuch: no such file or folder"),
        (["diff", CAPTURE, "datasets/catalogue.json"], "catalogue.json: not a format"),
        (["sweep", "--rate", "foo", "--cc", "cubic"], "--rate='foo' is not a rate"),
        (["sweep", "--rate", "1Mbit", "--cc", "cubic+renno"], "--cc renno: .*did you mean 'reno'"),
        (["stream", "--rate", "1Mbit", "--cc", "quic_cubik"], "--cc quic_cubik: .*did you mean 'quic_cubic'"),
        (["fit", "parameters", CAPTURE, "--controller", "brb", "--parameter", "x"], "--controller brb: .*'bbr'"),
        (["convert", "nosuch", "x.csv"], "nosuch: no such file"),
        (["learn"], "give -o FILE"),
        (["predict", "collapse", "--sd", "-1ms"], "--sd='-1ms' is negative; a duration is 0 or more"),
        (["simulate", "--rate", "40", "--cc", "cubic"], "--rate='40' is not a rate.*40Mbit"),
        (["replay", CAPTURE, "--controller", "cubic", "--flow", "7"], "--flow 7: .* no such connection; allowed: 0"),
        (["replay", CAPTURE, "--controller", "cubic", "--flow", "-1"], "--flow -1: .* allowed: 0"),
        (["flows", "datasets"], "datasets is a folder"),
        (["replay", "datasets", "--controller", "cubic"], "datasets is a folder"),
        (["analyze", CAPTURE[:-1] + "x"], "no such file or folder; did you mean 'sender.pcap.zst'?"),
        (["analyze", CAPTURE, "--tcpinfo", "nosuch"], "--tcpinfo nosuch: no such file"),
        (["validate", "nosuch"], "nosuch: no such file or folder"),
    ],
    ids=lambda value: "-".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_mistake_is_told_by_argument_value_and_what_is_allowed(run, arguments, said, monkeypatch):
    monkeypatch.chdir(datasets.path("loss_cubic_1pct", "sender.pcap.zst").parents[2])
    status, out, err = run(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert re.search(said, err)


@pytest.mark.parametrize(
    "arguments",
    [
        ["replay", CAPTURE, "--controller", "cubik"],
        ["simulate", "--rate", "40Mbit", "--cc", "cubic", "--jitter", "foo:1"],
        ["predict", "collapse", "--sd", "-1ms"],
        ["analyze", "nosuch"],
        ["analyze", CAPTURE, "-o", "/proc/nothing"],
        ["whatif", CAPTURE],
        ["whatif", CAPTURE, "--cc", "cubik"],
        ["sweep", "--rate", "1Mbit", "--cc", "renno"],
        ["fit", "parameters", CAPTURE, "--controller", "brb", "--parameter", "x"],
        ["learn"],
        ["predict", "share", "--ratio", "2", "--gain", "-1"],
        ["corpus", "run", "nosuch", "-o", "x"],
        ["stream", "--rate", "1Mbit"],
        ["diff", CAPTURE, str(datasets.path("loss_cubic_1pct", "sender.pcap.zst").parents[1] / "catalogue.json")],
        ["analyze", str(datasets.path("loss_cubic_1pct", "sender.pcap.zst").parents[1] / "catalogue.json")],
    ],
    ids=lambda value: value[0],
)
def test_a_mistake_is_told_before_anything_slow_is_imported(arguments):
    """Pandas, scipy, xarray and the compiler take most of a second together."""
    script = (
        f"import sys; from cctrace.cli import main; assert main({arguments!r}) == 2; "
        "loaded = {'pandas', 'scipy', 'llvmlite', 'xarray'} & set(sys.modules); sys.exit(str(loaded) if loaded else 0)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_replay_prints_names_and_units(run):
    status, out, _ = run("replay", CAPTURE, "--controller", "bbr")
    assert status == 0
    said = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in out.splitlines())
    assert said["after the last call"] == "bbr2022"
    assert re.fullmatch(r"\d+ segments \([\d.]+ kB\)", said["congestion window"])
    assert said["mode"].startswith("PROBE_BW, ")
    assert said["min_rtt"] == "40 ms"
    assert said["bandwidth estimate"].endswith("Mbit/s")
    assert float(said["pacing gain"]) <= 3
    assert " s after the first call (2026-" in said["time"]


@pytest.mark.parametrize(
    ("file", "flow"),
    [("sender.pcap.zst", "198.51.100.10:36220"), ("ss.txt.gz", "192.0.2.50:60470")],
    ids=["of a capture", "of counters, which name the controllers"],
)
def test_of_many_connections_the_one_that_sent_most_is_replayed(run, file, flow):
    status, out, _ = run("replay", datasets.path("web_server", file), "--controller", "bbr")
    assert status == 0
    assert f"192.0.2.1:443 → {flow}" in out
    assert "it sent most of" in out
    assert (
        "192.0.2.1:443 → 192.0.2.50:60470"
        in run("replay", datasets.path("web_server", "sender.pcap.zst"), "--cc", "bbr", "--flow", "7")[1]
    )


def test_agreement_is_told_in_words_and_programs_get_both(run):
    out = run("replay", CAPTURE, "--controller", "cubic6", "--tcpinfo", COUNTERS)[1]
    assert re.search(r"cwnd within 2 segments +\d", out)
    assert "locked" not in out
    found = json.loads(run("replay", CAPTURE, "--controller", "cubic6", "--json")[1])
    assert found["last"]["snd_cwnd"] == int(found["words"]["congestion window"].split()[0])


def test_states_of_v3_are_named_and_what_is_not_yet_known_is_said():
    from cctrace.cc import controller

    cls = controller("bbr3")[0]
    state = {"snd_cwnd": 10, "mode": 2, "cycle_idx": 1, "inflight_hi": 0xFFFFFFFF, "inflight_lo": 8}
    assert dict(in_words(cls, state | {"snd_cwnd": 1}, None))["congestion window"] == "1 segment"
    said = dict(in_words(cls, state | {"min_rtt_us": 0xFFFFFFFF, "pacing_gain": 192}, None))
    assert said["mode"] == "PROBE_BW, DOWN"
    assert (said["min_rtt"], said["inflight_hi"], said["inflight_lo"]) == ("none yet", "none yet", "8 segments")
    assert said["pacing gain"] == "0.75"


def test_predict_says_what_the_figures_mean(run):
    out = run("predict", "collapse", "--mean", "5ms", "--sd", "1ms")[1]
    assert "minRTT collapse is certain (probability 100 %): a jitter of 1 ms is above the 656 us" in out
    assert "collapse is excluded" in run("predict", "collapse", "--mean", "5ms", "--sd", "100us")[1]
    out = run("predict", "collapse", "--mean", "40ms", "--sd", "4000s")[1]
    assert "collapse is unlikely (probability 3.91 %): a jitter of 4,000 s is above the 5.25 ms" in out
    assert "but so long that hardly any RTT is below 20 ms" in out
    assert "outside: the jitter exceeds the mean RTT" in out
    out = run("predict", "share", "--ratio", "16", "--flows", "2")[1]
    assert "In a buffer of 16 bandwidth-delay products BBR is to get 53.1 % of the link" in out


def test_piped_flows_are_one_line_each_whatever_their_width(run, long_names):
    _, out, _ = run("flows", long_names)
    head, line = out.splitlines()
    assert head.split()[:3] == ["flow", "sender", "receiver"]
    assert line.split()[0] == "0"
    assert line.split()[1].startswith("[fd01:1011:1213:1415:1617:1819:1a1b:1c1d]:")
    assert not any(text.endswith(" ") for text in (head, line))


@pytest.fixture
def long_names(tmp_path):
    """A capture of one connection between long addresses."""
    file = tmp_path / "six.pcap"
    src, dst = (0x1011_1213_1415_1617_1819_1A1B_1C1D | last << 112 for last in (1, 2))
    segments = [tcp(sport=40000, dport=443, seq=1 + 1000 * i, ack=1, flags=16, payload=bytes(1000)) for i in range(5)]
    packets = [ipv6(segment, src=src, dst=dst) for segment in segments]
    file.write_bytes(pcap([(1_700_000_000_000_000_000 + i * 1000, packet) for i, packet in enumerate(packets)], 101))
    return file


def test_the_lines_of_a_table_align_quantities_right_and_texts_left():
    assert lines_of(("name", "size"), [("a", "10 B"), ("bcd", "9 kB")]) == ["name  size", "a     10 B", "bcd   9 kB"]


@pytest.mark.parametrize("name", ["long addresses", "a web server"])
def test_flows_fit_a_terminal_of_80_columns_and_nothing_is_cut(long_names, name):
    file = long_names if name == "long addresses" else datasets.path("web_server", "sender.pcap.zst")
    control, terminal = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-m", "cctrace", "flows", str(file)],
        stdout=terminal,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"COLUMNS": "80"},
    )
    os.close(terminal)
    text = b""
    while True:
        try:
            part = os.read(control, 65536)
        except OSError:
            break
        if not part:
            break
        text += part
    assert run.wait(60) == 0
    lines = re.sub(r"\x1b\[[\d;]*m", "", text.decode()).splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in "\n".join(lines)
    known = "[fd01:1011:1213:1415:1617:1819:1a1b:1c1d]:" if name == "long addresses" else "192.0.2.1:443"
    assert f"0: {known}" in "\n".join(lines)


def test_an_unknown_controller_of_the_library_suggests_the_nearest():
    with pytest.raises(ArgumentError, match="did you mean 'bbr2plus'"):
        canonical("bbr2pluss")


def test_one_figure_of_a_simulation_does_not_contradict_another(run):
    """The title's fairness is that of the goodputs below it; a start alone would make it another."""
    _, found, _ = run("simulate", "--rate", "20Mbit", "--rtt", "20ms", "--cc", "cubic,reno,bbr", "--duration", "4s")
    shares = np.array([float(value) for value in re.findall(r"([0-9.]+) Mbit/s", found)])
    assert len(shares) == 3
    assert f"fairness {shares.sum() ** 2 / (3 * np.sum(shares**2)):.3f};" in found


def test_an_effect_that_two_causes_share_is_said_once(monkeypatch):
    said = ["with one rate: 44 % more", "with one rate: 44 % more", "with more buffer: the same"]
    verdicts = [SimpleNamespace(text=f"Cause {i}.", is_there=1.0, effect=text) for i, text in enumerate(said)]
    monkeypatch.setattr("cctrace.counterfactual.effects.effect_words", str)
    diagnosis = SimpleNamespace(verdicts=verdicts, verdict="Cause 0. Do this.")
    flow = SimpleNamespace(diagnosis=diagnosis, whatif=None, title="a → b")
    assert _verdicts(flow) == [
        "a → b: Cause 0. Do this.",
        "    with one rate: 44 % more.",
        "    also: Cause 1.",
        "    also: Cause 2. With more buffer: the same.",
    ]
