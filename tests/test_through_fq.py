"""Flows that were sent through fq: a capture shows when packets left that queue, and TCP had handed them over before.

The recordings are of Linux 6.12 in User Mode Linux, whose tcp_info says what the sender held; scenario.json has the
path and seed. BBRv1, BBRv3 under random loss, and CUBIC were not looked at while the rules were written; the others
showed what was wrong: CUBIC behind a send buffer; BBRv2 (Linux 6.1), whose PROBE_RTT hangs on a microsecond; and BBRv3
at 50 Mbit/s, whose DRAIN seemed to end early, because a super-packet made after it counted as handed over before; and
BBRv2 at 3 Mbit/s, whose packets wait in fq for longer than a round trip takes, so that nothing was said of fq; and
BBRv1 whose application writes while its last packets wait in fq, and BBRv3 whose receive window opens when everything
is acknowledged, which counted as application-limited; BBRv3 that begins to probe in a recovery, where only sends
beyond cwnd tell when; and CUBIC whose receive window limits it after 150 ms, so that it did not seem paced.
"""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

import cctrace as cct
from cctrace import schema
from cctrace.analysis.analyze import analyze
from cctrace.analysis.validate import validate
from cctrace.cc import controller
from cctrace.cc.base import LinuxController, checked_params
from cctrace.cc.bbr2016 import BBR2016
from cctrace.cc.linux import EVENT_TX_START
from cctrace.cc.orca import with_policy
from cctrace.flows import state
from cctrace.flows.capture import Capture
from cctrace.flows.events import Events
from cctrace.flows.sender import continuing
from cctrace.flows.sender.handover import (
    SAME_PASS_NS,
    is_too_short,
    leaves_with_ack,
    may_hand_over,
    note_made,
    timer_late_ns,
)
from cctrace.flows.sender.reenact import SENDS
from cctrace.flows.sender.sends import full_skb, left_of_skb
from cctrace.flows.state import EVENT
from cctrace.io.captures.packets import OPT_COPY, Packets
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import stack, waiting
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.script import Edit
from cctrace.replaying.inference import through_fq
from cctrace.replaying.inference.handover_scripts import known_script
from cctrace.replaying.inference.hypotheses import LARGEST_DRAW
from cctrace.replaying.inference.infer import Given, infer
from cctrace.replaying.inference.one_pass import Leader
from cctrace.replaying.inference.paced import likely_gso
from cctrace.replaying.inference.probes import AT_ONCE, NEVER, REFILL, Probes
from cctrace.replaying.inference.through_fq import Passage, at_hand_over, passage
from cctrace.replaying.inference.timed import Timed
from cctrace.replaying.senders import registered
from cctrace.report.overview import write_report
from cctrace.tcp.flags import PSH
from cctrace.tcp.pacing import waits_for_ack
from cctrace.tcp.small_queue import SKB_OVERHEAD_BYTES, is_throttled
from tests.build_stack import tcp_record
from tests.places import RECORDINGS

NOTHING_TOLD = np.zeros(0, np.uint8), np.zeros((0, 2), np.int64)
SENDERS = {"fq_bbr1": "bbr2022", "fq_bbr3_loss": "bbr3", "fq_cubic": "cubic6"}
SENDERS |= {"fq_cubic_sndbuf": "cubic6", "fq_v2_probe_rtt": "bbr2", "fq_v3_down": "bbr3"}
SENDERS |= {"fq_v2_short_rtt": "bbr2", "fq_v1_chunks": "bbr2022"}
SENDERS |= {"fq_v3_recovery": "bbr3", "fq_v3_rwnd": "bbr3", "fq_v1_max_rate": "bbr2022"}
# A rate that its samples take for a policer's, but for one that does not count; and a send buffer of 26 kB, which runs
# empty while losses are repaired.
SENDERS |= {"fq_v1_no_policer": "bbr2022", "fq_v2_recovery": "bbr2", "fq_cubic_rwnd": "cubic6"}
NO_FQ = {"single_bbr_1bdp": "bbr2022", "loss_cubic_1pct": "cubic6"}
# The kernel tells these exactly; what is left are polls in the microseconds in which the stack is at work.
SENDERS_VIEW = ("unacked", "delivery_rate", "app_limited", "rttvar")


@pytest.fixture(scope="module", params=SENDERS)
def recording(request):
    return request.param


@pytest.fixture(scope="module")
def flow(recording):
    return cct.read(RECORDINGS / recording / "sender.pcap.zst").flow(0)


@pytest.fixture(scope="module")
def figures(recording):
    (agreement,) = validate(RECORDINGS / recording)
    return {figure.name: figure.share for figure in agreement.figures}


@pytest.mark.parametrize("name", SENDERS_VIEW)
def test_the_senders_view_is_the_kernels(figures, name):
    assert figures[name] >= 0.97


def test_what_the_controller_decided_is_the_kernels(figures):
    replayed = {name: share for name, share in figures.items() if name.startswith("replay_") and "startup" not in name}
    assert len(replayed) >= 2
    assert min(replayed.values()) >= 0.98


def test_fq_is_told_from_when_packets_left(flow, recording):
    found = passage(flow)
    assert found.through_fq
    assert found.controller == SENDERS[recording]


def test_who_sent_it_is_found_through_fq(flow, recording):
    assert SENDERS[recording] in cct.identify(flow).group


@pytest.mark.parametrize("cc", ["bbr2", "bbr3"])
@pytest.mark.parametrize("by", [cx.ALL_SENDS, cx.TIMED_SENDS])
def test_every_send_is_scored_by_the_decisions_that_were_inferred(cc, by):
    """A round of BBRv2 may begin at another ACK where packets count as late: a draw is no reason to stop there."""
    events = at_hand_over(cct.read(RECORDINGS / "fq_v2_near" / "sender.pcap.zst").flow(0)).events
    cls, given = controller(cc)
    followers = [Follower(events, events.sends, cls, checked_params(cls, given), ("snd_cwnd",)) for _ in range(2)]
    script = infer(followers[0]).script
    likelihood = followers[1].score(script, np.linspace(1000, len(events), 5, dtype=np.int64), by)
    assert np.all(likelihood != 0)
    cwnd, again = (follower.recorded["snd_cwnd"] for follower in followers)
    assert np.all(again > 0)
    if by == cx.ALL_SENDS:
        assert np.array_equal(cwnd, again)


def test_long_super_packets_over_a_short_path_do_not_hide_their_sender():
    assert cct.identify(cct.read(RECORDINGS / "fq_v2_near" / "sender.pcap.zst").flow(0)).name == "bbr2"


def test_counters_of_packets_in_flight_settle_what_departures_leave_open():
    """Reno behind a small send buffer, whose ACKs release everything."""
    cc, folder = "reno", RECORDINGS / "fq_reno_sndbuf"
    flow = cct.read(folder / "sender.pcap.zst").flow(0)
    assert cct.replay(flow, cc).source.through_fq is None
    counted = flow.attach(cct.read(folder / "tcpinfo.csv.zst"))
    assert cct.replay(counted, cc).source.through_fq
    (agreement,) = validate(folder)
    shares = {figure.name: figure.share for figure in agreement.figures}
    assert shares["unacked"] >= 0.97
    assert min(share for figure, share in shares.items() if figure.startswith("replay_")) >= 0.98


def test_bbr2_as_ported_to_linux_6_has_larger_windows_over_a_short_path_than_as_released():
    folder = RECORDINGS / "fq_v2_near"
    (agreement,) = validate(folder)
    replayed = {figure.name: figure.share for figure in agreement.figures if figure.name.startswith("replay_")}
    assert min(replayed.values()) >= 0.98
    assert cct.replay(cct.read(folder / "sender.pcap.zst").flow(0), "bbr2").params["gso_max_bytes"] == 524280
    far = cct.replay(cct.read(RECORDINGS / "fq_v2_probe_rtt" / "sender.pcap.zst").flow(0), "bbr2")
    assert far.params["gso_max_bytes"] == 65536


@pytest.mark.parametrize(("by_sizes", "found"), [(50.0, 524280), (0.0, None), (-3.0, None)])
def test_which_super_packets_a_bbr2_makes_shows_in_their_sizes_where_their_times_are_alike(by_sizes, found):
    """At 7 ms and 11.8 Mbyte/s a port makes eight segments for seven, at the same rate (seed 333009)."""
    cls, given = controller("bbr2")
    follower = SimpleNamespace(cls=cls, params=checked_params(cls, given), sends=[0], rows=[0], drawn=0, row=0)
    rows = np.zeros(1, EVENT)
    rows["tcp_min_rtt_us"] = 7000
    follower.events = Events(rows, {})
    follower.draws, follower.save, follower.restore = np.zeros((0, 5)), lambda: None, lambda saved: None
    follower.set_gso, follower.draw, follower.run = lambda value: None, lambda numbers: None, lambda: 1
    sizes = {65536: 0.0, 524280: by_sizes}
    follower.score = lambda script, stops, score: np.array(
        [sizes[script.gso_max_bytes] if score == cx.PACED_SENDS else 0.0]
    )
    assert likely_gso(follower) == found


def test_a_bbr2_that_heeds_marks_is_followed_through_fq():
    """Its windows of some twelve segments fill seldom: it defers most sends for a longer super-packet."""
    folder = RECORDINGS / "fq_v2_marks"
    (agreement,) = validate(folder)
    shares = {figure.name: figure.share for figure in agreement.figures}
    assert min(share for name, share in shares.items() if name.startswith("replay_")) >= 0.98
    assert shares["unacked"] >= 0.98
    run = cct.replay(cct.read(folder / "sender.pcap.zst").flow(0), "bbr2")
    assert run.source.through_fq
    assert (run.params["ecn_enable"], run.params["gso_max_bytes"]) == (1, 524280)


@pytest.mark.parametrize(("longest", "hands_over"), [(4, True), (3, False)])
def test_small_queues_let_through_what_the_controllers_own_super_packets_leave_room_for(longest, hands_over):
    """Two super-packets of three segments wait. A fourth segment, of a later rate, does not raise the limit now."""
    size, mss = 4 * 1448, 1448
    tp = SimpleNamespace(
        mss=mss, rate_Bps=5_376_335, cwnd=30, snd_nxt=0, snd_una=0, snd_wnd=1 << 20, tcp_min_rtt_us=4000
    )
    tp.packets_out, tp.sacked_out, tp.lost_out, tp.retrans_out, tp.head, tp.tail, tp.ca_state = 20, 0, 0, 0, 0, 2, 0
    tp.wmem_alloc, tp.skb_overhead, tp.tsq_throttled, tp.tso_segs = 2 * (3 * mss + 896), 896, 0, longest
    tp.skb_end = 0
    tp.clock_ns, tp.start_ns, tp.wstamp_ns, tp.gap_ns, tp.skb_bytes = 0, 0, schema.CLOCK_START_US * 1000, 0, 3 * mss
    seg = np.rec.array([(mss,), (2 * mss,)], dtype=[("skb_end", "i8")])
    assert may_hand_over(tp, seg, 0, 0, size, 0, False) == hands_over
    assert tp.tsq_throttled == (not hands_over)


def test_what_an_earlier_trial_left_of_later_packets_is_not_read():
    flow, bbr3 = cct.read(RECORDINGS / "fq_v3_rwnd" / "sender.pcap.zst").flow(0), controller("bbr3")[0]
    decided = []
    for payload in (0, 1):  # the short end of a write, as an ACK may find it waiting
        leader = Leader(flow, bbr3, checked_params(bbr3, {"hz": 250}))
        leader._reenactment.tables[SENDS]["payload"], leader._reenactment.tables[SENDS]["ends_write"] = payload, payload
        leader._reenactment.tables[SENDS]["begins"] = 1
        leader.run()
        decided.append(leader.decided.copy())
    assert np.array_equal(*decided)


def test_branches_that_hand_over_more_are_not_judged_by_more_sends():
    """Every send lowers a log likelihood: a probe that hands over sooner would count as worse than none."""
    flow = cct.read(RECORDINGS / "fq_v2_marks" / "sender.pcap.zst").flow(0)
    bbr2 = controller("bbr2")[0]
    leader = Leader(flow, bbr2, checked_params(bbr2, {"ecn_enable": 1, "gso_max_bytes": 524280}))
    last, numbers = leader.run() + 60, (1 << 30, 0xFFFFFFFF)
    (scored,), _, _ = leader.trials(last, [numbers], cx.PACED_SENDS, ("cycle_idx", -1))
    leader.draw(numbers)
    leader._go(last, cx.PACED_SENDS)
    judged = leader.likelihood[0]
    leader._go(last + 20, cx.PACED_SENDS)
    assert scored < 0
    assert leader.likelihood[0] == pytest.approx(judged)  # what leaves later does not count


def test_waits_through_fq_end_as_if_each_were_run_alone_and_what_goes_on_from_one_is_as_run_from_its_draw():
    flow, bbr3 = cct.read(RECORDINGS / "fq_v3_recovery" / "sender.pcap.zst").flow(0), controller("bbr3")[0]
    leaders = [Leader(flow, bbr3, checked_params(bbr3, {"hz": 250})) for _ in range(2)]
    work, watch, ended = Probes(leaders[0]), ("cycle_idx", REFILL), 0
    while (row := leaders[0].run()) < (rows := len(leaders[0].rows)):
        assert leaders[1].run() == row
        ends, watched = work.waits.ends(rows, watch)
        by_clock = (*work.numbers[int(np.argmax(ends[:-1]))][:-1], 0)
        _, alone, seen = leaders[1].trials(rows, [*work.numbers, by_clock], cx.NOTHING, watch)
        assert ends.tolist() == alone.tolist()
        assert watched.tolist() == seen.tolist()
        for leader in leaders:
            leader.draw(work.numbers[-1])
            leader.run(row + 1)
        (soonest, passed), before = (work.waits.passed(end) for end in (int(ends.min()), rows)), leaders[1].row
        work.waits.skip()
        if passed:  # there are enough packets
            assert before < soonest[0][0][0] < ends.min()
            assert passed[0][0][0] == leaders[0].row < ends[-2]
        leaders[1].run(leaders[0].row)
        assert np.array_equal(leaders[0].control.slots, leaders[1].control.slots)
        assert np.array_equal(leaders[0].decided, leaders[1].decided)
        ended += bool(passed)
    assert ended > 1
    assert leaders[1].run() == rows
    assert np.array_equal(leaders[0].decided, leaders[1].decided)
    assert leaders[0].script == leaders[1].script


def test_branches_through_fq_are_judged_as_if_each_were_alone_and_end_where_they_cannot_be_the_likeliest():
    flow, bbr3 = cct.read(RECORDINGS / "fq_v3_recovery" / "sender.pcap.zst").flow(0), controller("bbr3")[0]
    leader = Leader(flow, bbr3, checked_params(bbr3, {"hz": 250}))
    leader.run()
    leader.draw((0, LARGEST_DRAW))
    leader.run(leader.row + 1)
    acks, never = np.flatnonzero(leader.is_ack), {name: by for name, by in NEVER.items() if name in leader.fields}
    rows = acks[acks > leader.row][:400:10]
    end = int(rows[-1]) + 400
    alone = np.array([leader.scan(rows[k : k + 1], end, never, AT_ONCE)[0] for k in range(len(rows))])
    found = leader.scan(rows, end, never, AT_ONCE)
    ended = ~np.isclose(found, alone, rtol=0, atol=1e-6)
    assert 0 < np.count_nonzero(ended) < len(rows)
    assert (found[ended] > alone[ended]).all()
    assert (found[ended] < alone.max()).all()
    assert not ended[alone.argmax()]
    for (passed, total), k in zip(leader.passed()[::13], range(0, len(rows), 13), strict=True):
        leader.restore(passed)  # as it was passed, whatever branches did later
        again = leader.scan(rows[k : k + 1], end, {}, AT_ONCE, total)
        assert again == pytest.approx(alone[k : k + 1], abs=1e-6)


@pytest.mark.parametrize(
    ("changed", "waits"),
    [
        ({}, True),
        ({"room": 4 * 1448}, False),  # a full super-packet
        ({"third": 2 * 1448}, False),  # a third of the window
        ({"idle_ns": 1_000_001}, False),  # after a pause
        ({"age_ns": 3_000_000}, True),  # the next ACK is a millisecond away
        ({"age_ns": 2_999_999}, False),
        ({"age_ns": 9_000_000}, True),  # it is overdue
        ({"age_ns": 600_000, "srtt_ns": 1_000_000}, True),  # within half an RTT
        ({"age_ns": 400_000, "srtt_ns": 1_000_000}, False),
    ],
)
def test_data_wait_for_a_longer_super_packet_as_in_linux(changed, waits):
    given = {"room": 2 * 1448, "longest": 4 * 1448, "third": 5 * 1448, "idle_ns": 0, "age_ns": 3_500_000}
    assert waits_for_ack(**given | {"srtt_ns": 4_000_000} | changed) is waits


@pytest.mark.parametrize(
    ("leaves_ms", "late_us", "skb_left", "waits"),
    [
        (9, 0, 0, False),
        (1.9, 0, 0, False),
        (1.995, 10, 0, True),
        (2.1, 0, 0, True),
        (2.1, 0, 2, True),
        (2.1, 0, 1, False),
    ],
)
def test_what_small_queues_hold_back_until_the_next_ack_is_near_is_limited_by_cwnd_then(
    leaves_ms, late_us, skb_left, waits
):
    """The RTT is 10 ms, the oldest data are 7 ms old: before 2 ms have passed, TCP does not wait for the ACK.

    Nor for what is left of an skb, if cwnd has room for it (seed 329014, from 2.93 s on). TCP continues when the packet
    has left, which fq's timer may let go 10 us late (seed 336352, at 17.9629 s).
    """
    acked_ns, ms = 1_000_000_000, 1_000_000
    sends = np.zeros(3, [(column.name, column.dtype) for column in schema.SENDS]).view(np.recarray)
    sends.tx_ns = acked_ns + np.array([-9 * ms, -7 * ms, int(leaves_ms * ms)])
    sends.time_ns = sends.tx_ns + late_us * 1000 - schema.CLOCK_START_US * 1000
    sends.snd_nxt = 1448 * np.array([1, 2, 3])
    sends.skb_left = [0, 0, skb_left]
    ctx, slots = np.zeros(cx.CONTEXT_SIZE, np.int64), np.zeros(stack.APP_LIMITED + 1, np.int64)
    ctx[cx.OWN_MIN_RTT], slots[stack.CWND], slots[stack.PACING] = -1, 20, 1_000_000
    tcp = tcp_record()
    tcp.mss, tcp.next_send, tcp.snd_una = 1448, 3, 1448
    tcp.acked_ns, tcp.min_rtt_us, tcp.wstamp_ns = acked_ns, 10_000, acked_ns + 9 * ms
    row = SimpleNamespace(srtt_us8=80_000)
    assert waiting.awaits_more(ctx, row, sends, 1, acked_ns + 4 * ms, slots, tcp) == waits
    assert tcp.oldest_send == 1


@pytest.mark.parametrize(("name", "overhead"), [("fq_v2_probe_rtt", 1280), ("fq_v3_down", 896)])
def test_memory_of_what_waits_in_fq_is_that_of_the_senders_kernel(name, overhead):
    handed = at_hand_over(cct.read(RECORDINGS / name / "sender.pcap.zst").flow(0), controller(SENDERS[name])[0])
    assert set(handed._decided[:, 5]) == {overhead}


def test_waits_are_those_that_were_inferred_while_the_flow_was_handed_over():
    """Inferred again from the hand-over that results, a wait may end earlier, in the same round (seed 322107)."""
    name = "fq_v2_probe_rtt"
    run, (bbr2, _) = (
        cct.replay(cct.read(RECORDINGS / name / "sender.pcap.zst").flow(0), SENDERS[name]),
        controller("bbr2"),
    )
    handed, led = run.source, known_script(run.source, bbr2, run.params)
    assert led == run.inferred.script
    assert known_script(handed, bbr2, run.params | {"beta": 0.5}) is None
    edited = led._replace(edits=[*led.edits, Edit(len(handed.events) - 100, "snd_cwnd", 3)])
    follower = Follower(handed.events, handed.events.sends, bbr2, run.params, ("snd_cwnd", "pacing_rate"))
    assert infer(follower, Given(handover=edited)).script is edited
    assert not np.array_equal(follower.recorded["snd_cwnd"], handed._decided[:, 2])
    shorter = led._replace(draws=[[row, 0, 0, 0, 0] for row, *_ in led.draws])  # the next draws come sooner
    follower = Follower(handed.events, handed.events.sends, bbr2, run.params, ("snd_cwnd", "pacing_rate"))
    assert infer(follower, Given(handover=shorter)).script.draws != shorter.draws
    assert follower.row == len(follower.rows)
    follower = Follower(handed.events, handed.events.sends, bbr2, run.params, ("snd_cwnd", "pacing_rate"))
    assert infer(follower, Given(handover=led)).script == led
    assert np.array_equal(follower.recorded["snd_cwnd"], handed._decided[:, 2])
    assert np.array_equal(follower.recorded["pacing_rate"], handed._decided[:, 1])


def test_what_tcp_info_would_answer_goes_by_what_handed_the_flow_over():
    """A replay's decisions lack the length of super-packets, which decides what a small queue holds (seed 325079)."""
    flow = cct.read(RECORDINGS / "fq_cubic" / "sender.pcap.zst").flow(0)
    handed = at_hand_over(flow, controller("cubic6")[0])
    times = handed.events["time_ns"]
    polls = np.column_stack([times, times])
    other = handed._decided[:, :4] // np.array([1, 2, 1, 1])  # half the pacing rate
    assert np.array_equal(handed.answers(polls, other), handed.answers(polls))


def test_a_super_packet_that_starts_from_idle_is_paced_by_the_rate_that_its_start_sets():
    """The application had paused: before, BBR probed with a gain of 1.25 (seed 322121)."""
    flow = cct.read(RECORDINGS / "fq_v1_chunks" / "sender.pcap.zst").flow(0)
    bbr2022, _ = controller("bbr2022")
    handed = at_hand_over(flow, bbr2022)
    starts = (handed.events["event"] == schema.LINUX_EVENTS["cwnd_event"]) & (handed.events["arg"] == EVENT_TX_START)
    idle_us = int(handed.events.now_us[np.flatnonzero(starts)[1]])
    nothing = Timed(np.zeros((0, 5), np.int64), np.zeros((0, 3), np.int64), 250, 0, None)
    leader = Leader(flow, bbr2022, checked_params(bbr2022, {"hz": 250}), nothing)
    first = int(leader.now_us.searchsorted(idle_us))
    leader.run(first)
    before_Bps = leader.get("pacing_rate")
    leader.run(first + 2)
    rate_Bps, sends = leader.get("pacing_rate"), leader._reenactment.tables[SENDS]
    assert rate_Bps == pytest.approx(before_Bps / 1.25, rel=1e-5)
    idle = int(np.flatnonzero(sends["tx_ns"] >= 1000 * idle_us)[0])
    length_ns = 2 * 1448 * 1_000_000_000 // rate_Bps
    assert sends["tx_ns"][idle + 2] - sends["tx_ns"][idle] == length_ns - length_ns // 2  # half of it is made up for


def test_counters_of_a_sender_without_fq_say_so():
    flow = cct.read(RECORDINGS / "lab_v1_sndbuf" / "sender.pcap.zst").flow(0)
    counted = flow.attach(cct.read(RECORDINGS / "lab_v1_sndbuf" / "tcpinfo.csv.zst"))
    assert cct.replay(counted, "bbr2022").source.through_fq is False


@pytest.mark.parametrize("name", NO_FQ)
def test_a_sender_with_its_own_timer_or_none_is_not_taken_for_one_with_fq(name):
    flow = cct.read(cct.datasets.path(name, "sender.pcap.zst")).flow(0)
    run = cct.replay(flow, NO_FQ[name])
    assert run.source.through_fq is False
    assert np.array_equal(run.source.events.rows, flow.events.rows)


UNPACED = ["lab_cubic", "lab_cubic_app", "lab_red", "lab_codel_ecn", "lab_dctcp"]  # a veth, and nothing paces


@pytest.mark.parametrize("name", UNPACED)
def test_a_veth_without_pacing_is_not_taken_for_fq(name):
    assert passage(cct.read(RECORDINGS / name / "sender.pcap.zst").flow(0)).through_fq is False


def test_where_a_round_trip_takes_microseconds_nothing_is_said():
    flow = cct.read(cct.datasets.path("tso_bbr_300m_veth", "sender.pcap.zst")).flow(0)
    assert passage(flow).through_fq is None


@pytest.fixture(scope="module")
def old_bbr(tmp_path_factory):
    """Capture of a BBR of 2016 that paces by a timer, which today's BBR explains better with fq than without."""
    file = tmp_path_factory.mktemp("old_bbr") / "sender.pcap"
    path = cct.Path(rate="9Mbit", rtt="11.9ms", buffer="1.13bdp", reverse="2.2ms", loss="0.41%")
    sender = cct.Sender("bbr2016", hz=250, start="27.764ms")
    cct.simulate(path, [sender], "5s", 1, packets=True).to_pcap(file)
    return file


@pytest.mark.parametrize(("others_explain", "first_round"), [(-3.0, 2.7), (2.0, 2.7), (1.57, 1.68), (1.57, 1.5)])
def test_a_sender_that_looks_far_worse_without_fq_is_tried_where_it_explains_more_than_closer_ones(
    monkeypatch, others_explain, first_round
):
    """BBR v1 with jitter, seed 290112: -5.3 without fq, where v2 has -3.5, and 2.8 with it. CUBIC, seed 324104: 1.68
    after the first of several rounds, where Reno ends at 1.57.
    """

    def played(flow, one, block_us):
        return SimpleNamespace(mean=-5.3 if one == "bbr2022" else -3.5)

    def converged(flow, one, plain, rounds):
        return flow, SimpleNamespace(mean=first_round if one == "bbr2022" else -3.0)

    def compared(flow, one, plain, through, rounds):
        return (2.8 if one == "bbr2022" else others_explain), Passage(True, one, 800.0)

    monkeypatch.setattr(through_fq, "replay_in_blocks", played)
    monkeypatch.setattr(through_fq, "_converged", converged)
    monkeypatch.setattr(through_fq, "_compare", compared)
    found = passage(cct.read(RECORDINGS / "fq_bbr1" / "sender.pcap.zst").flow(0))
    assert (found.controller == "bbr2022") == (others_explain < min(first_round, through_fq.OWN_SENDER_FITS))


@pytest.mark.parametrize("believed", [None, "bbr2016"])
def test_what_an_older_kernel_sent_by_its_timer_is_not_taken_for_fq(old_bbr, believed):
    flow = cct.read(old_bbr, hz=250).flow(0)
    found = passage(flow, believed and controller(believed)[0])
    assert found.through_fq is False
    assert controller(found.controller)[0] is BBR2016


def test_a_small_send_buffer_holds_the_sender_so_that_its_sends_do_not_tell():
    """BBRv1 without fq: it waits for room in the send buffer, and stays at the rate that it sampled before."""
    assert passage(cct.read(RECORDINGS / "lab_v1_sndbuf" / "sender.pcap.zst").flow(0)).through_fq is None


@pytest.mark.parametrize("cc", ["bbr2022", "bbr3", "cubic6"])
@pytest.mark.parametrize("held", [{"app": "chunks:size=60kB,every=40ms"}, {"rwnd": "48kB"}])
def test_a_sender_that_the_application_or_the_receiver_holds_is_not_taken_for_one_with_fq(cc, held):
    path = cct.Path(rate="20mbit", rtt="40ms", buffer="1.5bdp")
    run = cct.simulate(path, cct.Sender(cc, **held), duration="4s", packets=True)
    assert not passage(run.capture().flow(0)).through_fq


def test_cubic_whose_acks_let_everything_go_is_not_taken_for_one_with_fq():
    """A download of a web server without fq: at 1.2 cwnd per RTT pacing would hold nothing back."""
    flow = cct.read(cct.datasets.path("web_server", "sender.pcap.zst")).bulk()[0]
    assert not passage(flow).through_fq


def test_dctcp_with_marks_is_tried_as_itself():
    path = cct.Path(rate="30Mbit", rtt="30ms", buffer="400packets", ecn_threshold="60kB")
    run = cct.simulate(path, cct.Sender("dctcp", ecn=True, ack_every=2), "4s", seed=5, packets=True)
    found = passage(run.capture().flow(0))
    assert (found.through_fq, found.controller) == (False, "dctcp")


def test_dctcp_is_tried_again_when_more_marks_have_come(monkeypatch):
    """Its first reductions are Reno's, whom the beginning may prefer."""
    path = cct.Path(rate="30Mbit", rtt="30ms", buffer="400packets", ecn_threshold="60kB")
    run = cct.simulate(path, cct.Sender("dctcp", ecn=True, ack_every=2), "4s", seed=5, packets=True)
    tried = []

    def preferring_reno(beginning, known, senders, rounds, is_start, compared, directly):
        tried.append(senders)
        return Passage(None, None, 1.0), ("reno",)

    monkeypatch.setattr(through_fq, "_passage", preferring_reno)
    passage(run.capture().flow(0))
    assert len(tried) > 1
    assert all(senders[-1] == "dctcp" for senders in tried)


class Uncompilable(LinuxController):
    """A controller of the user's own, in Python that is not compiled."""

    snd_cwnd: int = 10

    def on_ack(self, ack):
        """Keep the window."""
        with contextlib.nullcontext():
            self.snd_cwnd = 20


def test_whether_there_was_fq_is_told_for_a_class_that_does_not_compile():
    flow = cct.read(RECORDINGS / "lab_cubic" / "sender.pcap.zst").flow(0)
    assert cct.replay(flow, Uncompilable, mode="interpreted").source.through_fq is False


def test_the_report_and_its_json_say_that_a_flow_was_sent_through_fq(tmp_path):
    analyses = analyze(RECORDINGS / "fq_bbr1" / "sender.pcap.zst")
    write_report(analyses, tmp_path)
    assert analyses[0].to_dict()["through_fq"] is True
    page = (tmp_path / "report.html").read_text()
    assert "<dt>Sent through</dt><dd>fq (its tap is behind the qdisc)</dd>" in page


def test_the_report_of_a_sender_without_fq_does_not_speak_of_it(tmp_path):
    analyses = analyze(RECORDINGS / "lab_cubic" / "sender.pcap.zst")
    write_report(analyses, tmp_path)
    assert analyses[0].to_dict()["through_fq"] is False
    assert "<dt>Sent through</dt>" not in (tmp_path / "report.html").read_text()


def test_of_a_capture_from_the_middle_of_a_connection_nothing_is_said(flow):
    whole = flow.capture.packets
    columns = {name: column[200:] for name, column in whole.columns.items()}
    late = Capture(Packets(columns, whole.sacks, whole.connections)).flow(0)
    assert at_hand_over(late) is late
    assert late.through_fq is None


def altered(flow, columns, order):
    """Return the flow of a capture with other columns, in this order."""
    packets = flow.capture.packets
    columns = {name: column[order] for name, column in columns.items()}
    return Capture(Packets(columns, packets.sacks, packets.connections)).flow(0)


@pytest.mark.parametrize("later_us", [0, 40])
def test_packets_captured_on_two_interfaces_are_handed_over_once(flow, recording, later_us):
    columns = flow.capture.packets.columns
    both = {name: np.concatenate([column, column]) for name, column in columns.items()}
    here = len(columns["time_ns"])
    both["time_ns"][here:] += later_us * 1000
    both["options"][here:] |= OPT_COPY
    twice = altered(flow, both, np.argsort(both["time_ns"], kind="stable"))
    assert passage(twice)[:2] == passage(flow)[:2]
    if recording != "fq_cubic_sndbuf":  # there the first stage, whose packets include copies, decides otherwise
        assert np.array_equal(at_hand_over(twice).events.rows, at_hand_over(flow).events.rows)


@pytest.mark.parametrize(("name", "sender"), [("fq_bbr1", "unknown"), ("fq_cubic", "cubic6")])
def test_a_tap_before_fq_leaves_open_whether_there_was_one_and_names_no_wrong_sender(name, sender):
    """Packets are captured when TCP hands them over: as bursts, which no timer of the sender's makes."""
    flow = cct.read(RECORDINGS / name / "sender.pcap.zst").flow(0)
    columns, events = dict(flow.capture.packets.columns), at_hand_over(flow).events
    sent = np.flatnonzero((columns["payload"] > 0) & (columns["direction"] == columns["direction"][0]))
    rows = events.sends["row"][-len(sent) :]  # without the SYN
    handed_ns = np.maximum.accumulate(events["time_ns"][np.clip(rows - 1, 0, len(events) - 1)])
    acks = columns["direction"] != columns["direction"][0]
    newer = np.searchsorted(np.maximum.accumulate(columns["tsval"][acks]), columns["tsecr"][sent], side="right")
    newer_ns = np.append(columns["time_ns"][acks], columns["time_ns"][-1])[newer]  # stamps that they do not echo
    columns["time_ns"] = columns["time_ns"].copy()
    handed_ns = np.minimum(np.minimum(handed_ns, newer_ns), columns["time_ns"][sent])
    columns["time_ns"][sent] = np.minimum.accumulate(handed_ns[::-1])[::-1]
    before = altered(flow, columns, np.argsort(columns["time_ns"], kind="stable"))
    assert passage(before).through_fq is None
    assert cct.identify(before).group == (sender,)


def test_nothing_is_handed_over_after_it_left_and_the_order_stays(flow):
    """Rows and sends are in the order of events: a send stands before the ACKs that came while it waited in fq."""
    handed = at_hand_over(flow).events
    left_ns, before = handed.sends["time_ns"], handed.sends["row"]
    inside = before < len(handed)
    last_ns = left_ns[inside] + SAME_PASS_NS  # an ACK of the same moment comes before TCP goes on
    assert np.all(handed.rows["time_ns"][np.maximum(before - 1, 0)][inside] <= last_ns)
    assert np.all(np.diff(before) >= 0)
    assert np.array_equal(left_ns, flow.events.sends["time_ns"])
    assert np.any(before < flow.events.sends["row"])


def test_what_the_pass_decided_leads_to_its_own_rows(flow):
    """Controller and hand-over run in one pass; re-enacted by what it decided, the flow has the rows of that."""
    handed = at_hand_over(flow)
    assert np.array_equal(handed._decided[:, 0], handed.events["time_ns"])


def test_two_packets_of_the_same_size_wait_at_most_at_low_rates():
    size = SKB_OVERHEAD_BYTES + 2896
    assert not is_throttled(size, size, 1_000_000, False, 10)
    assert is_throttled(2 * size, size, 1_000_000, False, 10)
    assert not is_throttled(2 * size, size, 1_000_000, True, 10)  # twice as much of what is sent again
    assert not is_throttled(9 * size, size, 1_000_000, False, 1)  # the queue for retransmission is all but empty
    assert not is_throttled(2 * size, size, 1 << 24, False, 10)  # a millisecond at this rate is 16 kB


@pytest.mark.parametrize(("segments", "handed"), [(2, False), (4, True)])
def test_small_queues_judge_a_retransmission_by_the_lost_skb_that_it_is_split_off(segments, handed):
    """[Linux61] tcp_xmit_retransmit_queue checks before tcp_retransmit_skb splits; five packets wait in fq."""
    ends = [1448 * max(k, segments) for k in range(1, 9)]
    seg = np.array([SimpleNamespace(end_seq=1448 * k + 1448, skb_end=ends[k], flags=state.LOST) for k in range(8)])
    tp = np.zeros(1, state.TP).view(np.recarray)[0]
    tp.mss, tp.tail, tp.snd_nxt, tp.packets_out, tp.lost_out = 1448, 8, 8 * 1448, 8, 8
    tp.cwnd, tp.rate_Bps, tp.skb_overhead, tp.wmem_alloc, tp.gap_ns = 100, 1_600_000, 1280, 19_432, 10_000_000
    assert may_hand_over(tp, seg, 0, 0, 2 * 1448, 0, False) == handed
    assert tp.tsq_throttled != handed


SKB = 45  # segments that a write of much data fills an skb with


def made(tp, segments, begins=0):
    """Hand over super-packets of so many segments each, from segment `begins` on; return where the next one begins."""
    for size in segments:
        note_made(tp, begins * tp.mss, size * tp.mss, 1_000_000)
        begins += size
    return begins


def with_skbs():
    tp = np.zeros(1, state.TP).view(np.recarray)[0]
    tp.mss, tp.cwnd, tp.snd_wnd, tp.tso_segs, tp.tail, tp.srtt_us8 = 1448, 60, 1 << 20, 9, 2, 48_000
    tp.wstamp_ns = schema.CLOCK_START_US * 1000
    return tp


def test_a_bulk_writes_skbs_end_where_super_packets_are_shorter_once_in_45_segments():
    tp = with_skbs()
    assert full_skb(tp) == SKB * tp.mss
    begins = made(tp, [9, 9, 4, 9])
    assert tp.skb_end == 0  # one place is no evidence
    made(tp, [9 + 2 * SKB - begins, 9, 4, 9], begins)
    assert tp.skb_end == (22 + 2 * SKB) * tp.mss
    assert left_of_skb(tp, (22 + 5 * SKB - 4) * tp.mss) == 4 * tp.mss


@pytest.mark.parametrize(("room", "handed"), [(3, False), (4, True), (9, True)])
def test_what_fits_into_the_window_does_not_wait_for_a_longer_super_packet(room, handed):
    """After another ACK it would have been longer: it was handed over at once ([Linux618] tcp_tso_should_defer)."""
    tp, seg = with_skbs(), np.array([SimpleNamespace(tx_us=-6_000, skb_end=1448 * k) for k in (1, 2)])
    tp.snd_nxt, tp.packets_out, tp.rate_Bps, tp.gap_ns = 2 * 1448, 60 - room, 9 * 1448 * 1024, 10_000_000
    tp.skb_overhead = SKB_OVERHEAD_BYTES
    assert may_hand_over(tp, seg, 0, 2 * 1448, 6 * 1448, PSH, False) == handed


@pytest.mark.parametrize(
    ("late_ns", "with_ack", "handed"), [(10_000, True, True), (80_000, True, False), (80_000, False, True)]
)
def test_what_leaves_as_an_ack_comes_was_not_handed_over_before_unless_its_time_had_come(late_ns, with_ack, handed):
    """fq's timer lets a packet go within 10 us, and does not wait for an ACK (seed 334106); a rate may be wrong."""
    tp, seg = with_skbs(), np.array([SimpleNamespace(tx_us=-6_000, skb_end=1448 * k) for k in (1, 2)])
    tp.snd_nxt, tp.packets_out, tp.rate_Bps, tp.gap_ns = 2 * 1448, 20, 9 * 1448 * 1024, 1_000_000
    tp.skb_overhead, tp.wmem_alloc = SKB_OVERHEAD_BYTES, 1448
    assert may_hand_over(tp, seg, late_ns, 2 * 1448, 6 * 1448, PSH, with_ack) == handed


@pytest.mark.parametrize(
    ("acked_ns", "after", "found"), [(99_500, 0, True), (98_000, 0, False), (99_500, 1, False), (None, 0, False)]
)
def test_a_packet_leaves_with_the_ack_that_comes_just_before_it(acked_ns, after, found):
    """Other packets may leave in between, and the ACK counts only after place `after`."""
    p = SimpleNamespace(sender=0, ack_delay_ns=0)
    time_ns, direction = (
        np.array([0, acked_ns or 0, 99_800, 100_000]),
        np.array([1, 0 if acked_ns is None else 1, 0, 0]),
    )
    assert leaves_with_ack(p, np.arange(4), after, 3, time_ns, direction) == found


@pytest.mark.parametrize(("overdue", "handed"), [(True, 1), (False, 0)])
def test_an_echo_dates_a_hand_over_however_short_the_packet_is(overdue, handed, monkeypatch):
    """TCP made it as long as its skb was, whose end was believed to be elsewhere (seed 334134)."""
    one, sent = np.zeros(1, np.int64), []
    packets = (one, one, one, one, one, one, one + 2896, one, one, one, one, one, one)
    tp, p = (
        SimpleNamespace(established=1, next_to_hand_over=0, snd_nxt=0, mss=1448, wmem_alloc=0, skb_overhead=896),
        SimpleNamespace(),
    )
    tp.queue_empty, tp.next_due = 0, 0
    p.sender, p.isn, p.same_skb_ns, p.ack_delay_ns, p.echoes, p.mss = 0, 0, 1, 0, 1, 1448
    monkeypatch.setattr(continuing.handover, "may_hand_over", lambda *_: True)
    monkeypatch.setattr(continuing.handover, "is_too_short", lambda *_: True)
    monkeypatch.setattr(continuing.handover, "note_made", lambda *_: None)
    monkeypatch.setattr(continuing, "mark", lambda *_: None)
    monkeypatch.setattr(continuing.echoes, "is_early", lambda *_: False)
    monkeypatch.setattr(continuing.echoes, "is_overdue", lambda *_: overdue)
    monkeypatch.setattr(continuing.tcp_sender, "send", lambda *_: sent.append(1))
    continuing.hand_over(tp, None, None, None, None, None, p, one, -1, packets, NOTHING_TOLD, 1 if overdue else -1)
    assert len(sent) == handed


@pytest.mark.parametrize(
    ("segments", "room", "changed", "short"),
    [
        (5, 9, {}, True),  # nine leave at once
        (9, 9, {}, False),
        (5, 7, {}, True),  # seven would, or wait for room for nine
        (5, 5, {}, True),  # five wait for it, too, as the next ACK is near (tcp_tso_should_defer)
        (5, 5, {"srtt_us8": 8 * 20_000}, False),  # it is not
        (5, 5, {"cwnd": 14}, False),  # they are a third of cwnd
        (7, 8, {"handed_bytes": 4 * 1448}, True),  # whatever the last ones' lengths were (seed 334168)
        (5, 9, {"ca_state": 3}, False),  # in a recovery ACKs decide how much is sent
        (5, 9, {"skb_end": 7 * 1448}, False),  # an skb ends
        (3, 6, {}, False),  # one ends between two of three segments
        (5, 9, {"cut_seq": 2 * 1448}, False),  # TCP Small Queues held back what had been cut off already
        (5, 5, {"skb_end": 5 * 1448}, False),  # what is left of an skb, three, grew into the room (tcp_grow_skb)
        (4, 5, {"skb_end": 5 * 1448}, True),  # it would have grown further
        (5, 9, {"written": 5 * 1448 + 700}, False),  # no more is written but a short end
        (4.5, 9, {}, False),  # which has room
        (4.5, 5, {}, True),  # or waits, too, for room for nine
        (4.5, 5, {"srtt_us8": 8 * 20_000}, False),
        (0.5, 1, {}, False),  # as no single segment does
        (5, 9, {"written": 6 * 1448}, True),
    ],
)
def test_what_is_shorter_than_rate_and_window_allow_was_made_at_another_rate(segments, room, changed, short):
    tp, seg = with_skbs(), np.array([SimpleNamespace(tx_us=schema.CLOCK_START_US - 6_000)] * 2)
    tp.snd_nxt, tp.handed_bytes, tp.now_us = 2 * 1448, 9 * 1448, schema.CLOCK_START_US
    written = changed.get("written", state.NEVER)
    for name, value in changed.items():
        if name != "written":
            tp[name] = value
    tp.packets_out = tp.cwnd - room
    assert is_too_short(tp, seg, int(segments * 1448), written) == short


@pytest.mark.parametrize(
    ("ends", "recovering", "found"),
    [
        ((22, 23), 0, 22),  # the second grew into the next skb, as since Linux 6.10: what is believed stays
        ((23, 22), 0, 22),
        ((23, 23, 22), 0, 22),
        ((22, 30), 0, 0),  # short for other reasons
        ((22, 30, 30), 0, 30),
        ((22, 22, 30), 0, 22),
        ((22, 22, 22, 22, 21, 21), 0, 22),  # four outweigh two a little earlier (seed 334342),
        ((22, 22, 22, 22, 30, 30, 30), 0, 22),  # or twice the same place elsewhere,
        ((22, 22, 22, 22, 30, 30, 30, 30, 30), 0, 30),  # but not more
        ((22, 22), 3, 0),  # in a recovery ACKs decide how much is sent
    ],
)
def test_where_skbs_end_is_the_earliest_place_at_which_super_packets_are_short_again(ends, recovering, found):
    tp = with_skbs()
    tp.ca_state, begins = recovering, 0
    for k, end in enumerate(ends):
        short = end + (k + 1) * SKB - 4
        begins = made(tp, [short - begins - 9, 9, 4], begins)
        begins = made(tp, [9, 9], begins)
    assert tp.skb_end // tp.mss % SKB == found


def test_sends_say_how_much_of_its_skb_is_left():
    tp = with_skbs()
    assert left_of_skb(tp, 7 * tp.mss) == SKB * tp.mss  # where none is known to end, it may be all of it
    tp.skb_end = 22 * tp.mss
    assert left_of_skb(tp, 20 * tp.mss) == 2 * tp.mss
    assert left_of_skb(tp, 22 * tp.mss) == SKB * tp.mss
    handed = at_hand_over(cct.read(RECORDINGS / "fq_bbr3_loss" / "sender.pcap.zst").flow(0))
    sends = handed.events.sends[handed.events.sends["retransmitted"] == 0]
    known = np.flatnonzero(sends["skb_left"])
    left, segments = sends["skb_left"][known].astype(int), sends["segments"][known].astype(int)
    follows = np.diff(known) == 1
    right = (left[:-1] - segments[1:]) % SKB == left[1:] % SKB
    assert follows.sum() > 1000
    assert right[follows].mean() > 0.99  # but where another place is believed


@pytest.mark.parametrize(
    ("seen_us", "found_us"),
    [
        ((10.1, 10.2, 10.2, 4), 4),  # by another interrupt
        ((10.1, 10.2, 10.2, -3), 10.2),  # before its time: the rate is too low
        ((10.1, 10.2, 10.2, -3, 4), 10.2),
        ((10.1, 10.2, 10.2, -3, *[4] * 33), 4),  # but not for ever
        ((3, 4, 10.2, -3), 0),  # this timer's slack is mostly not used to the end
        ((10.1, 30), 10.3),
    ],
)
def test_a_packet_that_left_before_its_time_was_as_late_as_usual(seen_us, found_us):
    """The timer of fq uses its slack to the end, if no other interrupt comes; min_rtt hangs on it (seed 329049)."""
    tp = np.zeros(1, state.TP).view(np.recarray)[0]
    assert [timer_late_ns(tp, round(1000 * us)) for us in seen_us][-1] == round(1000 * found_us)


def test_the_first_flight_is_not_paced_and_min_rtt_is_the_kernels_to_the_microsecond():
    """Two microseconds of the first flight put min_rtt, and with it PROBE_RTT, elsewhere (seeds 338456, 338503)."""
    flow = cct.read(RECORDINGS / "fq_v3_first_flight" / "sender.pcap.zst").flow(0)
    polls = cct.read(RECORDINGS / "fq_v3_first_flight" / "tcpinfo.csv.zst")
    compared = cct.replay(flow.attach(polls), "bbr3").compare()
    assert compared.run.source.through_fq
    assert compared.agrees("min_rtt").all()


def test_who_explains_only_the_beginning_does_not_say_how_the_rest_was_handed_to_fq(monkeypatch):
    """In slow start CUBIC and Reno send alike, and on a path of many packets the beginning is nothing else."""
    monkeypatch.setattr(through_fq, "STAGES", ((400, 3), (400, 6)))
    path = cct.Path(rate="20Mbit", rtt="100ms", buffer="1bdp")
    flow = cct.simulate(path, cct.Sender("reno", fq=True), "6s", seed=1, packets=True).capture().flow(0)
    found = passage(flow)
    assert (found.through_fq, found.controller, found.alike) == (True, "cubic6", ("reno",))
    assert cct.identify(flow).group == ("reno",)
    assert through_fq._converged(flow, "reno")[1].mean > through_fq._converged(flow, "cubic6")[1].mean


def test_orca_with_a_policy_is_the_users_class_not_the_registered_one_which_has_none():
    assert registered(with_policy(lambda seen: -0.1)) is None
    assert registered(controller("cubic")[0]) == "cubic"


def test_what_was_open_is_asked_again_for_the_sender_that_was_identified_since(monkeypatch):
    flow, asked = cct.read(RECORDINGS / "fq_cubic" / "sender.pcap.zst").flow(0), []

    def unknown(_flow, believed=None, alone=False, directly=None):
        asked.append((believed, alone))
        return through_fq.UNKNOWN

    with monkeypatch.context() as patched:
        patched.setattr(through_fq, "passage", unknown)
        sender = controller("cubic6")[0]
        for believed in (None, sender, sender, None):
            assert at_hand_over(flow, believed).through_fq is None
        assert asked == [(None, False), (sender, True)]
    assert at_hand_over(flow, controller("reno")[0]).through_fq is None  # not its sender, and no other is tried
    assert passage(flow, controller("cubic6")[0], alone=True).through_fq
