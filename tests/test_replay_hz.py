"""The tick rate of a BBR's kernel, inferred from its sends."""

import pytest

import cctrace as cct
from cctrace.cc import controller
from cctrace.cc.base import checked_params
from cctrace.replaying import hz
from cctrace.replaying.follow import Follower
from cctrace.replaying.hypotheses import Inferred
from cctrace.replaying.hz import Ticking
from cctrace.replaying.infer import infer
from cctrace.replaying.script import Script


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


@pytest.mark.parametrize(
    ("over_own", "over_other", "shifted", "found"),
    [
        (170.0, 700.0, 190.0, 1000),  # better over either stream, and far over the one that its sender makes (333020)
        (170.0, 700.0, 695.0, 250),  # another phase explains as much
        (90.0, 700.0, 190.0, 250),  # streams differ by more than the ticks
        (900.0, 90.0, 190.0, 250),  # as in 326107, whose kernel has 250
    ],
)
def test_a_tick_rate_through_fq_is_judged_by_the_stream_that_its_own_sender_makes(
    monkeypatch, over_own, over_other, shifted, found
):
    """The sends' likelihood is 100 at 250 Hz, over the stream that was handed over at that rate."""
    usual = hz._Tried(100.0, 0, Inferred(Script([], []), [], 0.0), None)
    own, other = object(), object()

    class Ticks:
        def __init__(self, stream, cls, params, given):
            self.stream = stream

        def score(self, inferred, rate, tick_us):
            return usual._replace(likelihood=100.0 if rate == 250 else 50.0)

        def infer(self, rate, tick_us, rival):
            return usual._replace(likelihood=over_own if self.stream is own else over_other)

        def best_phase(self, rate, rival):
            return usual._replace(likelihood=shifted if rate == 250 else over_other, tick_us=1500)

    monkeypatch.setattr(hz, "_Ticks", Ticks)
    monkeypatch.setattr(hz, "handed_over_at", lambda captured, cls, rate: other)
    ticking = hz.likeliest_hz(own, object(), None, {"hz": 250}, usual.inferred, ())
    assert ticking.hz == found
    assert ticking.source is (other if found == 1000 else own)


def test_without_probe_rtt_the_tick_rate_is_open_and_stays_what_it_was(tmp_path):
    run = cct.replay(sent(tmp_path, "bbr3", 1000, "3s"), "bbr3")
    assert run.inferred.possible_hz == (250, 1000)
    assert run.params["hz"] == 250


def test_ticks_that_are_refuted_early_are_not_inferred_to_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(hz, "PART", 1 << 10)
    ran, found, passed = hz.Scoring.run, [], [0, 0]

    def run(self, stop=None, *how):
        before = self.row
        row = ran(self, stop, *how)
        passed[len(found)] += row - before
        return row

    monkeypatch.setattr(hz.Scoring, "run", run)
    for draw in (hz.Scoring.draw, Follower.draw):
        monkeypatch.setattr(hz.Scoring, "draw", draw)
        found.append(cct.replay(sent(tmp_path, "bbr3", 1000, "14s"), "bbr3"))
    assert found[0].inferred == found[1].inferred
    assert passed[0] < passed[1]


def test_a_given_tick_rate_is_used_as_it_is(tmp_path):
    run = cct.replay(sent(tmp_path, "bbr3", 250, "14s"), "bbr3", hz=1000)
    assert run.params["hz"] == 1000
    assert run.inferred.possible_hz == ()


@pytest.mark.parametrize("loss", [0, 0.05])
def test_what_was_inferred_of_rows_that_other_ticks_move_is_inferred_anew(tmp_path, monkeypatch, loss):
    """Timers of another HZ move rows: a draw an ACK sooner than inferred had ended a replay after a third (327115)."""
    found = []

    def at_1000_hz(source, captured, cls, params, inferred, given):
        found.append(inferred.script)
        return Ticking(1000, 0, source, (1000,), inferred)

    monkeypatch.setattr("cctrace.replaying.recorded_flow.likeliest_hz", at_1000_hz)
    path = cct.Path(rate="3.4Mbit", rtt="5.5ms", buffer="3.8bdp", loss=loss)
    sim = cct.simulate(path, [cct.Sender("bbr3", hz=1000, ack_every=2)], "3s", seed=3, packets=True)
    sim.to_pcap(str(tmp_path / "flow.pcap"))
    flow = cct.read(str(tmp_path / "flow.pcap")).flow(0)
    moved = flow.at_hz(1000).events["time_ns"].tolist() != flow.events["time_ns"].tolist()
    run = cct.replay(flow, "bbr3")
    assert moved == (loss > 0)
    assert (run.inferred.script is found[0]) == (loss == 0)
    assert (run.decisions["snd_cwnd"] > 0).all()


def test_what_a_hand_over_inferred_is_inferred_anew_where_a_draw_comes_in_another_row(tmp_path):
    events = sent(tmp_path, "bbr3", 250, "4s").events

    def follower():
        cls, given = controller("bbr3")
        return Follower(events, events.sends, cls, checked_params(cls, given | {"hz": 250}), ("mode",))

    fits = infer(follower()).script
    assert len(fits.draws) > 1
    later = [[row + 1, *rest] for row, *rest in fits.draws]
    assert follower().play(fits)
    assert not follower().play(fits._replace(draws=later))
    wrong = follower()
    assert infer(wrong, led=fits._replace(draws=later)).script == fits
    assert wrong.row == len(wrong.rows)
    assert infer(follower(), led=fits).script is fits
