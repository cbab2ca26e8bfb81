"""No file, however damaged, crashes a reader, hangs it, or reads out of bounds: an error or a result, always."""

import contextlib
import gzip
import io
import json
import os
import random
import subprocess
import sys
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_io_events import FORMS
from test_io_fragments import fragments4
from test_io_pcap import LINKS, T0, conversation
from test_io_qlog import FILES
from test_io_snoop import snoop
from test_io_ss import SOCKET, V6
from test_io_tcpinfo_formats import META, NDT7, NEW, iperf3, raw_info, snapshot
from test_io_tunnels import TUNNELS
from wire import enhanced, ethernet, interface, obsolete, option, pcap, section, simple

from cctrace.errors import CctraceError
from cctrace.io import FORMATS, read_file, stream


def captures():
    """Yield one small capture per link type, tunnel and block type."""
    for link, wrap in LINKS.values():
        yield pcap([(T0 + i, wrap(p)[:90], 1500) for i, p in enumerate(conversation(6))], link)
    for wrap in TUNNELS.values():
        yield pcap([(T0 + i, wrap(p)[:140], 1500) for i, p in enumerate(conversation(6))], 101)
    yield snoop([(T0 + i, ethernet(p)[:90], 1500) for i, p in enumerate(conversation(6))])
    yield pcap([(T0 + i, p) for i, p in enumerate(fragments4(conversation(1)[0][:80], [24, 48]))], 101)
    for big in (False, True):
        resolutions = b"".join(interface(101, big, options=option(9, bytes([v]), big)) for v in (6, 9, 12, 0x8A, 0xBE))
        blocks = [make(i, p[:80], big=big) for i, p in enumerate(conversation(4)) for make in (enhanced, obsolete)]
        yield section(big) + resolutions + b"".join(blocks) + simple(conversation(1)[0][:80], big)


TEXTS = [
    f"# 1795190736468301357 1795190736468301366\n{SOCKET}{V6}\n" * 2,
    "time_ns,time_after_ns,tcpi_rtt,cc\n1,2,3,bbr\n4,5,6,cubic\n",
    "\n".join([META, snapshot(0, raw_info(rtt=1)), snapshot(1, raw_info(rtt=2))]),
    json.dumps(NDT7 | {"Download": {"ServerMeasurements": [{"TCPInfo": {"RTT": 5, "ElapsedTime": 7}}]}}),
    iperf3(False),
    iperf3(True),
    f"  a-1 [0] .... 1.5: tcp_probe: {NEW}\n" * 2,
    *FILES.values(),
    *(log for log, _ in FORMS.values()),
    "0\n0\n5\n10\n",
    "# base timestamp: 1000\n1000 # 1504\n1001 + 1504\n1002 - 1504 7\n1003 d 2 3008\n",
    "Timestamp,Speed,DL_bitrate,UL_bitrate\n2020.02.13_13.57.29,0,100,7\n2020.02.13_13.57.31,1,-,7\n",
]
SEEDS = [*captures(), *(text.encode() for text in TEXTS)]


def survives(data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read_file(io.BytesIO(data), **options).frame()
        except CctraceError as error:
            if "\n" in str(error):
                raise


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


@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_damaged_files_end_in_a_result_or_an_error(seed):
    rng = random.Random(seed)
    for _ in range(25):
        survives(damaged(SEEDS[seed], rng), decapsulate="all")


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.binary(min_size=1, max_size=400) | st.text(min_size=1, max_size=200).map(str.encode))
def test_any_bytes_under_any_format_end_in_a_result_or_an_error(name, data):
    if name == "pcap":
        data = pcap([])[:24] + data
    elif name == "pcapng":
        data = section() + interface(101) + data
    survives(data, format=name)


@settings(max_examples=25, deadline=None)
@given(data=st.binary(max_size=300))
def test_any_bytes_behind_a_compression_magic_end_in_a_result_or_an_error(data):
    for magic in (b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00", b"BZh9", b"\x04\x22\x4d\x18"):
        survives(magic + data)


def test_damaged_compressed_files_yield_what_precedes_the_damage():
    rng = random.Random(5)
    packed = gzip.compress(pcap([(T0 + i, p) for i, p in enumerate(conversation(200))], 101))
    for _ in range(40):
        survives(damaged(packed, rng))


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
from test_io_fuzz import captures, damaged, survives
rng = random.Random(7)
for seed in captures():
    for _ in range(300):
        survives(damaged(seed, rng), decapsulate='all')
"""
    environment = os.environ | {"CCTRACE_MACHINE": "checked", "CCTRACE_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
