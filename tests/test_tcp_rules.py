"""TCP's rules against numbers worked out by hand from the kernel's text, and the same in all ways of running them."""

from cctrace.flows import rules
from cctrace.tcp.pacing import bbr_min_tso_segs, near_peer_bytes, next_departure, tso_autosize
from cctrace.tcp.prr import prr_cwnd

MS = 1_000_000


def test_a_packet_puts_the_next_one_off_by_its_length_at_the_pacing_rate():
    assert next_departure(5 * MS, 5 * MS, 14_480, 1_448_000, 100) == 15 * MS


def test_a_late_packet_gets_back_the_time_it_lost_up_to_half_its_length():
    assert next_departure(4 * MS, 5 * MS, 14_480, 1_448_000, 100) == 14 * MS
    assert next_departure(0, 50 * MS, 14_480, 1_448_000, 100) == 55 * MS


def test_a_packet_that_waits_in_the_queue_counts_from_its_departure():
    assert next_departure(8 * MS, 5 * MS, 14_480, 1_448_000, 100) == 18 * MS


def test_the_first_nine_segments_and_those_without_a_rate_are_not_paced():
    assert next_departure(0, 5 * MS, 14_480, 1_448_000, 9) == 5 * MS
    assert next_departure(0, 5 * MS, 14_480, 1_448_000, 10) == 10 * MS
    assert next_departure(0, 5 * MS, 14_480, -1, 100) == 5 * MS


def test_a_burst_is_what_leaves_in_a_1024th_of_a_second():
    assert tso_autosize(10_000_000, 0, 1448, 2) == 6  # 9765 bytes
    assert tso_autosize(1_000_000, 0, 1448, 2) == 2
    assert tso_autosize(1 << 40, 0, 1448, 2) == 45  # what the device takes: 65,215 bytes


def test_bursts_to_near_peers_are_longer_by_a_share_that_halves_every_512_us():
    assert near_peer_bytes(65_215, 511) == 65_215
    assert near_peer_bytes(65_215, 1024) == 16_303
    assert near_peer_bytes(65_215, 0xFFFFFFFF) == 0  # no RTT known
    assert tso_autosize(0, near_peer_bytes(65_215, 1024), 1448, 2) == 11


def test_bbr_sends_single_segments_below_1200_kbit_a_second():
    assert bbr_min_tso_segs(149_999) == 1
    assert bbr_min_tso_segs(150_000) == 2


def test_a_reduction_lets_out_in_proportion_while_more_is_in_flight_than_ssthresh():
    # 70 of 100: after 10 delivered, ceil(7.0) may go; 4 went.
    assert prr_cwnd(70, 90, 100, 10, 4, 1, False, True) == 90 + 3
    assert prr_cwnd(70, 90, 100, 10, 9, 1, False, True) == 90


def test_below_ssthresh_what_was_not_sent_may_follow_and_one_more_on_a_clean_ack():
    assert prr_cwnd(70, 50, 100, 40, 34, 2, False, True) == 56
    assert prr_cwnd(70, 50, 100, 40, 34, 2, True, True) == 57
    assert prr_cwnd(70, 69, 100, 40, 34, 2, True, True) == 70  # never above ssthresh
    assert prr_cwnd(70, 50, 100, 40, 34, 2, False, False) == 52  # older kernels


def test_the_fast_retransmission_always_goes():
    assert prr_cwnd(50, 50, 100, 1, 0, 1, False, True) == 51
    assert prr_cwnd(50, 50, 100, 1, 1, 1, False, True) == 50


def test_the_reconstruction_compiles_the_same_rule():
    for arguments in [(4 * MS, 5 * MS, 14_480, 1_448_000, 100), (8 * MS, 5 * MS, 99, 1_000, 10), (0, 0, 1, 1, 9)]:
        assert rules.next_departure(*arguments) == next_departure(*arguments)
