"""The log of an endpoint: window, flight and pacing rate as it noted them, against what RFC 9002 and BBR ask for."""

import json

import pytest

import cctrace as cct
from cctrace import conform
from cctrace.errors import ArgumentError
from tests.test_conform import violated as violations

DATAGRAM, RTT_MS = 1200, 40.0


def written(
    tmp_path, *, rounds=12, growth=1.0, after_loss=0.5, beyond=0, paced=True, least=4, sizes=True, recovery=1, grows=0
):
    """Return the log of a sender that sends a window a round and loses a datagram in the seventh."""
    events, number, window = [(0.0, "recovery:congestion_state_updated", {"new": "slow_start"})], 0, 10
    for k in range(rounds):
        start, end = k * RTT_MS, (k + 1) * RTT_MS
        sent, lost = window + beyond, k == 6
        for i in range(sent):
            at = start + (RTT_MS / 1.25 / sent * i if paced else 0.001 * i)
            packet = {"header": {"packet_type": "1RTT", "packet_number": number}}
            events.append((at, "transport:packet_sent", packet | ({"raw": {"length": DATAGRAM}} if sizes else {})))
            metrics = {"congestion_window": window * DATAGRAM, "bytes_in_flight": (i + 1) * DATAGRAM,
                       "smoothed_rtt": RTT_MS, "pacing_rate": 1.25 * window * DATAGRAM * 8e3 / RTT_MS}  # fmt: skip
            events.append((at, "recovery:metrics_updated", metrics))
            number += 1
        acked = [[number - sent + (1 if lost else 0), number - 1]]
        frames = [{"frame_type": "ack", "acked_ranges": acked}]
        header = {"packet_type": "1RTT", "packet_number": k}
        events.append((end - 0.3, "transport:packet_received", {"header": header, "frames": frames}))
        if lost:
            header = {"packet_type": "1RTT", "packet_number": number - sent}
            events.append((end - 0.3, "recovery:packet_lost", {"header": header}))
            window = max(int(window * after_loss), least)
            if recovery:
                events.append(
                    (end - 0.2, "recovery:congestion_state_updated", {"old": "slow_start", "new": "recovery"})
                )
        elif k == 7 and recovery:
            window += grows
        elif k < 6:
            window = min(int(window * (1 + growth)), 80)
        events.append((end - 0.2, "recovery:metrics_updated", {"congestion_window": window * DATAGRAM,
                                                               "bytes_in_flight": 0}))  # fmt: skip
        if k == 7 and recovery:
            events.append((end - 0.1, "recovery:congestion_state_updated", {"new": "congestion_avoidance"}))
    return saved(tmp_path, events)


BBR = (  # state, ms in it, pacing rate (Mbit/s), window (datagrams)
    ("Startup", 300, 27.7, 40), ("Drain", 60, 5.0, 40), ("ProbeBW_DOWN", 200, 9.0, 40),
    ("ProbeBW_CRUISE", 2000, 10, 40), ("ProbeBW_REFILL", 40, 10, 40), ("ProbeBW_UP", 120, 12.5, 45),
    ("ProbeBW_DOWN", 200, 9.0, 40), ("ProbeRTT", 240, 10, 20), ("ProbeBW_CRUISE", 500, 10, 40),
)  # fmt: skip


def of_bbr(tmp_path, spell=str, **changed):
    """Return the log of a sender with BBR's states, some of them changed: {state: (next name, ms, rate, window)}."""
    events, now = [(0.0, "transport:packet_sent", {"header": {"packet_type": "1RTT", "packet_number": 0}})], 0.0
    for at, stay in enumerate(BBR):
        name, lasts, rate, window = changed.get(f"at{at}", stay)
        metrics = {"congestion_window": window * DATAGRAM, "pacing_rate": rate * 1e6}
        events += [(now, "recovery:congestion_state_updated", {"new": spell(name)}),
                   (now, "recovery:metrics_updated", metrics)]  # fmt: skip
        now += lasts
    return saved(tmp_path, events)


def saved(tmp_path, events):
    file = tmp_path / "flow.qlog"
    rows = [{"time": time, "name": name, "data": data} for time, name, data in events]
    trace = {"vantage_point": {"type": "server"}, "common_fields": {"time_format": "relative", "reference_time": 0}}
    file.write_text(json.dumps({"qlog_version": "0.3", "traces": [trace | {"events": rows}]}))
    return file


def violated(file, spec):
    return violations(conform.run(cct.read(file).flow(0), spec))


def test_a_sender_that_keeps_to_the_rules_conforms_in_every_row(tmp_path):
    found = conform.run(cct.read(written(tmp_path)).flow(0), "quic")
    assert {verdict.id: verdict.text() for verdict in found.verdicts if verdict.verdict != "conforms"} == {}
    assert violated(written(tmp_path), "bbr") == set()


@pytest.mark.parametrize(
    ("fault", "spec", "caught"),
    [
        ({"growth": 2.0}, "quic", {"log.growth"}),
        ({"after_loss": 1.0}, "quic", {"log.reduction"}),
        ({"beyond": 5}, "quic", {"log.flight"}),
        ({"recovery": 0}, "quic", {"log.recovery"}),
        ({"grows": 1}, "quic", {"log.held"}),
        ({"paced": False}, "quic", {"log.pacing"}),
        ({"paced": False}, "bbr", {"log.pacing"}),
        ({"after_loss": 0.0, "least": 1}, "quic", {"log.least"}),
        ({"after_loss": 0.0, "least": 2}, "bbr", {"log.floor"}),
    ],
)
def test_a_fault_is_found_in_the_row_that_it_breaks(tmp_path, fault, spec, caught):
    assert violated(written(tmp_path, **fault), spec) == caught


@pytest.mark.parametrize(
    "spell",
    [str, str.lower, lambda name: "BBR_" + name.upper(), lambda name: name.replace("ProbeBW", "probe_bw")],
)
def test_the_states_of_a_log_are_understood_however_it_spells_them(tmp_path, spell):
    found = conform.run(cct.read(of_bbr(tmp_path, spell)).flow(0), "bbr")
    rows = {verdict.id: (verdict.verdict, verdict.exercised) for verdict in found.verdicts}
    assert rows["log.states"] == ("conforms", 8)
    for id in ("log.drain", "log.probe_rtt", "log.dip"):
        assert rows[id] == ("conforms", 1)


@pytest.mark.parametrize(
    ("fault", "caught"),
    [
        ({"at2": ("ProbeBW_UP", 200, 9.0, 40)}, {"log.states"}),
        ({"at1": ("Drain", 60, 30.0, 40)}, {"log.drain"}),
        ({"at7": ("ProbeRTT", 100, 10, 20)}, {"log.probe_rtt"}),
        ({"at7": ("ProbeRTT", 240, 10, 40)}, {"log.dip"}),
    ],
)
def test_a_fault_of_bbrs_states_is_found(tmp_path, fault, caught):
    assert violated(of_bbr(tmp_path, **fault), "bbr") == caught


def test_states_of_other_names_are_not_examined(tmp_path):
    found = conform.run(cct.read(of_bbr(tmp_path, lambda name: "x" + name)).flow(0), "bbr")
    rows = {verdict.id: verdict.text() for verdict in found.verdicts}
    assert rows["log.states"] == rows["log.dip"] == "not exercised: the record does not show it"


def test_without_sizes_nothing_is_said_of_what_was_sent(tmp_path):
    found = conform.run(cct.read(written(tmp_path, sizes=False, paced=False)).flow(0), "quic")
    rows = {verdict.id: verdict.text() for verdict in found.verdicts}
    assert rows["log.pacing"] == rows["log.growth"] == "not exercised: the record does not show it"


def test_a_specification_of_packets_is_not_asked_of_a_log(tmp_path):
    with pytest.raises(ArgumentError, match="spec='rack' asks nothing of a log"):
        conform.run(cct.read(written(tmp_path)).flow(0), "rack")


def test_a_log_without_windows_is_refused(tmp_path):
    file = written(tmp_path)
    file.write_text(file.read_text().replace("congestion_window", "window"))
    with pytest.raises(ArgumentError, match="no congestion window"):
        conform.run(cct.read(file).flow(0), "quic")
