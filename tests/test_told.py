"""Which BBR it was: what counters tell, and what is left to what was sent."""

import io

import numpy as np
import pytest

from cctrace.errors import FormatError
from cctrace.identification.named import controller_name, generation, leaves_open, sender
from cctrace.io import read_file
from cctrace.io.counters.structs import BBR23_INFO, BBR_INFO
from cctrace.io.counters.tcpinfo import MISSING

COLUMNS = "time_ns,tcpi_rtt,bbr_bw_bytes_per_s,bbr_pacing_gain_256,bbr_cwnd_gain_256,cc"


def polls(text):
    return read_file(io.BytesIO(text.encode()))


def of_gains(*gains, cc="bbr"):
    rows = [f"{1 + k},40000,1000,{pacing},{cwnd},{cc}" for k, (pacing, cwnd) in enumerate(gains)]
    return polls("\n".join([COLUMNS, *rows, ""]))


def of_struct(dump, cc=""):
    return polls(f"time_ns,tcpi_rtt,cc_info_hex,cc\n1,40000,{dump.hex()},{cc}\n2,40000,,{cc}\n")


def struct_of(version):
    dump = np.zeros(1, BBR23_INFO)
    dump["version"], dump["mode"], dump["phase"] = version, 2, 5
    dump["inflight_hi"], dump["inflight_lo"] = 77, 0xFFFFFFFF
    dump["bw_lo"] = dump["bw_lo_msb"] = 0xFFFFFFFF
    return dump.tobytes()


def test_the_struct_tells_which_bbr_it_is():
    assert controller_name(of_struct(np.zeros(1, BBR_INFO).tobytes())) == "bbr"
    assert controller_name(of_struct(struct_of(2), "bbr2")) == "bbr2"
    assert controller_name(of_struct(struct_of(3), "bbr")) == "bbr3"
    assert controller_name(of_struct(bytes(16), "dctcp")) == "dctcp"  # shorter than any BBR's


def test_bounds_that_are_not_set_are_missing():
    info = of_struct(struct_of(3))
    assert info["bbr_inflight_hi"].tolist() == [77, MISSING]
    for name in ("bbr_inflight_lo", "bbr_bw_lo_Bps"):
        assert info[name].tolist() == [MISSING, MISSING]
    assert info.extra["bbr_mode"].tolist() == ["PROBE_BW", None]


@pytest.mark.parametrize("gains", [(710, 512), (232, 512), (320, 576)])
def test_gains_that_only_v3_has_tell_it(gains):
    assert controller_name(of_gains((256, 512), gains)) == "bbr3"


def test_gains_of_more_than_one_bbr_leave_it_open():
    info = of_gains((739, 739), (320, 512), (192, 512))
    assert generation(info) is None
    assert leaves_open(info, controller_name(info))


def test_what_was_sent_is_believed_where_the_counters_leave_it_open():
    info = of_gains((320, 512))
    assert sender(info, "bbr", "bbr2") == ("bbr2", "bbr2")
    assert sender(info, "bbr", "bbr2019") == ("bbr", "bbr2019")
    assert sender(info, "bbr", "cubic6") == ("bbr", "bbr2022")
    assert sender(info, "bbr") == ("bbr", "bbr2022")
    assert sender(info, "bbr", "bbr2", "bbr2019") == ("bbr", "bbr2019")  # what is told may be true: it is believed
    assert sender(None, None) == (None, None)
    assert sender(None, None, "cubic") == ("cubic", "cubic")


def test_what_the_counters_tell_is_believed_before_what_was_sent():
    info = of_struct(struct_of(3), "bbr")
    assert sender(info, controller_name(info), "bbr2022") == ("bbr3", "bbr3")
    assert sender(info, "cubic", "cubic") == ("cubic", "cubic")  # its generations are not the counters'


def test_a_field_that_is_not_hexadecimal_is_named():
    with pytest.raises(FormatError, match="line 2, column cc_info_hex: 'xyz' is not hexadecimal"):
        polls("time_ns,tcpi_rtt,cc_info_hex\n1,2,xyz\n")
