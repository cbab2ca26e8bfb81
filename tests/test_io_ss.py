"""`ss` text: every age, every separator, every layout; zeros told from "this ss does not know"."""

import io
import itertools

import numpy as np
import pytest

from cctrace.errors import FormatError
from cctrace.io import read_file
from cctrace.io.counters.clock import leading_time
from cctrace.io.counters.ss import bytes_per_second
from cctrace.io.counters.structs import PHASES
from cctrace.io.counters.tcpinfo import MISSING

T = 1795190736468301357  # 2026-11-20 16:05:36.468301357 UTC
SOCKET = "ESTAB 0      78192  10.99.0.1:40001 10.99.0.2:5001 "
V6 = (
    "bbr wscale:11,7 rto:244 rtt:40.178/20.089 mss:1448 pmtu:1500 rcvmss:536 advmss:1448 cwnd:10 ssthresh:17 "
    "bytes_sent:14480 bytes_acked:1 segs_out:12 segs_in:1 data_segs_out:10 "
    "bbr:(bw:243.6Mbps,mrtt:0.254,pacing_gain:0.75,cwnd_gain:2) send 2.88Mbps lastsnd:32 lastrcv:32 lastack:32 "
    "pacing_rate 8.2Mbps/1Gbps delivery_rate 567kbps delivered:1 app_limited busy:32ms rwnd_limited:12ms(37.5%) "
    "unacked:10 retrans:2/358 rcv_space:14480 rcv_ssthresh:64088 notsent:63712 minrtt:40.178 snd_wnd:65160"
)
V41 = "cubic wscale:7,7 rto:204 rtt:0.5/0.25 mss:1448 cwnd:10 send 231.7Mbps rcv_space:29200"  # Linux 4.1


def read(text):
    return read_file(io.BytesIO(text.encode()), format="ss")


def values(info, *names):
    return {name: info[name].tolist() for name in names}


def test_every_word_takes_its_field_and_unit():
    info = read_file(io.BytesIO(f"# {T} {T + 9}\n{SOCKET} skmem:(r0,rb131072,t0) ts sack {V6}\n".encode()))
    assert info.connections == [
        {"src": "10.99.0.1", "sport": 40001, "dst": "10.99.0.2", "dport": 5001, "cc": "bbr"},
    ]
    got = {name: column[0] for name, column in (info.columns | info.extra).items()}
    expected = {
        "time_ns": T, "time_after_ns": T + 9, "state": 1, "send_q": 78192, "rto": 244_000, "rtt": 40_178,
        "rttvar": 20_089, "snd_mss": 1448, "snd_cwnd": 10, "snd_ssthresh": 17, "bytes_sent": 14480, "bytes_acked": 1,
        "bbr_bw_Bps": 30_450_000, "bbr_min_rtt_us": 254, "bbr_pacing_gain": 192, "bbr_cwnd_gain": 512,
        "pacing_rate_Bps": 1_025_000, "max_pacing_rate": 125_000_000, "delivery_rate_Bps": 70_875, "delivered": 1,
        "delivery_rate_app_limited": 1, "busy_time_us": 32_000, "rwnd_limited_us": 12_000, "unacked": 10, "retrans": 2,
        "total_retrans": 358, "notsent_bytes": 63712, "min_rtt": 40_178, "snd_wnd": 65160, "send_Bps": 360_000,
        "skmem_rb": 131072, "bbr_mode": "PROBE_BW", "snd_wscale": 11, "rcv_wscale": 7, "pmtu": 1500,
        # Left out, hence zero, or 3 for reordering: this ss is recent enough to have printed them.
        "lost": 0, "sacked": 0, "reordering": 3, "sndbuf_limited_us": 0, "dsack_dups": 0, "delivered_ce": 0,
    }  # fmt: skip
    assert {name: got.get(name) for name in expected} == expected


def test_what_an_old_ss_cannot_know_is_missing_not_zero():
    info = read(f"# {T}\n{SOCKET}{V41}\n")
    assert values(info, "unacked", "lost", "total_retrans") == {"unacked": [0], "lost": [0], "total_retrans": [0]}
    for name in ("bytes_acked", "notsent_bytes", "delivery_rate_Bps", "busy_time_us", "delivered", "min_rtt"):
        assert info[name].tolist() == [MISSING], name


@pytest.mark.parametrize(
    ("text", "rate"),
    [("8bps", 1), ("11074.0Mbps", 1_384_250_000), ("243.6Mbps", 30_450_000), ("1.05Gbps", 131_250_000),
     ("567kbps", 70_875), ("12.3Kbps", 1538), ("2Tbps", 250_000_000_000)],
)  # fmt: skip
def test_rates_of_both_ages(text, rate):
    assert bytes_per_second(text) == rate


TIMES = {
    "epoch ns": (f"{T}", 0),
    "epoch us": (f"{T // 1000}", T % 1000),
    "epoch ms": (f"{T // 10**6}", T % 10**6),
    "epoch s": (f"{T // 10**9}", T % 10**9),
    "epoch s with fraction": (f"{T // 10**9}.{T % 10**9:09d}", 0),
    "date -Ins": ("2026-11-20T16:05:36,468301357+00:00", 0),
    "ISO elsewhere": ("2026-11-20T18:05:36.468301357+02:00", 0),
    "ISO with blank": ("2026-11-20 16:05:36.468301", 357),
    "date": ("Fri Nov 20 16:05:36 UTC 2026", T % 10**9),
    "date, English": ("Fri Nov 20 04:05:36 PM UTC 2026", T % 10**9),
    "date, British": ("Fri 20 Nov 16:05:36 UTC 2026", T % 10**9),
    "date, newer": ("Fri 20 Nov 2026 04:05:36 PM UTC", T % 10**9),
    "date -R": ("Fri, 20 Nov 2026 16:05:36 +0000", T % 10**9),
}
LAYOUTS = {
    "separator": "{time}\n{socket}{info}\n",
    "hash separator": "# {time}\n{socket}{info}\n",
    "dashes": "--- {time} ---\n{socket}{info}\n",
    "brackets": "[{time}]\n{socket}{info}\n",
    "prefix": "{time} {socket}{info}\n",
    "prefix on two lines": "{time} {socket}\n{time} \t {info}\n",
    "two lines": "{time}\nState Recv-Q Send-Q Local Address:Port Peer Address:Port\n{socket}\n\t {info}\n",
    "with netid": "{time}\ntcp   {socket}{info}\n",
    "with process and timer": '{time}\n{socket} users:(("iperf3",pid=7,fd=5)) timer:(on,200ms,0) ino:3\n\t {info}\n',
    "carriage returns": "{time}\r\n{socket}\r\n\t {info}\r\n",
    "colours": "\x1b[H\x1b[2J{time}\n\x1b[1m{socket}\x1b[0m{info}\n",
}


@pytest.mark.parametrize(("layout", "time"), list(itertools.product(LAYOUTS, TIMES)))
def test_every_separator_style(layout, time):
    text, lost_ns = TIMES[time]
    sample = LAYOUTS[layout].format(time=text, socket=SOCKET, info=V6)
    info = read(sample * 2)
    assert info["time_ns"].tolist() == [T - lost_ns] * 2
    assert values(info, "rtt", "snd_cwnd", "send_q") == {
        "rtt": [40178] * 2,
        "snd_cwnd": [10] * 2,
        "send_q": [78192] * 2,
    }


def test_watch_headers_and_prefixes_of_ts_carry_the_time():
    watch = f"Every 0.1s: ss -tin              host: Fri Nov 20 16:05:36 2026\n\n{SOCKET}\n\t {V6}\n"
    assert read(watch)["time_ns"].tolist() == [T - T % 10**9]
    info = read(f"Nov 20 16:05:36 {SOCKET}\nNov 20 16:05:36 \t {V6}\n")
    assert info["time_ns"].tolist() == [leading_time("1970-11-20T16:05:36Z")[0]]
    assert any("have no year" in w for w in info.warnings)


def test_a_state_filter_leaves_the_state_out():
    info = read(f"# {T}\n0 78192 10.99.0.1:40001 10.99.0.2:5001\n\t {V6}\n")
    assert values(info, "state", "send_q") == {"state": [MISSING], "send_q": [78192]}


def test_several_sockets_and_ipv6_are_told_apart():
    lines = [
        f"ESTAB 0 0 [fd99::1]:1 [fd99::2]:2 {V6}",
        f"FIN-WAIT-1 0 1 [::ffff:10.0.0.1]:3 [::ffff:10.0.0.2]:4 {V41}",
        "LISTEN 0 128 *:22 *:*",
        f"ESTAB 0 0 10.0.0.1%eth0:5 10.0.0.2:https {V41}",
    ]
    info = read("\n".join([f"# {T}", *lines, f"# {T + 1}", *reversed(lines)]))
    ends = [(c["src"], c["sport"], c["dst"], c["dport"]) for c in info.connections]
    assert ends == [("fd99::1", 1, "fd99::2", 2), ("10.0.0.1", 3, "10.0.0.2", 4), ("10.0.0.1", 5, "10.0.0.2", "https")]
    assert info.connection.tolist() == [0, 1, 2, 2, 1, 0]
    assert info["state"].tolist() == [1, 4, 1, 1, 4, 1]
    assert any("2 sockets without TCP information" in w for w in info.warnings)


def test_bbr_before_data_has_no_gains():
    info = read(f"# {T}\n{SOCKET} bbr wscale:1,1 rto:200 cwnd:10 bbr:(bw:8bps,mrtt:0)\n")
    assert values(info, "bbr_bw_Bps", "bbr_min_rtt_us") == {"bbr_bw_Bps": [1], "bbr_min_rtt_us": [0]}
    assert info["bbr_pacing_gain"].tolist() == [MISSING]


def test_the_patched_ss_of_bbr3_tells_more():
    bbr = "bbr:(bw:8Mbps,mrtt:1,pacing_gain:1.25,cwnd_gain:2.25,version:3,bw_hi:8Mbps,inflight_hi:99,mode:2,"
    bbr += "phase:PROBE_BW_UP)"
    info = read(f"# {T}\n{SOCKET} bbr3 cwnd:10 {bbr}\n")
    names = ("bbr_version", "bbr_bw_hi_Bps", "bbr_inflight_hi", "bbr_phase", "bbr_mode")
    assert values(info, *names) == {
        "bbr_version": [3], "bbr_bw_hi_Bps": [1_000_000], "bbr_inflight_hi": [99],
        "bbr_phase": [PHASES.index("PROBE_BW_UP")], "bbr_mode": ["PROBE_BW"],
    }  # fmt: skip


def test_the_mode_of_bbr_follows_from_its_gains():
    gains = [("2.88672", "2.88672"), ("0.34375", "2.88672"), ("1.25", "2"), ("1", "2"), ("1", "1"), ("3", "7")]
    lines = [
        f"# {T + i}\n{SOCKET} bbr cwnd:10 bbr:(bw:8Mbps,mrtt:1,pacing_gain:{p},cwnd_gain:{c})"
        for i, (p, c) in enumerate(gains)
    ]
    modes = ["STARTUP", "DRAIN", "PROBE_BW", "PROBE_BW", "PROBE_RTT", None]
    assert read("\n".join(lines)).extra["bbr_mode"].tolist() == modes


def test_no_times_and_no_information_are_told():
    info = read(SOCKET + V6)
    assert info["time_ns"].tolist() == [MISSING]
    assert any("no time stamps" in w for w in info.warnings)
    with pytest.raises(FormatError, match="1 sockets, none with TCP information"):
        read(f"# {T}\n{SOCKET}\n")


def test_words_of_an_unknown_shape_are_kept_as_text():
    info = read(f"# {T}\n{SOCKET}{V41} novelty:3 oddity:x/y\n")
    assert info.extra["novelty"].tolist() == [3]
    assert info.extra["text_oddity"].tolist() == ["x/y"]


def test_epoch_nanoseconds_stay_exact():
    assert np.int64(leading_time(f"# {T} rest")[0]) == T


def test_what_identifies_a_socket_is_kept():
    info = read(f"# {T}\n{SOCKET} timer:(on,036ms,0) uid:1000 ino:30 sk:1f cgroup:/user <-> {V41}\n")
    assert {name: info.extra[name].tolist() for name in ("uid", "ino", "sk", "cgroup")} == {
        "uid": [1000], "ino": [30], "sk": ["1f"], "cgroup": ["/user"],
    }  # fmt: skip
