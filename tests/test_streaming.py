"""The streaming client: every decision as Sabre's, its metrics, and sessions over the simulated transport."""

import json
import re
import runpy
from pathlib import Path as FilePath

import numpy as np
import pytest

import cctrace as cct
from cctrace.cli import main
from cctrace.errors import ArgumentError, FormatError
from cctrace.sim.served import Served
from cctrace.streaming import Settings, Video, play, play_rates, read_periods
from cctrace.streaming.player import Player
from cctrace.streaming.rates import Rates

RECORDER = runpy.run_path(str(FilePath(__file__).parent / "sabre" / "record.py"))
RECORDED = json.loads((FilePath(__file__).parent / "sabre" / "decisions.json").read_text())
NAMES = [f"{k}-{case['settings']['rule']}" for k, case in enumerate(RECORDED["cases"])]
SHORT = Video.of(minutes=1)
FAST = cct.Path(rate="80Mbit", rtt="50ms", buffer="1bdp")


def video_of(found):
    sizes = tuple(tuple(sizes) for sizes in found["segment_sizes_bits"])
    return Video(tuple(found["bitrates_kbps"]), found["segment_duration_ms"], sizes)


# --- decisions -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", RECORDED["cases"], ids=NAMES)
def test_every_decision_is_sabres(case):
    player = Player(video_of(case["video"]), Settings(**case["settings"]), Rates(case["network"]))
    assert player.run()
    assert RECORDER["rows_of"](player.downloads) == case["downloads"]
    assert player.stalled_ms / 1000 == pytest.approx(case["stalled_s"], abs=1e-6)


def test_what_was_recorded_reaches_every_rule_and_what_it_can_do():
    rules = {case["settings"]["rule"] for case in RECORDED["cases"]}
    assert rules == {"dynamic", "dynamicdash", "bola", "bolae", "throughput"}
    for name in ("oscillate", "basic", "safe_buffer", "abandon"):
        assert {case["settings"][name] for case in RECORDED["cases"]} == {True, False}
    assert sum(row[5] for case in RECORDED["cases"] for row in case["downloads"]) > 100
    assert sum(case["stalled_s"] > 0 for case in RECORDED["cases"]) > 5


# --- metrics ---------------------------------------------------------------------------------------------------------
def test_metrics_follow_from_what_was_played():
    session = play_rates([(30_000, 5000, 75), (30_000, 400, 200)], Video.of(minutes=3), buffer_s=15)
    quality = session.segments.quality.to_numpy()
    assert session.average_quality == quality.mean()
    assert session.switches == (np.diff(quality) != 0).sum() > session.switches_down == (np.diff(quality) < 0).sum() > 0
    assert session.to_dict()["average_bitrate_kbps"] == session.segments.bitrate_kbps.mean()
    assert json.loads(session.to_json()) == session.to_dict()
    assert f"{session.stalls} stalls" in session.summary()
    assert session.complete
    assert len(session.segments) == 45


def test_rebuffering_is_playback_beyond_the_length_of_the_video():
    # 1016 kbit a segment at 127 kbit/s take 8 s: of each segment but the first the viewer waits 4 s.
    session = play_rates([(1000, 127, 0)], Video.of((254,), minutes=1), abandon=False)
    assert session.rebuffering_ratio == pytest.approx(14 * 4 / 60)
    assert (session.stalls, session.startup_s) == (14, 8.0)


# --- over the transport ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cc", ["cubic6", "bbr2022", "quic_bbr", "quic_cubic"])
def test_a_link_with_room_for_everything_is_used_for_the_best_quality_without_stalls(cc):
    session = play(FAST, cc, SHORT)
    assert session.segments.quality.iloc[-5:].eq(9).all()
    assert session.rebuffering_ratio == 0.0
    simulation = session.simulation
    assert simulation.flows.goodput_bps[0] * simulation.duration_s == pytest.approx(
        session.segments.bits.sum(), rel=0.1
    )
    assert session.segments.received_s.is_monotonic_increasing
    assert (session.segments.first_byte_s - session.segments.requested_s).min() >= 0.05


def test_a_slow_link_gives_a_lower_quality_and_losses_hurt_cubic_more_than_bbr():
    slow = play(cct.Path(rate="2Mbit", rtt="50ms", buffer="1bdp"), "cubic6", SHORT)
    assert 1.5 < slow.average_quality < 5
    lossy = cct.Path(rate="80Mbit", rtt="270ms", buffer="0.5bdp", loss="1%")
    assert play(lossy, "quic_cubic", SHORT).average_quality + 3 < play(lossy, "quic_bbr", SHORT).average_quality


def test_a_session_is_the_same_in_every_mode_and_with_the_same_seed():
    path = cct.Path(rate="2Mbit", rtt="50ms", buffer="1bdp", loss="5%")
    video = Video.of((100, 250), segment_s=1, minutes=0.1)
    runs = [play(path, "quic_bbr", video, 3, mode=mode) for mode in ("compiled", "interpreted", "debug", "compiled")]
    for run in runs[1:]:
        assert run.segments.equals(runs[0].segments)
        assert run.to_dict() == runs[0].to_dict()
    assert not play(path, "quic_bbr", video, 4).segments.equals(runs[0].segments)


def test_others_share_the_path_and_a_video_that_never_ends_is_left():
    alone = play(cct.Path(rate="4Mbit", rtt="50ms", buffer="1bdp"), "cubic6", SHORT)
    beside = play(cct.Path(rate="4Mbit", rtt="50ms", buffer="1bdp"), "cubic6", SHORT, others=["cubic6", "cubic6"])
    assert beside.average_quality < alone.average_quality
    assert len(beside.simulation.flows) == 3
    starved = play(cct.Path(rate="20kbit", rtt="50ms", buffer="20kB"), "cubic6", SHORT)
    assert not starved.complete
    assert "ended after 10 times" in starved._repr_html_()
    assert starved.rebuffering_ratio > 5


def test_bbr_stays_in_startup_where_a_segment_fits_its_window_and_released_obbr_does_not():
    path = cct.Path(rate="80Mbit", rtt="270ms", buffer="0.25bdp")
    again = {
        cc: play(path, cc, Video.of(minutes=3)).to_dict()["retransmit_ratio"] for cc in ("quic_bbr", "obbr:mu=0.5")
    }
    assert again["quic_bbr"] > 0.3 > 0.05 > again["obbr:mu=0.5"]
    slower = cct.Path(rate="30Mbit", rtt="270ms", buffer="0.25bdp")
    assert play(slower, "quic_bbr", Video.of(minutes=3)).to_dict()["retransmit_ratio"] < 0.15


def test_the_server_is_idle_between_segments_and_sends_no_more_than_was_asked():
    with Served(FAST, "cubic6") as connection:
        connection.request(100_000)
        connection.wait(100_000)
        sent = connection.result().flows.sent[0]
        connection.idle(connection.now_ns + 5_000_000_000)
        assert connection.result().flows.sent[0] == sent == -(-100_000 // 1448)


def test_a_response_that_is_cancelled_ends_when_the_server_hears_of_it():
    path = cct.Path(rate="8Mbit", rtt="50ms", buffer="1bdp", reverse="20ms")
    with Served(path, "cubic6") as connection:
        connection.request(10_000_000)
        connection.wait(200_000)
        before = connection.result().flows.sent[0]
        connection.cancel()
        connection.request(14_480)
        assert connection.wait(14_480) < 2_000_000_000
        assert before < connection.result().flows.sent[0] < before + 250
        connection.request(10_000_000)
        connection.wait(200_000)
        with pytest.raises(ArgumentError, match="a response is under way"):
            connection.request(14_480)
        connection.cancel()
        connection.idle(connection.now_ns + 25_000_000)  # the server has heard; what it sent is not yet there
        connection.request(14_480)
        assert connection.wait(14_480) < 3_000_000_000
        with pytest.raises(ArgumentError, match="size_bytes=0 must be positive"):
            connection.request(0)


@pytest.mark.parametrize("rule", ["bola", "bolae", "dynamicdash", "throughput"])
def test_every_rule_plays_to_the_end_over_a_path_with_losses(rule):
    path = cct.Path(rate="6Mbit", rtt="200ms", buffer="0.5bdp", loss="2%", reverse="90ms")
    session = play(path, "quic_bbr", Video.of(minutes=2), 3, rule=rule, oscillate=False)
    assert session.complete
    assert session.segments.segment.tolist() == list(range(30))
    assert session.segments.quality.max() >= 5
    assert len(session.abandoned) > 0 or rule == "bolae"


def test_a_session_can_be_captured(tmp_path):
    session = play(FAST, "cubic6", Video.of(minutes=0.2), packets=True)
    assert session.simulation.to_pcap(tmp_path / "session.pcap") > 1000


# --- files and mistakes ----------------------------------------------------------------------------------------------
def test_files_of_sabre_are_read(tmp_path):
    (tmp_path / "network.json").write_text('[{"duration_ms": 30000, "bandwidth_kbps": 5000, "latency_ms": 75}]')
    movie = {"segment_duration_ms": 3000, "bitrates_kbps": [230, 331], "segment_sizes_bits": [[690000, 990000]] * 3}
    (tmp_path / "movie.json").write_text(json.dumps(movie))
    video = Video.read(tmp_path / "movie.json")
    assert (video.length_s, video.cut(20).segments) == (9.0, 7)
    assert play_rates(read_periods(tmp_path / "network.json"), video).segments.quality.tolist() == [0, 1, 1]
    (tmp_path / "other.json").write_text("[1]")
    with pytest.raises(FormatError, match=r"other\.json: not of the shape of a network trace of Sabre"):
        read_periods(tmp_path / "other.json")
    with pytest.raises(FormatError, match=r"other\.json: not of the shape of a manifest of Sabre"):
        Video.read(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rule": "best"}, "rule='best' is not one of dynamic, dynamicdash, bola, bolae, throughput"),
        ({"estimate": "none"}, "estimate='none' is not one of ewma, sliding"),
        ({"buffer_s": 5}, "buffer_s=5 must hold two segments of 4 s"),
        ({"gamma_p": 0}, "gamma_p=0 must be positive"),
        ({"bufer_s": 5}, "bufer_s=5 is not a setting of a player; there are: rule, estimate, buffer_s"),
    ],
    ids=["rule", "estimate", "buffer", "gamma", "unknown"],
)
def test_a_wrong_setting_is_named(settings, said):
    with pytest.raises(ArgumentError, match=re.escape(said)):
        play_rates([(1000, 1000, 20)], **settings)


def test_a_served_flow_has_no_application_of_its_own():
    with pytest.raises(ArgumentError, match="app='bulk:size=1MB' of reno: a served flow sends what is requested"):
        Served(FAST, cct.Sender("reno", app="bulk:size=1MB"))


def test_a_simulation_ends_when_a_flow_has_delivered_what_is_asked_for():
    path = cct.Path(rate="8Mbit", rtt="40ms", buffer="1bdp")
    sim = cct.simulate(path, ["quic_bbr", "cubic6"], "60s", until="2MB")
    delivered = sim.flows.goodput_bps * sim.duration_s / 8
    assert 2e6 <= delivered.max() < 2.1e6
    assert 2 < sim.duration_s < 4.2
    assert not [name for name in sim.flows if name.startswith("tail_")]
    assert sim.notes == []
    assert cct.simulate(path, "cubic6", "1s", until="2MB").notes == ["until='2MB' was not delivered in '1s'"]
    with pytest.raises(ArgumentError, match="until='0B' must be positive"):
        cct.simulate(path, "cubic6", "1s", until="0B")


# --- the command -----------------------------------------------------------------------------------------------------
def test_the_command_prints_a_session_per_controller_and_writes_segments(tmp_path, capsys):
    path = ["--rate", "8Mbit", "--rtt", "50ms", "--length", "40s", "--seed", "2"]
    file = tmp_path / "segments.csv"
    assert main(["stream", *path, "--cc", "cubic6,obbr:mu=0.5", "--json", "--csv", str(file)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["cc"] for row in printed] == ["cubic6", "obbr:mu=0.5"]
    same = play(cct.Path(rate="8Mbit", rtt="50ms", buffer="1bdp"), "cubic6", Video.of().cut(40), 2)
    assert printed[0] == {"cc": "cubic6"} | same.to_dict() | {"qualities": same.segments.quality.tolist()}
    assert len(file.read_text().splitlines()) == 1 + 2 * 10
    assert main(["stream", *path, "--cc", "cubic6", "--beside", "bbr2022", "--rule", "bola"]) == 0
    assert "40 s of video, qualities 0 to 9, rule bola" in capsys.readouterr().out


def test_the_command_takes_sabres_files_and_says_what_goes_together(tmp_path, capsys):
    network = tmp_path / "network.json"
    network.write_text('[{"duration_ms": 30000, "bandwidth_kbps": 5000, "latency_ms": 75}]')
    assert main(["stream", "--network", str(network), "--length", "20s", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["average_quality"] > 4
    assert main(["stream", "--network", str(network), "--rate", "3Mbit"]) == 2
    assert "--network has no transport: leave out --rate" in capsys.readouterr().err
    assert main(["stream", "--rate", "3Mbit"]) == 2
    assert "give --cc, the controllers of the server, and a path; or --network" in capsys.readouterr().err


def test_the_command_passes_the_clients_buffer_and_its_estimate_on(tmp_path, capsys):
    network = tmp_path / "network.json"
    periods = [(30_000, 5000), (20_000, 1500)]
    rows = [{"duration_ms": ms, "bandwidth_kbps": kbps, "latency_ms": 75} for ms, kbps in periods]
    network.write_text(json.dumps(rows))
    command = ["stream", "--network", str(network), "--length", "120s", "--json"]
    video = Video.of().cut(120)
    for options, settings in (
        (["--max-buffer", "8s"], {"buffer_s": 8}),
        (["--estimate", "sliding"], {"estimate": "sliding"}),
    ):
        assert main([*command, *options]) == 0
        printed = json.loads(capsys.readouterr().out)[0]["qualities"]
        assert printed == play_rates(read_periods(network), video, **settings).segments.quality.tolist()
        assert printed != play_rates(read_periods(network), video).segments.quality.tolist()
    assert main([*command, "--max-buffer", "4s", "--buffer", "1bdp"]) == 2
    assert "cctrace: --max-buffer=4 s must hold two segments of 4 s" in capsys.readouterr().err
