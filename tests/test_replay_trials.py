"""Hypotheses that share work have the likelihoods that each has alone."""

import numpy as np
import pytest

import cctrace as cct
from cctrace import schema
from cctrace.cc import controller
from cctrace.cc.base import checked_params
from cctrace.replaying.engine import branches
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.likelihood import ANSWER_NS, RATES_APART, paced_send, paced_send_bound
from cctrace.replaying.engine.loop import starts_probe_rtt
from cctrace.replaying.engine.script import Best
from cctrace.replaying.engine.stack import CWND, PACING, STACK, STACK_WORDS, TICK_US, tcp_of
from cctrace.replaying.engine.together import next_tick
from cctrace.replaying.inference.ahead import LEFT, Ahead
from cctrace.replaying.inference.hypotheses import LARGEST_DRAW, Inference
from cctrace.replaying.inference.infer import infer
from cctrace.replaying.inference.probes import AT_ONCE, REFILL, Probes
from cctrace.replaying.inference.tick_offsets import TickOffsets
from cctrace.replaying.inference.ticks import CLEARLY, CONFIG_HZ, Phases, likeliest_ticks
from cctrace.replaying.inference.waits import Waits
from tests.build_stack import tcp_record

MARGIN = 20.0
NEVER = {"rounds_since_probe": -(1 << 20), "probe_wait_us": 1 << 40}  # waits of a BBRv3 that do not end


def followers(dataset, name, number):
    flow = cct.read(cct.datasets.path(dataset, "sender.pcap.zst")).flow(0)
    cls, _ = controller(name)
    return [Follower(flow.events, flow.events.sends, cls, checked_params(cls, {"hz": 1000})) for _ in range(number)]


LEADS = range(0, 4000, 200)


def alone(run, leads, rows):
    """Return how likely each of some leads of ticks at 250 Hz is."""
    changes = [{run.slot("hz"): -750, -1 - STACK.names.index("hz"): -750, -1 - TICK_US: lead} for lead in leads]
    return run.trials(rows, changes=changes, score=cx.FULL_FLIGHTS)[0]


@pytest.mark.parametrize("reads", ["", "rs_is_app_limited"])
def test_hypotheses_side_by_side_are_as_likely_as_alone_however_far_each_is(reads):
    (run,) = followers("loss_cubic_1pct", "cubic6", 1)
    run.reads = run.reads | ({"pkts_acked": [reads]} if reads else {})  # then none are joined
    some = LEADS[::3]
    together = TickOffsets(run, 250, cx.FULL_FLIGHTS, len(LEADS))
    for rows, asked in ((1000, some), (2000, LEADS), (4000, some), (2000, some), (8000, LEADS)):
        expected = alone(run, asked, rows).tolist()
        assert together.likelihoods(asked, rows).tolist() == expected
    assert len(set(expected)) > 5
    assert run.row == 0


def test_hypotheses_that_are_out_of_the_race_are_not_as_likely_as_the_margin():
    (run,) = followers("loss_cubic_1pct", "cubic6", 1)
    together = TickOffsets(run, 250, cx.FULL_FLIGHTS, len(LEADS))
    rows = 8000
    expected = alone(run, LEADS, rows)
    found = together.likelihoods(LEADS, rows, MARGIN)
    near = expected >= expected.max() - MARGIN
    assert 0 < near.sum() < len(expected)
    assert found[near].tolist() == expected[near].tolist()
    assert (found[~near] < expected.max() - MARGIN).all()
    assert (found[~near] > expected[~near]).any()  # that ended early
    assert together.likelihoods(LEADS, rows).tolist() == expected.tolist()  # where they are asked for after all


@pytest.mark.parametrize("hz", [100, 250, 300, 1000])
def test_the_next_tick_comes_with_the_least_lead_that_makes_the_clock_read_more(hz):
    for now_us in (1_000_000, 1_003_999, 1_004_000, 7_654_321):
        for lead_us in (-50, 0, 1, 3333):
            found = next_tick(now_us, lead_us, hz)
            ticks = [(now_us + lead) * hz // 1_000_000 for lead in (lead_us, found - 1, found)]
            assert ticks == [ticks[0], ticks[0], ticks[0] + 1]


def chosen(run, hz):
    """Return the likeliest phase of ticks at a rate, and the likelihood of the flights with it."""
    phases = Phases(run, hz)
    phases.settle()
    return phases.chosen(), phases.low


@pytest.mark.parametrize("dataset", ["loss_cubic_1pct", "compete_bbr_cubic_2bdp"])
def test_tick_rates_compared_by_bounds_are_those_that_are_compared_by_what_they_choose(dataset):
    (run,) = followers(dataset, "cubic6", 1)
    for rates in (CONFIG_HZ, CONFIG_HZ[::-1]):
        best, most = None, -np.inf
        for hz in rates:
            lead_us, likelihood = chosen(run, hz)
            if likelihood > most + CLEARLY:
                best, most = (hz, lead_us), likelihood
        assert likeliest_ticks(run, rates) == best


def test_a_tick_rate_that_cannot_be_likelier_than_another_is_left():
    (run,) = followers("loss_cubic_1pct", "cubic6", 1)
    best, other = (Phases(run, hz) for hz in (250, 1000))
    best.settle()
    assert not other.is_likelier(best)
    assert not other.is_settled


@pytest.mark.parametrize("lower", [1.0, 0.5])
def test_ends_of_a_wait_that_cannot_be_the_likeliest_are_not_tried_to_the_end(lower):
    (run,) = followers("jitter_bbr_sd2ms", "bbr3", 1)
    run.run()
    run.draw((0, LARGEST_DRAW))
    run.run(run.row + 1)
    rows = np.flatnonzero(run.is_ack[: run.row + 4000])
    rows = rows[rows > run.row][::40]
    end, before, marks = int(rows[-1]) + 2000, run.save(), run.marks.copy()
    alone = np.array([run.scan(rows[k : k + 1], end, NEVER, AT_ONCE)[0] for k in range(len(rows))])
    likeliest = int(alone.argmax())
    least = min(lower * alone.max(), alone.max() / lower)
    for place, reached in ((likeliest, -np.inf), (0, -np.inf), (len(rows) - 1, alone.max() - 1)):
        found = run.scan(rows, end, NEVER, AT_ONCE, best=Best(int(rows[place]), reached, lower))
        assert found[alone >= least] == pytest.approx(alone[alone >= least], abs=1e-6)
        others = alone < least
        assert (found[others] < least).all()
        assert (found[others] > alone[others] - 1e-6).all()
        assert (found[others] > alone[others] + 1).any()  # that ended early
    assert run.row == before[0]
    assert np.array_equal(run.slots, before[1])
    assert np.array_equal(run.marks[: run.tcp.next_send], marks[: run.tcp.next_send])


def test_rounds_count_a_pause_as_one():
    (run,) = followers("loss_cubic_1pct", "bbr2022", 1)
    work = Inference(run)
    work.now_us = np.array([0, 10, 20, 20, 5000, 5030, 5060, 5100])
    assert [work.rounds_after(rounds, 40, 0) for rounds in (1, 2, 3)] == [4, 5, 6]  # 60, 90 and 120 us
    assert work.rounds_after(5, 40, 0) == work.rounds_after(1, 40, 7) == 8
    assert work.rounds_after(1, 40, 8) == 8  # what never happens happens after the last row: a search ends with these


def test_a_start_of_probe_rtt_is_found_at_its_row_and_no_other():
    starts = [3, 4, 9]
    ctx, tcp = np.zeros(cx.CONTEXT_SIZE + len(starts), np.int64), tcp_record()
    ctx[cx.PROBE_RTTS], ctx[cx.CONTEXT_SIZE :] = len(starts), starts
    assert [row for row in (0, 2, 3, 5, 6, 9, 10, 11) if starts_probe_rtt(ctx, row, tcp)] == [3, 9]  # 4 is no ACK


@pytest.mark.parametrize("remembers", [0, 1])
def test_a_branch_ends_where_it_has_come_to_a_known_state(monkeypatch, remembers):
    """The controller forgets what was changed within eight rows, but for `remembers`, which another branch shares."""
    calls, size, rows = [], 3, 4000

    def call_row(replay, draws, i, slots, stack):
        calls.append(i)
        likelihood[0] -= float(slots[0] * (i % 7) + slots[1] * (i % 2))
        slots[0] >>= 1
        tcp_of(stack).next_send = i
        if ctx[cx.STORES_BOUNDS]:
            likelihood[1 + i] = 1000.0  # what a send could add at most: no branch is refuted

    monkeypatch.setattr(branches, "call_row", call_row)
    starts, start_states, stored = branches.scratch(size + STACK_WORDS, rows)
    starts[0, :50] = np.arange(50) * 20
    starts[1, 0] = branches.BEGIN
    stored[0][:-1] = np.linspace(0, rows, branches.CHECKS, False)
    ctx, out = np.zeros(cx.CONTEXT_SIZE, np.int64), np.zeros((50, 3))
    ctx[cx.LAST], ctx[cx.HYPOTHESES], ctx[cx.REACHED], ctx[cx.LOWER] = rows, 50, -cx.NO_MARGIN, 1000
    likelihood, marks = np.zeros(rows + 2), np.zeros(rows, np.uint8)
    state = [np.zeros(words, np.int64) for words in (size, STACK_WORDS, size, STACK_WORDS)]
    changes = np.array([[0, 128], [1, remembers]])
    replay = ctx, None, None, marks, None, likelihood
    branches.scan(replay, None, starts, *state[:2], changes, start_states, stored, *state[2:], out)
    for start, ratio in zip(starts[0, :50], out[:, 0], strict=True):
        forgotten = sum((128 >> k) * ((start + k) % 7) for k in range(8))
        assert ratio == -forgotten - remembers * sum(i % 2 for i in range(start, rows))
    apart = rows // branches.CHECKS + 1
    assert len(calls) <= rows + remembers * rows + 50 * (8 + apart)  # the base, the first that remembers, and all


def test_a_cycle_whose_alternative_is_run_ahead_is_kept_in_step_as_one_that_is_tried_where_it_is(monkeypatch):
    (ahead,), (alone,) = (followers("jitter_bbr_sd2ms", "bbr2022", 1) for _ in range(2))
    ended, run = [], Ahead.run

    def ran(self):
        ended.append((run(self), *self.counts))
        return ended[-1][0]

    monkeypatch.setattr(Ahead, "run", ran)
    found = infer(ahead)
    monkeypatch.setattr(Ahead, "run", lambda self: LEFT)
    expected = infer(alone)
    assert found.script == expected.script
    assert [phase[:2] for phase in found.phases] == [phase[:2] for phase in expected.phases]
    assert ahead.marks.tolist() == alone.marks.tolist()
    assert len(found.script.edits) > 1
    assert ended[-1][1] > 100  # cycles, of which hardly any is judged elsewhere
    assert found.in_step == expected.in_step


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("bbr2plus", {"rate": "17Mbit", "rtt": "23ms", "buffer": "1.3bdp"}),
        ("bbr3", {"rate": "3.4Mbit", "rtt": "5.5ms", "buffer": "3.8bdp", "loss": 0.02}),  # where rounds end waits, too
        ("bbr3", {"rate": "17Mbit", "rtt": "23ms", "buffer": "1.3bdp"}),
    ],
)
def test_each_wait_ends_where_it_does_alone_and_what_precedes_its_end_is_kept(tmp_path, monkeypatch, name, path):
    cct.simulate(cct.Path(**path), [name], "9s", seed=7, packets=True).to_pcap(str(tmp_path / "flow.pcap"))
    flow, choices = cct.read(str(tmp_path / "flow.pcap")).flow(0), Probes.choices
    several, kept = [], []

    def compared(probes):
        follower, found = probes.follower, choices(probes)
        horizon = probes.after(probes.base_us + probes.random_us + 100_000)
        numbers, (waits, watched) = probes.numbers, probes.waits.ends(horizon, ("cycle_idx", REFILL))
        longest = numbers[int(np.argmax(waits[:-1]))]
        draws = [*numbers, (*longest[: probes.clock], 0, *longest[probes.clock + 1 :])]
        _, ends, alone = follower.trials(horizon, draws=draws, score=cx.NOTHING, watch=("cycle_idx", REFILL))
        assert ends.tolist() == waits.tolist()
        assert alone.tolist() == watched.tolist()
        before = follower.save()
        follower.draw(numbers[-1])
        follower.run(follower.row + 1)
        for passed, _ in probes.waits.passed(horizon):
            for field, value in probes.never.items():
                follower.set(field, follower.get(field) + value)
            follower.run(passed[0])
            assert all(np.array_equal(*pair) for pair in zip(follower.save(), passed, strict=True))
            kept.append(passed)
        follower.restore(before)
        several.append(len(set(ends.tolist())))
        return found

    monkeypatch.setattr(Probes, "choices", compared)
    cls, _ = controller(name)
    infer(Follower(flow.events, flow.events.sends, cls, checked_params(cls, {"hz": 1000})))
    assert max(several) > 1
    assert kept


@pytest.mark.parametrize("name", ["bbr2", "bbr2plus"])
def test_a_wait_that_was_run_to_find_its_end_is_recorded_and_marked_as_if_it_were_run_again(
    tmp_path, monkeypatch, name
):
    cct.simulate(cct.Path("17Mbit", "23ms", "1.3bdp"), [name], "9s", seed=7, packets=True).to_pcap(tmp_path / "a.pcap")
    rows, skip = [], Waits.skip

    def skipped(waits):
        before = waits._follower.row
        skip(waits)
        rows.append(waits._follower.row - before)

    monkeypatch.setattr(Waits, "skip", skipped)
    found = cct.replay(cct.read(tmp_path / "a.pcap").flow(0), name)
    assert sum(rows) > len(found.held["snd_cwnd"]) / 3
    monkeypatch.setattr(Waits, "skip", lambda _: None)
    again = cct.replay(cct.read(tmp_path / "a.pcap").flow(0), name)
    assert all(np.array_equal(found.held[column], again.held[column]) for column in found.held)
    assert (found.state, found.inferred.script) == (again.state, again.inferred.script)
    assert found.marked.tolist() == again.marked.tolist()


def test_the_best_start_is_looked_for_in_steps_and_each_is_tried_once():
    for number, peak in ((1, 0), (2, 1), (7, 3), (66, 50), (128, 0)):
        starts = np.zeros((2, number), np.int64)
        starts[1, number // 2] = branches.BEGIN
        near, stride, tried = -1, 1, []
        for _ in range(number):
            h, stride = branches.next_start(starts, number, near, stride)
            starts[1, h] = branches.TRIED
            tried.append(h)
            near = min(tried, key=lambda h: abs(h - peak))
        assert sorted(tried) == list(range(number))
        assert tried[0] == number // 2
        assert tried.index(peak) < 24


@pytest.mark.parametrize("time_error", [1, 20])
def test_no_trial_times_a_super_packet_better_than_the_bound(time_error):
    """Its rate may be RATES_APART times as high, and the window full or not; the times of sends are the flow's."""
    rng, tight = np.random.default_rng(5), []
    sends = np.zeros(2, [(column.name, column.dtype) for column in schema.SENDS]).view(np.recarray)
    for since_ns, length_ns in (np.exp(rng.uniform(0, 18, (3000, 2))) + 1).astype(np.int64).tolist():
        sends.tx_ns, sends.begins, sends.segments = [0, since_ns], 1, 2
        sends.retransmitted[1] = rng.integers(2)
        tcp, slots = tcp_record(), np.zeros(8, np.int64)
        tcp.wstamp_ns, tcp.mss, tcp.min_rtt_us = length_ns, 1448, 1 << 20
        slots[CWND], slots[PACING] = 10, 1_000_000
        tcp.acked_ns = since_ns - int(np.exp(rng.uniform(0, 18)))
        most, found = paced_send_bound(sends[1], tcp, time_error), []
        for length in (since_ns - 1, since_ns - tcp.acked_ns, *(length_ns * np.geomspace(1 / RATES_APART, 9, 20))):
            tcp.wstamp_ns = max(int(length), length_ns // RATES_APART + 1)
            for tcp.cwnd_was_full in (0, 1):
                found.append(paced_send(sends, 1, slots, tcp, -1, 2, time_error))
        assert max(found) <= most + 1e-9
        if since_ns > length_ns and since_ns - tcp.acked_ns > ANSWER_NS * time_error:
            tight.append(most - max(found))
    assert np.median(tight) < 1e-3  # the greatest that there is
