"""The server for agents: what its tools answer, what it refuses, and that it reads and writes nothing else."""

import asyncio
import base64
import inspect
import json
import os
import sys

import pytest

import cctrace as cct
from cctrace import datasets
from cctrace.errors import ArgumentError, MissingError
from cctrace.mcp import files
from cctrace.mcp.answers import LONGEST, Picture, answer, some
from cctrace.mcp.captures import Captures
from cctrace.mcp.files import Files
from cctrace.mcp.paths import fit_path, plot, simulate, what_if
from cctrace.mcp.worker import TOOLS, Failed, Worker, signature, tool

pytest.importorskip("mcp")
FILE = "loss_cubic_1pct/sender.pcap.zst"
COUNTERS = "loss_cubic_1pct/tcpinfo.csv.zst"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with recordings, and links that lead out of it and within it."""
    folder = tmp_path_factory.mktemp("root")
    for name in ("loss_cubic_1pct", "web_server"):
        (folder / name).mkdir()
        for file in datasets.path(name).iterdir():
            (folder / name / file.name).write_bytes(file.read_bytes())
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.pcap").write_bytes(b"\xd4\xc3\xb2\xa1secret")
    (folder / "out.pcap").symlink_to(outside / "secret.pcap")
    (folder / "folder").symlink_to(outside)
    (folder / "inside.pcap.zst").symlink_to(folder / FILE)
    (folder / "note.txt").write_text("not a capture")
    return folder


@pytest.fixture(scope="module")
def captures(root):
    return Captures(Files.below(root))


def test_captures_and_counters_below_the_root_are_listed_and_links_are_not(captures):
    found = captures.list_captures()
    listed = {one["file"]: one["kind"] for one in found["files"]}
    assert listed[FILE] == "capture"
    assert listed[COUNTERS] == listed["web_server/ss.txt.gz"] == "counters"
    assert not {"out.pcap", "inside.pcap.zst", "folder/secret.pcap", "note.txt"} & set(listed)
    assert captures.list_captures("web_server")["more"] is False


def test_a_list_that_is_too_long_says_so(captures, monkeypatch):
    monkeypatch.setattr(files, "MAX_LISTED", 1)
    found = captures.list_captures()
    assert (len(found["files"]), found["more"]) == (1, True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("out.pcap", "is outside of the folder"),
        ("folder/secret.pcap", "is outside of the folder"),
        ("../outside0/secret.pcap", "is outside of the folder"),
        ("/etc/passwd", "is outside of the folder"),
        ("nothing.pcap", "is no file below the root"),
        ("loss_cubic_1pct", "is a folder: list_captures"),
        ("a\0b", "no such name"),
        ("x\x1b[31m", r"'x\\\\x1b\[31m' is no file"),
    ],
)
def test_only_files_below_the_root_are_read(captures, name, said):
    with pytest.raises(ArgumentError, match=said):
        captures.flows(name)


def test_a_link_within_the_root_is_read(captures):
    assert captures.flows("inside.pcap.zst")["count"] == 1


def test_files_that_are_too_large_are_refused(captures, monkeypatch):
    monkeypatch.setattr(files, "LARGEST", 1000)
    with pytest.raises(ArgumentError, match=r"are more than 1 kB"):
        captures.flows("web_server/sender.pcap.zst")


def test_flows_are_those_of_the_capture(captures, flow):
    found = captures.flows(FILE)
    (row,) = found["rows"]
    assert row["bytes_sent"] == flow.row["bytes_sent"]
    assert row["retransmitted_segments"] == 57
    assert captures.flows("web_server/sender.pcap.zst", limit=2)["count"] == 11
    assert len(captures.flows("web_server/ss.txt.gz")["rows"]) > 1


def test_a_flow_is_explained_with_evidence(captures):
    found = captures.explain(FILE)
    assert (found["cause"], found["controller"] or found["variant"]) == ("random_loss", "cubic6")
    assert found["verdicts"][0]["evidence"]["lost"] == 57
    assert sum(found["limits"].values()) == pytest.approx(1)
    assert captures.explain(FILE, tcpinfo=COUNTERS)["cause"] == "random_loss"
    assert captures.explain("web_server/ss.txt.gz")["verdicts"]


def test_limits_events_and_packets_are_of_the_time_that_is_asked(captures, flow):
    spans = captures.limits(FILE, from_s=2.0, to_s=3.0)["rows"]
    assert all(span["end_s"] > 2.0 and span["start_s"] < 3.0 for span in spans)
    near = captures.events(FILE, around_s=3.0, within_s=0.5)
    assert all(2.5 <= one["start_s"] <= 3.5 for one in near["rows"])
    again = captures.packets(FILE, kind="resent", limit=500)
    assert again["by_reason"] == {"RACK": 57}
    assert [row["time_s"] for row in again["rows"]] == pytest.approx(flow.retransmissions["time_s"].tolist())
    assert captures.packets(FILE, from_s=1.0, to_s=2.0, limit=3)["count"] > 100
    (ack,) = captures.packets(FILE, kind="acks", from_s=1.0, limit=1)["rows"]
    assert {"ack", "window_bytes", "cwnd", "rtt_us", "tcp_state"} <= set(ack)


def test_the_state_at_a_time_is_that_of_a_replay(captures, flow):
    run = cct.replay(flow, "cubic6").decisions
    held = captures.state_at(FILE, 3.0)
    before = run[run["time_s"] <= 3.0].iloc[-1]
    assert (held["controller"], held["cwnd_segments"]) == ("cubic6", before["snd_cwnd"])
    assert captures.state_at(FILE, 3.0, controller="bbr3")["mode"] in ("PROBE_BW", "PROBE_RTT")
    with pytest.raises(ArgumentError, match=r"time_s=99: the flow lasts from 0 to 21\.348 s"):
        captures.state_at(FILE, 99.0)
    with pytest.raises(ArgumentError, match="the server runs no files"):
        captures.state_at(FILE, 3.0, controller="evil.py:Class")


def test_the_controller_and_the_path_are_found(captures):
    assert captures.identify(FILE)["group"][0] == "cubic6"
    found = fit_path(captures, FILE)
    assert found["rate_bps"][0]["value"] == pytest.approx(40e6, rel=0.02)
    assert found["loss"]["random"] == 57


def test_simulations_are_those_of_the_library_and_bounded(captures):
    path = cct.Path(rate="5Mbit", rtt="20ms", buffer="1bdp")
    same = cct.simulate(path, "reno", "2s", 3).flows["goodput_bps"][0]
    found = simulate(captures, ["reno"], "5Mbit", "20ms", duration="2s", seed=3)
    assert found["flows"][0]["goodput_bps"] == pytest.approx(same)
    for arguments, said in (
        ({"duration": "1h"}, "at most 300 s"),
        ({"rate": "100Gbit"}, "at most 10 Gbit/s"),
        ({"controllers": []}, "allowed are 1 to 8"),
        ({"controllers": ["x.py:Y"]}, "the server runs no files"),
    ):
        with pytest.raises(ArgumentError, match=said):
            simulate(captures, **({"controllers": ["reno"], "rate": "5Mbit", "rtt": "20ms"} | arguments))


def test_what_if_wants_a_question(captures):
    with pytest.raises(ArgumentError, match="name a controller, or a change of the path"):
        what_if(captures, FILE)
    with pytest.raises(ArgumentError, match="draws=100 must be an integer from 3 to 20"):
        what_if(captures, FILE, controllers=["bbr3"], draws=100)


def test_a_plot_is_a_png(captures):
    picture = plot(captures, FILE, graph="ladder", packets=10)
    assert picture.png.startswith(b"\x89PNG")
    assert base64.b64decode(picture.base64) == picture.png
    with pytest.raises(ArgumentError, match="graph='pie' is not one of overview"):
        plot(captures, FILE, graph="pie")


def test_counters_have_no_packets(captures):
    with pytest.raises(ArgumentError, match="holds counters, and this asks for packets"):
        captures.packets(COUNTERS)
    with pytest.raises(ArgumentError, match="holds no counters"):
        captures.explain(FILE, tcpinfo="inside.pcap.zst")


def test_answers_are_bounded_and_drive_no_terminal():
    assert answer({"name": "\x1b[2J", "x": float("inf"), "y": (1, 2.0)}) == {
        "name": "\\x1b[2J",
        "x": None,
        "y": [1, 2.0],
    }
    with pytest.raises(ArgumentError, match="characters, and 100000 are allowed: ask for less"):
        answer({"text": "a" * LONGEST})
    with pytest.raises(ArgumentError, match="limit=501 must be an integer from 1 to 500"):
        some([], 501)


def test_every_tool_says_what_it_does_and_takes_what_json_can_hold():
    for name in TOOLS:
        assert len(inspect.getdoc(tool(name))) > 40
        for parameter in signature(name).parameters.values():
            assert str(parameter.annotation).replace("collections.abc.", "") in (
                *("<class 'str'>", "<class 'int'>", "<class 'float'>", "int | None", "float | None", "str | None"),
                "Sequence[str]",
            )


@pytest.fixture(scope="module")
def worker(root):
    one = Worker(str(root), 120)
    yield one
    one.close()


def test_a_call_that_takes_too_long_is_ended_and_the_next_one_answered(worker, monkeypatch):
    assert worker.call("flows", {"file": FILE})["count"] == 1
    monkeypatch.setattr(worker, "_seconds", 0.0)
    with pytest.raises(Failed, match="explain took more than 0 s and was ended: ask for less"):
        worker.call("explain", {"file": FILE})
    monkeypatch.setattr(worker, "_seconds", 120)
    with pytest.raises(Failed, match=r"^file 'out\.pcap' is outside of the folder that this server reads$"):
        worker.call("flows", {"file": "out.pcap"})
    with pytest.raises(Failed, match=r"^note\.txt: ") as refused:
        worker.call("flows", {"file": "note.txt"})
    assert "\n" not in str(refused.value)


def test_an_agent_is_answered_over_standard_input_and_output(root):
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    before = sorted(os.walk(root))
    arguments = ["-m", "cctrace", "mcp", "--root", str(root)]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))

    async def ask():
        async with Client(stdio_client(server)) as client:
            tools = (await client.list_tools()).tools
            pages = (await client.list_resources()).resources
            guide = (await client.read_resource("cctrace://docs/agents")).contents[0].text
            calls = [
                ("flows", {"file": FILE}),
                ("simulate", {"controllers": ["reno"], "rate": "5Mbit", "rtt": "20ms", "duration": "1s"}),
                ("flows", {"file": "/etc/passwd"}),
                ("flows", {}),
                ("flows", {"file": FILE, "path": "x"}),
                ("limits", {"file": FILE, "limit": "many"}),
                ("nothing", {}),
            ]
            return tools, pages, guide, [await client.call_tool(*call) for call in calls]

    tools, pages, guide, results = asyncio.run(ask())
    assert {one.name for one in tools} == set(TOOLS)
    assert {"explain", "howto", "agents"} <= {page.name for page in pages}
    assert guide.startswith("# ")
    assert [one.is_error for one in results] == [False, False, True, True, True, True, True]
    assert json.loads(results[0].content[0].text)["rows"][0]["retransmitted_segments"] == 57
    sentences = [one.content[0].text for one in results[2:]]
    assert sentences[0] == "file '/etc/passwd' is outside of the folder that this server reads"
    assert sentences[1] == "flows: argument file: field required"
    assert sentences[2] == "flows takes file, limit, not path"
    assert sentences[3].startswith("limits: argument limit: input should be a valid integer")
    assert all("\n" not in text for text in sentences)
    assert sorted(os.walk(root)) == before


def test_the_command_says_what_it_needs(run, tmp_path, monkeypatch):
    assert run("mcp", "--root", tmp_path / "none")[2].startswith(f"cctrace: --root {tmp_path}/none: no such folder")

    def missing(module, extra):
        raise MissingError(f"this needs {module}, which is not installed: pip install 'cctrace[{extra}]'")

    monkeypatch.setattr("cctrace.cli.mcp.needed", missing)
    status, _, err = run("mcp")
    assert (status, err) == (2, "cctrace: this needs mcp, which is not installed: pip install 'cctrace[mcp]'\n")


def test_no_answer_says_where_the_root_is(worker, root):
    flow = worker.call("flows", {"file": "web_server/sender.pcap.zst"})["rows"][3]["flow"]
    texts = [json.dumps(worker.call(name, {"file": FILE})) for name in ("flows", "explain")]
    texts.append(json.dumps(worker.call("explain", {"file": "web_server/sender.pcap.zst", "flow": flow})))
    assert not any(str(root) in text for text in texts)


def test_a_picture_holds_its_bytes():
    assert Picture(b"\x89PNG").base64 == "iVBORw=="


def test_a_process_whose_server_ends_during_a_call_ends_without_an_error(tmp_path):
    worker = Worker(str(tmp_path), 10)
    connection = worker._begun()
    connection.send(("list_captures", {}))
    connection.close()
    worker._process.join(60)
    assert worker._process.exitcode == 0
