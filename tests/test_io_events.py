"""Kernel and web-server logs beside captures: Varnish's log."""

import functools
import io

import pytest

from cctrace import datasets
from cctrace.errors import ArgumentError, FormatError
from cctrace.flows.capture import read as read_flows
from cctrace.io import read_file

T0 = 1_700_000_000


def read(data):
    return read_file(io.BytesIO(data if isinstance(data, bytes) else data.encode()))


@functools.cache
def recording(name):
    """Return the flow of a shipped recording."""
    return read_flows(datasets.path(name, "sender.pcap.zst")).flow(0)


# --- Varnish ---------------------------------------------------------------------------------------------------------
DUMP = (
    "Timestamp      {c}Start: 1700000000.500000 0.000000 0.000000",
    "ReqStart       {c}10.0.0.2 40000 a0",
    "ReqURL         {c}/tcpi: rtt=1",
    "Timestamp      {c}Resp: 1700000001.250000 0.750000 0.750000",
    "VCL_Log        {c}tcpi: snd_mss=1448 rcv_mss=536 lost=3 retrans=2",
    "VCL_Log        {c}tcpi2: pmtu=1500 rtt=152000 rttvar=76000 snd_cwnd=10 advmss=1448 reordering=3",
    "VCL_Log        {c}getsockopt() returned: cubic",
    "End            {c}",
)
SESSION = "*   << Session  >> 4\n-   SessOpen       10.0.0.2 40000 a0 10.0.0.1 80 1700000000.4 20\n"
CLIENT = {"dst": "10.0.0.2", "dport": 40_000, "cc": "cubic"}
FORMS = {
    "request": ("*   << Request  >> 5\n" + "".join(f"-   {line.format(c='')}\n" for line in DUMP), CLIENT),
    "session": (
        SESSION + "**  << Request  >> 5\n" + "".join(f"--  {line.format(c='')}\n" for line in DUMP),
        {"src": "10.0.0.1", "sport": 80} | CLIENT,
    ),
    "raw": (
        "         5 Begin          c req 4 rxreq\n" + "".join(f"         5 {x.format(c='c ')}\n" for x in DUMP),
        CLIENT,
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_varnish_logs_tell_tcp_info_per_request(form):
    log, connection = FORMS[form]
    table = read(log)
    assert table.connections == [connection]
    assert table["time_ns"].tolist() == [T0 * 10**9 + 1_250_000_000]
    told = {name: table[name].tolist() for name in ("rtt", "rttvar", "snd_cwnd", "snd_mss", "lost", "retrans")}
    assert told == {
        "rtt": [152_000],
        "rttvar": [76_000],
        "snd_cwnd": [10],
        "snd_mss": [1448],
        "lost": [3],
        "retrans": [2],
    }
    assert table.warnings == []


def test_requests_of_two_clients_are_two_connections():
    one = FORMS["request"][0]
    table = read(one + one.replace("40000", "40001") + one)
    assert [known["dport"] for known in table.connections] == [40_000, 40_001]
    assert table.connection.tolist() == [0, 1, 0]


def test_a_varnish_log_without_figures_or_times_says_what_writes_them():
    log = FORMS["request"][0]
    with pytest.raises(FormatError, match=r"tcp\.dump_info\(\)"):
        read(log.replace("tcpi", "other"))
    with pytest.raises(FormatError, match="no Timestamp"):
        read("\n".join(line for line in log.splitlines() if "Timestamp" not in line))


def test_polls_that_name_only_the_client_go_to_its_flow_alone():
    flow = recording("single_bbr_1bdp")
    log = FORMS["request"][0].replace("10.0.0.2 40000", "{} {}")
    log = log.replace("1700000001.25", f"{flow.summary['start_ns'] // 10**9 + 3}.25")
    attached = flow.attach(read(log.format(flow.key[2], flow.key[3])))
    assert attached.tcpinfo["rtt"].tolist() == [152_000]
    with pytest.raises(ArgumentError, match="no polls of"):
        flow.attach(read(log.format(flow.key[2], flow.key[3] + 1)))
