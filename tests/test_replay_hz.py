"""The tick rate of a BBR's kernel, inferred from its sends."""

import gc
import weakref

import numpy as np
import pytest

import cctrace as cct
from cctrace.cc import controller as resolve
from cctrace.cc.base import checked_params
from cctrace.replaying.engine import stack as sk
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.inference import hz, probe_rtts
from cctrace.replaying.inference.hz import Ticking, WrongTicksError
from cctrace.replaying.inference.infer import Given, infer


def sent(tmp_path, controller, hz, duration, fq=False, start_us=0):
    path = cct.Path(rate="17Mbit", rtt="23ms", buffer="1.3bdp")
    run = cct.simulate(
        path, [cct.Sender(controller, hz=hz, fq=fq, ack_every=2, start=f"{start_us}us")], duration, seed=7, packets=True
    )
    file = tmp_path / f"{controller}_{hz}_{duration}_{fq}_{start_us}.pcap"
    run.to_pcap(str(file))
    return cct.read(str(file)).flow(0)


@pytest.mark.parametrize("fq", [False, True])
@pytest.mark.parametrize("hz", [250, 1000])
def test_the_tick_rate_of_a_bbr_shows_in_when_probe_rtt_begins_and_ends(tmp_path, hz, fq):
    flow = sent(tmp_path, "bbr3", hz, "14s", fq)
    run = cct.replay(flow, "bbr3")
    assert run.inferred.possible_hz == (hz,)
    assert run.params["hz"] == run.inferred.script.hz == hz


@pytest.mark.parametrize("start_us", [800, 1700, 2600, 3500])
def test_ticks_of_another_phase_are_not_taken_for_a_higher_rate(tmp_path, start_us):
    run = cct.replay(sent(tmp_path, "bbr3", 250, "14s", start_us=start_us), "bbr3")
    assert run.params["hz"] == 250
    assert 250 in run.inferred.possible_hz


def test_ticks_are_not_told_from_a_probe_that_the_usual_ones_time(tmp_path):
    """With four segments in flight, a wait lasts few rounds: which ACK begins the next one decides when it probes."""
    path = cct.Path(rate="3.4Mbit", rtt="5.5ms", buffer="3.8bdp", loss=0.02)
    sim = cct.simulate(path, [cct.Sender("bbr3", hz=250, ack_every=2)], "16s", seed=5, packets=True)
    sim.to_pcap(str(tmp_path / "flow.pcap"))
    run = cct.replay(cct.read(str(tmp_path / "flow.pcap")).flow(0), "bbr3")
    assert 250 in run.inferred.possible_hz
    assert run.params["hz"] == 250


def test_without_probe_rtt_the_tick_rate_is_open_and_stays_what_it_was(tmp_path):
    run = cct.replay(sent(tmp_path, "bbr3", 1000, "3s"), "bbr3")
    assert run.inferred.possible_hz == (250, 1000)
    assert run.params["hz"] == 250


def test_no_more_is_looked_at_than_what_decides(tmp_path, monkeypatch):
    flow, tried, seen = sent(tmp_path, "bbr3", 250, "24s"), probe_rtts.ProbeRtts.likelihoods, []

    def counted(self, *what):
        seen[-1] += 1
        return tried(self, *what)

    monkeypatch.setattr(probe_rtts.ProbeRtts, "likelihoods", counted)
    for sure in (hz.SURE, 1e9):
        monkeypatch.setattr(hz, "SURE", sure)
        seen.append(0)
        cct.replay(flow, "bbr3")
    assert seen[0] < seen[1] == 4


def test_a_wrong_rate_is_left_once_it_shows_and_nothing_else_changes(tmp_path, monkeypatch):
    flow, so_far, rows = sent(tmp_path, "bbr3", 1000, "34s"), hz.TickTest.so_far, []

    def noted(self, follower, *rest):
        rows.append(follower.row)
        return so_far(self, follower, *rest)

    monkeypatch.setattr(hz.TickTest, "so_far", noted)
    early = cct.replay(flow, "bbr3")
    assert early.params["hz"] == 1000
    assert 0 < min(rows) < len(flow.events) / 4  # PROBE_RTT comes after 5 s
    monkeypatch.setattr(hz.TickTest, "so_far", lambda *replay: False)
    late = cct.replay(sent(tmp_path, "bbr3", 1000, "34s"), "bbr3")
    assert early.inferred == late.inferred
    assert early.decisions.equals(late.decisions)


class Changing:
    """Takes other ticks for likelier, once, some rows after they may have mattered."""

    progress = None

    def so_far(self, follower, *rest):
        if self.progress is None:
            raise WrongTicksError(Ticking(250, 0, ()), follower.row * 9 // 10)
        return False


@pytest.mark.parametrize("controller", ["bbr2022", "bbr3"])
def test_what_was_inferred_before_ticks_mattered_is_inferred_once(tmp_path, controller):
    def follower():
        return Follower(events, events.sends, cls, params, ("mode",), in_runs=True)

    (cls, given), events = resolve(controller), sent(tmp_path, controller, 250, "14s").events
    params, tick_test = checked_params(cls, given | {"hz": 250}), Changing()
    with pytest.raises(WrongTicksError):
        infer(follower(), Given(tick_test=tick_test))
    assert tick_test.progress.row > len(events) / 50
    assert tick_test.progress.phases
    one = infer(follower(), Given(tick_test=tick_test))
    events = sent(tmp_path, controller, 250, "14s").events  # of these nothing is known
    assert one == infer(follower())


def test_what_comes_after_the_last_probe_rtt_is_not_replayed_for_it(tmp_path):
    flow = sent(tmp_path, "bbr2022", 250, "9s")
    cls, given = resolve("bbr2022")
    params = checked_params(cls, given | {"hz": 250})
    follower = Follower(flow.events, flow.events.sends, cls, params, ("mode",), in_runs=True)
    looking = probe_rtts.ProbeRtts(
        probe_rtts.RowReplay(follower, infer(Follower(flow.events, flow.events.sends, cls, params)).script), (250, 0)
    )
    assert looking.next() is None
    assert 0 < follower.row < len(follower.rows)


def test_which_ticks_are_tried_changes_nothing_in_the_replay_that_comes_to_the_next_ones(tmp_path):
    """It leaves PROBE_RTT as the replay that inferred its draws did, and with the same minimum RTT."""
    flow = sent(tmp_path, "bbr2022", 250, "25s", start_us=1700)
    cls, given = resolve("bbr2022")
    params = checked_params(cls, given | {"hz": 250})
    follower = Follower(flow.events, flow.events.sends, cls, params, ("mode",), in_runs=True)
    script = infer(follower).script
    ended = np.flatnonzero(np.diff((follower.recorded["mode"] == cls.states.index("PROBE_RTT")).astype(int)) == -1) + 1
    again = Follower(flow.events, flow.events.sends, cls, params, ("mode",), in_runs=True)
    looking = probe_rtts.ProbeRtts(probe_rtts.RowReplay(again, script), (250, 0))
    times_us = []
    while found := looking.next():
        end, ended_us = found
        times_us.append(ended_us)
        one, other = (looking.likelihoods(end, ticks) for ticks in ([(250, 0)], [(1000, 0), (250, 0)]))
        assert one[0] == other[1]
        looking.leave(ended_us)
    assert len(times_us) == 2
    assert times_us == flow.events.now_us[ended].tolist()


class Noting:
    """Judges nothing, and keeps the states that an inference passes."""

    progress, visited = None, ()

    def so_far(self, follower, script, passed, dipped):
        self.visited = passed
        return False


@pytest.mark.parametrize("controller", ["bbr2022", "bbr3"])
def test_an_inference_leaves_no_cycle_that_keeps_its_tables(tmp_path, controller):
    (cls, given), events = resolve(controller), sent(tmp_path, controller, 250, "12s").events
    follower = Follower(events, events.sends, cls, checked_params(cls, given | {"hz": 250}), ("mode",), in_runs=True)
    kept = weakref.ref(follower)
    gc.disable()  # the command line collects rarely
    try:
        infer(follower, Given(tick_test=Noting()))
        del follower
        assert kept() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("controller", ["bbr2019", "bbr2022", "bbr3"])
def test_states_that_the_inference_passed_lead_to_the_same_probe_rtts(tmp_path, monkeypatch, controller):
    def follower():
        return Follower(events, events.sends, cls, params, ("mode",), in_runs=True)

    (cls, given), events = resolve(controller), sent(tmp_path, controller, 250, "40s").events
    params, tick_test = checked_params(cls, given | {"hz": 250}), Noting()
    inferred = follower()
    script = infer(inferred, Given(tick_test=tick_test)).script
    take, taken, came = probe_rtts.RowReplay.go_to, [], []
    monkeypatch.setattr(probe_rtts.RowReplay, "go_to", lambda *args: taken.append(args[1].row) or take(*args))
    for passed in ((), tick_test.visited):
        looking, states = probe_rtts.ProbeRtts(probe_rtts.RowReplay(follower(), script), (250, 0)), []
        looking.learn(script, len(events), passed, inferred.marks)
        while found := looking.next():
            row, slots, stack, _ = looking.subject.save()
            stack[sk.SLOTS_ADDRESS] = 0
            marks = looking.subject.marks[: sk.tcp_of(stack).next_send]
            states.append((found, row, slots.tolist(), stack.tolist(), marks.tolist()))
            looking.leave(found[1])
        came.append(states)
    assert came[0] == came[1]
    assert len(came[0]) > 1
    assert taken


def test_a_given_tick_rate_is_used_as_it_is(tmp_path):
    run = cct.replay(sent(tmp_path, "bbr3", 250, "14s"), "bbr3", hz=1000)
    assert run.params["hz"] == 1000
    assert run.inferred.possible_hz == ()


def test_a_flow_whose_rows_other_ticks_move_is_replayed_as_its_own_kernel_sent_it(tmp_path, monkeypatch):
    """Timers of another HZ move rows: a draw an ACK sooner than inferred had ended a replay after a third (327115)."""
    monkeypatch.setattr(hz.TickTest, "so_far", lambda *replay: False)
    monkeypatch.setattr(hz.TickTest, "at_end", lambda *replay: Ticking(1000, 0, (1000,)))
    path = cct.Path(rate="3.4Mbit", rtt="5.5ms", buffer="3.8bdp", loss=0.05)
    sim = cct.simulate(path, [cct.Sender("bbr3", hz=1000, ack_every=2)], "3s", seed=3, packets=True)
    sim.to_pcap(str(tmp_path / "flow.pcap"))
    flow = cct.read(str(tmp_path / "flow.pcap")).flow(0)
    own = flow.at_hz(1000).events["time_ns"]
    assert own.tolist() != flow.events["time_ns"].tolist()
    run = cct.replay(flow, "bbr3")
    assert run.decisions["time_ns"].tolist() == own.tolist()
    assert (run.decisions["snd_cwnd"] > 0).all()


def test_what_a_hand_over_inferred_is_inferred_anew_where_a_draw_comes_in_another_row(tmp_path):
    events = sent(tmp_path, "bbr3", 250, "4s").events

    def follower():
        cls, given = resolve("bbr3")
        return Follower(events, events.sends, cls, checked_params(cls, given | {"hz": 250}), ("mode",), in_runs=True)

    fits = infer(follower()).script
    assert len(fits.draws) > 1
    later = [[row + 1, *rest] for row, *rest in fits.draws]
    assert follower().play(fits)
    assert not follower().play(fits._replace(draws=later))
    wrong = follower()
    assert infer(wrong, Given(handover=fits._replace(draws=later))).script == fits
    assert wrong.row == len(wrong.rows)
    assert infer(follower(), Given(handover=fits)).script is fits
