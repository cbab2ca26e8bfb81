"""Advice fits the sender: nobody who runs BBR is told to use a model-based or rate-based controller."""

import re

import pytest

import cctrace as cct

ADVISED = re.compile("rate-based controller|model-based controller|controller that keeps queues short")
PATHS = {
    "random_loss": cct.Path(rate="20Mbit", rtt="40ms", buffer="2bdp", loss="3%"),
    "policer": cct.Path(rate="50Mbit", rtt="40ms", buffer="2bdp", policer=("8Mbit", "60kB")),
}


@pytest.mark.parametrize("cause", PATHS)
@pytest.mark.parametrize(("cc", "kernels", "advised"), [("bbr2022", "bbr", False), ("cubic", "cubic", True)])
def test_a_sender_of_bbr_is_not_advised_to_use_what_it_is(cause, cc, kernels, advised):
    flow = cct.simulate(PATHS[cause], cc, "8s", seed=3, packets=True).capture().flow(0)
    found = {verdict.name: verdict for verdict in cct.diagnose(flow, kernels).verdicts}
    assert cause in found
    assert bool(ADVISED.search(found[cause].advice)) == advised
    if not advised:
        assert not any(ADVISED.search(verdict.advice) for verdict in found.values())
