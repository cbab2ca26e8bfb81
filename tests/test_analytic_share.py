"""Buffer-share models: fixed points, printed formulas, limits, domains, bad input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cctrace.analytic import share
from cctrace.analytic.predict import buffer_share
from cctrace.errors import ArgumentError

gains, ratios = st.floats(1.01, 4), st.floats(0.05, 1000)


@given(gains, ratios)
def test_the_fixed_point_is_where_bbr_fills_what_the_others_leave(gain, ratio):
    p = share.loss_based_share(gain, ratio)
    assert 0 <= p < 1
    if p > 0:
        assert share.occupied_ratio(p, gain, ratio) == pytest.approx(1 - p, rel=1e-8, abs=1e-12)
    else:
        assert ratio <= share.loss_onset_ratio(gain) * (1 + 1e-12)


@given(gains, ratios, st.floats(1.01, 10))
def test_a_deeper_buffer_and_a_smaller_gain_leave_more_to_the_loss_based(gain, ratio, factor):
    assert share.loss_based_share(gain, ratio * factor) >= share.loss_based_share(gain, ratio)
    # q(1-p)*: from (R - g + 1) / (g R), both terms fall with g.
    assert share.loss_based_share(gain * factor, ratio) <= share.loss_based_share(gain, ratio)


def test_the_papers_cases_of_the_occupied_ratio():
    assert share.loss_based_share(2, 16) == 15 / 32
    assert share.loss_based_share(2, 1) == 0  # "the loss-based CCAs cannot compete any more"
    assert share.loss_based_share(1, [0.5, 16]) == pytest.approx([1, 1])  # g = 1 never competes
    assert share.occupied_ratio([0.0, 1.0], 2, 16) == pytest.approx([1 / 16, 0])


def test_wares_share_is_the_published_formula():
    # X = 16, 40 Mbit/s, 40 ms, packets of 1514 bytes: q = 16 * 132.1 packets.
    c, d = 40e6 / 8 / 1514, 60.0
    q = 16 * c * 0.04
    p = 0.5 - 1 / 32 - 4 / q
    probe_time = (q / c + 0.2 + 0.04) * d / 10
    assert share.ware_bbr_share(16, 0.04, c, 1, d) == pytest.approx((1 - p) * (d - probe_time) / d, rel=1e-12)
    assert share.ware_loss_based_share(0.5, 1000, 1) == 0


@given(st.floats(1.001, 500), st.floats(0.55, 0.99))
def test_mishras_share_solves_the_back_off(ratio, backoff):
    bbr = float(share.mishra_bbr_share(ratio, backoff))
    assert 0 < bbr <= 1
    held, least = (1 - bbr) * ratio, (ratio - 1) / 2
    before = held + held / ratio
    after = least + least / (least + ratio - held)
    assert backoff * before == pytest.approx(after, rel=1e-6)


def test_mishras_bounds_close_where_all_back_off_together_and_open_with_flows():
    low, high = share.mishra_bounds(8, [1, 2, 4, 16])
    assert low[0] == high[0]
    assert np.all(np.diff(high) > 0)
    assert np.all(np.diff(low) == 0)
    assert share.mishra_bbr_share([0.2, 1.0]) == pytest.approx([1, 1], abs=1e-6)
    assert share.nash_bbr_flows(2, 10) == pytest.approx(10 * share.mishra_bbr_share(2))


def test_the_gain_of_obbr_follows_the_queue_and_is_capped():
    assert share.adaptive_gain([40, 60, 80, 500], 40, mu=0.5) == pytest.approx([1, 1.25, 1.5, 2])
    assert share.adaptive_gain(30, 40, mu=0.5) == 1  # below the minimum: no queue
    assert share.recovered_gain(1.5, [0, 1e5, 1e9], 1e5) == pytest.approx([1.5, 1.51, 2])


def test_domains_say_why():
    assert share.ware_domain(16, 0.04, 200).inside
    assert "below 16 BDP" in share.ware_domain(2, 0.04, 200).reason
    assert "not converged" in share.ware_domain(32, 0.04, 60).reason
    assert share.mishra_domain(2).inside
    assert "below 1.5 BDP" in share.mishra_domain(0.5).text
    assert share.share_domain(0.5, 5, 5).inside
    assert "upper bound" in share.share_domain(2).reason


def test_the_prediction_has_the_stable_keys():
    out = buffer_share(2, 16)
    assert out["loss_based_share"] == 0.46875
    assert out["bbr_share"] == 0.53125
    assert buffer_share(2, 0.5)["loss_based_share"] == 0
    assert set(out["ware"]) == {"bbr_share", "domain"}
    assert set(out["mishra"]) == {"bbr_share_low", "bbr_share_high", "nash_bbr_flows", "domain"}


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: share.loss_based_share(0, 16), "gain"),
        (lambda: share.loss_based_share(2, -1), "ratio"),
        (lambda: share.occupied_ratio(1.5, 2, 16), "p is 1.5"),
        (lambda: share.mishra_bbr_share(2, 0.4), "backoff"),
        (lambda: share.adaptive_gain(50, 40, mu=2), "mu"),
        (lambda: buffer_share(2, 16, flows=0), "flows"),
    ],
)
def test_wrong_parameters_are_named(call, named):
    with pytest.raises(ArgumentError, match=named):
        call()
