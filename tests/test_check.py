"""`cctrace check`: expectations hold of captures, counters, simulations and folders, or the exit status says not."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import cctrace as cct
from cctrace.checking.expectations import FIGURES, NAMES, read, selects
from cctrace.checking.figures import converged_ns
from cctrace.errors import ArgumentError, FormatError, StreamError
from cctrace.lang.cache import cache_dir
from tests.places import REPOSITORY

DOCS = (REPOSITORY / "docs" / "check.md").read_text(encoding="utf-8")
ACTION = yaml.safe_load((REPOSITORY / "action.yml").read_text(encoding="utf-8"))
LOSS = cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")
COMPETE = cct.datasets.path("compete_bbr_cubic_2bdp", "sender.pcap.zst")
PATH = cct.Path(rate="5Mbit", rtt="20ms", buffer="2bdp")


def found(source, **expected):
    (one,) = cct.check(source, expected).checks
    return one


def test_the_page_shows_what_the_command_prints(run, tmp_path, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    file = tmp_path / "expectations.toml"
    file.write_text(re.search(r"```toml\n(.*?)```", DOCS, re.S)[1], encoding="utf-8")
    status, out, _ = run("check", "datasets/single_bbr_1bdp", "--expect", file, "--junit", tmp_path / "out.xml")
    assert status == 1
    assert out == re.search(r"```\n(file .*?)```", DOCS, re.S)[1]
    suite = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("6", "2")
    (message,) = {case[0].get("message") for case in suite if len(case) and "rtt_p95" in case.get("name")}
    assert message == "expected rtt_p95 <= 60ms, found 65.9 ms"


def test_every_key_of_the_page_is_one_and_every_key_stands_on_the_page():
    keys = set(re.findall(r"^\| `(\w+)` \|", DOCS, re.M))
    assert keys == {*FIGURES, *NAMES, "flows", "files"}
    for block in re.findall(r"```toml\n(.*?)```", DOCS, re.S):
        assert read(tomllib.loads(block))


def test_the_tests_of_the_page_pass_and_a_failing_one_says_what_was_found(tmp_path):
    (tests,) = re.findall(r"```python\n(.*?)```", DOCS, re.S)
    failing = "\ndef test_no(cctrace):\n    cctrace.expect(cctrace.datasets.path('web_server'), jain='>= 0.9')\n"
    (tmp_path / "test_page.py").write_text(tests + failing, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "cctrace.pytest_plugin", tmp_path]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "1 failed, 2 passed" in result.stdout, result.stdout
    assert "jain >= 0.9: unknown: fairness needs two flows or more" in result.stdout


def step_of_action(command, folder, inputs, **environment):
    """Run a command of action.yml as a runner does: bash, its inputs as env; return the process, and the summary."""
    (step,) = (one for one in ACTION["runs"]["steps"] if command in one.get("run", ""))
    given = {name: row.get("default") for name, row in ACTION["inputs"].items()} | inputs
    environment["GITHUB_STEP_SUMMARY"], environment["GITHUB_ACTION_PATH"] = str(folder / "summary.md"), str(REPOSITORY)
    for name, value in step.get("env", {}).items():
        environment[name] = re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], value)
    (folder / "step.sh").write_text(step["run"], encoding="utf-8")
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "step.sh"]
    ran = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return ran, (folder / "summary.md").read_text(encoding="utf-8") if (folder / "summary.md").exists() else ""


def check_by_action(folder, path, captures, expected="goodput = '>= 1Mbit'"):
    (folder / "expect of mine.toml").write_text(expected, encoding="utf-8")
    inputs = {"captures": captures, "expect": "expect of mine.toml", "junit": "of mine.xml"}
    environment = {"PATH": f"{path}:{os.environ['PATH']}", "HOME": str(folder)}
    return step_of_action("cctrace check", folder, inputs, CCTRACE_CACHE=str(cache_dir()), **environment)


def test_the_action_checks_captures_and_runs_nothing_that_its_inputs_say(tmp_path):
    path = Path(sys.executable).parent
    (tmp_path / "a").mkdir()
    shutil.copy(cct.datasets.path("single_bbr_1bdp", "sender.pcap.zst"), tmp_path / "a" / "one.pcap.zst")
    ran, summary = check_by_action(tmp_path, path, "a/one.pcap.zst a")
    assert ran.returncode == 0, ran.stderr
    assert "2 of 2 expectations hold" in summary
    assert 'failures="0"' in (tmp_path / "of mine.xml").read_text(encoding="utf-8")
    ran, summary = check_by_action(tmp_path, path, "a", "goodput = '>= 1Gbit'")
    assert (ran.returncode, "0 of 1 expectations hold" in summary) == (1, True)
    for hostile in ("$(touch x) `touch x`", "a; touch x", "--help", "a --json"):
        assert check_by_action(tmp_path, path, hostile)[0].returncode == 2
        assert not (tmp_path / "x").exists()


@pytest.mark.external
def test_the_action_installs_what_it_runs_in_a_clean_environment(tmp_path):
    venv.create(tmp_path / "python", with_pip=True)
    path = tmp_path / "python" / "bin"
    ran, _ = step_of_action("pip install", tmp_path, {}, PATH=f"{path}:{os.environ['PATH']}", HOME=str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    ran, summary = check_by_action(tmp_path, path, str(cct.datasets.path("single_bbr_1bdp")))
    assert (ran.returncode, "1 of 1 expectations hold" in summary) == (0, True), ran.stderr


def test_the_action_has_the_fields_of_a_composite_action():
    """What docs.github.com's metadata syntax requires: a shell with every command, a version with every action used."""
    assert set(ACTION) <= {"name", "description", "author", "inputs", "runs"}
    assert ACTION["name"]
    assert ACTION["description"]
    for row in ACTION["inputs"].values():
        assert row["description"]
        assert set(row) <= {"description", "required", "default"}
        assert row.get("required", False) != ("default" in row)
        assert isinstance(row.get("default", ""), str)
    assert (set(ACTION["runs"]), ACTION["runs"]["using"]) == ({"using", "steps"}, "composite")
    for step in ACTION["runs"]["steps"]:
        assert ("run" in step) != ("uses" in step)
        assert ("run" in step) == ("shell" in step)
        assert "${{" not in step.get("run", "")  # inputs reach commands as variables only
        assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step.get("uses", "a/b@v1"))


def test_the_action_and_the_entry_point_name_what_there_is():
    action = (REPOSITORY / "action.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", action)) == set(
        re.findall(r"^  ([\w-]+):$", action.partition("runs:")[0], re.M)
    )
    assert "pytest11 =\n    cctrace = cctrace.pytest_plugin" in (REPOSITORY / "setup.cfg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("goodput = ", "not TOML"),
        ("goodput = '35Mbit'", "goodput='35Mbit': a bound with >= or <=, for example '>= 35Mbit'"),
        ("goodput = '>= 35'", "goodput='35' is not a rate; write it with its unit"),
        ("jain = 0.9", "jain=0.9: a bound with"),
        ("rtt_p96 = '<= 1ms'", "rtt_p96='<= 1ms': rtt_p96 is not one of goodput, rtt_p95"),
        ("verdict = ['path_ful']", "verdict='path_ful': none of the verdicts, "),
        ("controller = 'bbbr'", "controller='bbbr': "),
        ("controller = []", "controller=[]: a name, or a list of names"),
        ("flows = ':99999'\njain = '>= 1'", "flows=':99999': use largest, all, an address"),
        ("flows = 'all'", "nothing is expected of these flows"),
        ("", "nothing is expected"),
        ("expect = 3", "expect=3: write it as tables, [[expect]]"),
        ("[[expect]]\nfiles = 3\njain = '>= 1'", "expect 1: files=3: a text"),
    ],
)
def test_a_mistake_in_the_expectations_is_one_line_that_names_it(run, tmp_path, text, said):
    file = tmp_path / "e.toml"
    file.write_text(text, encoding="utf-8")
    status, out, err = run("check", LOSS, "--expect", file)
    assert (status, out) == (2, "")
    assert err.startswith(f"cctrace: {file}: ")
    assert said in err
    assert err.count("\n") == 1


def test_flows_and_files_that_are_not_there_are_errors():
    with pytest.raises(ArgumentError, match=r"flows=':9': .*no such flow; it has 10\.99\.0\.1:40001 → 10\.99"):
        cct.check(COMPETE, {"flows": ":9", "goodput": ">= 1bit"})
    with pytest.raises(ArgumentError, match="files='nosuch': no file"):
        cct.check(COMPETE.parent, {"files": "nosuch", "goodput": ">= 1bit"})
    with pytest.raises(ArgumentError, match="source=int: a capture"):
        cct.check(3, {"goodput": ">= 1bit"})
    with pytest.raises(FormatError, match="not TOML"):
        read(LOSS)


def test_flows_are_selected_by_size_address_and_port():
    largest, second = [one.flow for one in cct.check(COMPETE, {"flows": "all", "goodput": ">= 1bit"}).checks]
    assert found(COMPETE, goodput=">= 1bit").flow == largest
    assert found(COMPETE, goodput=">= 1bit", flows=":5001").flow == second
    assert found(COMPETE, goodput=">= 1bit", flows="10.99.0.1:40001").flow == second
    assert len(cct.check(COMPETE, {"flows": "10.99.0.2", "goodput": ">= 1bit"}).checks) == 2
    assert selects("2001:db8::1", [("2001:db8::1", 443)])
    assert selects("[2001:db8::1]:443", [("2001:db8::1", 443)])
    assert not selects("2001:db8::1", [("2001:db8::11", 443)])


def test_figures_are_those_of_the_table_of_flows():
    row = cct.read(LOSS).flow(0).row
    assert found(LOSS, goodput=">= 1bit").value == row["goodput_bps"]
    assert found(LOSS, rtt_p95="<= 1s").value == row["rtt_p95_us"] * 1000
    assert found(LOSS, retransmitted="<= 1").value == row["retransmitted_segments"] / row["segments_sent"]
    goodputs = cct.read(COMPETE).flows["goodput_bps"].to_numpy()
    assert found(COMPETE, flows="all", jain=">= 0").value == pytest.approx(
        goodputs.sum() ** 2 / 2 / (goodputs**2).sum()
    )


def test_a_bound_holds_at_its_very_value_and_in_its_direction():
    exactly = f"{found(LOSS, retransmitted='<= 1').value!r}"
    for sign in ("<=", ">="):
        assert found(LOSS, retransmitted=f"{sign} {exactly}").holds
    assert not found(LOSS, retransmitted=">= 5%").holds
    assert found(LOSS, retransmitted="<= 5%").holds


def test_names_are_compared_with_who_sent_and_what_limited_the_flow():
    expected = {
        ("controller", "cubic"): True,
        ("controller", "cubic6"): True,
        ("controller", "bbr2022"): False,
        ("controller", "reno"): False,
        ("verdict", "random_loss"): True,
        ("verdict", "path_full"): False,
        ("no_verdict", "random_loss"): False,
        ("no_verdict", "policer"): True,
    }
    checked = cct.check(LOSS, [{key: [name]} for key, name in expected] + [{"controller": ["reno", "cubic"]}])
    assert [one.holds for one in checked.checks] == [*expected.values(), True]


def test_counters_are_checked_as_captures_are():
    polls = cct.datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst")
    checked = cct.check(polls, {"goodput": ">= 3Mbit", "rtt_p95": "<= 60ms", "converged": "<= 2s"})
    assert checked.holds, checked.summary()


def test_the_rtt_of_a_capture_at_the_receiver_is_the_senders():
    receiver = cct.datasets.path("loss_cubic_1pct", "receiver.pcap.zst")
    assert found(receiver, rtt_p95=">= 40ms").holds  # the base RTT; between receiver and capture there is none


def test_simulations_are_checked_by_their_figures_and_say_what_they_lack():
    sim = cct.simulate(PATH, ["cubic6", "reno"], "8s", sample="100ms")
    checked = cct.check(sim, {"flows": "all", "goodput": ">= 1Mbit", "controller": "cubic", "jain": ">= 0.5"})
    assert [(one.key, one.flow, one.holds) for one in checked.checks] == [
        ("goodput", "1: reno", True),  # the largest first
        ("goodput", "0: cubic6", True),
        ("controller", "1: reno", False),
        ("controller", "0: cubic6", True),
        ("jain", "2 flows", True),
    ]
    assert found(sim, converged="<= 8s", flows="all").found != "unknown"
    assert "packets=True" in found(sim, verdict="path_full").found
    assert "sample=" in found(cct.simulate(PATH, "cubic6", "1s"), converged="<= 8s").found
    kept = cct.simulate(PATH, "cubic6", "8s", packets=True)
    assert found(kept, no_verdict="random_loss").holds
    assert found(kept, converged="<= 2s").holds


def test_a_result_can_be_read_by_people_programs_and_tables():
    checked = cct.check([LOSS, COMPETE], {"goodput": ">= 10Mbit"})
    assert checked.summary().startswith("1 of 2 expectations hold\n")
    assert json.loads(checked.to_json())["checks"][0]["holds"] is False
    assert checked.frame()["holds"].tolist() == [False, True]


def steps(*parts, bin_ns=10_000_000):
    """Acknowledgements every 10 ms at (rate, seconds) after each other."""
    per_bin = np.concatenate([np.full(int(seconds * 100), rate) for rate, seconds in parts])
    return np.arange(len(per_bin) + 1) * bin_ns, np.append(0, np.cumsum(per_bin))


def test_the_time_to_converge_is_when_the_rate_first_stays():
    assert converged_ns([steps((1, 3), (10, 7))]) == 3e9
    assert converged_ns([steps((10, 0.3), (1, 3), (10, 7))]) == 3.3e9  # three bins are not yet held
    assert converged_ns([steps((10, 10))]) == 0
    assert converged_ns([steps((9, 5), (1, 5)), steps((1, 5), (1, 5))]) == 5e9
    assert math.isinf(converged_ns([steps((9, 10)), steps((1, 10))]))
    with pytest.raises(StreamError, match="too short"):
        converged_ns([steps((1, 0.5))])


@given(st.lists(st.integers(1, 50), min_size=30, max_size=100), st.integers(2, 1000))
def test_the_time_to_converge_does_not_depend_on_the_unit(rates, factor):
    one = steps(*[(rate, 0.1) for rate in rates])
    assert converged_ns([one]) == converged_ns([(one[0], one[1] * factor)])


def test_conformity_to_specifications_can_be_expected():
    assert found(LOSS, conform=["cubic", "prr"]).found == "conforms"
    other = found(LOSS, conform="bbr")
    assert not other.holds
    assert other.found.startswith("unknown: identify says cubic6, which spec='bbr' does not describe")
    with pytest.raises(ArgumentError, match="specifications are bbr, cubic, reno, prr"):
        cct.check(LOSS, {"conform": "rfc"})
    counters = cct.check(cct.datasets.path("web_server", "ss.txt.gz"), {"conform": "cubic"}).checks[0]
    assert (counters.holds, counters.found.startswith("unknown: conformity needs packets")) == (False, True)


def test_who_sent_a_flow_is_asked_once_for_all_its_specifications(monkeypatch):
    from cctrace.identification import identify as module

    asked, identify = [], module.identify
    monkeypatch.setattr(module, "identify", lambda flow: asked.append(flow) or identify(flow))
    assert found(LOSS, conform=["cubic", "prr"]).holds
    assert len(asked) == 1
