"""Commands print tables for people and JSON for programs; an error is one line and exit status 2."""

import ast
import contextlib
import io
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import click
import pytest

import cctrace
from cctrace import cli, datasets
from cctrace.errors import Truncated
from tests.places import GOLDEN


def test_help_names_every_command_without_importing_numpy():
    script = (
        "import sys; from cctrace.cli import main; main(['--help']);"
        "loaded = {'numpy', 'pandas', 'llvmlite', 'rich'} & set(sys.modules); sys.exit(str(loaded) if loaded else 0)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    for command in cli.commands.commands:
        assert f"  {command} " in result.stdout


def test_the_installed_command_and_the_module_are_the_same(run):
    result = subprocess.run([sys.executable, "-m", "cctrace", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout == f"cctrace {cctrace.__version__}\n" == run("--version")[1]


def test_what_the_encoding_of_the_output_lacks_is_escaped():
    capture = datasets.path("loss_cubic_1pct", "sender.pcap.zst")
    command = [sys.executable, "-m", "cctrace", "fit", "path", str(capture)]  # "10.99.0.1:40001 → 10.99.0.2:5001"
    done = subprocess.run(command, capture_output=True, env=os.environ | {"PYTHONIOENCODING": "latin-1"}, check=True)
    assert b" \\u2192 " in done.stdout


def test_a_command_that_ends_its_process_does_what_was_registered_for_the_end():
    script = (
        "import atexit, sys, threading, time; from cctrace.cli import run; atexit.register(print, 'registered');"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('awaited'))).start();"
        "sys.argv[1:] = ['flows', '/no/such/file']; run()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "awaited\nregistered\n")
    assert done.stderr.startswith("cctrace: ")


def test_a_reader_that_has_seen_enough_is_no_error():
    command = f"set -o pipefail; {sys.executable} -m cctrace variants | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nosuch"], "No such command 'nosuch'"),
        (["verify"], "Missing argument"),
        (["verify", "/no/such/vector"], "/no/such/vector"),
        (["variants", "bbr2222"], "did you mean 'bbr2022'"),
        (["variants", "bbr2:los=1"], "did you mean 'loss_thresh'?"),
        (["variants", "bbr2:loss_thresh=2", "bbr3"], "loss_thresh=2 is outside [0.0, 1.0]"),
        (["variants", "bbr2:beta=nan"], "beta=nan is outside [0.0, 1.0]"),
        (["variants", "bbr2:beta"], "'beta' is not PARAM=VALUE"),
        (["variants", "bbr2:beta=x"], "'x' is not a number"),
        (["variants", "--nosuch"], "--nosuch"),
        (["variants", "a", "b", "c"], "at most two"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_status_2(run, arguments, part):
    status, out, err = run(*arguments)
    assert status == 2
    assert out == ""
    assert err.startswith("cctrace: ")
    assert err.count("\n") == 1
    assert part in err


def test_a_link_that_leads_nowhere_is_not_another_name(run, tmp_path):
    (tmp_path / "a.pcap").symlink_to("missing.pcap")
    assert (
        run("flows", str(tmp_path / "a.pcap"))[2] == f"cctrace: {tmp_path / 'a.pcap'} is a link that leads to no file\n"
    )


def test_a_traceback_needs_debug(run):
    for arguments in (("variants", "bbr2222", "--debug"), ("--debug", "nosuch")):
        status, _, err = run(*arguments)
        assert status == 2
        assert err.startswith("Traceback (most recent call last):\n")
        assert err.splitlines()[-1].startswith("cctrace: ")
    assert "Traceback" not in run("variants", "bbr2222")[2]


def test_an_internal_error_is_one_line_too(run, monkeypatch):
    from cctrace.cc import compare

    def broken(name):
        raise KeyError("two\nlines")

    monkeypatch.setattr(compare, "describe", broken)
    status, _, err = run("variants")
    assert status == 2
    assert err.startswith("cctrace: internal error, KeyError")
    assert err.count("\n") == 1


def test_a_warning_is_one_line_on_stderr(run, monkeypatch):
    from cctrace.cc import compare

    def warning(name):
        warnings.warn("capture.pcap: ends early\n at offset 24", Truncated, stacklevel=2)
        return describe(name)

    describe = compare.describe
    monkeypatch.setattr(compare, "describe", warning)
    status, out, err = run("variants", "bbr2022", "--json")
    assert status == 0
    assert json.loads(out)["name"] == "bbr2022"
    assert err == "cctrace: warning: capture.pcap: ends early at offset 24\n"


def test_variants_lists_every_registered_controller(run):
    from cctrace.cc import REGISTRY

    status, out, _ = run("variants", "--json")
    assert status == 0
    assert {entry["name"] for entry in json.loads(out)} == set(REGISTRY)
    table = run("variants")[1]
    assert all(name in table for name in REGISTRY)


def test_variants_shows_the_steps_that_two_controllers_do_not_share(run):
    status, out, _ = run("variants", "bbr2019", "bbr2022", "--json")
    assert status == 0
    steps = {step["name"]: (step["bbr2019"], step["bbr2022"]) for step in json.loads(out)["steps"]}
    assert steps["takes_rtt"] == ("BBR2019", "BBR2022")  # only a strictly smaller RTT renews 2022's min_rtt
    assert "set_cwnd" not in steps
    assert "takes_rtt" in run("variants", "bbr2019", "bbr2022")[1]


def test_variants_shows_quirks_and_open_questions_of_release_and_paper_but_not_what_both_say(run):
    status, out, _ = run("variants", "obbr", "obbr_paper", "--json")
    assert status == 0
    both = json.loads(out)
    assert any("2.05" in quirk for quirk in both["quirks"]["obbr"])
    assert both["quirks"]["obbr_paper"] == []
    assert both["left_open"]["obbr_paper"]
    assert all(quirk in run("variants", "obbr", "obbr_paper")[1] for quirk in both["quirks"]["obbr"])
    same = run("variants", "obbr:mu=0.5", "obbr:mu=1")[1]
    assert "the same steps" in same
    assert "2.05" not in same


def test_variants_describes_one_controller_with_parameters_and_transitions(run):
    entry = json.loads(run("variants", "bbr2022:hz=250", "--json")[1])
    assert entry["parent"] == "bbr2019"
    assert entry["params"]["hz"]["default"] == 250
    assert ["DRAIN", "PROBE_BW", "in flight <= BDP"] in entry["transitions"]
    assert {"init", "takes_rtt"} <= set(entry["own_steps"])
    assert "set_cwnd" not in entry["own_steps"]
    assert "CONFIG_HZ" in run("variants", "bbr2022")[1]


@pytest.fixture
def planted(tmp_path):
    """A vector folder that the controller itself wrote, and a copy with one value changed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from cctrace import schema

    def write(name, cwnd):
        rows = 3
        table = {c.name: [0] * rows for c in schema.LINUX_VIEW} | {f: [10] * rows for f in ("snd_cwnd", "ssthresh")}
        table |= {"now_us": [1_000_000, 1_010_000, 1_020_000], "mss": [1448] * rows, "pacing_rate": [100_000] * rows}
        table |= {"snd_cwnd_cnt": [0] * rows, "app_limited": [0] * rows, "o_snd_cwnd": cwnd}
        table |= {f"rand{k}_max": [0] * rows for k in range(3)}
        table |= {"event": ["cwnd_event"] * rows, "arg": [4] * rows}  # ECN_NO_CE: BBR leaves cwnd alone
        (tmp_path / "bbr2022").mkdir(exist_ok=True)
        pq.write_table(pa.table(table), tmp_path / "bbr2022" / name)
        return tmp_path / "bbr2022" / name

    return write("good.parquet", [10, 10, 10]), write("bad.parquet", [10, 11, 11])


def test_verify_says_where_a_vector_differs_first_and_exits_with_1(run, planted):
    good, bad = planted
    assert run("verify", good, "--json")[0] == 0
    status, out, _ = run("verify", good.parent, "--json")
    assert status == 1
    result = json.loads(out)
    assert (result["files"], result["rows"], result["mismatching_rows"]) == (2, 6, 2)
    first = {vector["path"]: vector["first"] for vector in result["vectors"]}
    assert first[str(good)] is None
    assert first[str(bad)] == {"row": 1, "column": "o_snd_cwnd", "expected": 11, "got": 10}
    status, out, _ = run("verify", "--interpreted", bad)
    assert status == 1
    assert "row 1, o_snd_cwnd: expected 11, got 10" in out


FLOW_KEYS = [
    *("src", "sport", "dst", "dport", "packets", "bytes_sent", "segments_sent", "retransmitted_segments"),
    *("goodput_bps", "rtt_min_us", "rtt_median_us", "rtt_p95_us", "start_ns", "duration_s", "warnings"),
]


def test_flows_prints_the_promised_keys_for_every_connection(run):
    status, out, _ = run("flows", datasets.path("loss_cubic_1pct", "sender.pcap.zst"), "--json")
    assert status == 0
    (flow,) = json.loads(out)
    assert list(flow) == FLOW_KEYS
    scenario = json.loads(datasets.path("loss_cubic_1pct", "scenario.json").read_text())
    check = scenario["check"]["flows"]["5001"]  # the recorder's own count, made independently
    assert flow["bytes_sent"] == check["acked_bytes"] - 1  # it counts the FIN
    assert flow["retransmitted_segments"] == check["retransmitted_packets"]
    assert (flow["src"], flow["sport"], flow["dst"], flow["dport"]) == ("10.99.0.1", 40001, "10.99.0.2", 5001)
    assert flow["start_ns"] > 2**53  # all digits kept


def test_flows_waits_for_nothing_that_it_does_not_need():
    file = str(datasets.path("loss_cubic_1pct", "sender.pcap.zst"))
    script = (
        f"import sys; from cctrace.cli import main; main(['flows', '--json', {file!r}]);"
        "loaded = {'pandas', 'rich', 'pyarrow'} & set(sys.modules); sys.exit(str(loaded) if loaded else 0)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_flows_lists_several_files_and_prints_a_table(run):
    file = datasets.path("loss_cubic_1pct", "sender.pcap.zst")
    status, out, _ = run("flows", file, file)
    assert status == 0
    assert out.count("10.99.0.1:40001") == 2
    assert "8.57 MB" in out


def test_convert_writes_what_flows_then_reads_the_same(run, tmp_path):
    file = datasets.path("loss_cubic_1pct", "sender.pcap.zst")
    expected = json.loads(run("flows", file, "--json")[1])
    for target, more in (("out.parquet", ["--chunk", 1000]), ("out.bin", ["--to", "pcap"])):
        status, out, _ = run("convert", file, tmp_path / target, *more, "--json")
        told = json.loads(out)
        assert status == 0
        assert told["rows"] == expected[0]["packets"]
        assert told["to"] == target.replace("out.", "").replace("bin", "pcap")
        assert json.loads(run("flows", tmp_path / target, "--json")[1]) == expected
    assert "rows, csv" in run("convert", file.with_name("tcpinfo.csv.zst"), tmp_path / "polls.csv")[1]


@pytest.mark.parametrize("command", ["flows", "analyze", "convert"])
def test_the_limit_for_bombs_is_an_option_of_every_command_that_reads_captures(run, tmp_path, command):
    file = datasets.path("loss_cubic_1pct", "sender.pcap.zst")
    target = {"flows": [], "analyze": ["--no-effects", "-o", tmp_path], "convert": [tmp_path / "out.csv"]}[command]
    status, _, err = run(command, file, *target, "--limit", "100kB")
    assert status == 2
    assert "raise the limit (limit=, --limit)" in err
    assert "--limit" in err
    assert run(command, file, *target, "--limit", "20MB")[0] == 0
    assert "'20' is not a size" in run(command, file, *target, "--limit", "20")[2]
    assert "decapsulate='x'" in run(command, file, *target, "--decapsulate", "x")[2]


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    """One analysis through the command line: status and folder."""
    folder = tmp_path_factory.mktemp("analysis") / "deeper" / "report"
    capture, polls = (str(datasets.path("loss_cubic_1pct", f)) for f in ("sender.pcap.zst", "tcpinfo.csv.zst"))
    return cli.main(["analyze", capture, "--tcpinfo", polls, "-o", str(folder), "--json"]), folder


def test_analyze_writes_a_page_and_tables(analysis):
    import pandas as pd

    from cctrace import schema

    status, folder = analysis
    assert status == 0
    assert sorted(file.name for file in folder.iterdir() if file.suffix == ".parquet") == [
        "flow0-agreement.parquet",
        "flow0-events.parquet",
        "flow0-replay.parquet",
        "flow0-tcpinfo.parquet",
        "flows.parquet",
    ]
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "10.99.0.1:40001 → 10.99.0.2:5001" in page
    assert "loss_cubic_1pct" in page
    events = pd.read_parquet(folder / "flow0-events.parquet")
    assert list(events) == list(schema.names(schema.EVENTS))
    assert pd.read_parquet(folder / "flows.parquet")["retransmitted_segments"].tolist() == [57]


def test_analyze_replays_a_loss_based_controller_with_the_stacks_own_reductions(run, tmp_path):
    capture, polls = (datasets.path("loss_cubic_1pct", f) for f in ("sender.pcap.zst", "tcpinfo.csv.zst"))
    command = ["analyze", capture, "--tcpinfo", polls, "--controller", "cubic6", "--no-effects", "-o", tmp_path]
    status, out, _ = run(*command, "--json")
    assert status == 0
    assert json.loads(out)[0]["agreement"]["cwnd_2"] >= 0.95
    assert "cwnd 100 %" in run(*command)[1]


def test_analyze_prints_the_keys_of_flows_and_what_it_found(run, tmp_path):
    capture = datasets.path("loss_cubic_1pct", "sender.pcap.zst")
    command = ["analyze", capture, "--no-effects", "-o", tmp_path]
    status, out, err = run(*command, "--json")
    assert status == 0
    (flow,) = json.loads(out)
    assert set(FLOW_KEYS) <= set(flow)
    assert flow["controller"] is None
    assert flow["retransmitted_share"] == pytest.approx(57 / flow["segments_sent"])
    assert f"report: {tmp_path / 'report.html'}" in err
    assert f"report: {tmp_path / 'report.html'}" in run(*command)[1]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["sender.pcap.zst", "--tcpinfo", "receiver.pcap.zst"], "holds no counters of connections"),
        (["scenario.json"], "scenario.json: not a format that cctrace reads"),
    ],
)
def test_analyze_refuses_files_of_the_wrong_kind_in_one_line(run, tmp_path, arguments, part):
    folder = datasets.path("loss_cubic_1pct")
    files = [folder / argument if (folder / argument).exists() else argument for argument in arguments]
    status, _, err = run("analyze", *files, "-o", tmp_path / "report")
    assert status == 2
    assert part in err
    assert err.count("\n") == 1
    assert not (tmp_path / "report").exists()


def test_analyze_refuses_counters_that_belong_to_no_flow(run, tmp_path):
    capture = datasets.path("loss_cubic_1pct", "sender.pcap.zst")
    other = datasets.path("single_bbr_1bdp", "tcpinfo.csv.zst")  # recorded minutes before
    status, _, err = run("analyze", capture, "--tcpinfo", other, "--no-effects", "-o", tmp_path)
    assert status == 2
    assert "single_bbr_1bdp" in err


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    """The clean BBR recording through the command line, with its counters and without, the controller given."""
    folder = tmp_path_factory.mktemp("replayed")
    capture, polls = (str(datasets.path("jitter_bbr_sd2ms", f)) for f in ("sender.pcap.zst", "tcpinfo.csv.zst"))
    command = ["analyze", capture, "--no-effects", "--json"]
    with contextlib.redirect_stdout(io.StringIO()) as known:
        assert cli.main([*command, "--tcpinfo", polls, "-o", str(folder / "known")]) == 0
    with contextlib.redirect_stdout(io.StringIO()) as assumed:
        assert cli.main([*command, "--controller", "bbr2022", "-o", str(folder / "assumed")]) == 0
    return folder, json.loads(known.getvalue())[0], json.loads(assumed.getvalue())[0]


def test_analyze_replays_the_controller_that_the_counters_name_and_says_how_far_it_agrees(replayed):
    folder, known, _ = replayed
    assert (known["controller"], known["replayed"]) == ("bbr", "bbr2022")
    assert known["agreement"]["bw_0.1%"] >= 0.95  # lossless: nothing hides the samples
    assert known["agreement"]["min_rtt_1%"] >= 0.99
    assert known["agreement"]["pacing_gain"] >= 0.85
    assert (folder / "known" / "flow0-agreement.parquet").exists()
    page = (folder / "known" / "report.html").read_text(encoding="utf-8")
    assert all(phase in page for phase in ("STARTUP", "PROBE_RTT", "pacing gain (replay)", "bw = kernel"))


def test_analyze_replays_a_given_controller_where_no_counters_name_one(replayed):
    import pandas as pd

    folder, _, assumed = replayed
    assert (assumed["controller"], assumed["replayed"], assumed["agreement"]) == (None, "bbr2022", None)
    with_counters, without = (pd.read_parquet(folder / n / "flow0-replay.parquet") for n in ("known", "assumed"))
    pd.testing.assert_frame_equal(with_counters, without)  # the counters are compared with, never used
    assert set(with_counters["phase"]) >= {"STARTUP", "DRAIN", "PROBE_BW", "PROBE_RTT"}
    assert not (folder / "assumed" / "flow0-agreement.parquet").exists()


@pytest.mark.parametrize(
    ("controller", "part"), [("obbr", "is of the QUIC stack"), ("bbr2023", "did you mean 'bbr2022'")]
)
def test_analyze_refuses_a_controller_it_cannot_replay_before_it_reads_anything(run, tmp_path, controller, part):
    broken = tmp_path / "broken.pcap"  # a header and nothing that could be read
    broken.write_bytes(bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000") + b"nonsense" * 4)
    status, _, err = run("analyze", broken, "--controller", controller, "-o", tmp_path)
    assert status == 2
    assert part in err
    assert "broken.pcap" not in err


def test_replay_prints_the_last_decision_and_the_agreement_and_writes_all_decisions(run, tmp_path):
    import pandas as pd

    capture, polls = (datasets.path("jitter_bbr_sd2ms", f) for f in ("sender.pcap.zst", "tcpinfo.csv.zst"))
    output = tmp_path / "decisions.parquet"
    status, out, err = run("replay", capture, "--controller", "bbr2022", "--tcpinfo", polls, "-o", output, "--json")
    assert (status, err) == (0, "")
    result = json.loads(out)
    decisions = pd.read_parquet(output)
    assert len(decisions) == result["calls"] > 10_000
    assert decisions["snd_cwnd"].iloc[-1] == result["last"]["snd_cwnd"]
    assert result["agreement"]["bw_1%"] >= 0.95
    status, out, _ = run("replay", capture, "--controller", "bbr2022", "--tcpinfo", polls)
    assert status == 0
    assert "agreement with the kernel" in out


VECTOR = GOLDEN / "bbr2" / "applim_s1.parquet"


def test_replay_takes_a_golden_vector_and_says_what_nobody_observed(run):
    vector = GOLDEN / "quic_bbr"
    vector = min(vector.glob("*.parquet"))
    status, out, _ = run("replay", vector, "--controller", "obbr:mu=0.75", "--json")
    assert status == 0
    assert json.loads(out)["params"]["mu"] == 0.75
    capture = datasets.path("loss_cubic_1pct", "sender.pcap.zst")
    status, out, err = run("replay", capture, "--controller", "obbr", "--json")
    assert status == 0
    assert json.loads(out)["warnings"]
    assert "nobody observed" in err


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nope.parquet"], "nope.parquet: no such file"),
        ([VECTOR, "--tcpinfo", __file__], "--tcpinfo belongs to a capture"),
        ([datasets.path("loss_cubic_1pct", "sender.pcap.zst"), "--flow", "7"], "--flow 7: "),
    ],
)
def test_replay_refuses_what_it_cannot_replay_in_one_line(run, arguments, part):
    status, _, err = run("replay", *arguments, "--controller", "bbr2022")
    assert status == 2
    assert part in err
    assert err.count("\n") == 1


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """The shipped CUBIC capture cut off inside a record, and its data direction alone."""
    import zstandard

    packed = datasets.path("loss_cubic_1pct", "sender.pcap.zst").read_bytes()
    whole = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    data, at = bytearray(whole[:24]), 24
    while at < len(whole):
        end = at + 16 + int.from_bytes(whole[at + 8 : at + 12], "little")
        if whole[at + 16 + 20 : at + 16 + 22] == (40001).to_bytes(2, "big"):  # raw IP: the TCP source port
            data += whole[at:end]
        at = end
    folder = tmp_path_factory.mktemp("halves")
    (folder / "cut.pcap").write_bytes(whole[:100_000])
    (folder / "data.pcap").write_bytes(data)
    return folder


def test_a_cut_off_capture_is_analysed_with_one_warning_that_says_where(run, halves, tmp_path):
    status, out, err = run("analyze", halves / "cut.pcap", "-o", tmp_path, "--json")
    assert status == 0
    assert json.loads(out)[0]["packets"] == 914
    assert err.count("warning") == 1
    assert "ends inside a record" in err


def test_a_capture_without_acknowledgements_is_refused_alone_and_noted_among_others(run, halves, tmp_path):
    status, _, err = run("analyze", halves / "data.pcap", "-o", tmp_path)
    assert status == 2
    assert "the acknowledgements are missing" in err
    assert err.count("\n") == 1
    status, out, err = run("analyze", halves / "data.pcap", halves / "cut.pcap", "-o", tmp_path, "--json")
    assert status == 0
    assert "the acknowledgements are missing" in err
    alone, good = json.loads(out)
    assert alone["rtt_min_us"] is None
    assert good["rtt_min_us"] > 40_000
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'id="flow0"' not in page
    assert '<a href="#flow1">' in page
    assert not list(tmp_path.glob("flow0-*"))


def test_every_public_name_can_be_imported():
    for name in cctrace.__all__:
        assert getattr(cctrace, name) is not None
    assert set(cctrace.__all__) <= set(dir(cctrace))


def test_type_checkers_see_the_same_public_names():
    """They and editors do not run `__getattr__`: the names stand there once more, for them."""
    tree = ast.parse(Path(cctrace.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    told = {
        name.name: f"{line.module}.{name.name}" if line.module == "cctrace" else line.module
        for line in block.body
        for name in line.names
    }
    assert told == cctrace._PUBLIC
    (written,) = (node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__")
    assert set(ast.literal_eval(written)) == {"__version__", *cctrace._PUBLIC}  # mypy computes no `*_PUBLIC`
    with pytest.raises(AttributeError, match="nosuch"):
        cctrace.nosuch  # noqa: B018


def test_help_shows_examples_on_lines_of_their_own():
    r"""Click takes a `\b` for "do not wrap" only on a line of its own, and prints a backspace otherwise."""
    texts = {"cctrace": cli.commands.get_help(click.Context(cli.commands))}
    for name in cli.commands.list_commands(click.Context(cli.commands)):
        command = cli.commands.get_command(click.Context(cli.commands), name)
        texts[name] = command.get_help(click.Context(command, info_name=name))
    assert not [name for name, text in texts.items() if "\b" in text]
    assert "\n  cctrace sweep --rate" in texts["sweep"]
