"""`cctrace simulate`."""

import json

import pytest

from cctrace.cli import main
from cctrace.cli.arguments import split_controllers
from cctrace.cli.simulate import KEYS

PATH = ["simulate", "--rtt", "20ms", "--buffer", "1bdp", "--duration", "3s"]


def test_controllers_are_a_list_or_options_of_their_own(capsys):
    outs = []
    for given in (["--cc", "reno,cubic"], ["--cc", "reno", "--cc", "cubic"]):
        assert main([*PATH, "--rate", "10Mbit", *given, "--json"]) == 0
        outs.append(capsys.readouterr().out)
    assert outs[0] == outs[1]


def test_it_prints_every_key_for_the_run_and_its_tail(capsys):
    assert main([*PATH, "--rate", "10Mbit", "--cc", "bbr2022,obbr:mu=0.5", "--loss", "1%", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert [row["cc"] for row in out["flows"]] == ["bbr2022", "obbr:mu=0.5"]
    for row in out["flows"]:
        assert set(row) == {"cc", *KEYS, *(f"tail_{key}" for key in KEYS)}
        assert row["goodput_bps"] > 0
        assert row["rtt_p95_us"] >= 20_000
    assert 0 < out["link"]["jain"] <= 1


def test_the_same_seed_prints_the_same_and_another_does_not(capsys):
    def printed(seed):
        main([*PATH, "--rate", "10Mbit", "--cc", "bbr2022", "--loss", "2%", "--seed", str(seed), "--json"])
        return json.loads(capsys.readouterr().out)["flows"]

    assert printed(3) == printed(3) != printed(4)


def test_a_send_buffer_limits_what_is_on_its_way(capsys):
    def goodput_bps(*options):
        assert main([*PATH, "--rate", "40Mbit", "--cc", "bbr2022", "--json", *options]) == 0
        return json.loads(capsys.readouterr().out)["flows"][0]["goodput_bps"]

    assert goodput_bps("--send-buffer", "16kB") < 0.7 * goodput_bps()
    assert main([*PATH, "--rate", "40Mbit", "--cc", "bbr2022", "--send-buffer", "some"]) == 2
    assert "--send-buffer='some' is not a size" in capsys.readouterr().err


def test_marks_from_a_threshold_on_keep_the_queue_of_dctcp_below_it(capsys):
    def queue_us(threshold):
        options = ["--rate", "10Mbit", "--cc", "dctcp", "--ecn", "--ecn-threshold", threshold, "--buffer", "8bdp"]
        assert main([*PATH, *options, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["flows"][0]["tail_queue_delay_mean_us"]

    half, two = queue_us("0.5bdp"), queue_us("2bdp")  # 10 and 40 ms
    assert half < 10_000 < two < 40_000


def test_exact_clocks_are_warned_about_where_flows_may_lock(capsys):
    assert main([*PATH, "--rate", "10Mbit", "--cc", "reno,reno", "--exact", "--json"]) == 0
    assert "2 flows on exact clocks" in json.loads(capsys.readouterr().out)["notes"][0]
    assert main([*PATH, "--rate", "10Mbit", "--cc", "reno,reno", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == []


def test_rate_steps_come_from_a_file(tmp_path, capsys):
    steps = tmp_path / "steps.txt"
    steps.write_text("# seconds Mbit/s\n0 20\n1 5\n")
    assert main([*PATH, "--rate-steps", str(steps), "--cc", "cubic", "--profile", "reference", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["flows"][0]["tail_goodput_bps"] < 5.1e6


def test_a_shapers_rate_comes_from_a_file(tmp_path, capsys):
    steps = tmp_path / "steps.txt"
    steps.write_text("0 20\n1 5\n")
    shaped = [
        *PATH,
        "--rate",
        "100Mbit",
        "--shaper",
        f"{steps},20kB",
        "--cc",
        "cubic",
        "--profile",
        "reference",
        "--json",
    ]
    assert main(shaped) == 0
    assert json.loads(capsys.readouterr().out)["flows"][0]["tail_goodput_bps"] < 5.1e6
    steps.write_text("0 20 40\n1 5 80\n")
    assert main(shaped) == 2
    assert "has columns after the rate" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["simulate", "--duration", "4s"], ["stream", "--length", "8s"]])
def test_a_rate_in_steps_may_feed_a_shaper_in_front_of_a_short_queue(command, tmp_path, capsys):
    steps = tmp_path / "steps"
    steps.write_text("0 20\n2 5\n")
    path = ["--rate-steps", str(steps), "--rtt", "40ms", "--buffer", "0.25bdp", "--shaper", "8Mbit,20kB"]
    assert main([*command, *path, "--cc", "cubic", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    if "flows" in made:  # from 2 s on the rate is less than the shaper's
        assert made["flows"][0]["tail_goodput_bps"] < 6.5e6


def test_a_mahimahi_trace_gives_the_rate(tmp_path, capsys):
    trace = tmp_path / "trace"
    trace.write_text("".join(f"{ms}\n" for ms in range(1, 101)))  # 1500 bytes a millisecond: 12 Mbit/s
    assert main([*PATH, "--trace", str(trace), "--cc", "cubic", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["flows"][0]["tail_goodput_bps"] == pytest.approx(
        12e6 * 1448 / 1514, rel=0.03
    )


@pytest.mark.parametrize("command", [["simulate", "--duration", "1s"], ["stream", "--length", "4s"]])
def test_a_buffer_below_one_packet_at_1_mbit_is_taken_where_the_path_holds_more(command, capsys):
    assert main([*command, "--rate", "30Mbit", "--rtt", "270ms", "--buffer", "0.25bdp", "--cc", "cubic", "--json"]) == 0
    assert "cubic" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cc", "cubic"], "give one of --rate"),
        (["--rate", "40Mbit", "--path", "wired_40mbit_40ms", "--cc", "cubic"], "give one of --rate"),
        (["--rate", "0Mbit", "--cc", "cubic"], "nothing would ever be delivered"),
        (["--rate", "40", "--cc", "cubic"], "40"),
        (["--rate", "40Mbit", "--cc", "bbr9"], "bbr9"),
        (["--rate", "40Mbit", "--cc", "cubic", "--jitter", "normal:sigma=3ms"], "unknown 'sigma'"),
        (["--rate", "40Mbit", "--cc", "cubic", "--loss", "120%"], "120%"),
        (["--rate", "40Mbit", "--cc", "cubic", "--duration", "0s"], "--duration 0s: a duration above 0"),
        (["--rate", "1Mbit", "--cc", "cubic", "--buffer", "0.25bdp"], "0.25bdp' is less than one packet"),
        (["--rate", "40Mbit", "--cc", "cubic,obbr", "--pcap", "x.pcap"], "obbr is QUIC"),
        (["--rate", "40Mbit", "--cc", "obbr", "--ecn"], "the QUIC stack has none"),
        (["--rate", "40Mbit", "--cc", "cubic", "--shaper", "1Mbit"], "give RATE,BURST"),
        (["--rate-steps", "nowhere.txt", "--cc", "cubic"], "nowhere.txt"),
    ],
)
def test_errors_are_one_line_and_exit_2(arguments, said, capsys):
    assert main([*PATH, *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_line_of_the_steps_that_is_no_rate_is_named(tmp_path, capsys):
    steps = tmp_path / "steps.txt"
    steps.write_text("0 20\n1 fast\n")
    assert main([*PATH, "--rate-steps", str(steps), "--cc", "cubic"]) == 2
    assert "line 2: '1 fast'" in capsys.readouterr().err


def test_parameters_stay_with_their_controller():
    assert split_controllers("bbr2:loss_thresh=0.2,beta=0.3,cubic") == ["bbr2:loss_thresh=0.2,beta=0.3", "cubic"]


def test_a_sweep_varies_what_is_true_or_false(capsys):
    short = ["sweep", "--rate", "2Mbit", "--cc", "reno", "--seeds", "1", "--duration", "100ms", "--workers", "1"]
    assert main([*short, "--vary", "shared=false true"]) == 0
    assert "True" in capsys.readouterr().out
    assert main([*short, "--vary", "shared=no"]) == 2
    assert "shared='no' must be True or False" in capsys.readouterr().err


def test_a_sweep_prints_means_over_its_seeds_and_goes_on_with_its_file(tmp_path, capsys):
    kept, written = tmp_path / "kept.jsonl", tmp_path / "all.csv"
    command = ["sweep", "--rate", "2Mbit", "--cc", "reno", "--cc", "reno+bbr2022", "--vary", "buffer=1bdp 4bdp"]
    command += ["--seeds", "2", "--duration", "1s", "--workers", "1", "--file", str(kept)]
    assert main([*command, "--json", "--csv", str(written)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["cc"], row["buffer"], row["flow"]) for row in rows] == [
        ("reno", "1bdp", 0),
        ("reno", "4bdp", 0),
        ("reno+bbr2022", "1bdp", 0),
        ("reno+bbr2022", "1bdp", 1),
        ("reno+bbr2022", "4bdp", 0),
        ("reno+bbr2022", "4bdp", 1),
    ]
    assert len(written.read_text().splitlines()) == 1 + 2 * len(rows)
    lines = kept.read_text()
    assert main(command) == 0
    assert kept.read_text() == lines  # nothing was simulated again
    assert "reno+bbr2022" in capsys.readouterr().out
    assert main(["sweep", "--rate", "2Mbit", "--cc", "reno", "--vary", "buffer"]) == 2
    assert "write it as" in capsys.readouterr().err
    for name in ("duration", "seeds", "cc"):
        assert main(["sweep", "--rate", "2Mbit", "--cc", "reno", "--vary", f"{name}=2 3"]) == 2
        assert f"--vary {name}: name a field" in capsys.readouterr().err
