"""Who sent a flow, in words: counters are believed, and what a record does not tell is said so, not guessed."""

import dataclasses
from types import SimpleNamespace

import pytest

import cctrace as cct
from cctrace.analysis.analyze import _forecast, analyze
from cctrace.cli import main
from cctrace.identification.identify import CANDIDATES, Candidate, Identification
from cctrace.identification.odds import Judgement
from cctrace.identification.sender_text import believed, sender_text
from cctrace.report.overview import row_of


def found(group, share, reason="so it was sent"):
    each = [Candidate(name, share / len(group)) for name in group]
    return Identification([*each, Candidate("unknown", 1 - share)], tuple(group), reason, 0.1)


def test_a_group_is_named_with_how_sure_it_is():
    assert sender_text(found(["bbr2022", "bbr2019"], 0.97)) == "bbr2022 or bbr2019 (97 % sure)"
    assert sender_text(found(["cubic6"], 0.999)) == "cubic6 (over 99 % sure)"
    assert sender_text(found(CANDIDATES[1:6], 0.9)) == "a BBR of any version (90 % sure)"
    assert sender_text(None) == sender_text(found(["unknown"], 0.0)) == "unknown"


@pytest.mark.parametrize(
    ("verdict", "why"),
    [
        ("receiver_limited", " (it was limited by the receiver)"),
        ("application_limited", " (it was limited by its application)"),
        ("path_full", ""),
    ],
)
def test_nine_names_are_no_answer_and_what_hid_the_sender_is_said(verdict, why):
    assert sender_text(found(CANDIDATES, 0.69), [verdict]) == f"cannot be determined from this record{why}"


def test_counters_that_name_the_controller_are_believed():
    half = found(["cubic6", "cubic", "reno"], 0.9)
    one = believed(half, "cubic")
    assert [tuple(candidate) for candidate in one.candidates] == [("cubic6", pytest.approx(0.5)), ("cubic", 0.5)]
    assert one.group == ("cubic6", "cubic")
    assert one.reason == "the counters name cubic"
    alone = believed(found(["cubic6"], 0.9), "cubic")
    assert alone.reason == "the counters name cubic; so it was sent"


@pytest.mark.parametrize("identification", [None, found(["bbr3"], 0.9)])
def test_counters_that_name_what_is_no_candidate_are_believed_too(identification):
    assert believed(identification, "htcp").candidates == [("htcp", 1.0)]
    assert believed(identification, None) is identification


def test_a_flow_of_a_controller_that_the_counters_name_is_called_by_that_name():
    names = [row_of(one)[-1] for one in analyze([cct.datasets.path("web_server", "ss.txt.gz")])]
    assert names == ["cubic", "bbr", "cubic", "cubic", "bbr"]


@pytest.mark.parametrize(("variant", "asked"), [("bbr2022", True), ("bbr3", True), ("cubic6", False), (None, False)])
def test_only_a_bbrs_flow_has_a_forecast_of_collapse(monkeypatch, variant, asked):
    found = SimpleNamespace(rate_bps_=SimpleNamespace(value=0.0))
    monkeypatch.setattr("cctrace.fit.collapse.Collapse.fit", lambda self, flow: found)
    assert (_forecast("a flow", variant, 1, lambda text: None) is not None) == asked


def test_identify_names_both_ends_and_the_controller_that_counters_tell(capsys):
    assert main(["identify", str(cct.datasets.path("web_server", "ss.txt.gz"))]) == 0
    out = capsys.readouterr().out
    assert "192.0.2.1:443  198.51.100.10:36220  cubic (named by the counters)" in out
    assert "\n192.0.2.1:443 → 198.51.100.10:36220: the counters name cubic; cubic6" in out


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_name_of_the_counters_that_the_first_sends_confirm_leaves_the_rest_of_a_long_flow_alone(
    monkeypatch, confirmed
):
    from cctrace.identification import identify as module
    from cctrace.identification.constants import CHECKED_ROWS

    looked = []
    flow = cct.read(cct.datasets.path("single_bbr_1bdp", "sender.pcap.zst")).flow(0)
    answer = dataclasses.replace(found(["bbr2022"], 0.9), group=("unknown",))
    unclear = Judgement("sends", {"bbr2022": 0.0, "cubic6": 0.0}, -10.0, {}, {}, "")  # contradicts no name
    monkeypatch.setattr(module, "_of_packets", lambda record: looked.append(len(record.events)) or unclear)
    monkeypatch.setattr(module, "_confirms", lambda likely, believed: confirmed)
    monkeypatch.setattr(module, "_concluded", lambda judgement, record, began: answer)
    assert cct.identify(flow, "bbr2022") is answer
    asked = [CHECKED_ROWS // 4] if confirmed else [CHECKED_ROWS // 4, CHECKED_ROWS, len(flow.events)]
    assert looked == asked
