"""What is sent again: the first lost segment that has not been, found without looking at the window each time."""

import pytest

from cctrace import Path, Sender
from cctrace.sim.core import output
from cctrace.sim.core.structs import LOST, RETRANS, segments
from cctrace.sim.core.world import FIRST_NS, World
from cctrace.sim.runner import Runner

LOSSY = Path(rate="40Mbit", rtt="60ms", buffer="0.5bdp", loss="3%")


@pytest.mark.parametrize("profile", ["reference", "linux"])
def test_lost_retransmissions_are_found_without_another_look_at_what_lies_behind_them(monkeypatch, profile):
    find = output.next_lost
    passed, distance = [], []

    def checked(w, f):
        begin, end = int(f.retrans_scan), int(f.nxt)
        lost = (k for k in range(begin, end) if segments(f.seg)[k & f.mask].marks & (LOST | RETRANS) == LOST)
        first = next(lost, -1)
        leaps = f.retrans_again == 0 and f.retrans_seen > begin
        assert find(w, f) == first
        passed.append(int(f.retrans_scan) - max(begin, int(f.retrans_seen) if leaps else 0))
        distance.append(int(f.retrans_scan) - begin)
        return first

    monkeypatch.setattr(output, "next_lost", checked)
    built = World(LOSSY, [Sender("bbr2022", profile=profile)], 1, False, True)
    try:
        Runner(built, "interpreted", trace=False, packets=False).to(FIRST_NS + 2_000_000_000)
        assert built.flows[0].n_retx > 200
        assert sum(passed) < sum(distance) / 2
    finally:
        built.close()
