"""What a script passes by mistake is an error of cctrace, whatever its type."""

import pytest

import cctrace as cct
from cctrace.errors import CctraceError


@pytest.fixture(scope="module")
def simulated():
    return cct.simulate(cct.Path(rate="10Mbit", rtt="20ms"), ["cubic6"], "1s", seed=1, packets=True)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda sim: cct.replay("capture.pcap", "cubic6"), r"capture.pcap: no golden vector .* cctrace.read\(FILE\)"),
        (lambda sim: cct.Jitter.parse(5), "text=5 must be a text, for example 'normal:sd=2ms'"),
        (lambda sim: sim.capture().flow(0).throughput(bin_s=float("inf")), "bin_s=inf: must be above 0"),
        (lambda sim: sim.capture("first"), "flow='first' must be an integer"),
        (lambda sim: cct.datasets.path(["loss_cubic_1pct"]), "no recording .*'loss_cubic_1pct'.* ships"),
        (lambda sim: cct.datasets.path("loss_cubic_1pct", {}), "has no file {}"),
        (lambda sim: cct.fit.Jitter().fit(["a"] * 500), "delays must be numbers, in microseconds"),
        (lambda sim: cct.fit.Hierarchical().pool(5), "estimates=5 must be an iterable of estimates"),
    ],
)
def test_it_is_named(simulated, call, said):
    with pytest.raises(CctraceError, match=said):
        call(simulated)


def test_a_bin_may_be_longer_than_any_flow(simulated):
    assert len(simulated.capture().flow(0).throughput(bin_s=10**30)) == 1
