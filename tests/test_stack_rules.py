"""What the Linux stack does to cwnd and ssthresh around a replayed controller: each rule by hand, then a recording."""

from types import SimpleNamespace

import numpy as np
import pytest

from cctrace import datasets, schema
from cctrace.cc import controller as controller_named
from cctrace.cc.base import LinuxController
from cctrace.cc.linux import TCP_INFINITE_SSTHRESH
from cctrace.flows.capture import read
from cctrace.flows.events import Events
from cctrace.flows.state import EVENT, SENT
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import stack, waiting
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.inference import ticks
from cctrace.replaying.inference.infer import infer
from cctrace.replaying.run import replay
from tests.build_stack import NEUTRAL, tcp_record
from tests.conversation import MSS, Conversation

OPEN, DISORDER, CWR, RECOVERY, LOSS = range(5)
HZ = 250


START_NS = 1_700_000_000_000_000_000


class Calls:
    """A recorded stream by hand: each call keeps the columns of the one before it, but for those given.

    Time stands still unless `at` moves it on. What leaves, leaves after the calls so far.
    """

    def __init__(self, **columns):
        known = {name: value for name, value in NEUTRAL.items() if name in EVENT.names}
        self.now = (
            known | {"srtt_us8": 8 * 40_000, "rttvar_us4": 200_000, "snd_wnd": schema.U32_MAX, "rs_send": -1} | columns
        )
        self.events, self.rows, self.sends, self.now_us = [], [], [], 1_000_000

    def at(self, now_us):
        self.now_us = now_us
        return self

    def send(self, segments=1, in_flight=1, **columns):
        """A packet leaves; `in_flight` counts it."""
        sent = {
            "tx_ns": self.now_us * 1000,
            "row": len(self.rows),
            "payload": segments * 1448,
            "begins": 1,
            "ends_write": 1,
        }
        self.sends.append(sent | {"segments": segments, "in_flight": in_flight, "packets_out": in_flight} | columns)
        return self

    def call(self, event, **columns):
        self.now = self.now | columns
        self.events.append(schema.LINUX_EVENTS[event])
        self.rows.append(self.now | {"time_ns": START_NS + (self.now_us - 1_000_000) * 1000})
        return self

    def cwnd_event(self, name, **columns):
        return self.call("cwnd_event", arg=schema.CWND_EVENTS.index(name), **columns)

    def enter_recovery(self, **columns):
        """The calls of an ACK that reveals a loss, before its on_ack."""
        self.call("ssthresh", ca_state=OPEN, **columns).call("set_state", arg=RECOVERY)
        return self.call("on_ack", ca_state=RECOVERY)

    def flow(self):
        """Return what a replay takes for a recorded flow."""
        rows, sends = np.zeros(len(self.rows), EVENT), np.zeros(len(self.sends), SENT)
        for table, given in ((rows, self.rows), (sends, self.sends)):
            for row, columns in zip(table, given, strict=True):
                for name, value in columns.items():
                    row[name] = value
        rows["event"] = self.events
        meta = {"mss": 1448, "hz": HZ, "start_ns": START_NS, "ecn_ok": False, "complete": True}
        return SimpleNamespace(events=Events(rows, meta, sends), hz=HZ)

    def run(self, controller="reno", record=("snd_cwnd", "snd_ssthresh", "snd_cwnd_cnt"), **state):
        """Replay from the given state; return what is recorded (cwnd, ssthresh, cnt) after each call."""
        cls, names = starting(controller, state), list(record)
        runs = [replay(self.flow(), cls, record=names, mode=mode).decisions[names] for mode in ("compiled", "debug")]
        assert (runs[0] == runs[1]).all(axis=None)
        return runs[0].rename(columns={"snd_cwnd": "cwnd", "snd_ssthresh": "ssthresh", "snd_cwnd_cnt": "cnt"})


def starting(name, state):
    """Return a controller class whose fields start at the given values."""
    cls = name if isinstance(name, type) else controller_named(name)[0]
    return type(cls.__name__, (cls,), state | {"__module__": __name__})


def test_a_recovery_sends_in_proportion_to_what_is_delivered():
    # [RFC6937] §3, in flight above ssthresh: sndcnt = ceil(prr_delivered * 10 / 20) - prr_out
    calls = Calls(packets_out=20, data_segs_out=100, rs_prior_in_flight=17, rs_acked_sacked=1, rs_losses=1)
    calls.enter_recovery(sacked_out=3, lost_out=1)  # 16 in flight; ceil(1/2) = 1
    calls.call("on_ack", sacked_out=4, retrans_out=1, data_segs_out=101, rs_losses=0)  # 16; ceil(2/2) - 1 = 0
    calls.call("on_ack", sacked_out=5)  # 15; ceil(3/2) - 1 = 1
    run = calls.run(snd_cwnd=20, snd_cwnd_cnt=7)
    assert run["cwnd"].tolist() == [20, 20, 17, 16, 16]
    assert run["ssthresh"].iloc[1] == 10
    assert run["cnt"].iloc[-1] == 0


def test_below_ssthresh_a_recovery_sends_what_is_delivered_and_one_more_if_all_goes_well():
    calls = Calls(packets_out=20, data_segs_out=100, rs_prior_in_flight=8, snd_una=1, ack=1)
    calls.call("ssthresh").call("set_state", arg=RECOVERY)
    few = {"ca_state": RECOVERY, "sacked_out": 3, "lost_out": 12}  # 5 in flight, ssthresh 10
    calls.call("on_ack", **few, rs_acked_sacked=2, rs_losses=12)  # the fast retransmission, and the other delivered
    calls.call("on_ack", data_segs_out=102, rs_acked_sacked=1, rs_losses=0, snd_una=1449)  # 1 and 1 more
    calls.call("on_ack", rs_losses=1, snd_una=2897)  # more losses: no more than 4 delivered less 2 sent
    calls.call("on_ack", rs_losses=0)  # nothing advanced: 5 less 2
    calls.call("on_ack", rs_acked_sacked=9, snd_una=4345)  # no more than the room below ssthresh
    assert calls.run(snd_cwnd=20)["cwnd"].tolist()[2:] == [7, 7, 7, 8, 10]


def test_a_recovery_that_sends_what_it_may_ends_with_ssthresh_in_flight():
    # The sender of this loop obeys the replayed window, ACK by ACK; 30 in flight, the first is lost.
    calls = Calls(packets_out=30, data_segs_out=30, rs_prior_in_flight=30, rs_acked_sacked=1)
    calls.enter_recovery(sacked_out=3, lost_out=1, rs_acked_sacked=3, rs_losses=1)
    sent, sacked, retransmitted = 0, 3, 0
    for _ in range(27):
        cwnd = int(calls.run(snd_cwnd=30)["cwnd"].iloc[-1])
        quota = cwnd - (30 + sent - sacked - 1 + retransmitted)
        if quota > 0 and not retransmitted:
            retransmitted, quota = 1, quota - 1
        sent, sacked = sent + max(quota, 0), sacked + 1
        counts = {"packets_out": 30 + sent, "retrans_out": retransmitted, "data_segs_out": 30 + retransmitted + sent}
        calls.call("on_ack", sacked_out=sacked, rs_acked_sacked=1, rs_losses=0, **counts)
    assert calls.run(snd_cwnd=30)["cwnd"].iloc[-1] == 15


def test_the_timer_of_rack_reduces_without_an_ack():
    calls = Calls(packets_out=20, sacked_out=2, lost_out=1, data_segs_out=100, rs_prior_in_flight=0, ack=1, snd_una=1)
    calls.call("ssthresh", ca_state=DISORDER).call("set_state", arg=RECOVERY)
    assert calls.run(snd_cwnd=20)["cwnd"].tolist() == [20, 17 + 1]


def test_a_completed_recovery_leaves_cwnd_at_ssthresh():
    calls = Calls(packets_out=20, data_segs_out=100, rs_prior_in_flight=17, rs_acked_sacked=1)
    calls.enter_recovery(sacked_out=3, lost_out=1)
    calls.call("set_state", arg=OPEN).cwnd_event("COMPLETE_CWR", ca_state=OPEN)
    assert calls.run(snd_cwnd=20)["cwnd"].tolist()[-2:] == [17, 10]


def test_an_undone_recovery_gives_back_cwnd_and_ssthresh():
    calls = Calls(packets_out=20, data_segs_out=100, rs_prior_in_flight=17, rs_acked_sacked=1)
    calls.enter_recovery(sacked_out=3, lost_out=1)
    calls.call("undo_cwnd").call("set_state", arg=OPEN).cwnd_event("COMPLETE_CWR", ca_state=OPEN)
    run = calls.run(snd_cwnd=20, snd_ssthresh=18)
    assert run["cwnd"].iloc[-1] == 20
    assert run["ssthresh"].iloc[-1] == 18
    assert calls.run(snd_cwnd=40, snd_ssthresh=18)["ssthresh"].iloc[-1] == 30  # three quarters of cwnd


def test_a_loss_repaired_by_the_tail_loss_probe_costs_one_reduction():
    # [Linux618] tcp_process_tlp_ack: CWR begins and ends within one ACK
    calls = Calls(packets_out=5, data_segs_out=100, rs_prior_in_flight=5, rs_acked_sacked=1)
    calls.cwnd_event("TLP_RECOVERY").call("ssthresh").call("set_state", arg=CWR)
    calls.cwnd_event("COMPLETE_CWR", ca_state=CWR).call("set_state", arg=OPEN).call("on_ack", ca_state=OPEN)
    run = calls.run(snd_cwnd=20)
    assert run["cwnd"].tolist()[-1] == run["ssthresh"].tolist()[-1] == 10


@pytest.mark.parametrize("controller", ["reno", "cubic6", "bbr2022", "bbr3"])
def test_a_timeout_leaves_one_more_than_is_in_flight(controller):
    calls = Calls(packets_out=20, sacked_out=4, lost_out=14).call("init").call("ssthresh").cwnd_event("LOSS")
    calls.call("set_state", arg=LOSS)
    again = calls.call("set_state", ca_state=LOSS, lost_out=16)  # the timer backs off and fires again
    assert again.run(controller, snd_cwnd=20)["cwnd"].tolist()[-2:] == [3, 1]


def test_a_window_above_the_initial_one_halves_for_every_rto_of_silence():
    # RTO = 40 + 200 ms = 60 ticks of 250 Hz; [RFC2861] §3
    def restarted(idle_ticks, cwnd):
        now_us = 8_000_000
        calls = Calls(lsndtime_us=now_us - idle_ticks * 1_000_000 // HZ).at(now_us).cwnd_event("CWND_RESTART")
        return calls.run(snd_cwnd=cwnd, snd_ssthresh=20).iloc[-1][["cwnd", "ssthresh"]].tolist()

    assert restarted(61, 100) == [50, 75]
    assert restarted(121, 100) == [25, 75]
    assert restarted(1000, 100) == [10, 75]
    assert restarted(1000, 8) == [8, 20]


def test_a_controller_with_on_ack_keeps_its_window_in_a_recovery():
    class Fixed(LinuxController):
        def on_ack(self, ack):
            self.snd_cwnd = 33

        def ssthresh(self, ack):
            return self.snd_ssthresh

    calls = Calls(packets_out=20, data_segs_out=100, rs_prior_in_flight=17, rs_acked_sacked=1)
    calls.enter_recovery(sacked_out=3, lost_out=1).cwnd_event("COMPLETE_CWR")
    decisions = replay(calls.flow(), Fixed, mode="interpreted").decisions
    assert decisions["snd_cwnd"].tolist() == [10, 10, 33, 33]
    assert (decisions["snd_ssthresh"] == TCP_INFINITE_SSTHRESH).all()


@pytest.mark.parametrize(("rtts", "done", "reached"), [(1, 0, False), (3, 0, True), (3, 77, False)])
def test_probe_rtt_reaches_its_flight_within_two_rtts_where_flights_are_estimates(rtts, done, reached):
    tcp, ack = tcp_record(), SimpleNamespace(**NEUTRAL)
    ack.now_us, ack.srtt_us8, ack.packets_out = 5_000_000, 8 * 40_000, 30
    stack.reach_probe_rtt(True, done, tcp, ack)
    assert stack.packets_in_flight(ack) == 30
    ack.now_us += rtts * 40_000
    stack.reach_probe_rtt(False, done, tcp, ack)
    assert (stack.packets_in_flight(ack) == 0) == reached
    ack.packets_out = 30  # only once: PROBE_RTT then lasts for 200 ms
    stack.reach_probe_rtt(False, done, tcp, ack)
    assert stack.packets_in_flight(ack) == 30


def test_segments_sent_are_counted_with_retransmissions():
    talk = Conversation().data(1, 1, 10).ack(41, 1 + 2 * MSS)
    for i, n in enumerate((4, 5, 6, 7)):
        talk.ack(41.2 + i / 10, 1 + 2 * MSS, [(1 + 3 * MSS, 1 + n * MSS)])
    flow = talk.data(41.6, 1 + 2 * MSS).ack(81.6, 1 + 10 * MSS).flow()
    sent = flow.events["data_segs_out"].astype(np.int64)
    assert sent[-1] - sent[0] == 11


@pytest.fixture(scope="module")
def cubic_flow():
    folder = datasets.path("loss_cubic_1pct")
    return read(folder / "sender.pcap.zst").flow(0).attach(read(folder / "tcpinfo.csv.zst"))


def test_a_replayed_cubic_has_the_window_of_the_kernel_in_every_state(cubic_flow):
    comparison = replay(cubic_flow, "cubic6").compare()
    states = cubic_flow.tcpinfo["ca_state"][comparison.polls]
    agrees = comparison.agrees("cwnd", absolute=2)
    for state in (OPEN, RECOVERY):
        assert agrees[states == state].mean() >= 0.95
    assert comparison.share_within("ssthresh") >= 0.95


@pytest.mark.parametrize("state", [OPEN, DISORDER])
def test_ticks_are_found_where_the_sender_that_they_drove_had_them(cubic_flow, state):
    # The recorded flights are replaced by those of a sender that fills the window of a kernel whose ticks are known. On
    # a path that reorders it is nearly always in Disorder.
    rows = cubic_flow.events.rows.copy()
    rows["ca_state"] = np.where(rows["ca_state"] == OPEN, state, rows["ca_state"])
    cls, params = controller_named("cubic6")[0], {"hz": HZ}
    for phase_us in (700, 2900):
        known = Follower(Events(rows, cubic_flow.facts), None, cls, params, ["snd_cwnd"])
        known.tcp.tick_us = phase_us
        known.run()
        before = np.maximum(np.searchsorted(rows["time_ns"], rows["time_ns"]) - 1, 0)
        made = rows.copy()
        made["rs_prior_in_flight"] = known.recorded["snd_cwnd"][before]
        found = infer(Follower(Events(made, cubic_flow.facts), None, cls, params))
        assert found.script.tick_us == pytest.approx(phase_us, abs=200)


def test_the_window_of_the_kernel_is_met_exactly_with_the_ticks_found(cubic_flow):
    assert replay(cubic_flow, "cubic6").compare().share_within("cwnd") >= 0.95


@pytest.mark.parametrize("mode", ["interpreted", "debug"])
def test_compiled_and_interpreted_replays_of_a_recording_agree_in_all_state(cubic_flow, mode):
    runs = [replay(cubic_flow, "cubic6", mode=m, record="all") for m in ("compiled", mode)]
    assert runs[0].state == runs[1].state
    assert runs[0].decisions.equals(runs[1].decisions)


def test_a_window_filled_in_two_bursts_upon_one_ack_is_limited_by_the_receiver_alone():
    # [Linux618] tcp_write_xmit validates cwnd once, after all it sends: by then 20 segments fill the receive window.
    def limited_by_cwnd(window_segments):
        window = -(-window_segments * MSS // 128)
        talk = Conversation().data(1, 1, 10).ack(41, 1 + 10 * MSS, window=window)
        talk.data(41.02, 1 + 10 * MSS, 10).data(41.2, 1 + 20 * MSS, 10).ack(82, 1 + 12 * MSS, window=window)
        events = talk.flow().events
        return events["is_cwnd_limited"][events.of("on_ack")[-1]]

    assert limited_by_cwnd(20) == 0
    assert limited_by_cwnd(60) == 1


@pytest.mark.parametrize(
    ("waited_us", "in_flight", "window", "marked"),
    [
        (1_000, 20, 30, 1),  # it may have crossed what it releases
        (999, 20, 30, 0),
        (1_000, 29, 30, 0),  # it waits for room for two segments
        (1_000, 20, 21, 0),  # in the receive window, too
        (10_001, 20, 22, stack.FEW_UNANSWERED),
        (10_001, 20, 21, 0),
    ],
)
def test_an_ack_that_stays_unanswered_for_long_is_enough(waited_us, in_flight, window, marked):
    ctx, slots = np.zeros(cx.CONTEXT_SIZE, np.int64), np.zeros(stack.APP_LIMITED + 1, np.int64)
    tcp = tcp_record()
    ctx[cx.OWN_MIN_RTT], slots[stack.CWND], slots[stack.PACING] = -1, 30, 1_000_000
    tcp.mss, tcp.min_rtt_us, tcp.silent_since_ack = 1448, 60_000, 1
    waiting.note_unanswered(ctx, outstanding(in_flight, window), None, waited_us * 1000, slots, tcp)
    assert tcp.unanswered_acks == marked


def outstanding(segments, window):
    """The state after an ACK that leaves so many segments outstanding, of a receive window of `window` segments."""
    state = SimpleNamespace(snd_una=1, snd_nxt=1 + 1448 * segments, snd_wnd=1448 * window, packets_out=segments)
    return SimpleNamespace(**vars(state), sacked_out=0, lost_out=0, retrans_out=0)


@pytest.mark.parametrize(
    ("packets_out", "window", "waited_us", "marked"),
    [(10, 99, 1_000, 2), (10, 99, 20, 0), (25, 99, 1_000, 0), (10, 12, 1_000, 0), (6, 12, 1_000, 2)],
)
def test_an_unpaced_sender_that_leaves_an_ack_unanswered_has_nothing_to_send(packets_out, window, waited_us, marked):
    """cwnd is 30: a third free of the smaller window is more than a sender waits for, unless it had no time to answer.

    In a receive window of 128 kB, all of a CUBIC's rates were application-limited in the replay, and none in the kernel
    (seed 338566).
    """
    slots, tcp = np.zeros(stack.APP_LIMITED + 1, np.int64), tcp_record()
    slots[stack.CWND], tcp.mss, tcp.silent_since_ack = 30, 1448, 1
    waiting.note_unanswered_unpaced(outstanding(packets_out, window), None, waited_us * 1000, slots, tcp)
    assert tcp.unanswered_acks == marked


def test_ticks_are_tried_with_as_many_rows_as_decide():
    tried = []

    def likelihoods(hypotheses, rows, margin):
        tried.append(([phase for _, phase in hypotheses], rows))
        likelihood = {0: -100.0, 25: 0.0 if rows < 20_000 else -100.0, 50: -10.0, 51: -10.0, 75: -100.0}
        return np.array([likelihood[phase] for _, phase in hypotheses])

    rows = SimpleNamespace(rows=np.zeros(100_000))
    flown = SimpleNamespace(likelihoods=likelihoods, follower=rows, refute=lambda left, rows: None)
    every = [(250, phase) for phase in (0, 25, 50, 51, 75)]
    one = (250, 51)  # 50 and 51 are equal: one of the middle
    assert ticks._likeliest(flown, every, 1_000, 4_000, 100_000) == (one, [one], 32_000)
    assert tried == [
        ([0, 25, 50, 51, 75], 1_000),
        ([25, 50, 51], 2_000),
        ([25, 50, 51], 4_000),
        ([25, 50, 51], 8_000),
        ([25, 50, 51], 16_000),
        ([25, 50, 51], 32_000),
    ]
    tried.clear()
    assert ticks._likeliest(flown, [(250, 50), (250, 51)], 4_000, 4_000, 100_000) == (one, [one], 4_000)
    assert tried == [([50, 51], 4_000)]  # more rows would not tell these apart
    assert ticks._likeliest(flown, every, 1_000, 4_000, 2_000)[1:] == ([(250, 25), (250, 50), (250, 51)], 2_000)
