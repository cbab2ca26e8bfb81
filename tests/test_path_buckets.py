"""A policer's buckets are judged in one compiled pass, as by their definition."""

import numpy as np
import pytest

from cctrace.path import constants as const
from cctrace.path.buckets import _Tried
from cctrace.path.lindley import losses_by_deficit
from cctrace.tcp.wire import PACKET_BYTES

ZONES = int(const.EMPTY_PACKETS + const.OVER_PACKETS) + 2


def policed(seed, chance):
    """Packets at 1.2 times the rate of a bucket of 20 packets, of which some are lost by chance, too."""
    rng = np.random.default_rng(seed)
    time = np.cumsum(rng.exponential(1000, 3000))
    rate, most, level, lost = PACKET_BYTES / 1200, 20 * PACKET_BYTES, 0.0, np.zeros(len(time), bool)
    for k, gap in enumerate(np.diff(time, prepend=0.0)):
        level = max(level - gap * rate, 0.0)
        lost[k] = level + PACKET_BYTES > most or rng.random() < chance
        level += 0 if lost[k] else PACKET_BYTES
    return _Tried(time, np.full(len(time), float(PACKET_BYTES)), lost, 1e4), rate, most


@pytest.mark.parametrize("chance", [0.0, 0.02])
@pytest.mark.parametrize("factor", [0.7, 0.98, 1.0, 1.05, 1.5])
def test_counts_by_deficit_are_those_of_the_definition(chance, factor):
    tried, rate, most = policed(4, chance)
    judged = tried.judge(factor * rate, most, most / 2)
    over = (tried.deficits(judged) - most) / PACKET_BYTES
    passed = (over[~tried.lost] > const.OVER_PACKETS).mean()
    explained = (over[tried.lost] > -const.EMPTY_PACKETS).mean()
    assert np.isfinite(judged.gain) == (explained >= const.POLICED_SHARE and passed <= const.SPARED)
    counts = np.zeros(2 + 2 * ZONES, np.int64)
    counts[:2] = tried.lost.sum(), (~tried.lost).sum()
    packets = float(PACKET_BYTES), const.EMPTY_PACKETS, 0.0, const.OVER_PACKETS, 1.0  # refuses nothing
    assert losses_by_deficit(*tried._kept, factor * rate, float(most), most / 2, *packets, counts) == 1
    zone = np.digitize(over, np.arange(-const.EMPTY_PACKETS, const.OVER_PACKETS + 1))
    assert counts[2 : 2 + ZONES].tolist() == np.bincount(zone[tried.lost], minlength=ZONES).tolist()
    assert counts[2 + ZONES :].tolist() == np.bincount(zone, minlength=ZONES).tolist()


def test_a_bucket_of_the_right_rate_is_likely_and_one_of_another_is_refused():
    tried, rate, most = policed(5, 0.0)
    assert tried.judge(rate, most, most / 2).gain > const.POLICED_GAIN
    assert not np.isfinite(tried.judge(3 * rate, most, most / 2).gain)


@pytest.mark.parametrize("all_at_first", [0, 100])
def test_the_beginning_of_a_flow_says_what_its_first_losses_met(all_at_first):
    tried, rate, _ = policed(6, 0.01)
    tried.lost[:all_at_first] = True  # none passes before or among the first losses
    first = tried.first_losses
    assert len(tried.beginning.lost) < len(tried.lost)
    assert tried.beginning.met(rate)[first].tolist() == tried.met(rate)[first].tolist()
