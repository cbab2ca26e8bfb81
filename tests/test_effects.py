"""What each cause cost: removing it changes goodput as the truth says, the order follows, and what is unknown is said.

`recordings/pacing_limit`: CUBIC with an SO_MAX_PACING_RATE of 4 Mbit/s over 14 Mbit/s; `loss_cubic_1pct`: CUBIC that
1 % of random loss keeps at a tenth of 40 Mbit/s.
"""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

import cctrace as cct
from cctrace.analysis.analyze import EFFECTS, analyze
from cctrace.cc import kernel_name
from cctrace.cli import main
from cctrace.counterfactual.candidates import ACKS_AS_DUE, doubtful_verdicts, removals
from cctrace.counterfactual.effects import (
    NO_MORE_DATA,
    Effects,
    Without,
    _may_lack_room,
    effect_words,
    effects_of,
    with_shallow_buffer,
)
from cctrace.counterfactual.flow_model import model_of
from cctrace.counterfactual.host_limits import HostLimits
from cctrace.counterfactual.interventions import INTERVENTIONS, NOT_SIMULATED
from cctrace.diagnosis import groups
from cctrace.diagnosis.catalogue import ORDER
from cctrace.diagnosis.constants import UNSURE_CONFIDENCE
from cctrace.diagnosis.diagnose import Diagnosis
from cctrace.diagnosis.facts import PACKETS, Facts
from cctrace.diagnosis.findings import Effect, Limit, Verdict
from cctrace.diagnosis.order import by_effect, is_remedy, verdict_of
from cctrace.diagnosis.rules import judge
from cctrace.errors import ArgumentError, FitError
from cctrace.estimates import Estimate90
from cctrace.path.transmissions import as_flow
from cctrace.refusals import Refusal
from cctrace.report.overview import write_report
from cctrace.sim.jitter import Jitter
from tests.places import RECORDINGS

LINK = {"rate": "16Mbit", "rtt": "30ms", "buffer": "2bdp"}


def analysed(tmp_path, path, sender, duration="6s", **options):
    """Return the analysis of a simulated flow's capture, its sender known."""
    sim = cct.simulate(cct.Path(**LINK | path), sender, duration, seed=3, packets=True)
    sim.to_pcap(tmp_path / "sender.pcap")
    return analyze([tmp_path / "sender.pcap"], **options)[0]


def rates(*steps_bps, each_s=1.0):
    """Return a fit's rates, a step each second."""
    return [{"start_s": at * each_s, "value": value} for at, value in enumerate((8e6, *steps_bps))]


def named(analysis, cause):
    return next(one for one in analysis.diagnosis.verdicts if one.name == cause)


@pytest.fixture(scope="module")
def lossy():
    return analyze([cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")])[0]


def test_every_cause_can_be_removed_or_is_said_why_not():
    assert set(INTERVENTIONS) | set(NOT_SIMULATED) == set(ORDER)
    assert not set(INTERVENTIONS) & set(NOT_SIMULATED)


def test_without_its_random_loss_a_recorded_cubic_fills_the_link(lossy):
    first = lossy.diagnosis.verdicts[0]
    truth = 40e6 * 1448 / 1514 / lossy.row["goodput_bps"]
    assert first.name == "random_loss"
    assert first.effect.goodput.value == pytest.approx(truth, rel=0.1)
    assert first.effect.goodput.low < truth < first.effect.goodput.high
    assert first.effect.retransmitted.value < -0.005


def test_without_its_pacing_limit_a_recorded_cubic_fills_the_link():
    folder = RECORDINGS / "pacing_limit"
    found = analyze([folder / "sender.pcap.zst"], [folder / "tcpinfo.csv.zst"])[0]
    first = found.diagnosis.verdicts[0]
    assert first.name == "pacing_limited"
    assert first.effect.goodput.value == pytest.approx(14e6 * 1448 / 1500 / found.row["goodput_bps"], rel=0.1)
    assert first.effect.is_bounded  # a queue that never grew may be of any length
    assert first.effect.rtt.high is None
    assert found.effects.own == "cubic6:paced=1"  # as the kernel paces a socket with a limit


def test_effects_of_a_flow_that_two_controllers_may_have_sent_name_both():
    flow = cct.read(str(RECORDINGS / "pacing_limit" / "sender.pcap.zst")).flow(0)
    found = effects_of(flow, cct.diagnose(flow), ["cubic6", "bbr2022"])
    assert found.own == "cubic6 or bbr2022"
    assert any("a controller other than cubic6 or bbr2022" in text for text in found.not_excluded)


def effects(sender, *without, **path):
    """Return the effects of a simulated flow's causes, and its goodput without options of its sender or its path."""

    def run(path, sender):
        return cct.simulate(cct.Path(**LINK | path), sender, "8s", seed=3, packets=True)

    sim = run(path, sender)
    flow = as_flow(sim)
    diagnosis = cct.diagnose(flow, kernel_name(sender.cc))
    other = {name: value for name, value in path.items() if name not in without}
    freed = replace(sender, **{name: None for name in without if name not in path})
    gained = run(other, freed).flows.goodput_bps[0] / sim.flows.goodput_bps[0]
    return effects_of(flow, diagnosis, sender.cc), float(gained)


def test_of_two_limits_the_second_is_said_to_come_next():
    sender = cct.Sender("cubic6", ack_every=2, rwnd="20kB")
    found, truth = effects(sender, "rwnd", "loss", loss="0.6%")
    first, other = found.causes["receiver_limited"].effect, found.causes["random_loss"].effect
    assert first.then == "random_loss"
    assert first.goodput.value == pytest.approx(1.48, rel=0.05)  # simulated without a limit of the window, 1.48 times
    assert other.goodput.value == pytest.approx(1.22, rel=0.05)  # without loss, 1.22 times
    assert first.without_both.low < truth < first.without_both.high
    assert truth > 1.5 * first.goodput.value * other.goodput.value  # together they cost more than each
    assert "then limited by random loss" in effect_words(first)
    assert other.without_both is None


def test_a_window_that_a_pacing_limit_hides_is_kept_where_the_pacing_limit_is_removed():
    sender = cct.Sender("cubic6", max_pacing_rate="4Mbit", rwnd="25kB", ack_every=2)
    found, truth = effects(sender, "max_pacing_rate")
    effect = found.causes["pacing_limited"].effect
    assert truth < effect.goodput.high < 2 < effect.without_both.value
    assert effect.then == "receiver_limited"  # less than half of it is free: a receiver would have let it grow


def test_losses_that_nothing_showed_do_not_bound_the_queue_of_a_flow_without_its_window():
    path = {"rate": "8Mbit", "rtt": "87ms", "buffer": "1bdp"}
    found, _ = effects(cct.Sender("cubic6", ack_every=2, rwnd="40kB"), "rwnd", **path)
    assert found.causes["receiver_limited"].effect.rtt.high is None


def test_a_policer_above_a_pacing_limit_is_not_excluded():
    path = {"rate": "7Mbit", "rtt": "20ms", "buffer": "3bdp"}
    sender = cct.Sender("bbr2022", max_pacing_rate="2Mbit", ack_every=2)
    found, truth = effects(sender, "max_pacing_rate", **path, policer=("3.7Mbit", "90kB"))
    effect = found.causes["pacing_limited"].effect
    assert truth == pytest.approx(1.8, rel=0.05)
    assert effect.goodput.low is None
    assert effect.goodput.high > truth
    assert any("tokens it never used up" in text for text in found.not_excluded)


@pytest.mark.parametrize("cc", ["bbr3", "cubic6"])
@pytest.mark.parametrize(("app", "least"), [("bulk", 2.5), ("chunks:size=180kB,every=500ms", 1.0)])
def test_an_application_that_a_policer_may_hide_leaves_an_upper_bound(cc, app, least):
    sender = cct.Sender(cc, ack_every=2, app=app)
    found, truth = effects(sender, "policer", rate="6Mbit", rtt="80ms", buffer="3bdp", policer=("2Mbit", "20kB"))
    effect = found.causes["policer"].effect
    assert effect.is_bounded
    assert effect.goodput.low is None
    assert least < truth <= effect.goodput.high
    assert "at most" in effect_words(effect)
    assert NO_MORE_DATA in found.not_excluded


def test_a_policer_costs_no_goodput_beside_an_application_that_writes_as_little():
    sender = cct.Sender("bbr2022", ack_every=2, app="chunks:size=225kB,every=500ms")
    found, truth = effects(sender, "policer", rate="9Mbit", rtt="20ms", policer=("3.7Mbit", "80kB"))
    policer, application = (found.causes[name].effect for name in ("policer", "application_limited"))
    assert policer.goodput.value == pytest.approx(truth, rel=0.03)
    assert (policer.then, application.then) == ("application_limited", "policer")
    assert policer.without_both == application.without_both
    assert policer.without_both.low > 2
    assert "then limited by application, and without that, too, 2" in effect_words(policer)


def test_loss_that_a_model_based_sender_does_not_mind_goes_behind(tmp_path):
    found = analysed(tmp_path, {"loss": "1.3%"}, cct.Sender("bbr2022", ack_every=2))
    loss = named(found, "random_loss")
    assert loss.confidence > 0.5
    assert loss.effect.goodput.value == pytest.approx(1, abs=0.03)
    assert found.diagnosis.cause == "path_full"
    assert "full" in found.diagnosis.in_words
    assert found.diagnosis.verdict.startswith(found.diagnosis.verdicts[0].text)


def test_the_larger_of_two_causes_comes_first(tmp_path):
    sender = cct.Sender("cubic6", app="chunks:size=450kB,every=400ms", ack_every=2)
    found = analysed(tmp_path, {"loss": "0.02%"}, sender)
    assert found.diagnosis.cause == "application_limited"
    ready = cct.simulate(cct.Path(**LINK, loss="0.02%"), cct.Sender("cubic6", ack_every=2), "6s", 4).flows.iloc[0]
    effect = found.diagnosis.verdicts[0].effect.goodput
    assert effect.value == pytest.approx(ready.goodput_bps / found.row["goodput_bps"], rel=0.1)


@pytest.fixture(scope="module")
def joined_late(tmp_path_factory):
    """CUBIC that another one joins after a second, when the queue stands."""
    sim = cct.simulate(
        cct.Path(**LINK), [cct.Sender("cubic6"), cct.Sender("cubic6", start="1s")], "5s", seed=3, packets=True
    )
    file = tmp_path_factory.mktemp("late") / "sender.pcap"
    sim.to_pcap(file)
    return model_of(cct.read(file).flow(0), "cubic6", None, lambda line: None)


def test_a_competitor_that_never_met_an_empty_queue_has_the_base_rtt_all_the_same(joined_late):
    (other,) = joined_late.other_senders
    assert float(other.rtt.removesuffix("us")) == pytest.approx(30_000, rel=0.02)  # its least RTT is 60 ms


def test_a_competitor_that_no_verdict_names_is_asked_about_unless_a_fair_queue_is_named(joined_late):
    def names(*verdicts):
        diagnosis = Diagnosis.of([Limit("cwnd", 0.0, 5.0)], [], list(verdicts))
        return [one.name for one in doubtful_verdicts(joined_late, diagnosis)]

    assert names(one("receiver_limited")) == ["competition"]
    assert not names(one("competition"))
    assert not names(one("fair_queueing"))


def test_drops_of_the_paths_full_queue_are_asked_about_although_most_losses_were_random():
    loss = {"model": "bernoulli", "share": Estimate90(0.0, 0.0, 0.0), "congestive": 10, "random": 0}

    def names(buffer, *verdicts):
        path = SimpleNamespace(
            estimates={"loss": loss, "buffer_bytes": Estimate90(buffer), "rate_bps": rates()},
            max_rate_bps=lambda: 8e6,
            rtt_ns=20e6,
            aqm="codel",
        )
        model = SimpleNamespace(other_senders=(), host_limits=HostLimits(), path=path, others_hypothetical=False)
        diagnosis = Diagnosis.of([Limit("cwnd", 0.0, 5.0)], [], list(verdicts))
        return [one.name for one in doubtful_verdicts(model, diagnosis)]

    assert names(4e3, one("random_loss")) == ["shallow_buffer"]  # a fifth of a bandwidth-delay product
    assert names(40e3, one("random_loss")) == ["congestive_loss"]
    assert not names(40e3, one("aqm"))
    assert not names(None, one("random_loss"))


@pytest.mark.parametrize(("low", "lost", "asked"), [(0.002, 7, True), (0.0, 7, False), (0.002, 2, False)])
def test_random_losses_of_the_path_are_asked_about_although_others_dropped_more(low, lost, asked):
    loss = {"model": "bernoulli", "share": Estimate90(0.005, low, 0.01), "congestive": 62, "random": lost}
    estimates = {"loss": loss, "buffer_bytes": Estimate90(None), "rate_bps": rates()}
    path = SimpleNamespace(estimates=estimates, aqm="droptail")
    others = (SimpleNamespace(start_ns=0),)
    model = SimpleNamespace(other_senders=others, host_limits=HostLimits(), path=path, others_hypothetical=False)

    def names(*verdicts):
        diagnosis = Diagnosis.of([Limit("cwnd", 0.0, 5.0)], [], list(verdicts))
        return [one.name for one in doubtful_verdicts(model, diagnosis)]

    assert names(one("competition")) == (["random_loss"] if asked else [])
    assert not names(one("competition"), one("random_loss"))
    model.other_senders = ()
    assert not names(one("competition"))  # the path's losses may be the competitors' doing


def test_the_drops_of_an_aqm_that_the_path_lacks_are_no_random_losses_beside_it(tmp_path):
    """No fit models PIE: over the inferred path its drops come at random."""
    path = {"rate": "25Mbit", "rtt": "30ms", "buffer": "4bdp", "aqm": "pie"}
    found = analysed(tmp_path, path, cct.Sender("cubic6", profile="linux"), "15s")
    names = [verdict.name for verdict in found.diagnosis.verdicts]
    assert "aqm" in names
    assert "random_loss" not in names


def test_steps_of_the_paths_rate_are_asked_about_although_the_application_explains_a_flows():
    loss = {"model": "none", "share": Estimate90(0.0)}

    def steps(cause, *steps_bps, each_s=1.0):
        estimates = {"loss": loss, "buffer_bytes": Estimate90(None), "rate_bps": rates(*steps_bps, each_s=each_s)}
        path = SimpleNamespace(estimates=estimates, aqm="droptail", rtt_ns=20e6)
        model = SimpleNamespace(other_senders=(), host_limits=HostLimits(), path=path, others_hypothetical=False)
        return doubtful_verdicts(model, Diagnosis.of([Limit("application", 0.0, 5.0)], [], [one(cause)]))

    (found,) = steps("application_limited", 4e6, 3.9e6, 5e6)
    assert found.name == "rate_change"
    assert "fell from 8 Mbit/s to 4 Mbit/s at 1.0 s; one more change follows" in found.text
    assert not steps("application_limited", 7e6)  # by less than a quarter
    assert not steps("stale_bandwidth", 4e6)
    assert not steps("application_limited", 4e6, each_s=0.01)  # within the first round trip


def test_without_fair_queueings_competitors_the_flow_has_the_entire_link():
    path = cct.Path(rate=[(0, "8Mbit"), (2, "4Mbit")], rtt="20ms", buffer="1bdp")
    model = SimpleNamespace(
        path=SimpleNamespace(aqm="droptail", estimates={"loss": {"model": "none"}}), other_senders=()
    )
    served = replace(one("fair_queueing"), evidence={"link_bps": 8e6})
    removal, verdict_of = removals([served], model)[0]["fair_queueing"]
    assert not removal.is_alone  # no other flow is simulated: the path has the rate that they left
    assert removal.change(path, verdict_of).rate_steps()[1].tolist() == [8e6]
    model.other_senders = (cct.Sender("reno"),)
    assert removals([served], model)[0]["fair_queueing"][0].is_alone


def test_drops_of_a_fair_queues_own_aqm_are_no_random_losses_and_fewer_alone(tmp_path):
    """Alone behind this fq_codel the flow gets 35.8 Mbit/s, 1.7 times as much; its drops limit it to its share."""
    path = cct.Path(rate="40Mbit", rtt="40ms", buffer="4bdp", aqm="fq_codel")
    senders = [cct.Sender("cubic6", ack_every=2, start=start) for start in ("0s", "2s")]
    cct.simulate(path, senders, "12s", seed=1, packets=True).to_pcap(tmp_path / "two.pcap")
    flow = cct.read(tmp_path / "two.pcap").flow(0)
    diagnosis = cct.diagnose(flow)
    found = effects_of(flow, diagnosis, "cubic6")
    assert [verdict.name for verdict in found.joined(diagnosis).verdicts] == ["fair_queueing"]
    assert found.causes["fair_queueing"].effect.goodput.value == pytest.approx(1.7, rel=0.05)


def test_a_pacing_limit_that_the_kernel_names_is_asked_about_although_losses_come_first():
    limited = groups.SocketLimit(8e6, 0.4, goodput_bps=4e6, is_at_limit=False)
    limit = verdict_of(judge(Facts(PACKETS, 10.0, 4e6, socket_limit=limited))[0])
    assert limit.name == "pacing_limited"
    assert "8 Mbit/s, for 40 % of the time" in limit.text
    assert order(one("random_loss", 1.4), one("pacing_limited", 1.1, confidence=limit.confidence))[1] == limit.name
    never = limited._replace(limited_share=0.0)
    assert [found.name for found in judge(Facts(PACKETS, 10.0, 4e6, socket_limit=never))] == ["unknown"]


def test_json_has_the_effect_of_each_verdict(lossy):
    told = json.loads(lossy.to_json())
    (loss,) = [one for one in told["verdicts"] if one["name"] == "random_loss"]
    assert set(loss["effect"]["goodput"]) == {"value", "low", "high", "level"}
    assert loss["effect"]["goodput"]["level"] == 0.9
    assert loss["bounded"] == (None in loss["effect"]["rtt"].values())
    assert told["effects"]["own"] == "cubic6"
    assert told["effects"]["without"]["random_loss"]["goodput_bps"]["value"] > 30e6


def test_page_and_terminal_say_what_would_help_most(lossy, tmp_path, capsys):
    page = write_report([lossy], tmp_path).read_text(encoding="utf-8")
    assert "The most would be gained with no random loss: 12 times the goodput" in page
    assert page.count('class="effect ') == 2  # goodput and RTT of one cause
    assert "cubic6 simulated" in page
    file = str(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst"))
    assert main(["analyze", file, "-o", str(tmp_path / "report")]) == 0
    assert "    with no random loss: 12 times the goodput" in capsys.readouterr().out


def test_no_effects_leave_the_order_and_give_no_numbers(tmp_path):
    found = analysed(tmp_path, {"loss": "1.3%"}, cct.Sender("bbr2022", ack_every=2), effects=False)
    assert found.effects is None
    assert all(one.effect is None for one in found.diagnosis.verdicts)
    assert found.diagnosis.cause == "random_loss"


def test_a_path_that_does_not_reproduce_gives_no_numbers_and_says_why(lossy):
    diagnosis = cct.diagnose(lossy.flow)
    found = effects_of(lossy.flow, diagnosis, "bbr2022", draws=3)
    assert re.search(r"does not reproduce the recording \(goodput .* simulated, .* recorded", found.unlike)
    joined = found.joined(diagnosis)
    assert set(diagnosis.causes) <= set(joined.causes)
    assert all((one.effect, one.presence) == (None, None) for one in joined.verdicts)


def test_a_flow_of_an_instant_is_refused_with_the_reason(tmp_path):
    found = analysed(tmp_path, {}, cct.Sender("cubic6", app="bulk:size=100kB"), "1s")
    assert isinstance(found.effects, Refusal)
    assert found.effects.part == EFFECTS
    assert found.effects.reason
    assert found.to_dict()["effects"] == {"refused": found.effects.reason}


def test_a_flow_that_would_take_long_and_flows_beyond_the_first_are_not_simulated(lossy, monkeypatch):
    monkeypatch.setattr("cctrace.counterfactual.constants.MAX_SEGMENTS", 1000)
    with pytest.raises(FitError, match=r"5976 segments would take long to simulate"):
        effects_of(lossy.flow, lossy.diagnosis, "cubic6")
    monkeypatch.setattr("cctrace.analysis.analyze.SIMULATED", 0)
    found = analyze([cct.datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst")])[0]
    assert str(found.effects) == "only simulated for the first 0 flows"


def test_a_goal_is_one_of_three(tmp_path):
    with pytest.raises(ArgumentError, match="goal='speed' is not one of goodput, delay, loss"):
        analyze([cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")], goal="speed")


# --- counters alone --------------------------------------------------------------------------------------------------
def test_counters_alone_bound_what_a_cause_costs():
    found = analyze([cct.datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst")])[0]
    first = found.diagnosis.verdicts[0]
    truth = 40e6 * 1448 / 1514 / found.row["goodput_bps"]
    assert first.name == "random_loss"
    assert first.effect.is_bounded
    assert first.effect.goodput.high is None
    assert 1.5 < first.effect.goodput.low < truth
    assert any("faster path" in text for text in found.effects.not_excluded)


def test_counters_that_name_a_pacing_limit_bound_what_it_costs():
    found = analyze([RECORDINGS / "pacing_limit" / "tcpinfo.csv.zst"])[0]
    effect = named(found, "pacing_limited").effect
    assert effect.is_bounded
    assert effect.goodput.low < 14e6 * 1448 / 1500 / found.row["goodput_bps"]


def test_one_look_has_no_effects_and_says_why(tmp_path):
    counters = "cubic rtt:40/1 mss:1448 cwnd:20 bytes_acked:1000000 busy:2000ms unacked:20"
    text = f"ESTAB 0 0 10.0.0.1:80 10.0.0.2:90\n\t {counters}\n"
    file = tmp_path / "ss.txt"
    file.write_text(text, encoding="ascii")
    found = analyze([file])[0]
    assert isinstance(found.effects, Refusal)
    assert "polls" in found.effects.reason


# --- the order -------------------------------------------------------------------------------------------------------
def one(name, goodput=1.0, rtt=1.0, lost=0.0, confidence=0.9, known=True):
    def around(value):
        return Estimate90(value, value - 0.01, value + 0.01)

    effect = Effect("", around(goodput), around(rtt), Estimate90(lost, lost - 0.001, lost + 0.001)) if known else None
    return Verdict(name, confidence, 0.0, 1.0, {}, "", effect=effect)


def order(*verdicts, goal="goodput"):
    return [one.name for one in by_effect(verdicts, goal)]


def test_an_effect_is_as_sure_as_effects_with_such_intervals_were_right():
    known, narrow = Estimate90(1.0, 0.99, 1.01), Estimate90(2.0, 1.9, 2.1)
    each = [
        Effect("", goodput, known, known) for goodput in (narrow, narrow._replace(high=4.0), narrow._replace(high=None))
    ]
    sure = [one.confidence for one in each]
    assert 1 > sure[0] > sure[1] > 0  # the longer the interval, the less often it is within 10 %
    assert 1 > sure[2] > sure[0]  # a bound need only not be passed
    far = Effect("", narrow._replace(low=1.0, high=None), known, known).confidence
    assert sure[2] > far > sure[1]  # which is the less certain, the wider the side that is known
    assert Effect("", Estimate90(2.0), known, known).confidence == known_alone(known)


def known_alone(rtt):
    return Effect("", Estimate90(None), rtt, rtt).confidence


def test_a_verdict_with_an_effect_is_as_sure_as_that_and_keeps_how_sure_its_rule_was(lossy):
    first = lossy.diagnosis.verdicts[0]
    assert first.confidence == first.effect.confidence
    assert first.presence == pytest.approx(0.99)
    told = json.loads(lossy.to_json())["verdicts"]
    assert told[0]["presence"] == first.presence
    plain = cct.diagnose(lossy.flow).verdicts[0]
    assert plain.is_there == plain.confidence == plain.to_dict()["presence"]


def test_the_goal_decides_which_effect_counts():
    given = one("random_loss", 2.0, 1.5, -0.01), one("jitter", 1.1, 0.8), one("self_induced_queue", 1.0, 0.3, -0.03)
    assert order(*given) == ["random_loss", "jitter", "self_induced_queue"]
    assert order(*given, goal="delay") == ["self_induced_queue", "jitter", "random_loss"]
    assert order(*given, goal="loss") == ["self_induced_queue", "random_loss", "jitter"]


def test_ties_and_what_changes_nothing_are_in_the_catalogues_order():
    full = one("path_full", known=False)
    assert order(one("random_loss", 1.01), one("ack_thinning", 0.995), full) == [
        "path_full",
        "random_loss",
        "ack_thinning",
    ]
    assert order(one("random_loss", 1.505), one("jitter", 1.506), full)[:2] == ["random_loss", "jitter"]


def test_what_cannot_be_simulated_goes_behind_what_costs_goodput_and_before_what_costs_nothing():
    given = one("stalls", known=False), one("random_loss", 1.0), one("application_limited", 1.5)
    assert order(*given) == ["application_limited", "stalls", "random_loss"]


def test_a_doubtful_cause_stays_behind_unless_time_accounts_for_it():
    given = one("random_loss", 3.0, confidence=0.4), one("path_full", known=False)
    assert order(*given) == ["path_full", "random_loss"]
    given = one("application_limited", 1.6, confidence=0.35), one("path_full", known=False)
    assert order(*given) == ["application_limited", "path_full"]


def test_a_large_cost_comes_before_a_full_path_and_before_others_if_its_direction_is_likely():
    def competition(low):
        return Effect("", Estimate90(1.1, low, 1.2), Estimate90(1.0, 0.99, 1.01), Estimate90(0.0, -0.01, 0.01))

    full, longer = one("path_full", known=False), one("jitter", 1.0, 0.9)
    for low, first in ((0.96, "competition"), (0.8, "jitter")):  # in nine and in seven of ten runs like this
        other = Verdict("competition", 0.9, 0.0, 1.0, {}, "", effect=competition(low))
        assert order(full, longer, other)[0] == first
        assert order(full, longer, other)[2] == "path_full"
    small = Effect("", Estimate90(1.02, 0.8, 1.3), Estimate90(1.0, 0.9, 1.1), Estimate90(0.0, -0.01, 0.01))
    assert order(full, Verdict("competition", 0.9, 0.0, 1.0, {}, "", effect=small))[0] == "path_full"


def test_a_remedy_that_makes_worse_is_no_cost():
    full = one("path_full", known=False)
    assert order(one("self_induced_queue", 0.9, 1.1), full) == ["path_full", "self_induced_queue"]
    assert order(one("congestive_loss", 1.0, 1.4), full) == ["path_full", "congestive_loss"]
    assert order(one("random_loss", 1.0, 1.4), full) == ["random_loss", "path_full"]


def test_twice_the_buffer_counts_for_the_goodput_that_it_gains():
    perhaps = replace(one("shallow_buffer", 1.6).effect, goodput=Estimate90(1.6, 1.4, 1.7))
    short = replace(one("shallow_buffer"), effect=perhaps)
    assert order(short, one("jitter", 1.7)) == ["jitter", "shallow_buffer"]
    assert order(short, one("jitter", 1.5)) == ["shallow_buffer", "jitter"]
    full = one("path_full", known=False)
    given = one("shallow_buffer", 1.0, 1.3), one("jitter", 1.0, 0.9), full
    assert order(*given) == ["jitter", "shallow_buffer", "path_full"]  # a longer queue is no gain


def test_a_shaper_whose_bucket_is_spent_within_an_rtt_comes_behind_a_full_path_here_too():
    for rtts, first in ((0.3, "path_full"), (20.0, "shaper")):
        shaper = replace(one("shaper", known=False), evidence={"bucket_rtts": rtts})
        assert order(one("path_full", known=False), shaper)[0] == first


def test_less_without_a_limit_of_the_hosts_is_chance():
    full = one("path_full", known=False)
    assert order(one("receiver_limited", 0.9), full) == ["path_full", "receiver_limited"]
    assert order(one("aqm", 0.9), full) == ["aqm", "path_full"]


def test_a_send_buffer_that_delays_recoveries_alone_shows_in_what_reproduces_the_flow(tmp_path):
    """Its data wait there until a retransmission arrives; at other times the window is the limit."""
    path, small = {"rate": "5.48Mbit", "rtt": "16.5ms", "buffer": "13100B"}, "6800B"
    sent = [cct.Sender("reno", ack_every=2, send_buffer=size) for size in (small, None)]
    found = analysed(tmp_path, path, sent[0], "8s")
    assert found.effects.own == "reno"
    limited, alone = (cct.simulate(cct.Path(**LINK | path), one, "8s", 3).flows["goodput_bps"][0] for one in sent)
    effect = named(found, "send_buffer_limited").effect
    assert effect.goodput.value == pytest.approx(alone / limited, rel=0.05)


@pytest.mark.parametrize(("retransmitted", "may"), [(0.01, True), (0.0, False)])
def test_a_send_buffer_delays_no_recovery_of_a_flow_that_had_none(retransmitted, may):
    host_limits = SimpleNamespace(sender_options=lambda changes: {})
    model = SimpleNamespace(recorded={"retransmitted_share": retransmitted}, host_limits=host_limits, other_senders=())
    diagnosis = SimpleNamespace(limits=[Limit("application", 0.0, 1.0), Limit("pacing", 1.0, 9.0)])
    assert _may_lack_room(model, diagnosis) == may


def test_a_gain_that_its_application_may_lack_data_for_goes_behind_what_is_certain_if_it_was_seen_to_pause():
    perhaps = Effect("", Estimate90(3.0, None, 3.2), Estimate90(1.2, None, None), Estimate90(0.0, -0.01, 0.01))
    policer = Verdict("policer", 0.9, 0.0, 1.0, {}, "", effect=perhaps)
    given = one("path_full", known=False), policer, one("receiver_limited", 1.5)
    assert order(*given) == ["policer", "receiver_limited", "path_full"]  # a larger window's gain needs data, too
    paused = one("app_limited_samples", known=False)
    assert order(*given, paused) == ["receiver_limited", "policer", "path_full", "app_limited_samples"]


def test_a_pacing_limit_in_force_at_times_counts_for_what_its_removal_may_gain():
    perhaps = replace(one("pacing_limited", 1.5).effect, goodput=Estimate90(1.5, None, 1.7))
    paced = Verdict("pacing_limited", 0.9, 0.0, 1.0, {}, "", effect=perhaps, presence=0.25)
    assert order(one("competition", 1.3), paced) == ["pacing_limited", "competition"]
    assert order(one("competition", 1.3), replace(paced, name="aqm")) == ["competition", "aqm"]  # may not be there


def test_of_upper_bounds_the_larger_comes_first():
    def at_most(name, goodput):
        return replace(one(name), effect=replace(one(name, goodput).effect, goodput=Estimate90(goodput, None, goodput)))

    assert order(at_most("random_loss", 1.6), at_most("receiver_limited", 2.1)) == ["receiver_limited", "random_loss"]
    assert order(at_most("random_loss", 1.6), at_most("receiver_limited", 1.2)) == ["random_loss", "receiver_limited"]


def test_two_limits_that_hide_each_other_come_by_what_removing_both_gains():
    def hidden(name, then, rtt):
        both = replace(one(name, 1.01, rtt).effect, then=then, without_both=Estimate90(2.4, 2.3, 2.5))
        return replace(one(name), effect=both)

    given = [one("random_loss", 1.5), hidden("application_limited", "policer", 1.0)]
    given.append(hidden("policer", "application_limited", 1.3))
    assert order(*given) == ["policer", "application_limited", "random_loss"]  # alone the policer changes more
    assert all(is_remedy(one) for one in given)
    assert not is_remedy(one("jitter", 1.01))


def test_a_capture_that_misleads_is_said_first():
    assert order(one("application_limited", 2.0), one("capture_artefact", known=False))[0] == "capture_artefact"


@pytest.mark.parametrize(("congestive", "answered"), [(0, False), (4, True)])
def test_a_larger_buffer_is_not_said_to_change_nothing_where_all_losses_are_taken_for_chance(congestive, answered):
    path = SimpleNamespace(aqm="droptail", policer=None, estimates={"loss": {"congestive": congestive, "random": 9}})
    found = [Verdict("shallow_buffer", 0.9, 0.0, 10.0, {}, "", "", "")]
    known, unanswered = removals(found, SimpleNamespace(path=path, other_senders=()))
    assert ("shallow_buffer" in known) == answered
    assert ("shallow_buffer" in unanswered) != answered


@pytest.mark.parametrize(
    ("steps", "later"),
    [([(0, "4Mbit"), (5, "2Mbit")], ""), ([(0, "4Mbit"), (5, "2Mbit"), (9, "5Mbit")], ", also when it had 5 Mbit/s")],
)
@pytest.mark.parametrize("cause", ["rate_change", "stale_bandwidth"])
def test_what_a_path_with_its_first_rate_lacks_is_said(steps, later, cause):
    model = fitted()
    model.path.rate_steps = cct.Path(rate=steps, rtt="20ms").rate_steps
    assert removals([one(cause)], model)[0][cause][0].description == f"the path's first rate all the time{later}"


def fitted(aqm="droptail", policer=None, as_fitted=None, **loss):
    """Return the model of a fitted path with these parts, and losses by count."""
    lost = {"model": "bernoulli" if loss.get("random") else "none", "congestive": 0, "random": 0} | loss
    path = SimpleNamespace(aqm=aqm, policer=policer, estimates={"loss": lost, "aqm": as_fitted})
    return SimpleNamespace(path=path, other_senders=())


@pytest.mark.parametrize(("cause", "has_it"), [("aqm", {"aqm": "codel"}), ("policer", {"policer": ("8Mbit", "50kB")})])
def test_a_cause_that_the_inferred_path_lacks_is_not_said_to_cost_nothing(cause, has_it):
    for model, answered in ((fitted(), False), (fitted(**has_it), True)):
        known, unanswered = removals([one(cause)], model)
        assert (cause in known) == answered
        assert (cause in unanswered) != answered


def test_the_early_drops_of_an_aqm_that_a_path_has_as_chance_are_removed_with_it():
    path, beside_chance = cct.Path(**LINK, loss="1%"), fitted(random=40)
    known, _ = removals([one("aqm")], beside_chance)
    assert known["aqm"][0].description == INTERVENTIONS["aqm"].description
    assert known["aqm"][0].change(path, one("aqm")).loss == "0%"
    known, unanswered = removals([one("aqm"), one("random_loss")], beside_chance)  # chance has a verdict of its own
    assert set(known) == {"random_loss"}
    assert "aqm" in unanswered


def test_an_aqm_goes_behind_where_a_full_queue_explains_the_recording_best():
    effects = {"recorded": {}, "own": "reno", "original": {}, "causes": {}, "added": [], "not_excluded": []}
    verdicts = [one("aqm", known=False), one("path_full", known=False)]
    diagnosis = SimpleNamespace(verdicts=verdicts, reordered=lambda found: [each.name for each in found])
    for as_fitted, expected in (("droptail", ["path_full", "aqm"]), ("other", ["aqm", "path_full"])):
        _, unanswered = removals(verdicts, fitted(as_fitted=as_fitted, congestive=40))
        assert Effects(unanswered=unanswered, **effects).joined(diagnosis) == expected


@pytest.mark.parametrize(
    ("bdp", "gain", "name"),
    [
        (0.3, 1.08, "shallow_buffer"),
        (0.3, 1.01, "congestive_loss"),
        (0.3, 0.9, "congestive_loss"),
        (1.5, 1.08, "congestive_loss"),
    ],
)
def test_a_full_queue_below_a_bdp_is_a_short_buffer_if_twice_its_size_gives_more(bdp, gain, name):
    full = replace(one("congestive_loss", gain), evidence={"buffer_bytes": 3e4, "buffer_bdp": bdp, "lost": 20})
    asked = {full.name: (INTERVENTIONS[full.name], replace(full, effect=None))}
    causes, added = with_shallow_buffer({full.name: Without({}, full.effect)}, [], asked)
    assert list(causes) == [name]
    effects = Effects({}, "reno", {}, causes, {}, added, [])
    found = effects.joined(SimpleNamespace(verdicts=[full], reordered=lambda found: found))
    assert [(each.name, each.effect.goodput.value) for each in found] == [(name, gain)]


def test_a_cause_that_effects_add_replaces_the_verdict_of_its_name():
    added, said = one("shallow_buffer", 1.08), [one("congestive_loss"), replace(one("shallow_buffer"), effect=None)]
    effects = Effects({}, "reno", {}, {added.name: Without({}, added.effect)}, {}, [added], [])
    found = effects.joined(SimpleNamespace(verdicts=said, reordered=lambda found: found))
    assert [(each.name, each.effect.goodput.value) for each in found] == [("shallow_buffer", 1.08)]


def test_jitter_that_no_verdict_names_is_asked_about_unless_a_hypothetical_competitor_varies_delays():
    def names(others, spread_us, *verdicts, others_hypothetical=False):
        loss = {"model": "none", "share": Estimate90(0.0)}
        jitter = {"sd_us": Estimate90(spread_us)}
        drawn = Jitter("normal", sd=f"{spread_us}us")
        path = SimpleNamespace(
            estimates={"loss": loss, "jitter": jitter, "buffer_bytes": Estimate90(None), "rate_bps": rates()},
            aqm="droptail",
            rtt_ns=40e6,
            jitters_before=False,
            jitter_steps=lambda before: ([0], [drawn]),
            max_rate_bps=lambda: 8e6,
        )
        model = SimpleNamespace(
            other_senders=others,
            host_limits=HostLimits(),
            path=path,
            others_hypothetical=others_hypothetical,
            controller="cubic6",
        )
        diagnosis = Diagnosis.of([Limit("cwnd", 0.0, 5.0)], [], list(verdicts))
        return [each.name for each in doubtful_verdicts(model, diagnosis)]

    assert names((), 3000, one("receiver_limited")) == ["jitter"]
    assert not names((), 400, one("receiver_limited"))  # a hundredth of the RTT
    assert not names((), 3000, one("collapse"))
    assert names((), 3000, one("ack_compression")) == ["jitter"]  # of the ACKs, perhaps
    other = (SimpleNamespace(start_ns=0),)
    assert names(other, 3000, one("competition")) == ["jitter"]
    assert not names(other, 3000, one("competition"), others_hypothetical=True)


@pytest.mark.parametrize("unlike", ["", "does not reproduce the recording"])
def test_acks_that_jitter_explains_are_no_cause_beside_it_if_such_a_path_reproduces_the_recording(unlike):
    said = [replace(one(name), effect=None) for name in ("ack_compression", "path_full")]
    effects = Effects({}, "reno", {}, {}, {"ack_compression": ACKS_AS_DUE}, [], [], unlike=unlike)
    found = effects.joined(SimpleNamespace(verdicts=said, reordered=lambda found: found))
    assert found[0].name == ("ack_compression" if unlike else "path_full")
    assert [each.confidence < 0.5 for each in found] == [False, not unlike]


def test_large_effects_over_a_path_that_does_not_reproduce_order_the_verdicts_and_are_not_stated():
    wide = replace(one("random_loss", 1.4).effect, goodput=Estimate90(1.4, 1.1, 1.9))
    effects = {"competition": wide, "reordering": one("reordering").effect, "jitter": wide}
    said = [replace(one(name), effect=None) for name in ("reordering", "competition", "path_full")]
    added = replace(one("jitter", confidence=UNSURE_CONFIDENCE), effect=None)
    causes = {name: Without({}, effect) for name, effect in effects.items()}
    found = Effects({}, "reno", {}, causes, {}, [added], [], unlike="does not reproduce the recording")
    joined = found.joined(SimpleNamespace(verdicts=said, reordered=lambda found: found))
    # Without an effect over this path, reordering keeps its place: it may have one over the recorded path.
    assert [each.name for each in joined] == ["competition", "reordering", "path_full", "jitter"]
    assert [(each.effect, each.confidence) for each in joined] == [(None, 0.9)] * 3 + [(None, UNSURE_CONFIDENCE)]


def test_a_removal_that_two_causes_share_has_one_row():
    same = Estimate90(1.2, 1.1, 1.3)
    one, other = (Effect(words, same, same, same) for words in ("no jitter", "no policer"))
    figures = {"goodput_bps": same, "rtt_mean_us": same, "retransmitted_share": same}
    causes = {"stale_bandwidth": Without(figures, one), "rate_change": Without(figures, one)}
    found = Effects({}, "bbr3", {}, causes | {"policer": Without(figures, other)}, {}, [], [])
    assert [words for words, _ in found.rows()][2:] == ["with no jitter", "with no policer"]
