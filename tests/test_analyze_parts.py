"""Every part of an analysis stands on its own, and the counters of the other host end nothing."""

import dataclasses
import importlib
import platform
import subprocess
import sys

import pytest

import cctrace as cct
from cctrace.analysis.analyze import analyze
from cctrace.analysis.inputs import Counters
from cctrace.cli import main
from cctrace.errors import ArgumentError, FitError, PartFailed
from cctrace.identification.identify import Candidate, Identification
from cctrace.refusals import Attempt, Refusal
from cctrace.report.overview import write_report

PARTS = {
    "cctrace.analysis.one_flow.identified": "identification",
    "cctrace.analysis.one_flow.replay": "replay",
    "cctrace.analysis.one_flow.diagnose": "diagnosis",
    "cctrace.diagnosis.diagnose.limits_of": "account of what limited it when",
    "cctrace.diagnosis.diagnose.events_of": "list of events",
    "cctrace.diagnosis.packets.losses.losses": "judgement of losses",
    "cctrace.fit.collapse.Collapse.fit": "forecast of minRTT collapse",
    "cctrace.counterfactual.whatif.what_would_help": "what-if",
    "cctrace.counterfactual.effects.effects_of": "effect of each cause",
}
DRAWN = (
    "cctrace.report.overview._section_of_packets",
    "cctrace.report.page.flow_section",
    "cctrace.report.overview._tables",
)


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """A capture of 3 s of CUBIC that loses 1 % by chance."""
    path = cct.Path(rate="10Mbit", rtt="20ms", buffer="2bdp", loss="1%")
    sim = cct.simulate(path, "cubic", "3s", seed=4, packets=True)
    file = tmp_path_factory.mktemp("parts") / "loss.pcap"
    sim.to_pcap(file)
    return file


@pytest.fixture
def quick(monkeypatch):
    """Leave out the parts that take seconds, and have the flow told as a BBR's: minRTT collapse is asked of these."""
    monkeypatch.setattr("cctrace.analysis.one_flow.sender", lambda *_: ("bbr", "bbr2022"))
    monkeypatch.setattr("cctrace.analysis.one_flow.identified", lambda *_: None)
    monkeypatch.setattr("cctrace.fit.collapse.Collapse.fit", _no_forecast)


def _refused(*given, **options):
    raise ArgumentError("path and buffer hold 459 MB,\nmore than allowed")


def _no_forecast(*given):
    raise FitError("the flow never filled its path")


def _broken(*given, **options):
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize("place", PARTS)
def test_a_part_that_is_refused_leaves_the_others_standing(capture, quick, monkeypatch, place):
    monkeypatch.setattr(place, _refused)
    one = analyze([capture], controller="cubic", what_if=True)[0]
    assert one.view is not None
    assert (one.diagnosis is None) == place.endswith("one_flow.diagnose")
    said = [str(one.collapse), str(one.whatif), str(one.effects), *one.notes]
    if not place.endswith("one_flow.identified"):  # who sent it is often not known, and told where it is shown
        assert any("path and buffer hold 459 MB, more than allowed" in text for text in said)


@pytest.mark.parametrize("place", PARTS)
def test_an_error_of_the_program_in_a_part_is_announced_and_raised_on_demand(capture, quick, monkeypatch, place):
    monkeypatch.setattr(place, _broken)
    with pytest.warns(PartFailed, match=f"{PARTS[place]}: internal error, ZeroDivisionError: division by zero"):
        one = analyze([capture], controller="cubic", what_if=True)[0]
    assert one.view is not None


def test_the_command_goes_on_with_a_warning_and_debug_shows_the_traceback(
    capture, quick, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr("cctrace.fit.collapse.Collapse.fit", _broken)
    arguments = ["analyze", str(capture), "--cc", "cubic", "-o", str(tmp_path / "report")]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert "Random losses" in out
    assert "internal error, ZeroDivisionError" in err
    assert (tmp_path / "report" / "report.html").exists()
    assert main([*arguments, "--debug"]) == 2
    err = capsys.readouterr().err
    assert "in _broken" in err
    assert "ZeroDivisionError: division by zero" in err


@pytest.mark.parametrize("place", DRAWN)
def test_a_flow_that_cannot_be_drawn_leaves_the_page_of_the_others(capture, quick, monkeypatch, tmp_path, place):
    one = analyze([capture], controller="cubic")[0]
    other = dataclasses.replace(one, row=one.row | {"sport": 7})
    module, _, name = place.rpartition(".")
    draw = getattr(importlib.import_module(module), name)

    def draws(*given):
        if any(getattr(one, "title", "").partition(" ")[0].endswith(":7") for one in given):
            raise ZeroDivisionError("division by zero")
        return draw(*given)

    monkeypatch.setattr(place, draws)
    with pytest.warns(PartFailed, match="division by zero"):
        page = write_report([one, other], tmp_path).read_text()
    assert 'id="flow0-section"' in page
    assert ('id="flow1-section"' in page) == place.endswith("_tables")
    assert "division by zero" in page or place.endswith("_tables")


def test_only_exceptions_are_caught_not_the_users_interrupt():
    with pytest.raises(KeyboardInterrupt), Attempt("forecast"):
        raise KeyboardInterrupt
    with Attempt("sum") as part:
        assert sum([1, 2]) == 3
    assert part.refusal is None
    with Attempt("sum") as part:
        _refused()
    assert part.refused.to_dict() == {"refused": "path and buffer hold 459 MB, more than allowed"}


def _ss(src, dst):
    """Counters of one socket, as `ss -tin` prints them twice."""
    line = f"ESTAB 0 0 {src} {dst}\n\t cubic rto:240 rtt:40/2 mss:1448 cwnd:10 bytes_acked:1000 busy:20ms\n"
    return f"1700000000.0\n{line}1700000001.0\n{line}"


def test_counters_of_the_receiver_are_told_and_left_out(capture, quick, tmp_path):
    flow = cct.read(capture).flow(0)
    src, sport, dst, dport = flow.key
    theirs, strangers = tmp_path / "receiver.txt", tmp_path / "strangers.txt"
    theirs.write_text(_ss(f"{dst}:{dport}", f"{src}:{sport}"))
    strangers.write_text(_ss("192.0.2.1:9", "192.0.2.2:10"))
    one = analyze([capture], [theirs], controller="cubic")[0]
    assert one.diagnosis.cause == "random_loss"
    assert one.flow.tcpinfo is None
    assert any("these are the receiver's sockets" in note and str(theirs) in note for note in one.notes)
    with pytest.raises(ArgumentError, match="the receiver's sockets"):
        flow.attach(cct.read(theirs))
    with pytest.raises(ArgumentError, match="no polls of"):
        analyze([capture], [strangers], controller="cubic")
    assert Counters([]).attach(flow)[0] is flow


def test_a_refusal_is_a_value():
    refusal = Refusal("forecast", "too little is known")
    assert dataclasses.replace(refusal) == refusal
    assert refusal.note == "there is no forecast: too little is known"


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """One transfer of CUBIC over a queue, captured at either end."""
    sim = cct.simulate(cct.Path(rate="10Mbit", rtt="20ms", buffer="2bdp"), "cubic", "3s", seed=4, packets=True)
    folder = tmp_path_factory.mktemp("ends")
    files = {side: folder / f"{side}.pcap" for side in ("sender", "receiver")}
    for side, file in files.items():
        sim.to_pcap(file, side)
    return files


def test_a_capture_at_the_receiver_has_the_rtts_of_the_sender_with_the_queue_in_them(ends, quick):
    there, here = (analyze([ends[side]], controller="cubic")[0] for side in ("sender", "receiver"))
    assert here.view.taken_at == "receiver"
    assert here.row["rtt_median_us"] == pytest.approx(there.row["rtt_median_us"], rel=0.1)
    assert here.row["rtt_median_us"] > 1.2 * here.flow.row["rtt_median_us"]


def test_nothing_is_replayed_over_a_flow_that_controllers_of_several_families_may_have_sent(capture, monkeypatch):
    group = ("reno", "bbr2022", "cubic", "bbr3")
    found = Identification([Candidate(name, 0.25) for name in group], group, "they all fit", 0.0)
    monkeypatch.setattr("cctrace.analysis.one_flow.identified", lambda *_: found)
    monkeypatch.setattr("cctrace.fit.collapse.Collapse.fit", _no_forecast)
    undecided, asked = analyze([capture])[0], analyze([capture], controller="cubic")[0]
    assert (undecided.replayed, undecided.view.model) == (None, None)
    assert asked.replayed == "cubic"


_HEAPS_OF_THREADS = """
import ctypes, sys, threading
from cctrace.columns import share_heap
libc = ctypes.CDLL(None)
libc.fopen.restype, libc.malloc.restype = ctypes.c_void_p, ctypes.c_void_p
if sys.argv[1] == "shared":
    share_heap()
met = threading.Barrier(4)
def work():
    met.wait()
    libc.malloc(1000)
    met.wait()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
file = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep other heaps")
def test_threads_of_the_command_share_a_heap():
    def heaps(how):
        told = subprocess.run(
            [sys.executable, "-c", _HEAPS_OF_THREADS, how], capture_output=True, text=True, check=True
        )
        return told.stdout.count("<heap nr=")

    assert heaps("shared") == 1 < heaps("apart")


def test_counters_of_another_connection_are_refused_before_any_flow_is_analysed(capture, monkeypatch):
    monkeypatch.setattr("cctrace.analysis.analyze.of_capture", lambda *_: pytest.fail("a flow was analysed"))
    polls = cct.datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst")
    with pytest.raises(ArgumentError, match="another connection"):
        analyze([capture], [polls])
