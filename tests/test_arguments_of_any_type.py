"""What a script passes by mistake is an error of cctrace, whatever its type."""

import io

import numpy as np
import pandas as pd
import pytest

import cctrace as cct
from cctrace import conform
from cctrace.analytic import Collapse
from cctrace.errors import CctraceError
from cctrace.stressing.aims import Aim
from cctrace.stressing.trial import Setting
from tests.build_view import flow_view

ARRAY = np.arange(3)  # "in" and "==" compare it element by element
TABLE = pd.DataFrame({"cc": ["bbr"], "rate": [1.0]})  # its text has several lines


@pytest.fixture(scope="module")
def simulated():
    return cct.simulate(cct.Path(rate="10Mbit", rtt="20ms"), ["cubic6"], "1s", seed=1, packets=True, trace=True)


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
        (lambda sim: cct.read("a\0b"), "a name cannot hold a zero byte"),
        (lambda sim: cct.read(__file__, format=ARRAY), r"format=array\(\[0, 1, 2\]\) is not one of "),
        (lambda sim: cct.replay(sim.capture().flow(0), "cubic6", mode=ARRAY), "mode=array.* is not one of compiled, "),
        (lambda sim: cct.replay(ARRAY, "cubic6"), "cannot replay 'ndarray'; give a flow"),
        (lambda sim: cct.Path(rate="10Mbit", jitter=ARRAY), "jitter=array.*: write it with its unit"),
        (lambda sim: cct.Path(rate="10Mbit", aqm=ARRAY), "aqm=array.* must be a text, for example 'codel'"),
        (lambda sim: cct.Path(rate="10Mbit", shaper=np.float64(1)), "shaper=.*: give rate and burst"),
        (lambda sim: cct.Jitter("normal", sd="2ms", per=ARRAY), "jitter per=array.*: use packet, burst or slot:TIME"),
        (lambda sim: cct.Sender("reno", ack=ARRAY), "ack=array.*: use linux, "),
        (lambda sim: cct.Sender("reno", ecn=ARRAY), "ecn=array.* for reno: use True, classic or accurate"),
        (lambda sim: cct.Sender("reno", send_buffer=ARRAY), "send_buffer=array"),
        (lambda sim: cct.sweep(cct.Path(rate="10Mbit"), "reno", 1, file=5), "file=5 must be a path"),
        (lambda sim: cct.whatif(sim, "bbr3", own=ARRAY), "a controller is a name or a subclass"),
        (lambda sim: cct.analyze("capture.pcap", identifications=5), "identifications=5 must be a dict of connections"),
        (lambda sim: cct.simulate(sim.path, "reno", trace=ARRAY), "trace=array.* must be True or False"),
        (lambda sim: cct.simulate(sim.path, "reno", packets=ARRAY), "packets=array.* must be True or False"),
        (lambda sim: cct.simulate(sim.path, "reno", exact="no"), "exact='no' must be True or False"),
        (
            lambda sim: cct.simulate(sim.path, "reno", sample="1s", watch=[[]]),
            r"watch=\[\] is a field of no controller",
        ),
        (lambda sim: cct.Path(rate=TABLE), "^rate=<DataFrame> is not a rate; write it with its unit"),
        (
            lambda sim: cct.Path(rate="1Mbit", policer=TABLE[:0]),
            "policer=.* write it with its unit|give rate and burst",
        ),
        (lambda sim: cct.Sender(TABLE), "a controller is a name or .*, not <DataFrame>"),
        (lambda sim: cct.plot.rtt(TABLE), "^<DataFrame>: single packets are needed"),
        (lambda sim: cct.plot.rtt(sim, title=ARRAY), "title=array.* must be a text"),
        (lambda sim: cct.plot.throughput(sim, title=TABLE), "title=<DataFrame> must be a text"),
        (lambda sim: cct.plot.cdf({"a": [1]}, xlabel=ARRAY), "xlabel=array.* must be a text"),
        (lambda sim: cct.plot.cdf({"a": [1]}, log=ARRAY), "log=array.* must be True or False"),
        (lambda sim: cct.plot.bars(TABLE, "cc", "rate", ARRAY), "table has no column array.*; there are: cc, rate"),
        (lambda sim: cct.plot.cdf(sim, ARRAY), "quantity=array.* must be a text"),
        (lambda sim: cct.plot.cdf(sim, "rtt", by=ARRAY), "by=array.* must be a text, or None"),
        (lambda sim: cct.datasets.path(ARRAY), "no recording array.* ships"),
        (lambda sim: cct.check(sim, [1, [2]]), r"expectations=\[1, \[2\]\] must be a TOML file, a dict, or a list"),
        (lambda sim: cct.stress(Setting("reno"), Aim(), findings=1.5), "findings=1.5 must be an integer from 1"),
        (lambda sim: cct.stress(Setting("reno"), Aim(), ARRAY), "bounds=array.* must be a cctrace.stressing"),
        (lambda sim: cct.simulate(sim.path, "reno", packets=1), "packets=1 must be True or False"),
        (lambda sim: cct.streaming.play(sim.path, "reno", ARRAY), "video=array.* must be a cctrace.streaming.Video"),
        (lambda sim: cct.streaming.play(sim.path, "reno", settings=5), "settings=5 must be a cctrace.streaming.Sett"),
        (lambda sim: cct.streaming.play_rates([1, 2]), r"periods=\[1, 2\] must be a list of \(ms, kbit/s"),
        (lambda sim: cct.plot.over_time({"a": 5}), r"series\['a'\]=5 must be a list of curves"),
        (lambda sim: cct.plot.over_time({"a": [1]}), r"series\['a'\]\[0\]=1 must be \(time_s, values, label, "),
        (lambda sim: cct.plot.over_time({"a": [([0, 1], [1], "b", {})]}), "as many values .1. as times .2."),
    ],
)
def test_it_is_named(simulated, call, said):
    with pytest.raises(CctraceError, match=said):
        call(simulated)


def test_what_is_true_or_false_in_numpy_is_so_here(simulated):
    assert cct.simulate(simulated.path, "reno", "1s", packets=np.True_).capture()


def test_a_bin_may_be_longer_than_any_flow(simulated):
    assert len(simulated.capture().flow(0).throughput(bin_s=10**30)) == 1


COLLAPSE = Collapse(mean_us=5000, sd_us=500, floor_us=75)
VIEW = flow_view()
SAMPLES = {"one": [1.0, 2.0], "two": [2.0, 3.0]}


@pytest.mark.parametrize(
    "name", [ARRAY, 5, b"x", "\ud800", "a\0b"], ids=["array", "number", "bytes", "surrogate", "zero"]
)
@pytest.mark.parametrize(
    "call",
    [
        lambda sim, x: sim.to_pcap(x),
        lambda sim, x: sim.to_parquet(x),
        lambda sim, x: sim.capture().to_parquet(x),
        lambda sim, x: sim.capture().flow(0).events.to_parquet(x),
        lambda sim, x: cct.replay(sim.capture().flow(0), "cubic6").to_parquet(x),
        lambda sim, x: cct.sweep(sim.path, "reno", 1, duration="10ms", workers=1, file=x),
        lambda sim, x: cct.corpus.run("capture.pcap", x),
        lambda sim, x: cct.streaming.read_periods(x),
    ],
)
def test_what_no_file_can_be_called_is_named(simulated, call, name):
    with pytest.raises(CctraceError, match="must be a path"):
        call(simulated, name)


@pytest.mark.parametrize("wrong", [ARRAY, 5], ids=["array", "number"])
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda sim, x: sim.to_pcap("never.pcap", tso=[x]), "^tso=.* must be True or False"),
        (lambda sim, x: sim.flow([x]), r"^index=\[.* must be an integer from 0"),
        (lambda sim, x: cct.plot.boxes(SAMPLES, whiskers=x), "^whiskers=.* must be two percentiles"),
        (lambda sim, x: cct.plot.qq(SAMPLES, against=x), "^against=.* must be a group"),
        (lambda sim, x: cct.plot.figure(cct.plot.flow_panels(VIEW), x), "^phases=.* must be what flow_phases returns"),
        (lambda sim, x: cct.plot.collapse_surface(COLLAPSE, [1], [1], here=x), "^here=.* must be two numbers"),
    ],
)
def test_what_a_plot_or_a_simulation_cannot_take_is_named(simulated, call, said, wrong):
    with pytest.raises(CctraceError, match=said):
        call(simulated, wrong)


def test_a_number_of_any_length_in_a_file_is_named_in_short():
    text = f"timestamp,cwnd,rtt\n1.0,10,{'9' * 5000}x\n"
    with pytest.raises(CctraceError, match=r"column rtt: '9999.* is not a number") as raised:
        cct.read(io.BytesIO(text.encode()), format="tcpinfo-csv")
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    "call",
    [
        lambda sim: cct.sweep(cct.Path(rate="1Mbit"), "reno", progress=True),
        lambda sim: cct.analyze("capture.pcap", progress=True),
        lambda sim: cct.whatif(sim, "reno", progress=True),
        lambda sim: cct.corpus.run("capture.pcap", "never", progress=True),
        lambda sim: cct.corpus.compact("never", progress=True),
        lambda sim: cct.check(sim, {"goodput": ">= 1Mbit"}, progress=True),
        lambda sim: conform.run("reno", "reno", progress=True),
        lambda sim: cct.stress(Setting("reno"), Aim(), progress=True),
        lambda sim: cct.fit.path(sim, progress=True),
        *(lambda sim, kind=kind: kind().fit(sim, progress=True) for kind in (cct.fit.Jitter, cct.fit.Collapse)),
        lambda sim: cct.fit.Parameters("cubic6", ["beta"]).fit(sim, progress=True),
        lambda sim: cct.fit.Share().fit(sim, progress=True),
        lambda sim: cct.learn.simulated(cct.learn.Agent(), progress=True),
    ],
)
def test_what_cannot_receive_progress_is_named(simulated, call):
    with pytest.raises(CctraceError, match=r"^progress=True must be a function"):
        call(simulated)
