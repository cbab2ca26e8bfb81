"""Kernel and web-server logs beside captures: Varnish's log, FreeBSD's BBLog, tcpretrans and tcplife."""

import functools
import struct
import time

import pytest
from wire import block, ipv4, option, read, tcp

from cctrace import datasets
from cctrace.errors import ArgumentError, FormatError
from cctrace.flows.capture import read as read_flows
from cctrace.io.counters.tcpinfo import MISSING
from cctrace.io.write import convert

T0 = 1_700_000_000


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
    log = log.replace("1700000001.25", f"{flow.row['start_ns'] // 10**9 + 3}.25")
    attached = flow.attach(read(log.format(flow.key[2], flow.key[3])))
    assert attached.tcpinfo["rtt"].tolist() == [152_000]
    with pytest.raises(ArgumentError, match="no polls of"):
        flow.attach(read(log.format(flow.key[2], flow.key[3] + 1)))


# --- BBLog -----------------------------------------------------------------------------------------------------------
BOOT, ISS = T0 - 1000, 0xFFFFF000


def custom(kind, value, order="<"):
    return option(2989, struct.pack(order + "I", 10949) + struct.pack("<I", kind) + value, order == ">")


def log_buffer(us, event, una, stack=None, cwnd=14_480):
    """One `struct tcp_log_buffer` up to its packet, little-endian as `tcplog_dumper` writes it."""
    fields = struct.pack("<qqIIBBHi6I", us // 10**6, us % 10**6, 1, 7, 3, event, 0x10 if stack else 0, 0, *[0] * 6)
    sequence = ((ISS + n) & 0xFFFFFFFF for n in (una, una + 2896))
    fields += struct.pack("<iIII", 4, 0, ISS, 0x1E4) + struct.pack("<2I", *sequence)
    fields += struct.pack("<7I", cwnd, 0, 0, 65_535, (1 << 30) - 1, 1296, 80) + bytes(160 - 108)
    return (fields + (stack or bytes(104)) + struct.pack("<I", 1448))[:268]


def bblog(events, big=False, family=2):
    order = ">" if big else "<"
    ends = [
        (bytes(12) + bytes([10, 0, 0, n])) if family == 2 else (0xFD << 120 | n).to_bytes(16, "big") for n in (2, 1)
    ]
    info = struct.pack("<IIQ", 9, 1, 0) + struct.pack("!HH", 40_000, 443) + b"".join(ends) + bytes(4)
    info += struct.pack("<qq", BOOT, 0) + bytes(64 + 32 + 32) + bytes([family]) + bytes(7)
    told = custom(1, struct.pack("<I", 9), order) + custom(4, info, order) + custom(6, b"\x03bbr", order)
    out = block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1) + told + bytes(4), big)
    out += block(1, struct.pack(order + "HHI", 0, 0, 104), big)  # of link type NULL
    for packet, record in events:
        if packet is None:
            body = struct.pack(order + "I", 10949) + struct.pack("<I", 1) + custom(2, record)
            out += block(0x0BAD, body + bytes(4), big)
        else:
            us = BOOT * 10**6 + int.from_bytes(record[:8], "little") * 10**6 + int.from_bytes(record[8:16], "little")
            frame = struct.pack(order + "I", 2) + packet
            head = struct.pack(order + "5I", 0, us >> 32, us & 0xFFFFFFFF, len(frame), len(frame))
            out += block(6, head + frame + custom(2, record, order) + bytes(4), big)
    return out


DATA = ipv4(tcp(443, 40_000, seq=ISS + 1, ack=1, payload=bytes(40)))
BBR_STATE = struct.pack("<4Q14I3H6BI", 10**6, 2 * 10**6, 40_000, 0, *range(14), 739, 512, 0, 1, 2, 0, 0, 0, 0, 5)
EVENTS = [
    (DATA, log_buffer(1_000_250, 2, 1)),
    (None, log_buffer(1_040_000, 22, 4097, BBR_STATE)),
    (None, log_buffer(1_041_000, 17, 4097, cwnd=28_960)),
]


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("family", [2, 28])
def test_bblog_tells_what_freebsd_knew_at_every_event(big, family):
    table = read(bblog(EVENTS, big, family), format="bblog")
    own, peer = ("10.0.0.1", "10.0.0.2") if family == 2 else ("fd00::1", "fd00::2")
    assert table.connections == [{"src": own, "sport": 443, "dst": peer, "dport": 40_000, "stack": "bbr"}]
    assert table["time_ns"].tolist() == [(BOOT + 1) * 10**9 + us * 1000 for us in (250, 40_000, 41_000)]
    assert table["bytes_acked"].tolist() == [1, 4097, 4097]  # the sequence numbers wrap in between
    assert table["snd_cwnd_bytes"].tolist() == [14_480, 14_480, 28_960]
    assert table["event"].tolist() == [2, 22, 17]
    assert table["state"].tolist() == [1, 1, 1]
    told = [table[name][1] for name in ("delRate", "rttProp", "pacing_gain", "cwnd_gain", "bbr_state", "pkt_epoch")]
    assert told == [2 * 10**6, 40_000, 739, 512, 1, 5]
    assert (table["rtt"] == MISSING).all()  # the unit of t_srtt is the stack's
    assert table["tlb_srtt"].tolist() == [1296] * 3


def test_a_bblog_is_a_capture_that_tells_how_to_read_the_rest():
    packets = read(bblog(EVENTS))
    assert packets["payload"].tolist() == [40]
    assert any("format='bblog'" in text for text in packets.warnings)
    with pytest.raises(FormatError, match="format='bblog'"):
        read(bblog(EVENTS[1:]))


def test_a_bblog_that_is_cut_yields_what_precedes_and_other_captures_are_refused():
    whole = bblog(EVENTS)
    table = read(whole[:-100], format="bblog")
    assert len(table) == 2
    assert any("is cut" in text for text in table.warnings)
    with pytest.raises(FormatError, match="no BBLog"):
        read(bblog([]), format="bblog")


def test_a_bblog_goes_beside_a_flow_by_its_progress():
    polls = read_flows(datasets.path("single_bbr_1bdp", "tcpinfo.csv.zst")).select(0)
    flow, late_us = recording("single_bbr_1bdp"), 3_600_000_000
    rows = zip(polls["time_ns"][::10].tolist(), polls["bytes_acked"][::10].tolist(), strict=True)
    events = [(None, log_buffer(ns // 1000 - BOOT * 10**6 + late_us, 17, acked)) for ns, acked in rows if acked > 0]
    table = read(bblog(events), format="bblog")
    table.connections[0] |= dict(zip(("src", "sport", "dst", "dport"), flow.key, strict=True))
    alignment = flow.attach(table).alignment
    assert alignment.agreement > 0.9
    assert abs(alignment.offset_ns + late_us * 1000) < 5_000_000


def test_events_that_the_log_skipped_are_told():
    skipped = block(0x0BAD, struct.pack("<4I", 10949, 2, 41, 0))
    table = read(bblog(EVENTS) + skipped, format="bblog")
    assert any("41 events were lost" in text for text in table.warnings)


# --- tcpretrans and tcplife ------------------------------------------------------------------------------------------
def retrans(ends, times_ns, zone_s=0, bpftrace=False, late_s=0, kind="R", state="ESTABLISHED"):
    src, sport, dst, dport = ends
    header = "TIME     PID    IP LADDR:LPORT          T> RADDR:RPORT          STATE"
    if bpftrace:
        header = "TIME     PID               LADDR:LPORT           RADDR:RPORT  STATE"
    lines = ["Tracing retransmits ... Hit Ctrl-C to end", header]
    for ns in times_ns:
        clock = time.strftime("%H:%M:%S", time.gmtime(ns // 10**9 + zone_s + late_s))
        one, two = f"{src}:{sport}", f"{dst}:{dport}"
        if bpftrace:
            lines.append(f"{clock} {0:<8} {one:>20} {two:>21} {state:>6}")
        else:
            lines.append(f"{clock} {0:<6} {4:<2} {one:<20} {kind}> {two:<20} {state}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("bpftrace", [False, True])
@pytest.mark.parametrize(("zone_s", "late_s"), [(0, 0), (-5 * 3600, 1), (20_700, 0)])
def test_retransmissions_that_the_kernel_told_lie_beside_the_captures(bpftrace, zone_s, late_s):
    flow = recording("loss_cubic_1pct")
    times = flow.retransmissions["time_ns"].to_numpy()
    told = read(retrans(flow.key, times[:-3].tolist(), zone_s, bpftrace, late_s))
    found = told.compare(flow)
    assert (found.figures["kernel"], found.figures["captured"]) == (len(times) - 3, len(times))
    assert found.figures["agree"] == len(times) - 3
    assert found.figures["zone_s"] == zone_s
    assert int(found.table["kernel"].sum()) == len(times) - 3
    assert f"{len(times) - 3} of {len(times) - 3}" in found.text


def test_events_that_no_capture_shows_do_not_agree():
    flow = recording("loss_cubic_1pct")
    seconds = flow.retransmissions["time_ns"].to_numpy() // 10**9
    quiet = next(s for s in range(seconds[0] + 1, seconds[0] + 7200) if not {s, s - 1} & set(seconds.tolist()))
    times = [*flow.retransmissions["time_ns"].tolist(), quiet * 10**9]
    probes = retrans(flow.key, times[:2], kind="L") + retrans(flow.key, times[:1], state="SYN_SENT")
    figures = read(retrans(flow.key, times) + probes).compare(flow).figures
    assert figures["agree"] == figures["kernel"] - 1 == len(seconds)
    assert (figures["probes"], figures["handshake"]) == (2, 1)


def test_retransmissions_of_the_other_direction_are_not_the_flows():
    flow = recording("loss_cubic_1pct")
    with pytest.raises(ArgumentError, match="no line about"):
        read(retrans((*flow.key[2:], *flow.key[:2]), [T0 * 10**9])).compare(flow)


LIFE = {
    "plain": ("PID   COMM       LADDR           LPORT RADDR           RPORT TX_KB RX_KB MS\n",
              "22597 my app     {} {} {} {} {:>5} {:>5} {}\n"),
    "-t": ("TIME(s)   PID   COMM       LADDR           LPORT RADDR           RPORT TX_KB RX_KB MS\n",
           "0.000000  22597 x          {} {} {} {} {:>5} {:>5} {}\n"),
    "-T": ("TIME     PID   COMM       LADDR           LPORT RADDR           RPORT TX_KB RX_KB MS\n",
           "14:32:01 22597 x          {} {} {} {} {:>5} {:>5} {}\n"),
    "-w": ("PID   COMM             IP LADDR                    LPORT RADDR                    RPORT TX_KB RX_KB MS\n",
           "22597 x                4  {} {} {} {} {:>6} {:>6} {}\n"),
    "-sT": ("TIME,PID,COMM,IP,LADDR,LPORT,RADDR,RPORT,TX_KB,RX_KB,MS\n", "14:32:01,22597,x,4,{},{},{},{},{},{},{}\n"),
}  # fmt: skip


@pytest.mark.parametrize("form", LIFE)
@pytest.mark.parametrize("at_receiver", [False, True])
def test_tcplife_tells_bytes_and_duration_beside_the_flows(form, at_receiver):
    flow = recording("loss_cubic_1pct")
    kib = (flow.row["bytes_sent"] + 1) // 1024
    header, line = LIFE[form]
    ends = (*flow.key[2:], *flow.key[:2]) if at_receiver else flow.key
    tx, rx = (0, kib) if at_receiver else (kib, 0)
    other = line.format("10.9.9.9", 1, "10.9.9.8", 2, 5, 6, "7.25")
    table = read(header + other + line.format(*ends, tx, rx, "20500.50"))
    assert (len(table), table["duration_ms"].tolist(), table["rx_kib"].tolist()) == (2, [7.25, 20500.5], [6, rx])
    found = table.compare(flow)
    assert found.figures["agree"]
    assert found.figures["duration_ms"] == {"kernel": 20500.5, "captured": flow.row["duration_s"] * 1000}
    assert not read(header + line.format(*ends, tx and tx + 1, rx and rx + 1, "1")).compare(flow).figures["agree"]


def test_output_of_the_tools_without_events_or_with_garbled_ones_says_so():
    text = retrans(("10.0.0.1", 1, "10.0.0.2", 2), [T0 * 10**9])
    with pytest.raises(FormatError, match="no events in this output of tcpretrans"):
        read("\n".join(text.splitlines()[:2]) + "\n")
    table = read(text + "14:32:01 0 4 10.0.\n")
    assert len(table) == 1
    assert any("1 lines are truncated" in warning for warning in table.warnings)


def test_events_are_written_as_csv(tmp_path):
    path = tmp_path / "tcpretrans.txt"
    path.write_text(retrans(("10.0.0.1", 1, "10.0.0.2", 2), [T0 * 10**9]))
    assert convert(path, tmp_path / "x.csv")["rows"] == 1
    assert (tmp_path / "x.csv").read_text().splitlines()[0] == "src,sport,dst,dport,second_of_day,kind,state"
    with pytest.raises(ArgumentError, match="written as csv"):
        convert(path, tmp_path / "x.parquet")
