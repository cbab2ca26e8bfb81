"""Two threads that decode the halves of a file find what one thread finds, wherever the second one begins."""

import gc
import random
import struct
import warnings
import weakref

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from wire import enhanced, ethernet, interface, ipv4, pcap, section, simple, tcp, tcp_options

from cctrace.errors import Truncated
from cctrace.io import read_file
from cctrace.io.captures import frames, halves

T0 = 1_795_190_736_401_848_537
FALSE_RECORDS = b"".join(struct.pack("<IIII", T0 // 10**9, 5, 60, 60) + b"\x45" + bytes(59) for _ in range(9))


def endpoints(which):
    a, b = ("10.0.0.1", 40000 + which), ("10.0.0.2", 443)
    return (*a, *b), (*b, *a)


class Traffic:
    """Segments of connections that come and go; with everything that a decoder must remember from packet to packet."""

    def __init__(self, seed, connections, odd):
        self.rng, self.odd, self.connections = random.Random(seed), odd, connections
        self.seq, self.now, self.kept = {}, T0, []

    def frame(self):
        """Return a packet, and whether the capture holds it."""
        rng = self.rng
        which = rng.randrange(self.connections) if rng.random() < 0.7 else 0
        way = rng.random() < 0.4
        numbers = self.seq.setdefault(which, [rng.randrange(2**32), rng.randrange(2**32)])
        odd = rng.random() < self.odd
        what = rng.choice(
            ["syn", "again", "old", "fin", "copy", "lost", "ack", "late", "bare", "fragment", "sack", "idle"]
        )
        what = what if odd else "data"
        if what == "fragment" and rng.random() < 0.97:
            what = "data"
        if what == "copy" and self.kept:
            return rng.choice(self.kept[-6:]), True
        if what == "syn":
            numbers[way] = rng.randrange(2**32)
        size = 0 if what in ("syn", "again") else rng.choice((0, 1, 1448, 700))
        start = numbers[way] - (rng.choice((700, 1, 5000)) if what == "old" else 0)
        ack = numbers[1 - way] + (rng.choice((900, 10**6)) if what == "ack" else 0)
        flags = 2 if what in ("syn", "again") and rng.random() < 0.7 else 18 if what in ("syn", "again") else 16
        options = tcp_options(
            mss=1460 if flags & 2 else None, sack_ok=bool(flags & 2) and rng.random() < 0.5,
            timestamps=None if what == "bare" else (start >> 4 & 0xFFFFFFF, ack >> 5 & 0xFFFFFFF),
            sacks=[(ack + 1, ack + 9)] if what == "sack" else (),
        )  # fmt: skip
        options = tcp_options(timestamps=(1, 2), sacks=[(7, 9)]) if what == "sack" else options
        payload = rng.choice((FALSE_RECORDS, rng.randbytes(1448), bytes(1448)))[:size]
        head = tcp(*endpoints(which)[way][1::2], start % 2**32, ack % 2**32, flags | (what == "fin"), 500, options)
        if what != "old":
            numbers[way] = (numbers[way] + size + (flags >> 1 & 1) + (what == "fin")) % 2**32
        src, _, dst, _ = endpoints(which)[way]
        ident = rng.choice((0, 7, rng.randrange(65536)))
        packet = ipv4(head + payload, src, dst, ident=ident, fragment=0x2000 if what == "fragment" else 0x4000)
        if what == "idle":
            self.now += rng.choice((10**9, 300 * 10**9))
        return (packet, len(packet)), what != "lost"

    def records(self, count):
        found = []
        for _ in range(count):
            frame, is_captured = self.frame()
            if is_captured:
                self.kept.append(frame)
                found.append((self.now, ethernet(frame[0]), frame[1] + 14))
            self.now += self.rng.choice((10_000, 10_000, 300, -20_000 if self.rng.random() < 0.1 else 5))
        return found


def capture(seed, connections=4, odd=0.1, count=1500, in_blocks=False):
    records = Traffic(seed, connections, odd).records(count)
    if not in_blocks:
        return pcap(records, 1)
    timeless = -1 if odd == 0 else seed % len(records)
    blocks = [simple(frame) if at == timeless else enhanced(now, frame) for at, (now, frame, _) in enumerate(records)]
    nanoseconds = struct.pack("<HHBxxx", 9, 1, 9)
    return section() + interface(1, options=nanoseconds) + b"".join(blocks)


@pytest.fixture(scope="module")
def small():
    """Let files of 500 KB be read by two threads; return a list that gets an entry for each that was."""
    appended, append = [], halves.Half._append

    def noting(half, same):
        appended.append(half)
        append(half, same)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(halves.Half, "_append", noting)
        patch.setattr(halves, "MIN_BYTES", 0)
        patch.setattr(halves, "SEARCHED", 1 << 14)
        patch.setattr(halves, "RUN_UP", 100)
        patch.setattr(halves, "cores", lambda: 2)
        patch.setattr(frames, "_FIRST_ROWS", 260)
        yield appended


def read(path, patched=True):
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", Truncated)
        if not patched:
            patch.setattr(halves, "cores", lambda: 1)
        found = read_file(path)
    return found, [str(one.message) for one in told]


def compare(path):
    """Assert that two threads read what one reads; return that."""
    (found, told), (wanted, told_of_one) = read(path), read(path, patched=False)
    assert len(found) == len(wanted)
    for name in wanted.columns:
        assert np.array_equal(found[name], wanted[name]), name
    for table, other in ((found.sacks, wanted.sacks), (found.connections, wanted.connections)):
        assert all(np.array_equal(table[name], other[name]) for name in other)
    assert found.counters == wanted.counters
    assert (found.warnings, told) == (wanted.warnings, told_of_one)
    return wanted


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("halves") / "in.pcap"


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    connections=st.sampled_from([1, 2, 5, 40, 400]),
    odd=st.sampled_from([0.0, 0.01, 0.1, 0.5]),
    run_up=st.sampled_from([1, 20, 100, 300]),
    in_blocks=st.booleans(),
)
def test_two_threads_find_what_one_finds(small, file, seed, connections, odd, run_up, in_blocks):
    file.write_bytes(capture(seed, connections, odd, in_blocks=in_blocks))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(halves, "RUN_UP", run_up)
        compare(file)


@settings(max_examples=60, deadline=None)
@given(guess=st.integers(0, 4000), odd=st.sampled_from([0.0, 0.2]), in_blocks=st.booleans())
@example(guess=0, odd=0.0, in_blocks=False)
def test_a_wrong_guess_of_where_a_record_begins_changes_nothing(small, file, guess, odd, in_blocks):
    file.write_bytes(capture(7, odd=odd, in_blocks=in_blocks))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(halves, "record_in", lambda data, rules: guess)
        compare(file)


@pytest.mark.parametrize("in_blocks", [False, True])
@pytest.mark.parametrize("connections", [1, 3])
def test_the_second_thread_decodes_half_of_a_usual_file(small, file, connections, in_blocks):
    small.clear()
    file.write_bytes(capture(3, connections, odd=0.0, in_blocks=in_blocks))
    wanted = compare(file)
    (half,) = small
    assert 0.3 * len(wanted) < half._n_rows < 0.6 * len(wanted)


@pytest.mark.parametrize("guess", [None, 3])
def test_the_columns_do_not_outlive_their_packets(small, file, guess):
    """A cycle of references through a half, dropped or appended, had kept 100 MB of a million packets."""
    file.write_bytes(capture(3, odd=0.0))
    halved, init = [], halves.Half.__init__

    def noting(half, *args):
        halved.append(weakref.ref(half))
        init(half, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(halves.Half, "__init__", noting)
        if guess is not None:
            patch.setattr(halves, "record_in", lambda data, rules: guess)
        gc.disable()
        try:
            read(file)
            small.clear()
            assert [half() for half in halved] == [None]
        finally:
            gc.enable()


def test_a_capture_full_of_sacks_is_halved_once_its_rows_are_estimated(small, file):
    small.clear()
    ack = ipv4(tcp(443, 40000, 5, 99, 16, options=tcp_options(sacks=[(k, k + 1) for k in range(3)])), ident=0)
    file.write_bytes(pcap([(T0 + at, ethernet(ack + bytes(200))) for at in range(3000)], 1))
    assert len(compare(file).sacks["left"]) == 9000
    assert len(small) == 1


@pytest.mark.parametrize("cut", [1, 17, 60_000, 299_999])
def test_a_file_that_is_cut_gives_the_same_rows_and_warning(small, file, cut):
    data = capture(5, odd=0.02)
    file.write_bytes(data[:-cut])
    compare(file)


@pytest.mark.parametrize("part", [0.3, 0.55, 0.9])
def test_damage_in_either_half_gives_the_same_rows_and_warning(small, file, part):
    data = bytearray(capture(6, odd=0.0))
    at, last = 24, int(part * len(data))
    while at < last:
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
    data[at + 8 : at + 12] = b"\xff" * 4
    file.write_bytes(data)
    wanted = compare(file)
    assert any(f"record at offset {at} claims" in text for text in wanted.warnings)


def idle(middle):
    """Return a capture of a bulk connection, and of one that is idle while the bulk of it is sent."""
    records, seq = [], 1
    for at in range(1500):
        packet = ipv4(tcp(40000, 443, seq, 1, 16, options=tcp_options(timestamps=(at, 1)), payload=bytes(700)))
        records.append((T0 + at * 10**7, ethernet(packet)))
        seq += 700
    opened = [ipv4(tcp(5000, 22, 9, 0, 2, options=tcp_options(mss=1000)), ident=1)]
    opened += [ipv4(tcp(22, 5000, 99, 10, 18, options=tcp_options(mss=900)), "10.0.0.2", "10.0.0.1", ident=2)]
    records[20:20] = [(records[20][0], ethernet(packet)) for packet in opened]
    records[1300:1300] = [(records[1300][0], ethernet(packet)) for packet in middle]
    return pcap(records, 1)


def test_what_is_compiled_ahead_is_what_such_files_need(small, file):
    halves.prepare()
    file.write_bytes(idle([ipv4(tcp(22, 5000, 100, 10, 16, payload=b"later"), **ANSWER, ident=5)]))
    compare(file)
    assert len(halves.track_again._entries) == len(frames.find_all._entries) == 1


ANSWER = {"src": "10.0.0.2", "dst": "10.0.0.1"}


@pytest.mark.parametrize(
    ("middle", "is_halved"),
    [
        ([ipv4(tcp(22, 5000, 100, 10, 16, payload=b"later"), **ANSWER, ident=5)], True),  # from the other end first
        ([ipv4(tcp(22, 5000, 200, 90, 16, payload=b"lost"), **ANSWER, ident=5)], True),  # an ACK of uncaptured data
        ([ipv4(tcp(22, 5000, 99, 10, 18, options=tcp_options(mss=900)), **ANSWER, ident=2)], False),  # a SYN again
        ([ipv4(tcp(5000, 22, 77, 0, 2, options=tcp_options(mss=500)), ident=1)], True),  # another connection
        ([ipv4(tcp(5000, 22, 9, 0, 2, options=tcp_options(mss=500)), ident=1)], False),  # the same one's SYN
        ([ipv4(tcp(5000, 22, 10, 100, 17), ident=6), ipv4(tcp(5000, 22, 77, 0, 2), ident=7)], False),
    ],
)
def test_a_connection_that_was_idle_goes_on(small, file, middle, is_halved):
    small.clear()
    file.write_bytes(idle(middle))
    wanted = compare(file)
    assert len(small) == is_halved
    assert len(wanted.connections["sport"]) == 2 + (middle[-1][20:22] == (5000).to_bytes(2) and middle[-1][27] == 77)


def test_rows_that_the_second_thread_has_no_room_for_are_decoded_by_the_first(small, file):
    small.clear()
    rng = random.Random(1)
    sizes = [1200] * 1000 + [40] * 9000  # denser than its beginning promises
    records = [
        (T0 + at, ethernet(ipv4(tcp(seq=at, payload=rng.randbytes(size)), ident=at % 65536)))
        for at, size in enumerate(sizes)
    ]
    file.write_bytes(pcap(records, 1))
    compare(file)
    file.write_bytes(pcap(records[:300] + records[2000:] + records[300:2000], 1))
    compare(file)


def test_a_guess_is_a_record_and_not_what_looks_like_one():
    data = capture(9, odd=0.0, count=400)
    starts, at = set(), 24
    while at < len(data):
        starts.add(at)
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
    rules = np.array([0, 0, 16, 0, 1 << 24])
    b = np.frombuffer(data, np.uint8)
    found = [halves.record_in(b[at : at + 60_000], rules) + at for at in range(0, len(data) - 60_000, 997)]
    assert sum(at in starts for at in found) > 0.7 * len(found)  # a few begin among the false records of a packet
    assert halves.record_in(np.zeros(60_000, np.uint8), rules) is None
