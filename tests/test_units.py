"""Quantities are read as people write them, and a quantity without a unit is refused."""

import math
import re

import pytest

from cctrace import units
from cctrace.errors import ArgumentError


@pytest.mark.parametrize(
    "text", ["40Mbit", "40 Mbit/s", "40mbit", "40Mbps", "40000kbit", "0.04Gbit", "4e7bit", "5MB/s"]
)
def test_the_usual_spellings_of_a_rate_mean_the_same(text):
    assert units.parse_rate_bps(text) == pytest.approx(40e6, rel=1e-12)


@pytest.mark.parametrize("text", ["40", "40M", "40ms", "Mbit", "40 furlongs", "", "1e999bit", "nanbit", None])
def test_what_is_not_a_rate_is_refused_with_an_example(text):
    with pytest.raises(ArgumentError, match="is not a rate; write it with its unit, for example 40Mbit"):
        units.parse_rate_bps(text)


@pytest.mark.parametrize(("text", "ns"), [("5ms", 5_000_000), ("0.5us", 500), ("20µs", 20_000), ("2min", 120 * 10**9)])
def test_durations_are_whole_nanoseconds(text, ns):
    value = units.parse_time_ns(text)
    assert value == ns
    assert isinstance(value, int)


def test_a_duration_without_unit_is_refused():
    with pytest.raises(ArgumentError, match="'60' is not a duration"):
        units.parse_time_ns("60")


def test_sizes_are_decimal_or_binary_as_written():
    assert units.parse_size_bytes("200kB") == 200_000
    assert units.parse_size_bytes("2MiB") == 2 * 2**20
    assert units.parse_size_bytes("1500 bytes") == 1500


def test_bandwidth_delay_products_need_a_path():
    assert units.parse_size_bytes("0.5bdp", bdp_bytes=200_001) == 100_000
    with pytest.raises(ArgumentError, match="'2bdp' is not a size"):
        units.parse_size_bytes("2bdp")


@pytest.mark.parametrize("text", ["101%", "1.5", "2"])
def test_a_share_above_one_is_refused(text):
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        units.parse_share(text)


def test_texts_keep_three_digits_and_never_an_exponent():
    assert units.format_rate(999_999) == "1 Mbit/s"
    assert units.format_rate(999_400) == "999 kbit/s"
    assert units.format_time(100) == "100 ns"
    assert units.format_time(3600 * 10**9) == "3,600 s"
    assert units.format_size(0) == "0 B"
    assert units.format_share(1e-7) == "less than 0.001 %"
    assert units.format_share(0.00123) == "0.123 %"
    assert units.format_time(0) == "0 s"
    assert units.format_rtt(0) == "below the clock's step"  # of a recording, whose packets had one time stamp
    assert units.format_rtt(1) == "1 us"
    assert units.format_rtt(float("nan")) == units.format_rtt(None) == "unknown"
    assert units.format_number(14_321, 2) == "14,000"
    assert units.format_number(0.000_012_34) == "0.0000123"
    assert units.format_number(-2.5) == "-2.5"
    assert units.format_count(1_234_567) == "1,234,567"
    assert units.format_rate(math.nan) == "unknown"


@pytest.mark.parametrize("exponent", range(-30, 31))
def test_no_number_of_any_size_is_written_with_an_exponent(exponent):
    value = 1.2345 * 10.0**exponent
    for write in (units.format_number, units.format_rate, units.format_time, units.format_size, units.format_share):
        assert not re.search(r"\de[+-]?\d", write(value))


@pytest.mark.parametrize("text", ["-40Mbit", "-0.5 Gbit/s"])
def test_a_negative_rate_is_called_negative(text):
    with pytest.raises(ArgumentError, match="is negative; a rate is 0 or more, for example 40Mbit"):
        units.parse_rate_bps(text)
