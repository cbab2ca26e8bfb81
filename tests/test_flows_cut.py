"""What a small snaplen cut: completed where the rest shows it, and said plainly where not."""

import struct

import numpy as np
import pytest
import zstandard

import cctrace as cct
from cctrace.tcp.flags import RST
from tests.places import RECORDINGS
from tests.wire import pcap

WHOLE = cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")  # raw IP: options begin after 40 bytes
ONE_BLOCK, NO_BLOCK = 66, 50  # as 80 and 64 bytes on Ethernet


def cut_capture(file, snaplen):
    """Return a recording's bytes as a smaller snaplen would have left them."""
    data, records, at = zstandard.ZstdDecompressor().decompressobj().decompress(file.read_bytes()), [], 24
    while at < len(data):
        seconds, ns, held, length = struct.unpack_from("<IIII", data, at)
        records.append((seconds * 10**9 + ns, data[at + 16 : at + 16 + min(held, snaplen)], length))
        at += 16 + held
    return pcap(records, struct.unpack_from("<I", data, 20)[0])


@pytest.fixture(scope="module")
def cut_to(tmp_path_factory):
    """Return a function that writes the recording as one with a smaller snaplen would be, and returns the path."""
    folder = tmp_path_factory.mktemp("cut")

    def write(snaplen):
        file = folder / f"{snaplen}.pcap"
        file.write_bytes(cut_capture(WHOLE, snaplen))
        return str(file)

    return write


def blocks(packets, row):
    first = int(packets["sack_row"][row])
    rows = range(first, first + int(packets["sack_count"][row]))
    return {(int(packets.sacks["left"][k]), int(packets.sacks["right"][k])) for k in rows}


def test_cut_sack_blocks_are_completed_as_they_were(cut_to):
    whole, cut = cct.read(WHOLE), cct.read(cut_to(ONE_BLOCK))
    had = whole.packets["sack_count"]
    lacked = np.flatnonzero(cut.packets["sack_count"] < had)
    assert len(lacked) == 13
    assert (cut.packets["sack_count"][lacked] == 1).all()  # the block that was captured whole
    flow = cut.flow(0)
    completed = [row for row in lacked if cut.packets["sack_count"][row] > 1]
    assert len(completed) >= 0.95 * len(lacked)  # some of the others report duplicates
    assert all(blocks(cut.packets, row) == blocks(whole.packets, row) for row in completed)
    assert flow.retransmissions.equals(whole.flow(0).retransmissions)
    assert flow.quality()["options_cut"]["of_sack_blocks"] == had.sum()
    assert flow.quality()["options_cut"]["time_stamps"] == 0


def test_sack_blocks_are_completed_in_packed_columns_too(cut_to):
    plain, packed = cct.read(cut_to(ONE_BLOCK)), cct.read(cut_to(ONE_BLOCK))
    packed.pack(read=True)
    plain.flow(0), packed.flow(0)
    assert packed.packets.is_packed
    for name in ("sack_row", "sack_count", "options"):
        np.testing.assert_array_equal(packed.packets[name], plain.packets[name])


def test_a_reset_which_has_no_options_hides_no_sack_blocks(cut_to):
    capture, had = cct.read(cut_to(ONE_BLOCK)), cct.read(WHOLE).packets["sack_count"]
    last = len(had) - 1
    headers = {"flags": RST, "payload": 0, "ip_len": 40}
    columns = {name: capture.packets[name].copy() for name in headers}
    for name, value in headers.items():
        columns[name][last] = value
    capture.packets.replace(columns)
    flow = capture.flow(0)
    assert flow.quality()["options_cut"]["of_sack_blocks"] == had[:last].sum()


def test_a_capture_without_cuts_says_nothing_of_them():
    quality = cct.read(WHOLE).flow(0).quality()
    assert quality["options_cut"] == {"time_stamps": 0, "sack_blocks": 0, "of_sack_blocks": 0}
    assert quality["warnings"] == []


def test_what_suffers_without_any_sacks_is_said_everywhere(cut_to):
    flow = cct.read(cut_to(NO_BLOCK)).flow(0)
    cut = flow.quality()["options_cut"]
    assert cut["sack_blocks"] == cut["of_sack_blocks"] == cct.read(WHOLE).packets["sack_count"].sum()
    assert cut["time_stamps"] > 9000
    whole = cct.diagnose(cct.read(WHOLE).flow(0))
    found, sender, run = cct.diagnose(flow), cct.identify(flow), cct.replay(flow, "cubic6")
    for said in (found.verdict, sender.reason, *run.warnings):
        assert "tcpdump -s 128" in said
    assert run.warnings
    sure = [{one.name: one.confidence for one in verdicts.verdicts}["random_loss"] for verdicts in (found, whole)]
    assert sure[0] < 0.7 < 0.9 < sure[1]


@pytest.mark.parametrize("command", [["analyze", "--no-effects"], ["identify"], ["replay", "--cc", "cubic6"]])
def test_commands_say_what_to_do_about_a_small_snaplen(command, cut_to, tmp_path, run):
    where = ["-o", str(tmp_path / "report")] if command[0] == "analyze" else []
    _, out, err = run(command[0], cut_to(NO_BLOCK), *command[1:], *where)
    assert "tcpdump -s 128" in " ".join((out + err).split())


def test_random_losses_stay_random_without_sack_blocks(cut_to):
    flow = cct.read(cut_to(NO_BLOCK)).flow(0)
    assert cct.diagnose(flow).causes == cct.diagnose(cct.read(WHOLE).flow(0)).causes == ["random_loss"]


def test_that_a_syn_offered_time_stamps_is_known_from_the_data_where_its_options_were_cut(tmp_path):
    """Super-packets do not show the segment size: a MSS of 1460 made each of them end with a short segment."""
    whole, cut = RECORDINGS / "lab_policed_tso" / "sender.pcap.zst", tmp_path / "cut.pcap"
    cut.write_bytes(cut_capture(whole, 66))  # of a SYN's options on Ethernet: all before the time stamps
    flow, had = cct.read(cut).flow(0), cct.read(whole).flow(0)
    assert flow.facts["mss"] == had.facts["mss"] == 1448
    assert flow.row["segments_sent"] == had.row["segments_sent"]
