"""Golden vectors are read as the driver wrote them, and a planted mismatch is found."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cctrace import cc
from cctrace.cc.base import LinuxController, Param, f32, ints
from cctrace.errors import ArgumentError, FormatError, StreamError
from cctrace.replaying import vectors

EXPECTED = ("o_ret", "o_snd_cwnd", "o_ssthresh", "f32_gain", "s_last_rtt", "s_drawn", "g_other")


class Toy(LinuxController):
    params = LinuxController.params | {"step": Param(1, 0, 100, "added per ACK, segments")}
    golden_names = {"s_last_rtt": "rtts[0]"}
    golden_absent = {"g_other": "belongs to another variant of the same source file"}

    gain: f32 = f32(1.0)
    rtts = ints(2)
    drawn: int = 0

    def on_ack(self, ack):
        self.snd_cwnd = self.snd_cwnd + self.step
        self.gain = f32(self.gain * f32(1.1))
        self.rtts[0] = ack.rs_rtt_us
        self.drawn = self.random_below(ack, 7)

    def ssthresh(self, ack):
        return self.snd_cwnd // 2


@pytest.fixture
def vector(tmp_path, monkeypatch):
    monkeypatch.setitem(cc.REGISTRY, "toy", f"{__name__}:Toy")
    gain = np.cumprod(np.full(2, 1.1, np.float32), dtype=np.float32)
    table = {
        "event": ["init", "cong_control", "cong_control", "ssthresh"],
        "now_us": [1_000_000, 1_040_000, 1_080_000, 1_080_000],
        "snd_cwnd": [10, 10, 12, 14],
        "ssthresh": [100, 100, 100, 100],
        "rs_rtt_us": [-1, 40_000, 41_000, 41_000],
        "rand0": [0, 3, 6, 0],
        "rand0_max": [0, 7, 7, 0],
        "o_ret": [0, 0, 0, 7],
        "o_snd_cwnd": [10, 12, 14, 14],
        "o_ssthresh": [100, 100, 100, 100],
        "f32_gain": np.array([1, gain[0], gain[1], gain[1]], np.float32),
        "s_last_rtt": [0, 40_000, 41_000, 41_000],
        "s_drawn": [0, 3, 6, 6],
        "g_other": [5, 5, 5, 5],
    }
    folder = tmp_path / "toy_step2"
    folder.mkdir()

    def write(**changes):
        columns = {name: values for name, values in (table | changes).items() if values is not None}
        pq.write_table(pa.table(columns), folder / "a_s1.parquet")
        return folder

    return write


@pytest.mark.parametrize("mode", ["interpreted"])
def test_a_true_vector_has_no_mismatch(vector, mode):
    result = vectors.verify([vector()], mode)
    assert (result["files"], result["rows"], result["mismatching_rows"]) == (1, 4, 0)
    assert result["vectors"][0]["first"] is None


@pytest.mark.parametrize("mode", ["interpreted"])
def test_a_planted_mismatch_is_found_with_its_row_and_column(vector, mode):
    result = vectors.verify([vector(o_snd_cwnd=[10, 12, 15, 15])], mode)
    assert result["mismatching_rows"] == 2
    assert result["vectors"][0]["first"] == {"row": 2, "column": "o_snd_cwnd", "expected": 15, "got": 14}


def test_floats_are_compared_bit_for_bit(vector):
    off_by_one_ulp = np.array([1, 1.1, 1.21, 1.21], np.float32)
    off_by_one_ulp[1] = np.nextafter(np.float32(1.1), np.float32(2))
    assert vectors.verify([vector(f32_gain=off_by_one_ulp)], "interpreted")["vectors"][0]["first"]["row"] == 1


def test_a_column_the_class_does_not_have_must_stay_constant(vector):
    result = vectors.verify([vector(g_other=[5, 5, 6, 6])], "interpreted")
    assert result["vectors"][0]["first"]["column"] == "g_other"


def test_a_column_without_a_field_is_reported_not_skipped(vector):
    with pytest.raises(ArgumentError, match=r"Toy has no field 'bw' for the golden column 's_bw'"):
        vectors.verify([vector(s_bw=[0, 0, 0, 0])], "interpreted")


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 1000, 2**32 - 1])
def test_a_recorded_draw_maps_back_to_its_value(bound):
    values = np.unique(np.linspace(0, bound - 1, 50).astype(np.int64))
    raw = vectors._raw_draw(values, np.full(len(values), bound))
    assert raw.min() >= 0
    assert raw.max() < 2**32
    assert [(int(r) * bound) >> 32 for r in raw] == values.tolist()


def test_what_is_not_a_vector_is_refused_by_name(vector, tmp_path):
    folder = vector()
    (folder / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(FormatError, match=r"b\.parquet: not a readable Parquet file"):
        vectors.verify([folder / "b.parquet"], "interpreted")
    with pytest.raises(ArgumentError, match="no such golden vector"):
        vectors.verify([tmp_path / "nowhere"], "interpreted")
    with pytest.raises(StreamError, match=r"a_s1\.parquet: Toy reads column 'rs_rtt_us', which this stream lacks"):
        vectors.verify([vector(rs_rtt_us=None)], "interpreted")
    with pytest.raises(StreamError, match=r"a_s1\.parquet: column 'rs_rtt_us', row 1: nan is not an integer"):
        vectors.verify([vector(rs_rtt_us=[-1, np.nan, 0, 0])], "interpreted")
    with pytest.raises(FormatError, match="column 'rand0' without its bound 'rand0_max'"):
        vectors.verify([vector(rand0_max=None)], "interpreted")
    with pytest.raises(FormatError, match="no column of expected values"):
        vectors.verify([vector(**dict.fromkeys(EXPECTED))], "interpreted")
    (folder / "b.parquet").unlink()
    with pytest.raises(FormatError, match="unknown event 'surprise'"):
        vectors.verify([vector(event=["init", "surprise", "init", "init"]) / "a_s1.parquet"], "interpreted")


def test_an_unknown_controller_is_refused_with_the_nearest_name(vector):
    with pytest.raises(ArgumentError, match="did you mean 'toy'"):
        cc.controller("toi")
    with pytest.raises(ArgumentError, match=r"Toy: step=900 is outside \[0, 100\]"):
        cc.controller("toy:step=900")
    with pytest.raises(ArgumentError, match="sets a parameter twice"):
        cc.controller("toy:step=3,step=4")
    assert cc.controller("toy:step=3,hz=250") == (cc.controller("toy")[0], {"step": 3, "hz": 250})
