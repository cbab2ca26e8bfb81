"""No file, however damaged, crashes a reader, hangs it, or reads out of bounds: an error or a result, always."""

import contextlib
import gzip
import io
import os
import random
import subprocess
import sys
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seeds import SEEDS, captures
from test_io_pcap import T0, conversation
from wire import interface, pcap, section

from cctrace.errors import CctraceError, Truncated
from cctrace.io import FORMATS, read_file, sniff, stream
from cctrace.io.source import open_source

ALL = [(name, data) for name, seeds in SEEDS.items() for data in seeds]
NAMED = ("bblog", "tcp-info-struct")  # are read where their name is given


def survives(data, **options):
    """Read bytes, or refuse them in one line; return whether they were read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read_file(io.BytesIO(data), **options).frame()
        except CctraceError as error:
            if "\n" in str(error):
                raise
            return False
    return True


def damaged(seed, rng):
    data = bytearray(seed)
    for _ in range(rng.choice((1, 1, 2, 5, 30))):
        at = rng.randrange(len(data))
        change = rng.randrange(6)
        if change == 0:
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.getrandbits(8)))
        elif change == 1:
            data[at : at + 4] = rng.choice((b"\xff" * 4, b"\0" * 4, b"\x80\0\0\0", b"\0\0\0\x80"))
        elif change == 2:
            del data[at : at + rng.randrange(1, 20)]
        elif change == 3:
            data[at:at] = rng.randbytes(rng.randrange(1, 20))
        elif change == 4:
            end = min(len(data), at + rng.randrange(1, 40))
            data[at:at] = data[at:end]
        else:
            data[at : at + 1] = rng.choice(
                (b'"', b"{", b"}", b"[", b",", b":", b"-", b"\n", b"9" * 30, b"1e999", b"null")
            )
        if not data:
            break
    return bytes(data)


def test_there_is_a_seed_of_every_format():
    assert set(FORMATS) - {"pcap", "pcapng", "snoop"} <= set(SEEDS)
    kinds = {sniff(open_source(io.BytesIO(data))) for name, data in ALL if name not in NAMED}
    assert kinds >= set(FORMATS) - set(NAMED)


@pytest.mark.parametrize(("name", "data"), ALL, ids=[f"{name}-{i}" for i, (name, _) in enumerate(ALL)])
def test_sound_files_are_read_and_damaged_ones_end_in_a_result_or_an_error(name, data):
    """A seed that nobody reads would prove nothing."""
    rng = random.Random(len(data))
    options = {"decapsulate": "all", "format": name if name in NAMED else None}
    assert survives(data, **options)
    for _ in range(25):
        survives(damaged(data, rng), **options)


def test_many_damaged_files_are_still_read():
    """What refuses everything passes every test of damage; a fifth of the formats may be as strict as Parquet."""
    rng, still = random.Random(8), {}
    for name, data in ALL:
        read = [survives(damaged(data, rng), format=name if name in NAMED else None) for _ in range(20)]
        still[name] = max(still.get(name, 0.0), sum(read) / len(read))
    assert sum(share >= 0.2 for share in still.values()) >= 0.8 * len(still), still


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=25)
@given(data=st.binary(min_size=1, max_size=400) | st.text(min_size=1, max_size=200).map(str.encode))
def test_any_bytes_under_any_format_end_in_a_result_or_an_error(name, data):
    if name == "pcap":
        data = pcap([])[:24] + data
    elif name == "pcapng":
        data = section() + interface(101) + data
    survives(data, format=name)


@settings(max_examples=25)
@given(data=st.binary(max_size=300))
def test_any_bytes_behind_a_compression_magic_end_in_a_result_or_an_error(data):
    for magic in (b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00", b"BZh9", b"\x04\x22\x4d\x18"):
        survives(magic + data)


def test_damaged_compressed_files_yield_what_precedes_the_damage():
    rng = random.Random(5)
    plain = pcap([(T0 + i, p) for i, p in enumerate(conversation(200))], 101)
    packed, times = gzip.compress(plain), read_file(io.BytesIO(plain))["time_ns"].tolist()
    assert sum(survives(damaged(packed, rng)) for _ in range(40)) > 10
    for share in (0.4, 0.7, 0.95):
        with pytest.warns(Truncated) as issued:
            part = read_file(io.BytesIO(packed[: int(share * len(packed))]))["time_ns"].tolist()
        assert 0 < len(part) < len(times)
        assert part == times[: len(part)]
        assert [warning.filename for warning in issued] == [__file__]  # the caller's line, not one of cctrace


def test_a_stream_of_damaged_captures_ends_too():
    rng = random.Random(6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in captures():
            with contextlib.suppress(CctraceError):
                assert all(len(part) for part in stream(io.BytesIO(damaged(seed, rng)), chunk=2))


@pytest.mark.slow
def test_the_compiled_decoders_never_read_out_of_bounds(tmp_path):
    """Compiled with bounds checks, in a process of its own because the flag is global."""
    code = """
import random, sys
sys.path.insert(0, 'tests')
from seeds import captures
from test_io_fuzz import damaged, survives
rng = random.Random(7)
for seed in captures():
    for _ in range(300):
        survives(damaged(seed, rng), decapsulate='all')
"""
    environment = os.environ | {"CCTRACE_MACHINE": "checked", "CCTRACE_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
