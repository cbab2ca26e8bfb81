"""What the Linux stack does to cwnd and ssthresh around a replayed controller: each rule by hand, then a recording."""

import numpy as np
import pytest

from cctrace import datasets, schema
from cctrace.cc import controller as controller_named
from cctrace.cc.base import LinuxController
from cctrace.cc.cubic6 import Cubic6
from cctrace.cc.linux import TCP_INFINITE_SSTHRESH
from cctrace.flows.capture import read
from cctrace.flows.views import View, ticks
from cctrace.replaying import tick
from cctrace.replaying.player import Player
from cctrace.replaying.run import replay
from tests.build_stack import NEUTRAL
from tests.conversation import MSS, Conversation

OPEN, DISORDER, CWR, RECOVERY, LOSS = range(5)
HZ = 250


class Calls:
    """A recorded stream by hand: each call keeps the columns of the one before it, but for those given."""

    def __init__(self, **columns):
        self.now = NEUTRAL | {"srtt_us8": 8 * 40_000, "rttvar_us4": 200_000} | columns
        self.rows, self.events = [], []

    def call(self, event, **columns):
        self.now = self.now | columns
        self.events.append(schema.LINUX_EVENTS[event])
        self.rows.append(self.now)
        return self

    def cwnd_event(self, name, **columns):
        return self.call("cwnd_event", arg=schema.CWND_EVENTS.index(name), **columns)

    def enter_recovery(self, **columns):
        """The calls of an ACK that reveals a loss, before its on_ack."""
        self.call("ssthresh", ca_state=OPEN, **columns).call("set_state", arg=RECOVERY)
        return self.call("on_ack", ca_state=RECOVERY)

    def view(self, stack=True):
        columns = {name: [row[name] for row in self.rows] for name in NEUTRAL}
        return View("linux", self.events, columns, stack=stack)

    def run(self, controller="reno", stack=True, **state):
        """Replay from the given state; return cwnd, ssthresh and snd_cwnd_cnt after each call."""
        view = self.view(stack)
        cls = starting(controller, state)
        names = ["snd_cwnd", "snd_ssthresh", "snd_cwnd_cnt"]
        runs = [replay(view, cls, record=names, mode=mode, hz=HZ).decisions[names] for mode in ("compiled", "debug")]
        assert (runs[0] == runs[1]).all(axis=None)
        return runs[0].rename(columns={"snd_cwnd": "cwnd", "snd_ssthresh": "ssthresh", "snd_cwnd_cnt": "cnt"})


def starting(name, state):
    """Return a controller class whose fields start at the given values."""
    cls, _ = controller_named(name)
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
        calls = Calls(jiffies=2000, lsndtime=2000 - idle_ticks).cwnd_event("CWND_RESTART")
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
    decisions = replay(calls.view(), Fixed, mode="interpreted").decisions
    assert decisions["snd_cwnd"].tolist() == [10, 10, 33, 33]
    assert (decisions["snd_ssthresh"] == TCP_INFINITE_SSTHRESH).all()


def test_where_the_states_between_the_calls_are_recorded_the_stack_is_left_out():
    calls = Calls(packets_out=20, lost_out=18).call("set_state", arg=LOSS)
    assert calls.run(stack=False, snd_cwnd=20)["cwnd"].tolist() == [20]


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
    view, events = cubic_flow.view("linux", hz=HZ), cubic_flow.events
    states = np.where(view.columns["ca_state"] == OPEN, state, view.columns["ca_state"])
    view = View("linux", view.event, view.columns | {"ca_state": states}, time_ns=view.time_ns, stack=True)
    known = {"hz": HZ}
    for phase_us in (700, 2900):
        player = Player(view, "cubic6", record=["snd_cwnd"], **known)
        player.replace_columns(ticks(events.now_us, events["lsndtime_us"], HZ, phase_us))
        player.run()
        before = np.maximum(np.searchsorted(view.time_ns, view.time_ns) - 1, 0)
        made = view.columns | {"rs_prior_in_flight": player.recorded["snd_cwnd"][before]}
        sender = View("linux", view.event, made, time_ns=view.time_ns, stack=True)
        assert tick.phase_us(sender, Cubic6, known, events) == pytest.approx(phase_us, abs=200)


def test_the_window_of_the_kernel_is_met_exactly_with_the_ticks_found(cubic_flow):
    run = replay(cubic_flow, "cubic6")
    assert run.compare().share_within("cwnd") >= 0.95
    assert replay(cubic_flow, "cubic6", mode="interpreted").tick_phase_us == run.tick_phase_us
    bare = replay(cubic_flow.view("linux", hz=HZ), "cubic6", hz=HZ)  # a view shows no ticks to look for
    assert bare.tick_phase_us == 0


def test_compiled_and_interpreted_replays_of_a_recording_agree_in_all_state(cubic_flow):
    view = cubic_flow.view("linux", hz=cubic_flow.hz)
    ends = []
    for mode in ("compiled", "interpreted"):
        player = Player(view, "cubic6", mode=mode, record=["snd_cwnd", "snd_ssthresh", "pacing_rate"], hz=cubic_flow.hz)
        player.run()
        ends.append((player.state, {name: values.tolist() for name, values in player.recorded.items()}))
    assert ends[0] == ends[1]


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
