"""Packets, polls and a single poll are judged by one rule per cause: answers differ only where facts do."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import cctrace as cct
from cctrace import datasets
from cctrace.diagnosis.catalogue import CAUSES
from cctrace.diagnosis.facts import PACKETS, POLLS, SINGLE_POLL, Facts
from cctrace.diagnosis.findings import Finding
from cctrace.diagnosis.groups import (
    AckCounts,
    FirstRtts,
    LargestFlights,
    Losses,
    MinRtt,
    Policer,
    Queue,
    ReceiverPauses,
    ReceiverWindow,
    Reordering,
    SendBuffer,
    Sharing,
    ShortTransfer,
    SocketLimit,
)
from cctrace.diagnosis.order import ordered, verdict_of
from cctrace.diagnosis.packets.delays import jitter
from cctrace.diagnosis.packets.losses import before_losses, retransmissions
from cctrace.diagnosis.packets.rates import queue
from cctrace.diagnosis.remedies import commands, with_commands
from cctrace.diagnosis.rules import explained_away, judge
from cctrace.diagnosis.wording import fill
from cctrace.flows.capture import Capture
from cctrace.path.changes import Change
from cctrace.path.losses import Backlogs
from tests.places import RECORDINGS

WITHIN_RTT = "what varies within an RTT lies between two polls"
NO_QUEUE = "no counter has the queue that a lost packet met"
# Of each recording that has both: the causes that one of the two has and the other has not, and why.
DIFFER = {
    "compete_bbr_cubic_2bdp": {},
    "jitter_bbr_sd2ms": {"jitter": WITHIN_RTT},
    "loss_cubic_1pct": {},
    "single_bbr_1bdp": {},
    "tso_bbr_300m_veth": {  # tc's tbf with a burst of 131 kB
        "shaper": "what passes undelayed lies between two polls",
        "self_induced_queue": "whose queue it is shows in each packet's delay",
        "jitter": WITHIN_RTT,
    },
    "fq_bbr1": {},
    "fq_bbr3_loss": {},
    "fq_cubic": {},
    "lab_cubic": {},
    "lab_red": {"aqm": NO_QUEUE, "congestive_loss": NO_QUEUE},
    "lab_v1_sndbuf": {
        "send_buffer_limited": "this kernel counted no time in sndbuf_limited; the writes show it",
        "path_full": "RTTs behind the small send buffer are long: a queue, as far as polls tell",
    },
    "lab_v2_jitter": {"congestive_loss": NO_QUEUE},  # uniform over 4 ms: 1.15 ms, 4 % of the delay, are no cause
    "lab_v3_loss": {"congestive_loss": NO_QUEUE},
    "lab_v3_tso": {"random_loss": "losses come in super-packets, not as evenly as chance spreads segments"},
    "paced_cubic": {},
    "pacing_limit": {},
}


@pytest.mark.parametrize("name", DIFFER)
def test_packets_and_polls_give_the_same_causes_but_for_what_is_written_here(name):
    folder = RECORDINGS / name
    file = folder if folder.exists() else datasets.path(name, "sender.pcap.zst").parent
    capture, table = cct.read(file / "sender.pcap.zst"), cct.read(file / "tcpinfo.csv.zst")
    assert len(table.connections)
    for index in range(len(table.connections)):
        both = (capture.flow(index), table.flow(index))
        causes = [{one.name for one in cct.diagnose(source).verdicts} for source in both]
        assert causes[0] ^ causes[1] == set(DIFFER[name])


def no(*_):
    return False


LOST = Losses(100, 5000.0, 0.02, (0.0, 9.0), 0.5, 90, 20e3, 40e3, is_gathered=no)
FULL = Losses(100, 5000.0, 0.02, (0.0, 9.0), 0.95, 90, 90e3, 40e3, is_gathered=no)
SHARED = {"flows": 2, "share": 0.5, "mine_bps": 1e6, "their_rate_bps": 1e6, "best": "a:1", "best_bps": 1e6}
OF_ALL_KINDS = {
    "receiver_limited": {"window": ReceiverWindow(receiver_share=0.9)},
    "send_buffer_limited": {"send_buffer": SendBuffer(0.6)},
    "slow_start_only": {"short_transfer": ShortTransfer(9, 4e5, 4e4, is_growing=True, is_complete=False)},
    "pacing_limited": {"socket_limit": SocketLimit(4e6, 0.9, 3.9e6, is_at_limit=True)},
    "competition": {"sharing": Sharing(**SHARED, span=(0.0, 9.0), rtt_correlation=0.9)},
    "reordering": {"reordering": Reordering(0.01, 50, 0)},
    "random_loss": {"losses": LOST},
    "congestive_loss": {"losses": FULL},
    "collapse": {"min_rtt": MinRtt(15e3, 40e3, 4e3, 0.5, 1e6, acts_as_bbr=True)},
    "self_induced_queue": {"queue": Queue(160e3, 40e3, 40e3, queue_us=120e3)},
    "path_full": {"queue": Queue(60e3, 40e3, 40e3, queue_us=20e3)},
    "unknown": {},
}


@pytest.mark.parametrize("kind", [PACKETS, POLLS, SINGLE_POLL])
@pytest.mark.parametrize("cause", OF_ALL_KINDS)
def test_the_same_facts_have_the_same_cause_and_sentence_whatever_told_them(cause, kind):
    first = verdict_of(judge(Facts(kind, 10.0, 1e6, rtt_us=40e3, least_rtt_us=40e3, **OF_ALL_KINDS[cause]))[0])
    assert first.name == cause
    assert first.text.endswith(".")
    assert not any(mark in first.text + first.advice for mark in "{}[]")


def test_a_loss_beside_competitors_is_kept_for_a_simulation_to_ask_about():
    facts = Facts(PACKETS, 10.0, 1e6, rtt_us=40e3, least_rtt_us=40e3, losses=LOST, **OF_ALL_KINDS["competition"])
    found = judge(facts)
    assert [one.name for one in found] == ["competition"]
    assert [one.name for one in explained_away(facts, found)] == ["random_loss"]
    alone = Facts(PACKETS, 10.0, 1e6, rtt_us=40e3, least_rtt_us=40e3, losses=LOST)
    assert not explained_away(alone, judge(alone))


def test_a_fair_share_that_changed_is_no_change_of_the_rate_that_a_simulation_could_undo():
    change = Change(2.0, 2e6, 1e6, 9.0)
    facts = Facts(
        PACKETS,
        10.0,
        1e6,
        rtt_us=40e3,
        least_rtt_us=40e3,
        rates=SimpleNamespace(changes=[change], stale_bandwidth=None),
    )
    assert [one.name for one in explained_away(facts, [])] == ["rate_change"]
    assert not explained_away(facts, [facts.finding("fair_queueing", 0.9, {})])


@pytest.mark.parametrize(("share", "first"), [(0.15, "competition"), (0.3, "application_limited")])
def test_an_application_on_a_clock_follows_what_keeps_more_of_its_data_waiting(share, first):
    wrote = {"write_bytes": 150e3, "every_us": 500e3, "goodput_bps": 1.8e6, "application_share": share}  # 2.4 Mbit/s
    application = Finding("application_limited", 0.5, (0.0, 8.0), wrote)
    assert ordered([application, Finding("competition", 0.9, (0.0, 8.0), {})])[0].name == first


@pytest.mark.parametrize(("reordered", "is_full"), [(50, False), (0, True)])
def test_the_short_rtts_of_packets_that_overtake_are_none_of_an_empty_queue(reordered, is_full):
    queue = Queue(76e3, 38e3, base_rtt_us=74e3, spread_us=400.0)
    facts = Facts(PACKETS, 10.0, 1e6, rtt_us=76e3, least_rtt_us=38e3, queue=queue)
    found = judge(replace(facts, reordering=Reordering(reordered / 10_000, reordered, 0)))
    assert ("path_full" in [one.name for one in found]) == is_full


@pytest.mark.parametrize(("spurious", "is_told"), [(0, True), (99, True), (400, False)])
def test_where_many_retransmissions_were_spurious_packets_that_no_dsack_reported_need_not_be_lost(spurious, is_told):
    facts = Facts(PACKETS, 10.0, 1e6, losses=LOST._replace(lost=500), reordering=Reordering(0.5, 5000, spurious))
    assert ("random_loss" in [one.name for one in judge(facts)]) == is_told


@pytest.mark.parametrize(("spurious", "words"), [(0, "losses: 5 %"), (99, "losses: at most 5 %")])
def test_a_share_of_losses_beside_spurious_retransmissions_is_a_bound(spurious, words):
    """A D-SACK that the next one replaces leaves a late packet that looks lost."""
    lost = LOST._replace(lost=500, loss_share=0.05)
    facts = Facts(PACKETS, 10.0, 1e6, losses=lost, reordering=Reordering(0.5, 5000, spurious))
    assert words in next(verdict_of(one).text for one in judge(facts) if one.name == "random_loss")


@pytest.mark.parametrize(("lost", "words"), [(40, "100 % of 40 losses"), (99, "100 % of the first 40 losses")])
def test_a_policer_that_was_judged_by_a_long_flows_first_losses_is_said_to_explain_these(lost, words):
    policed = Policer(1e6, 9e4, was_full=True, explained_share=1.0, lost=40, span=(0.0, 1.0))
    found = judge(Facts(PACKETS, 10.0, 1e6, losses=LOST._replace(lost=lost), policer=policed))
    assert words in next(verdict_of(one).text for one in found if one.name == "policer")


@pytest.mark.parametrize(("elsewhere", "want"), [(7, ["policer", "random_loss"]), (0, ["policer"])])
def test_losses_with_tokens_left_are_random_if_they_came_at_other_times_than_the_buckets(elsewhere, want):
    """A short queue behind a policer drops what has taken tokens: the bucket seems larger than it is."""
    policed = Policer(1e6, 9e4, True, explained_share=0.9, lost=70, span=(0.0, 1.0), losses_elsewhere=elsewhere)
    found = judge(Facts(PACKETS, 10.0, 1e6, losses=LOST._replace(lost=70), policer=policed))
    assert {one.name for one in found} & {"policer", "random_loss"} == set(want)


def test_losses_of_one_overflow_count_once_where_queues_at_losses_are_compared():
    """Fifty drops of one overflow must not make random losses look as if they avoided short queues."""
    time_us = np.arange(10_000) * 1000.0
    ahead = np.tile(np.linspace(0, 1e5, 100), 100)
    lost = np.zeros(10_000, bool)
    lost[37::137] = True  # at any length
    lost[5050:5100] = True  # while the queue grew to its end, within two RTTs
    at = SimpleNamespace(time_us=time_us, rtt_us=50_000.0, ahead_bytes=ahead)
    assert Backlogs.chance_of(at, lost) > 0.05


@pytest.mark.parametrize(("late", "want"), [(8, ["reordering"]), (4, [])])
def test_a_few_packets_that_arrived_late_are_reordering(late, want):
    facts = Facts(PACKETS, 10.0, 1e6, rtt_us=40e3, least_rtt_us=40e3, reordering=Reordering(late / 4000, late, 3))
    assert [one.name for one in judge(facts) if one.name == "reordering"] == want


def test_packets_that_a_shorter_route_let_overtake_others_once_are_neither_reordering_nor_a_queue_that_emptied():
    first = FirstRtts(first_rtt_us=80e3, least_rtt_us=50e3, own_queue_us=0.0, spread_us=100.0)
    late = Reordering(0.002, 60, 39)
    facts = Facts(PACKETS, 10.0, 1e6, rtt_us=80e3, least_rtt_us=50e3, first_rtts=first, reordering=late)
    assert {"reordering", "congested_before"} <= {one.name for one in judge(facts)}
    names = {one.name for one in judge(replace(facts, reordering=late._replace(is_once=True)))}
    assert not names & {"reordering", "congested_before"}


def test_every_sentence_of_the_catalogue_closes_its_clauses():
    for cause in CAUSES.values():
        for sentence in (cause.sentence, *cause.forms.values()):
            for template in (sentence.text, sentence.advice, sentence.refuted_by):
                assert not any(mark in fill(template, {}) for mark in "{}[]|")


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        ({"rate_bps": 4e6, "lost": 3}, "It got 4 Mbit/s; 3 were lost."),
        ({"rate_bps": 4e6, "least_us": 4e4}, "It got 4 Mbit/s (least RTT 40 ms); nothing was lost."),
        ({"rate_bps": 4e6, "lost": float("nan")}, "It got 4 Mbit/s; nothing was lost."),
    ],
)
def test_a_clause_without_its_numbers_is_left_out(known, sentence):
    template = "It got {rate_bps}[ (least RTT {least_us})]; [{lost} were|nothing was] lost."
    assert fill(template, known) == sentence


@pytest.mark.parametrize(
    ("goodput_bps", "words"),
    [
        (46e6, "filled its path: 46 Mbit/s of goodput; while it sent, its packets with their headers took 97"),
        (31e6, "31 Mbit/s of goodput in all; while it sent, its packets with their headers took typically 97"),
    ],
)
def test_a_path_that_was_full_for_most_of_the_time_is_not_said_to_have_been_so_throughout(goodput_bps, words):
    queue = Queue(40e3, 40e3, 39e3, queue_us=200.0, rate_bps=50e6, used_share=0.97, explained=0.3)
    (found,) = [one for one in judge(Facts(PACKETS, 10.0, goodput_bps, queue=queue)) if one.name == "path_full"]
    text = verdict_of(found).text
    assert words in text
    assert ("most of the time" in text) == (goodput_bps < 40e6)


@pytest.mark.parametrize(("link_bps", "full"), [(20e6, False), (10e6, True), (np.nan, True)])
def test_what_others_left_of_a_path_is_not_the_paths_rate(link_bps, full):
    queue = Queue(40e3, 40e3, 39e3, queue_us=200.0, rate_bps=9.8e6, used_share=0.97, explained=0.3)
    shared = Sharing(2, 0.44, 8.8e6, 11e6, "10.0.0.2:50001", 11e6, (0.0, 10.0), link_bps, explained_better_by=0.3)
    causes = [one.name for one in judge(Facts(PACKETS, 10.0, 8.4e6, queue=queue, sharing=shared))]
    assert "competition" in causes
    assert ("path_full" in causes) == full


@pytest.mark.parametrize(("used_share", "is_full"), [(np.nan, True), (0.5, False), (0.95, True)])
def test_bursts_that_queue_do_not_fill_a_link_that_is_idle_between_them(used_share, is_full):
    queue = Queue(60e3, 40e3, 40e3, queue_us=20e3, rate_bps=15e6, used_share=used_share)
    found = judge(Facts(PACKETS, 10.0, goodput_bps=7.5e6, queue=queue))
    assert ("path_full" in [one.name for one in found]) == is_full


@pytest.mark.parametrize(
    ("used_share", "rate_bps", "is_held"), [(0.57, 19.4e6, False), (0.57, 40e6, True), (np.nan, 19.4e6, True)]
)
def test_what_the_path_holds_without_a_queue_is_no_window_that_limits(used_share, rate_bps, is_held):
    queue = Queue(43.4e3, 42.4e3, 42.4e3, queue_us=940.0, rate_bps=rate_bps, used_share=used_share)
    flights = LargestFlights(window_bytes=101e3, rtt_us=43.4e3, spread=0.0, has_counters=False, partly_filled_share=0.0)
    found = judge(Facts(PACKETS, 10.0, goodput_bps=9.8e6, queue=queue, largest_flights=flights))
    assert ("window_limited" in [one.name for one in found]) == is_held


@pytest.mark.parametrize(
    ("model", "words"), [(True, "the 0.25 BDP that BBR adds when it probes;"), (False, "CUBIC's 0.43);")]
)
def test_a_shallow_buffer_is_compared_with_what_the_flows_controller_needs(model, words):
    lost = Losses(50, 5e3, 0.01, (0.0, 9.0), 0.95, 5, 1e3, 40e3, lambda: False)
    facts = Facts(PACKETS, 10.0, 9e6, losses=lost, is_model_based=model)
    (found,) = [one for one in judge(facts) if one.name == "shallow_buffer"]
    assert words in verdict_of(found).text


@pytest.mark.parametrize("lacks_sacks", [False, True])
def test_acks_that_fill_holes_of_which_no_sack_block_tells_are_not_thinned(lacks_sacks):
    facts = Facts(PACKETS, 10.0, 9e6, ack_counts=AckCounts(6.8, 2.0, 1.0, False), lacks_sacks=lacks_sacks)
    assert ("ack_thinning" in [one.name for one in judge(facts)]) != lacks_sacks


@pytest.mark.parametrize("kind", [PACKETS, POLLS])
def test_only_packets_exclude_a_policer_where_losses_came_without_a_queue(kind):
    lost = Losses(50, 5e3, 0.01, (0.0, 9.0), 0.95, 5, 1e3, 40e3, lambda: False)
    (found,) = [one for one in judge(Facts(kind, 10.0, 9e6, losses=lost)) if one.name == "shallow_buffer"]
    assert ("unless a policer did" in verdict_of(found).text) == (kind != PACKETS)


@pytest.mark.parametrize(("complete", "told"), [(True, (20_000, 300)), (False, (19_500, 900))])
def test_a_queue_is_what_the_rtt_of_the_table_exceeds_the_least_one_by(complete, told):
    """Counting packets in groups adds 500 us to a modelled queue and takes it off the RTT without one."""
    rtt_us = np.array([20_000.0, 20_400.0, 20_800.0])
    bottleneck = SimpleNamespace(rate=6.25, is_measured=True, queue_us=np.full(3, 900.0), explained=0.9)
    at_the_sender = SimpleNamespace(connections=SimpleNamespace(sender_side_ns=[0]))
    row = {"rtt_median_us": 20_300}
    record = SimpleNamespace(
        flow=SimpleNamespace(facts={"complete": complete}, row=row, capture=at_the_sender, index=0),
        path=SimpleNamespace(
            require_bottleneck=bottleneck,
            uncongested=(19_500.0, 0.0),
            rtts_in_order_us=rtt_us,
            median_rtt_us=float(np.median(rtt_us)),
            standing=np.zeros(3),
            lost=np.zeros(3),
        ),
        use=0.9,
    )
    found = queue(record)
    assert (found.base_rtt_us, found.queue_us) == told


def test_packets_lost_at_once_count_as_one_loss_among_others():
    """Five packets that a full queue dropped, and twenty that a link lost in an instant while it was empty."""
    rtt_us = np.tile(np.linspace(20_000.0, 40_000.0, 200), 6)
    lost = np.zeros(1200, bool)
    lost[[198, 398, 598, 798, 998]] = lost[1000:1020] = True
    record = SimpleNamespace(
        table=SimpleNamespace(ack_row=np.arange(1200)),
        path=SimpleNamespace(rtt_us=rtt_us, sent_s=np.arange(1200) * 1e-3, least_rtt_us=20_000.0),
    )
    rank, events = before_losses(record, lost)
    assert events == 5  # the fifth and the link's losses follow each other
    assert rank == pytest.approx((4 * 0.985 + 0.08) / 5, abs=0.02)


@pytest.mark.parametrize(
    ("complete", "mean_us", "told"), [(True, 20_500, True), (True, 19_500, False), (False, 19_500, True)]
)
def test_jitter_makes_rtts_longer_than_the_least_one(complete, mean_us, told):
    record = SimpleNamespace(
        flow=SimpleNamespace(facts={"complete": complete}),
        path=SimpleNamespace(
            require_bottleneck=SimpleNamespace(is_measured=True),
            uncongested=(mean_us, 1_700.0),
            least_rtt_us=20_000.0,
        ),
    )
    assert (jitter(record) is not None) == told


@pytest.mark.parametrize(("shut_s", "form"), [(9.0, "shut"), (1.0, "")])
def test_a_receiver_that_did_not_read_for_most_of_the_time_needs_no_larger_buffer(shut_s, form):
    window = ReceiverWindow(receiver_share=0.95, window_bytes=5e4, advertised_bytes=6e4, rtt_us=40e3)
    facts = Facts(PACKETS, 10.0, 1e6, rtt_us=40e3, window=window, receiver_pauses=ReceiverPauses(2, shut_s, (0.5, 9.6)))
    found = judge(facts)
    assert [one.name for one in found] == ["receiver_limited"] + ["receiver_pauses"] * (not form)
    assert found[0].form == form
    first = verdict_of(found[0])
    if form:
        assert first.text.startswith("The receiver mostly did not read: its window was zero twice, for 9 s in all")
        assert "A larger receive buffer would" not in first.advice
    flow = cct.read(datasets.path("single_bbr_1bdp", "sender.pcap.zst")).flow(0)
    (said,) = with_commands([first], flow)
    assert ("--rwnd x4" in said.advice) == (not form)


@pytest.mark.parametrize(
    ("source", "named"),
    [("<stdin>", "-"), ("<stream>", "FILE"), ("a.pcap and 2 more", "FILE"), ("my file.pcap", "'my file.pcap'")],
)
def test_a_command_names_what_can_be_read_again(source, named):
    capture = cct.read(datasets.path("loss_cubic_1pct", "sender.pcap.zst"))
    capture.packets.source = source
    assert commands("random_loss", capture.flow(0))[0].startswith(f"cctrace whatif {named} --")


def test_more_copies_than_retransmissions_are_no_share_of_them():
    facts = Facts(
        POLLS, 10.0, 1e6, rtt_us=40e3, reordering=Reordering(0.01, 212, 11_884, retransmitted=1455, is_kernels=True)
    )
    text = verdict_of(next(one for one in judge(facts) if one.name == "reordering")).text
    assert "11,884 arrived twice, where 1,455 were retransmitted" in text


def test_one_is_not_said_in_the_plural():
    facts = Facts(PACKETS, 10.0, 1e6, short_transfer=ShortTransfer(1, 5470.0, float("nan"), True, True))
    assert "5.47 kB in 1 round trip, no loss" in verdict_of(judge(facts)[0]).text


@pytest.mark.parametrize("place", ["receiver", "sender"])
def test_the_sentence_counts_retransmissions_as_the_table_does(place):
    """What was only overtaken on the way was sent once; the sender's log has one entry for a super-packet."""
    table = {"segments_sent": 1000, "retransmitted_segments": 6}
    log = {"spurious": np.zeros(13, bool)}
    seen = SimpleNamespace(row=table, retransmission_log=log, taken_at=place)
    found = retransmissions(SimpleNamespace(flow=seen, path=SimpleNamespace(lost=np.zeros(3, bool))))
    assert (found.retransmitted_segments, found.retransmitted_share) == (6, 0.006)


@pytest.mark.parametrize(
    ("controller", "is_model_based", "named"),
    [("bbr", True, True), ("bbr3", True, False), ("cubic", False, False), (None, False, True)],
)
@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        ("stale_bandwidth", "BBRv3 after losses"),
        ("shallow_buffer", "heeds losses (BBRv3, oBBR)"),
        ("heavy_retransmission", "heeds losses (CUBIC, BBRv3)"),
    ],
)
def test_who_heeds_losses_is_not_advised_to_do_so(cause, remedy, controller, is_model_based, named):
    facts = Facts(PACKETS, 10.0, 9e6, is_model_based=is_model_based, controller=controller)
    assert (remedy in verdict_of(facts.finding(cause, 0.9, {"lost": 9})).advice) == named


def begun(path, seed, share):
    """Diagnose a CUBIC flow of 12 s over a path, of whose capture this share is missing at the beginning."""
    packets = cct.simulate(path, cct.Sender("cubic6", ack_every=2), "12s", seed=seed, packets=True).capture().packets
    time = packets.columns["time_ns"].astype(np.int64)
    late = time >= time[0] + share * (time[-1] - time[0])
    packets.columns = {name: column[late] for name, column in packets.columns.items()}
    return cct.diagnose(Capture(packets).flow(0))


@pytest.mark.parametrize(("share", "words"), [(0.0, "token bucket of about"), (0.3, "token bucket of at least")])
def test_a_bucket_that_was_not_full_as_a_capture_began_is_larger_than_what_it_passed(share, words):
    path = cct.Path(rate="100Mbit", rtt="30ms", buffer="1bdp", policer=("40Mbit", "516kB"))
    first = begun(path, 1, share).verdicts[0]
    assert first.name == "policer"
    assert words in first.text
    assert first.evidence["bucket_bytes"] == pytest.approx(516e3, rel=0.02)


@pytest.mark.parametrize(("begins", "least"), [(0.0, False), (0.3, True)])
def test_what_waited_as_a_capture_began_fills_the_queue_too(begins, least):
    """A queue that never empties holds more than its delays show: 46 kB, of which the least RTT hides a part."""
    path = cct.Path(rate="11.5Mbit", rtt="11ms", buffer="46kB")
    found = {one.name: one for one in begun(path, 5, begins).verdicts}
    assert not set(found) & {"aqm", "shallow_buffer"}
    assert ("at least" in found["congestive_loss"].text) == least
    room = found["congestive_loss"].evidence["buffer_bytes"]
    assert 20e3 < room < 40e3 if least else 44e3 < room < 48e3


@pytest.mark.parametrize(("share", "least"), [(0.0, False), (0.4, True)])
def test_a_queue_that_stood_all_the_time_is_at_least_as_long_as_it_showed(share, least):
    said = [one.text for one in begun(cct.Path(rate="10Mbit", rtt="30ms", buffer="8bdp"), 2, share).verdicts]
    assert ("of at least" in said[0], "on a base RTT of at most" in said[0]) == (least, least)
