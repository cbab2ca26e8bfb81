"""TCP's rules against numbers worked out by hand from the kernel's text, and the same in all ways of running them."""

from cctrace.analytic import domain
from cctrace.cc.bbr2016 import BBR2016
from cctrace.cc.linux import CA_OPEN, CA_RECOVERY, stack_pacing_rate
from cctrace.lang.machine import Machine
from cctrace.tcp import wire
from cctrace.tcp.pacing import bbr_min_tso_segs, near_peer_bytes, next_departure, tso_autosize
from cctrace.tcp.probe import probe_timeout_us
from cctrace.tcp.prr import prr_cwnd
from cctrace.tcp.rack import rack_is_original, rack_reo_wnd_us, rack_update_reo_wnd
from cctrace.tcp.rate import app_limited_after, app_limited_until, rate_interval_us
from cctrace.tcp.rtt import rtt_estimator, timeout_us
from cctrace.tcp.undo import (
    FRTO_REAL,
    FRTO_RETRANSMIT,
    FRTO_SEND_NEW,
    FRTO_SPURIOUS,
    FRTO_WAIT,
    frto_finding,
    original_arrived,
    was_needless,
)
from cctrace.tcp.window import cwnd_after_idle, note_usage, ssthresh_before

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


def test_the_first_rtt_counts_fully_and_later_ones_by_an_eighth():
    state = rtt_estimator(0, 0, 0, 0, 40_000, True)
    assert state == (320_000, 80_000, 200_000, 200_000)
    assert rtt_estimator(*state, 48_000, False) == (328_000, 80_000 - 20_000 + 8_000, 200_000, 200_000)


def test_a_falling_rtt_raises_the_deviation_by_an_eighth_of_what_a_rising_one_does():
    assert rtt_estimator(800_000, 4_000, 200_000, 200_000, 141_000, False)[1] == 4_000 + 41_000 - 1_000
    assert rtt_estimator(800_000, 4_000, 200_000, 200_000, 59_000, False)[1] == 4_000 + (41_000 - 1_000) // 8


def test_rttvar_rises_at_once_and_falls_by_a_quarter_each_round_trip():
    assert rtt_estimator(800_000, 400_000, 300_000, 300_000, 300_000, False)[2:] == (500_000, 500_000)
    assert rtt_estimator(800_000, 0, 200_000, 600_000, 100_000, True)[2:] == (200_000, 500_000)
    assert rtt_estimator(800_000, 0, 200_000, 600_000, 100_000, False)[2:] == (200_000, 600_000)


def test_the_timeout_is_a_whole_number_of_ticks_and_two_minutes_at_most():
    assert timeout_us(320_000, 200_000, 4_000) == 240_000
    assert timeout_us(320_008, 200_000, 4_000) == 244_000
    assert timeout_us(1 << 40, 200_000, 4_000) == 120_000_000


def test_the_tail_is_probed_after_two_rtts_or_at_the_timeout():
    assert probe_timeout_us(8 * 40_000, 2, 240_000) == 82_000
    assert probe_timeout_us(8 * 40_000, 1, 400_000) == 280_000  # the ACK of a single segment may be delayed
    assert probe_timeout_us(8 * 40_000, 2, 50_000) == 50_000
    assert probe_timeout_us(8 * 40_000, 2, 0) == 82_000  # the timeout is over
    assert probe_timeout_us(0, 1, 0) == 1_000_000  # no RTT yet


def test_the_reordering_window_opens_once_reordering_was_seen():
    srtt8 = 8 * 40_000
    assert rack_reo_wnd_us(0, CA_OPEN, 3, 3, 40_000, 1, srtt8) == 0
    assert rack_reo_wnd_us(0, CA_RECOVERY, 1, 3, 40_000, 1, srtt8) == 0
    assert rack_reo_wnd_us(0, CA_OPEN, 2, 3, 40_000, 1, srtt8) == 10_000
    assert rack_reo_wnd_us(1, CA_RECOVERY, 3, 3, 40_000, 3, srtt8) == 30_000
    assert rack_reo_wnd_us(1, CA_RECOVERY, 3, 3, 40_000, 9, srtt8) == 40_000  # srtt at most


def test_the_reordering_window_widens_once_a_round_trip_and_narrows_after_sixteen_recoveries():
    assert rack_update_reo_wnd(1, 100, 150, 1, 0, 100) == (2, 16, 150)
    assert rack_update_reo_wnd(1, 100, 150, 255, 16, 100) == (255, 16, 150)
    assert rack_update_reo_wnd(1, 99, 150, 2, 3, 100) == (2, 3, 100)  # sent before the window was widened
    assert rack_update_reo_wnd(0, 100, 150, 5, 1, 100) == (5, 1, 100)
    assert rack_update_reo_wnd(0, 100, 150, 5, 0, 100) == (1, 0, 100)


def test_what_arrives_sooner_than_any_rtt_is_the_original():
    assert rack_is_original(39_999, 40_000, True)
    assert not rack_is_original(40_000, 40_000, True)
    assert not rack_is_original(39_999, 40_000, False)


def test_a_reduction_was_needless_if_all_retransmissions_or_none_answered_it():
    assert was_needless(True, 0, False)
    assert not was_needless(True, 1, False)
    assert was_needless(True, 1, True)
    assert not was_needless(False, 0, True)
    assert original_arrived(0, False, True)
    assert not original_arrived(0, True, False)
    assert not original_arrived(7, False, True)
    assert original_arrived(7, True, False)


def test_f_rto_needs_new_data_to_judge_a_timeout():
    """original acked, new data sent since, SACKed or duplicate, left edge moved, all recovered, new data to send."""
    assert frto_finding(True, True, True, True, False, True) == FRTO_SPURIOUS
    assert frto_finding(False, True, True, False, False, True) == FRTO_REAL
    assert frto_finding(False, True, False, True, False, True) == FRTO_WAIT
    assert frto_finding(False, False, False, True, False, True) == FRTO_SEND_NEW
    assert frto_finding(False, False, False, True, False, False) == FRTO_RETRANSMIT
    assert frto_finding(False, False, False, True, True, True) == FRTO_WAIT  # nothing is left to examine
    assert frto_finding(False, False, True, False, False, True) == FRTO_WAIT


def test_a_sample_takes_the_longer_interval_and_none_shorter_than_an_rtt():
    assert rate_interval_us(30_000, 50_000, 40_000) == 50_000
    assert rate_interval_us(50_000, 30_000, 40_000) == 50_000
    assert rate_interval_us(30_000, 39_999, 40_000) == -1


def test_the_applications_mark_lasts_until_what_was_in_flight_is_delivered():
    mark = app_limited_until(90, 10)
    assert mark == 100
    assert app_limited_after(mark, 100) == 100
    assert app_limited_after(mark, 101) == 0
    assert app_limited_until(0, 0) == 1  # 0 would mean that there is none


def test_a_reduction_remembers_three_quarters_of_cwnd_at_least():
    assert ssthresh_before(CA_OPEN, 50, 100) == 75
    assert ssthresh_before(CA_OPEN, 90, 100) == 90
    assert ssthresh_before(CA_RECOVERY, 50, 100) == 50


def test_the_stack_paces_two_windows_an_rtt_in_slow_start_and_then_1_2():
    assert stack_pacing_rate(1000, 10, 100, 10, 8 * 100_000) == 2 * 10 * 1000 * 10
    assert stack_pacing_rate(1000, 50, 100, 60, 8 * 100_000) == 12 * 60 * 1000


def test_what_was_out_at_most_is_remembered_while_the_window_does_not_limit():
    assert note_usage(True, False, True, 5, 10)
    assert note_usage(False, True, True, 5, 10)
    assert note_usage(False, False, False, 11, 10)
    assert not note_usage(False, False, False, 10, 10)
    assert not note_usage(False, False, True, 11, 10)


def test_a_pause_halves_the_window_for_every_timeout():
    assert cwnd_after_idle(100, 200, 200, 10) == 100
    assert cwnd_after_idle(100, 201, 200, 10) == 50
    assert cwnd_after_idle(100, 10_000, 200, 10) == 10
    assert cwnd_after_idle(7, 10_000, 200, 10) == 7


def test_the_reconstruction_compiles_the_same_rule():
    for arguments in [(4 * MS, 5 * MS, 14_480, 1_448_000, 100), (8 * MS, 5 * MS, 99, 1_000, 10), (0, 0, 1, 1, 9)]:
        assert Machine(next_departure)(*arguments) == next_departure(*arguments)
    for arguments in [(0, 0, 0, 0, 40_000, True), (800_000, 4_000, 200_000, 300_000, 59_000, True)]:
        assert Machine(rtt_estimator)(*arguments) == rtt_estimator(*arguments)


def test_models_and_captures_have_packets_of_the_same_size():
    assert (domain.MSS_BYTES, domain.PACKET_BYTES) == (wire.MSS_BYTES, wire.PACKET_BYTES)
    assert BBR2016.pacing_overhead_bytes == wire.HEADER_BYTES
