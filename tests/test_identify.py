"""Who sent a flow: seen from sender, receiver and counters; strangers, recordings, and what is refused."""

import importlib
import json

import numpy as np
import pytest

import cctrace as cct
from benchmarks.identify import from_ss, simulated
from cctrace.cli import main
from cctrace.errors import ArgumentError, StreamError
from cctrace.identification.constants import FINEST_SCALE, GROUP_RATIO, MAX_AGAINST, MIN_OBSERVATIONS, WRONG_WINDOWS
from cctrace.identification.flights import flights_of, likelihoods
from cctrace.identification.identify import CANDIDATES, identify_files
from cctrace.identification.odds import UNKNOWN, probabilities, wrong_factor
from cctrace.identification.sends import record_of, replay_of
from tests.places import RECORDINGS


@pytest.mark.parametrize(("name", "number"), [(name, k % 3) for k, name in enumerate(CANDIDATES)])
def test_a_simulated_flow_is_of_its_sender_or_of_what_decides_alike(name, number, tmp_path):
    found = cct.identify(simulated(name, number, 7, "6s", tmp_path))
    assert name in found.group
    assert sum(p for _, p in found.candidates) == pytest.approx(1)
    assert {one for one, _ in found.candidates} == {*CANDIDATES, UNKNOWN}
    best = found.candidates[0].probability
    assert all((p * GROUP_RATIO >= best) == (one in found.group) for one, p in found.candidates if one != UNKNOWN)


@pytest.mark.parametrize("name", ["cubic6", "reno", "bbr2022", "bbr3"])
def test_the_receivers_capture_names_the_sender_too(name, tmp_path):
    flow = simulated(name, 0, 21, "6s", tmp_path, side="receiver")
    assert flow.taken_at == "receiver"
    assert name in cct.identify(flow).group


@pytest.mark.parametrize("name", ["cubic", "reno", "bbr2016", "bbr2022", "bbr2", "bbr2plus", "bbr3"])
@pytest.mark.parametrize("fields", [True, False], ids=["with BBR's fields", "without"])
def test_polls_of_ss_name_the_sender(name, fields, tmp_path):
    assert name in from_ss(name, 0, 21, "6s", tmp_path, bbr_fields=fields).group


@pytest.mark.parametrize("name", ["Delay", "bbrx"])
def test_nobody_is_named_for_a_stranger(name, tmp_path):
    assert cct.identify(simulated(name, 0, 7, "6s", tmp_path)).group == (UNKNOWN,)


@pytest.mark.parametrize("recording", sorted(set(cct.datasets.catalogue()) - {"web_server"}))
def test_the_senders_of_the_shipped_recordings_are_named(recording):
    folder = cct.datasets.path(recording)
    flows = json.loads((folder / "scenario.json").read_text())["parameters"]["flows"]
    senders = {flow["sport"]: {"bbr": "bbr2022", "cubic": "cubic6"}[flow["cc"]] for flow in flows}
    identified = list(identify_files([cct.datasets.path(recording, "sender.pcap.zst")]))
    assert len(identified) == len(flows)
    for _, flow, found in identified:
        assert senders.get(flow.key[1], next(iter(senders.values()))) in found.group
        assert found.candidates[0].name != UNKNOWN


def test_counters_are_identified_by_what_they_do_not_by_the_name_they_tell():
    table = cct.read(cct.datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst"))
    before = cct.identify(table.flow(0))
    table.connections[0]["cc"] = "bbr"
    assert cct.identify(table.flow(0)).candidates == before.candidates
    assert "cubic6" in before.group


def test_addresses_and_ports_decide_nothing(tmp_path):
    flow = simulated("reno", 0, 7, "5s", tmp_path)
    before = cct.identify(flow).candidates
    for end in ("sport", "dport"):
        flow.capture.packets.connections[end][:] = 443
    for end in ("src", "dst"):
        flow.capture.packets.connections[end][:] = "192.0.2.1"
    assert cct.identify(cct.read(tmp_path / "sender.pcap").flow(0)).candidates == before
    assert cct.identify(flow).candidates == before


def test_the_more_is_explained_the_surer_and_equals_come_with_the_newest_first():
    found = probabilities({"new": 3.0, "old": 3.0, "other": 1.0}, 2.0)
    assert [candidate.name for candidate in found[:2]] == ["new", "old"]
    shares = dict(found)
    assert shares["other"] / shares["new"] == pytest.approx(np.exp(-2))
    assert shares[UNKNOWN] == pytest.approx(1 / (1 + np.exp(2)))
    assert dict(probabilities({"a": 0.0}, -10.0))[UNKNOWN] > 0.99


def test_the_scale_of_what_is_off_is_found_and_never_finer_than_a_clock_allows():
    rng = np.random.default_rng(1)
    _, scale = likelihoods(rng.laplace(0, 0.1, 2000))
    assert scale == pytest.approx(0.1, rel=0.15)
    each, scale = likelihoods(np.zeros(100))
    assert scale == FINEST_SCALE
    assert np.all(each > likelihoods(np.full(100, 0.3))[0])


def test_a_wrong_factor_of_reductions_counts_against_a_candidate():
    class One:
        error_after_reductions = 0.25
        reductions = 4
        other_reductions = 0
        lesser_reductions = 0

    assert wrong_factor(One) == MAX_AGAINST
    One.reductions = 1
    assert wrong_factor(One) == pytest.approx(MAX_AGAINST / MIN_OBSERVATIONS)
    One.error_after_reductions = np.nan
    assert wrong_factor(One) == 0


def test_what_cannot_be_identified_is_refused_by_name(tmp_path):
    with pytest.raises(ArgumentError, match="cannot identify 'int'"):
        cct.identify(1)
    table = cct.read(cct.datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst"))
    few = table.flow(0)
    few.polls.columns["rtt"][5:] = 0
    with pytest.raises(StreamError, match="polls have cwnd, RTT and progress; identify needs 10"):
        cct.identify(few)


def test_the_command_lists_flows_as_json(tmp_path, capsys):
    simulated("reno", 0, 7, "5s", tmp_path)
    file = str(tmp_path / "sender.pcap")
    assert main(["identify", file, "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert one["candidates"][0]["name"] in one["group"] == ["reno"]
    assert one["flow"]["bytes_sent"] > 0
    assert one["seconds"] > 0
    assert "upon ACKs" in one["reason"]
    assert main(["identify", file]) == 0
    assert "reno" in capsys.readouterr().out
    assert main(["identify", str(cct.datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst")), "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert "cubic6" in one["group"]


def test_analyze_replays_whom_it_identifies_and_lists_the_candidates(tmp_path, capsys):
    simulated("bbr3", 0, 7, "5s", tmp_path)
    assert main(["analyze", str(tmp_path / "sender.pcap"), "-o", str(tmp_path / "report"), "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert one["controller"] is None
    assert one["replayed"] == "bbr3"
    assert one["candidates"][0]["name"] == "bbr3"
    assert one["candidates"][0]["probability"] > 0.9


@pytest.mark.parametrize("enabled", [0, 1])
@pytest.mark.parametrize("cc", ["bbr2", "bbr3"])
def test_sends_show_whether_a_bbr_heeds_marks(cc, enabled):
    path = cct.Path(rate="40Mbit", rtt="3ms", buffer="100packets", ecn_threshold="5kB")
    sender = cct.Sender(f"{cc}:ecn_enable={enabled}", ecn=True, ack_every=2)
    flow = cct.simulate(path, sender, "4s", seed=3, packets=True).capture().flow(0)
    assert flow.ecn.delivered_ce > 0
    assert cct.identify(flow).group == (cc,)
    assert cct.replay(flow, cc).params["ecn_enable"] == enabled
    assert cct.replay(flow, f"{cc}:ecn_enable={1 - enabled}").params["ecn_enable"] == 1 - enabled  # as asked for


def test_a_window_that_prague_leaves_open_for_its_pacing_timer_is_no_wrong_window():
    path = cct.Path(rate="10Mbit", rtt="20ms", buffer="200packets", aqm="pie")
    sim = cct.simulate(path, "prague2020", "8s", ecn="accurate", ack_every=2, seed=2, packets=True)
    record = record_of(sim.capture().flow(0)).part()
    wrong = flights_of(record, replay_of(record, "prague2020")).wrong_windows
    assert wrong.acks > 1000
    assert wrong.share < WRONG_WINDOWS


def test_a_window_that_a_paced_socket_leaves_open_for_its_timer_is_no_wrong_window(tmp_path):
    path = cct.Path(rate="6.53Mbit", rtt="83ms", buffer="2.66bdp")
    sender = cct.Sender("reno:paced=1", app="chunks:size=306976B,every=500ms")  # before it is filled, all is written
    cct.simulate(path, sender, "12s", 1, packets=True, profile="linux").to_pcap(tmp_path / "paced")
    record = record_of(cct.read(tmp_path / "paced").flow(0))
    replay = replay_of(record, "reno")
    assert replay.paced
    assert flights_of(record, replay).wrong_windows.share == 0
    replay = replay._replace(sends=replay.sends - 5)  # whose timer explains nothing
    assert flights_of(record, replay).wrong_windows.share > WRONG_WINDOWS


@pytest.mark.parametrize("may_miss", [True, False])
def test_a_flow_that_nobody_explains_is_tried_as_one_of_a_kernel_that_misses_marks(monkeypatch, may_miss):
    identify_module = importlib.import_module("cctrace.identification.identify")  # the package has the function
    path = cct.Path(rate="10Mbit", rtt="20ms", buffer="100packets", aqm="dualpi2")
    sim = cct.simulate(path, "prague2020", "3s", ecn="accurate", ack_every=2, packets=True)
    judged, tried = identify_module._of_packets, []

    def at_first_nobody(record):
        tried.append(record)
        return judged(record)._replace(known_log_odds=-500.0 if len(tried) == 1 else 500.0)

    monkeypatch.setattr(identify_module, "_of_packets", at_first_nobody)
    monkeypatch.setattr(identify_module, "may_miss_marks", lambda flow: may_miss)
    found = cct.identify(sim.capture().flow(0))
    assert (len(tried), found.misses_marks, found.name == "unknown") == (1 + may_miss, may_miss, not may_miss)
    assert ("counts marks late" in found.reason) == may_miss


@pytest.mark.parametrize("explained", [3, 1], ids=["not by its beginning", "at once"])
def test_what_confirms_the_counters_name_is_as_much_of_the_capture_as_it_takes(monkeypatch, explained):
    identify_module = importlib.import_module("cctrace.identification.identify")
    judged, tried = identify_module._of_packets, []

    def later(record):
        tried.append(record)
        return judged(record)._replace(known_log_odds=500.0 if len(tried) >= explained else -500.0)

    monkeypatch.setattr(identify_module, "_of_packets", later)
    monkeypatch.setattr(identify_module.const, "CHECKED_ROWS", 4000)
    flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    assert cct.identify(flow, check="cubic6").name == "cubic6"
    assert len(tried) == explained


def test_the_start_of_a_bbr2_flow_is_not_taken_for_bbr2plus_which_no_kernel_ships():
    path = cct.Path(rate="26Mbit", rtt="45ms", buffer="1.5bdp")
    flow = cct.simulate(path, "bbr2", "12s", seed=1, packets=True, profile="linux").capture().flow(0)
    assert cct.identify(flow, "bbr2").group == ("bbr2", "bbr2plus")  # as likely: they differ later


def test_prague_is_named_without_a_mark():
    sim = cct.simulate(cct.Path(rate="10Mbit", rtt="20ms", buffer="1bdp"), "prague", "6s", packets=True)
    assert cct.identify(sim.capture().flow(0)).name == "prague"


def test_prague_is_tried_only_with_accurate_feedback_which_it_needs():
    recording = RECORDINGS / "lab_codel_ecn" / "sender.pcap.zst"
    tried = {one.name for one in cct.identify(cct.read(recording).flow(0)).candidates}
    assert {"dctcp", "prague", "prague2020"} & tried == {"dctcp"}


def test_what_a_timer_sends_counts_neither_for_nor_against_anybody():
    flow = cct.read(RECORDINGS / "lab_v1_stall" / "sender.pcap.zst").flow(0)  # mostly timeouts
    record = record_of(flow).part()
    again = record.events.sends["retransmitted"] != 0
    by_timer = np.diff(record.events.sends["tx_ns"], prepend=0)[again] > 200_000_000
    assert by_timer.sum() > 10
    assert record.sent.sum() <= np.sum(record.events.sends["begins"]) - by_timer.sum()
    assert np.all(replay_of(record, "bbr2022").sends > -2)  # an unexplained one has -9
    found = cct.identify(flow)
    assert found.group == ("bbr2022", "bbr2019")
    assert sum(one.probability for one in found.candidates if one.name in found.group) > 0.8


def test_counters_without_addresses_are_called_as_elsewhere(capsys):
    assert main(["identify", str(cct.datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst"))]) == 0
    assert "\nconnection 0: " in capsys.readouterr().out
