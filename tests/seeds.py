"""Small sound files of every format that cctrace reads: what fuzzing starts from."""

import gzip
import io
import json
import tarfile
import tempfile
import zipfile
from pathlib import Path

from test_io_demand import NEW as SIFTR
from test_io_demand import OLD as OLD_SIFTR
from test_io_demand import T0 as BEGIN
from test_io_demand import VALUES, flent
from test_io_events import EVENTS, FORMS, LIFE, bblog, retrans
from test_io_fragments import fragments4
from test_io_pcap import LINKS, T0, conversation
from test_io_qlog import FILES
from test_io_snoop import snoop
from test_io_ss import SOCKET, V6
from test_io_tcpinfo_formats import META, NDT7, NEW, iperf3, raw_info, snapshot
from test_io_tunnels import TUNNELS
from wire import enhanced, ethernet, interface, obsolete, option, pcap, section, simple, tcp

import cctrace
from cctrace.io import ARCHIVE


def captures():
    """Yield one small capture per link type, tunnel and block type."""
    for link, wrap in LINKS.values():
        yield pcap([(T0 + i, wrap(p)[:240], 1500) for i, p in enumerate(conversation(6))], link)
    for wrap in TUNNELS.values():
        yield pcap([(T0 + i, wrap(p)[:240], 1500) for i, p in enumerate(conversation(6))], 101)
    yield snoop([(T0 + i, ethernet(p)[:90], 1500) for i, p in enumerate(conversation(6))])
    yield pcap([(T0 + i, p) for i, p in enumerate(fragments4(tcp(payload=bytes(1000)), [64, 512]))], 101)
    for big in (False, True):
        resolutions = b"".join(interface(101, big, options=option(9, bytes([v]), big)) for v in (6, 9, 12, 0x8A, 0xBE))
        blocks = [make(i, p[:80], big=big) for i, p in enumerate(conversation(4)) for make in (enhanced, obsolete)]
        yield section(big) + resolutions + b"".join(blocks) + simple(conversation(1)[0][:80], big)


def _flent():
    look = {"tcp_cwnd": 20.0, "tcp_rtt": 40.5, "tcp_pacing_rate": 8.0, "tcp_bbr_mrtt": 39.5, "tcp_bbr_bw": 8.0}
    entries = [{"t": BEGIN + 0.2 * i} | look for i in range(5)]
    return gzip.decompress(flent([*entries, {"t": BEGIN + 1.0, "dur": 0.2, "val": 8.0}]))


def _siftr(head, mark, rtt):
    row = VALUES.format(rtt=rtt, rto=240, flow=7)
    lines = [f"{kind},{mark}{BEGIN + i}.000250,10.0.0.1,5001,10.0.0.2,40000,{row}\n" for i, kind in enumerate("oio")]
    return (head + "".join(lines)).encode()


def _parquet():
    """Packets and counters as Parquet."""
    for data in (next(captures()), _text["ss"][0]):
        with tempfile.TemporaryDirectory() as folder:
            cctrace.read(io.BytesIO(data)).to_parquet(Path(folder) / "x.parquet")
            yield (Path(folder) / "x.parquet").read_bytes()


def _archives():
    members = {f"{i}.txt": data for i, data in enumerate(_text["ss"] * 2)}
    packed, zipped = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar, zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
            file.writestr(name, data)
    return [packed.getvalue(), zipped.getvalue()]


ENDS = ("10.0.0.1", 5001, "10.0.0.2", 40000)
_texts = {
    "ss": [f"# 1795190736468301357 1795190736468301366\n{SOCKET}{V6}\n" * 2],
    "tcpinfo-csv": ["time_ns,time_after_ns,tcpi_rtt,cc\n1,2,3,bbr\n4,5,6,cubic\n"],
    "mlab": [
        "\n".join([META, snapshot(0, raw_info(rtt=1)), snapshot(1, raw_info(rtt=2))]),
        json.dumps(NDT7 | {"Download": {"ServerMeasurements": [{"TCPInfo": {"RTT": 5, "ElapsedTime": 7}}]}}),
    ],
    "iperf3": [iperf3(False), iperf3(True)],
    "tcp_probe": [f"  a-1 [0] .... 1.5: tcp_probe: {NEW}\n" * 2],
    "qlog": [*FILES.values()],
    "varnishlog": [log for log, _ in FORMS.values()],
    "mahimahi": [
        "0\n0\n5\n10\n",
        "# base timestamp: 1000\n1000 # 1504\n1001 + 1504\n1002 - 1504 7\n1003 d 2 3008\n",
    ],
    "ucc5g": [
        "Timestamp,Speed,DL_bitrate,UL_bitrate\n2020.02.13_13.57.29,0,100,7\n2020.02.13_13.57.31,1,-,7\n",
    ],
    "tcpinfo-json": [json.dumps([{"time_ns": i, "tcpi_rtt": 5, "tcpi_snd_cwnd": 10, "src": "a"} for i in range(3)])],
    "bcc": [
        retrans(ENDS, [10**18, 10**18 + 10**9]),
        *(header + line.format(*ENDS, 5, 6, "7.25") for header, line in LIFE.values()),
    ],
}
_text = {name: [text.encode() for text in texts] for name, texts in _texts.items()}
# Format: its seeds. "bblog" is read as a capture unless that name is asked for.
SEEDS: dict[str, list[bytes]] = _text | {
    "captures": [*captures()],
    "bblog": [bblog(EVENTS), bblog(EVENTS, big=True)],
    "flent": [_flent()],
    "siftr": [_siftr(SIFTR, "", 40_500), _siftr(OLD_SIFTR, "0x8a7c1d2e,", 1296)],
    "tcp-info-struct": [raw_info(rtt=5)],
    "parquet": [*_parquet()],
    ARCHIVE: _archives(),
}
