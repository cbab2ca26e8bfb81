"""Captures whose clock, lengths or packets make no sense: every command says what is wrong, or goes without it."""

import json
import os

import numpy as np
import pytest

import cctrace as cct
from cctrace import cli, datasets
from cctrace.corpus.inputs import listed
from cctrace.errors import StreamError
from cctrace.estimates import Estimate
from cctrace.fit.draws import draws
from cctrace.io.captures.pcap import FILE_HEADER
from cctrace.io.source import open_source
from cctrace.replaying.intervals import firsts_of_intervals

DAY_NS = 86_400 * 10**9
PACKETS = 600


@pytest.fixture(scope="module")
def recorded():
    """The first packets of a recording: [time_ns, frame, original length]."""
    with open_source(datasets.path("loss_cubic_1pct", "sender.pcap.zst")) as source:
        data = source.rest()
    head, records, at = data[:FILE_HEADER], [], FILE_HEADER
    unit_ns = 1 if head[:4] == b"\x4d\x3c\xb2\xa1" else 1000
    while len(records) < PACKETS:
        seconds, rest, size, length = np.frombuffer(data, "<u4", 4, at).tolist()
        records.append([seconds * 10**9 + rest * unit_ns, data[at + 16 : at + 16 + size], length])
        at += 16 + size
    return head[:4] + head[4:], unit_ns, records


@pytest.fixture
def written(recorded, tmp_path):
    """Return a function that writes the recording as `change(records)` has it."""

    def write(change):
        head, unit_ns, records = recorded
        file = tmp_path / "damaged.pcap"
        with open(file, "wb") as out:
            out.write(head)
            for time_ns, frame, length in change([list(record) for record in records]):
                fields = (time_ns // 10**9, time_ns % 10**9 // unit_ns, len(frame), length)
                out.write(np.array(fields, "<u4").tobytes() + frame)
        return file

    return write


def clock_set(records):
    """The host's clock is set in the middle, by ten years."""
    return [[t + 3650 * DAY_NS * (i > PACKETS // 2), *rest] for i, (t, *rest) in enumerate(records)]


def one_stamp(records):
    """All packets bear one time stamp."""
    return [[records[0][0], *rest] for _, *rest in records]


def doubled(records):
    """A mirror port shows every packet twice, and the handshake is missing."""
    return [record for record in records[3:] for _ in range(2)]


def lengths_garbled(records):
    """Every tenth IP header says that its length is unknown, and the record's is two gigabytes."""
    for record in records[5::10]:
        at = len(record[1]) - len(record[1].partition(b"\x45\x00")[2]) - 2
        record[1], record[2] = record[1][: at + 2] + b"\0\0" + record[1][at + 4 :], 1 << 31
    return records


def no_answer(records):
    """The data begin where the acknowledgements end."""
    acks = [record for record in records if record[2] < 100]
    data = [record for record in records if record[2] >= 100]
    return acks + [[t + DAY_NS // 1000, *rest] for t, *rest in data]


def single(records):
    """One packet."""
    return records[:1]


# Packets that span ten years, and a single SYN, have nothing to reconstruct; all else ends in a result.
REFUSED = {(change, command) for change in (clock_set, single) for command in ("analyze", "identify")}


@pytest.mark.parametrize("change", [clock_set, one_stamp, doubled, lengths_garbled, no_answer, single])
def test_every_command_ends_in_a_result_or_in_one_line(written, change, tmp_path, capsys):
    file = str(written(change))
    for command in (["flows"], ["analyze", "-o", tmp_path / "out"], ["identify"], ["whatif", "--cc", "bbr"]):
        status = cli.main([command[0], file, *map(str, command[1:])])
        out, err = capsys.readouterr()
        assert "internal error" not in err
        assert "Warning" not in err
        assert ".py:" not in err
        assert status == (2 if (change, command[0]) in REFUSED else 0)
        assert len(err.splitlines()[-1]) > 20 if status else out


def test_a_clock_that_was_set_is_told_and_where_to_cut(written):
    flow = cct.read(written(clock_set)).flow(0)
    with pytest.raises(StreamError, match=r"span 3,650 days, and 30 are the most; .*clock was set"):
        flow.events  # noqa: B018


def test_a_packet_longer_than_any_is_skipped_and_counted(written):
    capture = cct.read(written(lengths_garbled))
    assert capture.packets.columns["payload"].max() < 1 << 20
    assert any("contradictory headers" in warning for warning in capture.warnings)


def test_a_question_about_a_capture_without_bulk_flows_is_answered_with_a_reason(written, capsys):
    assert cli.main(["whatif", str(written(lambda records: records[:20])), "--cc", "bbr", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert "RTTs are known; at least 100 are needed" in answer["refused"]


@pytest.mark.parametrize("kind", [int, float])
def test_first_rows_of_intervals_are_those_of_a_search_for_every_edge(kind):
    rng = np.random.default_rng(3)
    for _ in range(300):
        times = np.cumsum(rng.integers(0, rng.choice([3, 50, 10_000]), rng.integers(1, 200))) + 10**15
        times, step = (
            (times / 1e3, float(rng.uniform(0.1, 100))) if kind is float else (times, int(rng.integers(1, 300)))
        )
        slow = np.searchsorted(times, np.arange(times[0], times[-1], step))
        assert firsts_of_intervals(times, step).tolist() == np.unique(np.append(0, slow)).tolist()


def test_what_has_only_an_upper_bound_stays_that_in_every_draw():
    estimates = {"base_rtt_us": Estimate(None, None, 5e4), "loss": {"share": Estimate(0.01, 0.0, 0.02)}}
    several = list(draws(estimates, 3, seed=1))
    assert len(several) == 3
    for drawn in several:
        assert drawn["base_rtt_us"] == Estimate(None, None, 5e4)
        assert 0 <= drawn["loss"]["share"].value <= 0.02


def test_a_folder_is_listed_without_what_may_never_end(written, tmp_path):
    written(single)
    os.mkfifo(tmp_path / "pipe.pcap")
    (tmp_path / "dangling.pcap").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder.pcap").mkdir()
    for given in (str(tmp_path), f"{tmp_path}/*.pcap"):
        assert [os.path.basename(entry.capture) for entry in listed(given)] == ["damaged.pcap", "dangling.pcap"]
