"""A TCP event stream is sampled as the QUIC stack would: milliseconds, bytes, its own calls at its own moments."""

import numpy as np
import pytest

from cctrace import schema
from cctrace.flows.capture import read
from cctrace.flows.events import Events
from cctrace.flows.views import quic_view
from cctrace.replaying.run import replay
from tests.places import REPOSITORY

DATASETS = REPOSITORY / "datasets"
MSS = 1000
NOTHING = {c.name: c.missing for c in schema.EVENTS if c.missing is not None}


def stream(*calls, handshake_rtt_us=-1):
    """Build an event stream: each call is (event, now_us, columns), counters keep their last value."""
    rows = np.zeros(len(calls), [(c.name, c.dtype) for c in schema.EVENTS])
    kept = {"delivered": 1, "mss": MSS, "srtt_us8": 8 * 40_000, "mdev_us4": 4 * 5_000}
    for row, (event, now_us, columns) in zip(rows, calls, strict=True):
        kept |= {name: columns[name] for name in ("delivered", "lost", "srtt_us8") if name in columns}
        for name, value in (NOTHING | kept | columns).items():
            row[name] = value
        row["event"] = schema.LINUX_EVENTS[event]
        row["time_ns"] = now_us * 1000
    return Events(rows, {"mss": MSS, "hz": 250, "start_ns": 1_000_000_000, "handshake_rtt_us": handshake_rtt_us})


def sample(delivered, acked=1, rtt_us=40_300, interval_us=None, **columns):
    """Columns of an on_ack that completes a sample."""
    return {
        "delivered": delivered,
        "rs_delivered": acked,
        "rs_prior_delivered": delivered - acked,
        "rs_acked_sacked": acked,
        "rs_rtt_us": rtt_us,
        "rs_interval_us": rtt_us if interval_us is None else interval_us,
    } | columns


def calls_of(view):
    names = {code: name for name, code in schema.QUIC_EVENTS.items()}
    return [names[code] for code in view.event.tolist()]


def test_clocks_are_cut_to_milliseconds_before_they_are_subtracted():
    view = quic_view(stream(("init", 1_000_000, {}), ("on_ack", 1_040_200, sample(2))))
    assert calls_of(view) == ["init", "on_ack"]
    columns = {name: values[1] for name, values in view.columns.items()}
    assert (columns["now_ms"], columns["smp_po_sent_time"]) == (1040, 999)
    assert columns["smp_rtt_ms"] == columns["smp_interval_ms"] == columns["smp_min_rtt_ms"] == 41
    assert columns["cg_start_time"] == 1000


def test_sizes_are_bytes_and_the_syn_is_not_data():
    ack = sample(11, acked=10, packets_out=7, sacked_out=2, lost_out=2, retrans_out=1, rs_prior_in_flight=14, lost=3)
    ack |= {"rs_tx_in_flight": 12, "rs_prior_delivered": 1, "rs_losses": 2, "rs_lost": 3, "rs_prior_lost": 0}
    view = quic_view(stream(("init", 1_000_000, {}), ("on_ack", 1_041_000, ack)))
    expected = {
        "smp_prior_delivered": 0,
        "smp_delivered": 10,
        "smp_acked": 10,
        "smp_in_flight": 4,
        "smp_prior_inflight": 14,
        "smp_total_acked": 10,
        "smp_loss": 2,
        "smp_total_loss": 3,
        "smp_tx_in_flight": 12,
        "smp_lost_pkts": 3,
        "cg_delivered": 10,
        "cg_po_sent": 11,  # of the 12 in flight one is the sampled segment itself
    }
    assert {name: view.columns[name][1] for name in expected} == {n: v * MSS for n, v in expected.items()}


def test_init_shows_an_empty_sampler_and_draws_are_unknown():
    view = quic_view(stream(("init", 1_040_000, {}), handshake_rtt_us=40_000))
    assert view.columns["smp_srtt_ms"][0] == view.columns["smp_rtt_ms"][0] == 0
    assert {"rand0", "rand3"} <= view.unknown


def test_only_samples_as_long_as_the_minimum_rtt_reach_the_controller():
    view = quic_view(
        stream(
            ("init", 1_000_000, {}),
            ("on_ack", 1_040_000, sample(2, rtt_us=40_000)),
            ("on_ack", 1_041_000, sample(3, rtt_us=41_000, interval_us=38_000)),
            ("on_ack", 1_042_000, {"delivered": 3}),  # no sample
            ("on_ack", 1_043_000, sample(4, rtt_us=-1, interval_us=43_000)),
        )
    )
    assert view.columns["now_ms"].tolist() == [1000, 1040, 1043]
    assert view.columns["smp_rtt_ms"][2] == 41  # the latest known
    assert view.columns["smp_po_sent_time"][2] == 1041  # when 3 had been delivered


def test_the_handshakes_rtt_is_the_first_minimum():
    view = quic_view(
        stream(("init", 1_039_000, {}), ("on_ack", 1_080_000, sample(2, rtt_us=41_000)), handshake_rtt_us=39_000)
    )
    assert view.columns["smp_min_rtt_ms"][1] == 39


def test_a_lost_segment_counts_as_sent_when_what_had_been_delivered_by_then_was_reached():
    view = quic_view(
        stream(
            ("init", 1_000_000, {}),
            ("on_ack", 1_040_000, sample(2)),
            ("on_ack", 1_045_900, sample(5)),
            ("skb_marked_lost", 1_090_000, {"skb_tx_delivered": 4, "lost": 1, "skb_segments": 1}),
            ("on_ack", 1_090_000, sample(6)),
        )
    )
    assert calls_of(view) == ["init", "on_ack", "on_ack", "on_lost", "on_ack"]
    assert view.columns["arg"].tolist() == [0, 0, 0, 1045, 0]
    assert view.columns["loss_timer"].tolist() == [0, 0, 0, 1090, 1090]


@pytest.mark.parametrize(("limited", "calls"), [(1, ["init", "on_ack", "restart_from_idle"]), (0, ["init", "on_ack"])])
def test_a_send_into_an_empty_pipe_is_a_restart_after_an_app_limited_sample(limited, calls):
    view = quic_view(
        stream(
            ("init", 1_000_000, {}),
            ("cwnd_event", 1_000_001, {"arg": 0}),  # the first send: nothing was sampled yet
            ("on_ack", 1_040_000, sample(5, rs_is_app_limited=limited)),
            ("cwnd_event", 1_900_000, {"arg": 0}),
        )
    )
    assert calls_of(view) == calls
    if limited:
        assert view.columns["arg"][2] == 4 * MSS


def losses(span_us, ack_rtt_us=1_000, by_timer=False):
    """A flow that loses two segments sent `span_us` apart, revealed by one ACK (or a timer)."""
    detected = 1_050_000 + span_us + 100_000
    rows = [
        ("init", 1_000_000, {}),
        ("on_ack", 1_050_000, sample(2)),
        ("on_ack", 1_050_000 + span_us, sample(3)),
        ("skb_marked_lost", detected, {"skb_tx_delivered": 2, "lost": 1, "skb_segments": 1}),
        ("skb_marked_lost", detected, {"skb_tx_delivered": 3, "lost": 2, "skb_segments": 1}),
        ("on_ack", detected + by_timer, sample(4, rtt_us=ack_rtt_us, interval_us=200_000)),
    ]
    return calls_of(quic_view(stream(*rows)))


def test_losses_that_span_three_probe_timeouts_are_persistent_congestion():
    duration_us = 3 * (40 + 4 * 5 + 25) * 1000
    assert losses(duration_us + 1000)[3:] == ["on_lost", "on_lost", "reset_cwnd", "on_ack"]
    assert losses(duration_us)[3:] == ["on_lost", "on_lost", "on_ack"]


def test_an_acknowledged_packet_between_the_losses_or_a_timer_shows_no_persistent_congestion():
    assert "reset_cwnd" not in losses(400_000, ack_rtt_us=300_000)
    assert "reset_cwnd" not in losses(400_000, by_timer=True)


# ---------------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def recording():
    return read(DATASETS / "single_bbr_1bdp" / "sender.pcap.zst").bulk()[0].events


def test_a_recordings_bytes_are_all_there(recording):
    view = quic_view(recording)
    on_ack = view.event == schema.QUIC_EVENTS["on_ack"]
    assert view.columns["smp_acked"][on_ack].sum() == view.columns["cg_delivered"][-1]
    lost = np.count_nonzero(view.event == schema.QUIC_EVENTS["on_lost"])
    assert lost * recording.meta["mss"] == view.columns["smp_total_loss"][-1] > 0
    assert (np.diff(view.columns["now_ms"]) >= 0).all()
    assert (view.columns["smp_po_sent_time"] <= view.columns["now_ms"]).all()
    assert (np.diff(view.columns["smp_po_sent_time"][on_ack]) < 0).mean() < 0.01  # estimated where no RTT tells


@pytest.mark.parametrize("variant", ["quic_bbr", "obbr", "b3r", "bbr_s", "quic_bbr2"])
def test_every_quic_bbr_finds_the_bottlenecks_rate_in_a_recording_of_linux_bbr(recording, variant):
    run = replay(quic_view(recording), variant, record=["bw"]).decisions
    found = np.median(run["bw"].to_numpy()[len(run) // 4 :])
    payload_rate = 40e6 / 8 * 1448 / 1500  # 40 Mbit/s of IP packets
    # A millisecond cut off an interval of 40 is 2.5 %, and BBR takes the largest of a window of samples.
    assert 0.97 * payload_rate < found < 1.05 * payload_rate


@pytest.mark.parametrize("variant", ["quic_cubic", "quic_reno"])
def test_the_loss_based_react_to_each_round_of_losses_in_a_recording(recording, variant):
    view = quic_view(recording)
    run = replay(view, variant, record=["cwnd"]).decisions
    losses = np.flatnonzero(view.event == schema.QUIC_EVENTS["on_lost"])
    drops = np.flatnonzero(np.diff(run["cwnd"].to_numpy()) < 0) + 1
    assert len(drops) > 0
    assert set(drops) <= set(losses)
