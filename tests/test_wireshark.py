"""Annotated captures: the same packets, and comments that say what the analysis found."""

import gzip
import hashlib
import struct
from types import SimpleNamespace

import numpy as np
import pytest
from test_io_pcap import LINKS, T0, conversation
from wire import block, enhanced, interface, option, pcap, section

import cctrace as cct
from cctrace import datasets
from cctrace.errors import ArgumentError
from cctrace.flows.state import EVENT, SENT
from cctrace.io import frames_of
from cctrace.io.captures.annotated import LONGEST, Comment, write_annotated
from cctrace.io.captures.frames import Decoder
from cctrace.io.source import open_source
from cctrace.schema import LINUX_EVENTS
from cctrace.wireshark.annotate import annotate
from cctrace.wireshark.columns import columns_of, known_of_stream
from cctrace.wireshark.companion import NAMES, SUFFIX
from cctrace.wireshark.install import PLUGIN, install

LOSSES = datasets.path("loss_cubic_1pct", "sender.pcap.zst")
PROBES = datasets.path("jitter_bbr_sd2ms", "sender.pcap.zst")


def packets(path):
    """Return (time, link type, bytes, length on the wire) of every record of a capture."""
    found = []
    with open_source(path) as source:
        for data, frames, count in frames_of(source, None, Decoder("")):
            for i in range(count):
                raw = data[frames.offset[i] : frames.offset[i] + frames.caplen[i]].tobytes()
                found.append((int(frames.time_ns[i]), int(frames.link[i]), raw, int(frames.wirelen[i])))
    return found


def digest(path):
    return hashlib.sha256(b"".join(raw for _, _, raw, _ in packets(path))).hexdigest()


def blocks(path):
    """Return (type, body) of the blocks of a little-endian pcapng."""
    data, pos, found = path.read_bytes(), 0, []
    while pos < len(data):
        kind, length = struct.unpack_from("<II", data, pos)
        found.append((kind, data[pos + 8 : pos + length - 4]))
        pos += length
    return found


def comments(path):
    """Return the comments on packets, {frame: texts}."""
    found, frame = {}, 0
    for kind, body in blocks(path):
        if kind != 6:
            continue
        frame += 1
        at = 20 + (struct.unpack_from("<I", body, 12)[0] + 3 & ~3)
        while at < len(body) and (head := struct.unpack_from("<HH", body, at))[0]:
            if head[0] == 1:
                found.setdefault(frame, []).append(body[at + 4 : at + 4 + head[1]].decode())
            at += 4 + (head[1] + 3 & ~3)
    return found


def copied(source, target, *given, about="what it is"):
    with open_source(source) as opened:
        return write_annotated(opened, str(target), [Comment(*one) for one in given], about)


@pytest.fixture(scope="module")
def losses(tmp_path_factory):
    """Return what annotating a capture with random losses gave, and its table of fields."""
    return annotated(LOSSES, tmp_path_factory.mktemp("losses"))


@pytest.fixture(scope="module")
def probes(tmp_path_factory):
    """Return the same of a BBR's capture with PROBE_RTT in it."""
    return annotated(PROBES, tmp_path_factory.mktemp("probes"))


def annotated(source, folder):
    target = folder / "annotated.pcapng"
    result = annotate(source, target)
    lines = (folder / f"annotated.pcapng{SUFFIX}").read_text("ascii").splitlines()
    rows = {int(line.split("\t")[0]): dict(zip(NAMES, line.split("\t"), strict=True)) for line in lines[2:]}
    return source, target, result, rows


@pytest.mark.parametrize("link", [*LINKS, "user 0"])
def test_packets_of_every_link_type_are_copied_byte_for_byte(tmp_path, link):
    number, wrap = LINKS.get(link, (147, bytes))  # the last one is none that cctrace decodes
    frames = [(T0 + i, wrap(p)) for i, p in enumerate(conversation(50))]
    (tmp_path / "in.pcap").write_bytes(pcap(frames, number))
    assert copied(tmp_path / "in.pcap", tmp_path / "out.pcapng", (1, "first"), (50, "last")) == 50
    assert packets(tmp_path / "out.pcapng") == packets(tmp_path / "in.pcap")
    assert comments(tmp_path / "out.pcapng") == {1: ["first"], 50: ["last"]}


@pytest.mark.parametrize("dialect", [{"unit_ns": 1000}, {"big": True}, {"unit_ns": 1000, "header": 24}], ids=str)
def test_every_dialect_of_pcap_keeps_its_times_and_lengths(tmp_path, dialect):
    frames = [(T0 + 7000 * i, p[:60], len(p)) for i, p in enumerate(conversation(40))]
    (tmp_path / "in.pcap.gz").write_bytes(gzip.compress(pcap(frames, 101, **dialect)))
    copied(tmp_path / "in.pcap.gz", tmp_path / "out.pcapng", (3, "a"), (4, "b"))
    assert packets(tmp_path / "out.pcapng") == packets(tmp_path / "in.pcap.gz")


@pytest.mark.parametrize("big", [False, True])
def test_blocks_and_options_of_a_pcapng_are_kept(tmp_path, big):
    p = conversation(4)
    secrets = block(10, b"\x4b\x53\x4c\x54" + bytes(8), big)
    parts = [section(big), interface(1, big=big), secrets]
    parts += [enhanced(T0 // 1000 + i, frame, big=big, options=option(1, b"mine", big)) for i, frame in enumerate(p)]
    (tmp_path / "in.pcapng").write_bytes(b"".join(parts))
    copied(tmp_path / "in.pcapng", tmp_path / "out.pcapng", (2, "ours"))
    out = (tmp_path / "out.pcapng").read_bytes()
    assert packets(tmp_path / "out.pcapng") == packets(tmp_path / "in.pcapng")
    assert secrets in out
    assert out.count(b"mine") == 4
    assert out.index(b"mine", out.index(parts[3][:40])) < out.index(b"ours")
    if not big:
        assert comments(tmp_path / "out.pcapng") == {1: ["mine"], 2: ["mine", "ours"], 3: ["mine"], 4: ["mine"]}


def test_a_damaged_tail_is_left_out_and_what_precedes_it_copied(tmp_path):
    whole = b"".join(
        [section(), interface(101), *(enhanced(T0 // 1000 + i, p) for i, p in enumerate(conversation(20)))]
    )
    (tmp_path / "in.pcapng").write_bytes(whole[:-10])
    assert copied(tmp_path / "in.pcapng", tmp_path / "out.pcapng", (19, "x"), (20, "y")) == 19
    assert len(packets(tmp_path / "out.pcapng")) == 19


def test_a_comment_longer_than_an_option_is_cut_between_characters(tmp_path):
    (tmp_path / "in.pcap").write_bytes(pcap([(T0, conversation(1)[0])], 101))
    copied(tmp_path / "in.pcap", tmp_path / "out.pcapng", (1, "µ" * 40_000), about="µ" * 40_000)
    (text,) = comments(tmp_path / "out.pcapng")[1]
    assert text == "µ" * (LONGEST // 2)


def test_what_is_annotated_holds_the_packets_of_the_capture(losses):
    source, target, result, rows = losses
    assert digest(target) == digest(source)
    assert [one[0] for one in packets(target)] == [one[0] for one in packets(source)]
    assert result.packets == len(packets(source)) == len(rows)
    assert result.commented == len(comments(target))
    assert cct.read(target).flow(0).retransmissions.equals(cct.read(source).flow(0).retransmissions)


def test_every_retransmission_says_why_it_was_sent(losses):
    source, target, _, rows = losses
    again = cct.read(source).flow(0).retransmissions
    said = [" ".join(texts) for texts in comments(target).values() if "retransmitted" in " ".join(texts)]
    assert len(said) == len(again)  # no super-packets: a segment a packet
    assert sum("RACK" in text for text in said) == (again["why"] == "fast").sum()
    assert sum("TLP" in text for text in said) == (again["why"] == "probe").sum()
    assert sum("spurious" in text for text in said) == again["spurious"].sum()
    assert sum(row["resent"] == "RACK" for row in rows.values()) == (again["why"] == "fast").sum()


def test_acks_say_what_the_controller_decided_on_them(losses):
    source, target, _, rows = losses
    flow = cct.read(source).flow(0)
    run = cct.replay(flow, "cubic6")
    cwnd = {row["cwnd"] for row in rows.values()} - {""}
    assert cwnd <= set(map(str, run.decisions["snd_cwnd"]))
    assert len(cwnd) > 20
    samples = [int(row["rtt_us"]) for row in rows.values() if row["rtt_us"]]
    assert set(samples) <= set(flow.rtt["rtt_us"])
    assert len(samples) > 0.95 * len(flow.rtt)  # the rest are samples of ACKs that were captured with another
    recovery = [texts for texts in comments(target).values() if "TCP state Recovery (before: " in texts[0]]
    assert len(recovery) == flow.nstat()["TCPSackRecovery"]


def test_probe_rtt_is_found_where_the_replayed_bbr_was_in_it(probes):
    source, target, result, rows = probes
    inside = [row for row in rows.values() if row["state"] == "PROBE_RTT"]
    assert {row["controller"] for row in inside} == {"bbr2022"}
    assert inside
    assert {row["cwnd"] for row in inside[20:-20]} == {"4"}
    begins = [frame for frame, texts in comments(target).items() if "PROBE_RTT begins (before: PROBE_BW" in texts[0]]
    times = [cct.read(source).packets["time_ns"][frame - 1] for frame in begins]
    run = cct.replay(cct.read(source).flow(0), "bbr2022", record=["mode"]).decisions
    entered = run["time_ns"][1:][np.diff((run["mode"] == 3).to_numpy().astype(int)) == 1]
    assert len(begins) == len(entered) >= 1
    assert np.abs(np.array(times) - entered.to_numpy()).max() < 10_000_000  # TCP takes an ACK soon after it is captured
    assert "sent by bbr2022" in result.flows[0]


def test_numbers_agree_with_what_was_on_the_wire(probes):
    source, _, _, rows = probes
    flow = cct.read(source).flow(0)
    found = columns_of(flow, cct.analyze(str(source), effects=False)[0])
    assert set(found.frame.tolist()) == set(rows)
    assert (found.inflight[found.data] >= 1).all()
    assert (found.inflight[found.data & (found.cwnd > 0)] <= 1.05 * found.cwnd.max()).all()
    assert (found.window_left[found.data] >= 0).all()
    assert (found.window_left[~found.data] == -1).all()


def test_a_capture_at_the_receiver_has_its_senders_view(tmp_path):
    result = annotate(datasets.path("loss_cubic_1pct", "receiver.pcap.zst"), tmp_path / "a.pcapng")
    texts = [text for found in comments(tmp_path / "a.pcapng").values() for text in found]
    assert result.packets == len(packets(tmp_path / "a.pcapng"))
    assert sum("retransmitted" in text for text in texts) > 50
    assert any("cwnd " in text for text in texts)


def test_without_a_send_what_is_in_flight_is_what_the_events_tell():
    rows = np.zeros(2, EVENT)
    rows["time_ns"], rows["packets_out"], rows["event"] = (T0, T0 + 10), (3, 2), LINUX_EVENTS["on_ack"]
    flow = SimpleNamespace(events=SimpleNamespace(rows=rows, sends=np.zeros(0, SENT)))
    found = known_of_stream(flow, np.array([T0 - 1, T0, T0 + 11]), np.array([True, False, True]))
    assert found["inflight"].tolist() == [-1, 3, 2]


def test_comments_and_companion_hold_words_of_ours_only(losses, probes):
    for _, target, _, rows in (losses, probes):
        assert all(text.isprintable() for texts in comments(target).values() for text in texts)
        assert {name for row in rows.values() for name in row} == set(NAMES)


def test_an_annotated_file_is_not_annotated_again(losses, tmp_path, run):
    with pytest.raises(ArgumentError, match=r"annotated\.pcapng is annotated already: annotate the capture"):
        annotate(losses[1], tmp_path / "again.pcapng")
    status, _, err = run("annotate", losses[1], "-o", tmp_path / "again.pcapng")
    assert status == 2
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments_are_one_sentence(tmp_path):
    (tmp_path / "in.pcap").write_bytes(pcap([(T0 + i, p) for i, p in enumerate(conversation(50))], 101))
    with pytest.raises(ArgumentError, match="reads a capture twice, which standard input does not allow"):
        annotate("-", tmp_path / "out.pcapng")
    with pytest.raises(ArgumentError, match="is the capture itself: give another file"):
        annotate(tmp_path / "in.pcap", tmp_path / "in.pcap")
    with pytest.raises(ArgumentError, match="a capture is needed here, this is tcpinfo-csv"):
        annotate(datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst"), tmp_path / "out.pcapng")
    with pytest.raises(ArgumentError, match="holds no counters of connections"):
        annotate(LOSSES, tmp_path / "out.pcapng", tcpinfo=[LOSSES])


def test_the_command_says_what_it_wrote(run, tmp_path):
    status, out, err = run("annotate", LOSSES, "-o", tmp_path / "a.pcapng", "--controller", "cubic6")
    assert (status, err) == (0, "")
    assert f"{tmp_path}/a.pcapng: 9,381 packets, " in out
    assert "10.99.0.1:40001 → 10.99.0.2:5001, sent by cubic" in out


def test_the_plug_in_has_the_fields_of_the_companion_and_runs_nothing(run, tmp_path):
    text = PLUGIN.read_text("ascii")
    assert all(f'"cctrace.{name}"' in text for name in NAMES[1:])
    assert not any(word in text for word in ("loadstring", "dofile", "loadfile", "os.execute", "popen", "require"))
    assert install(tmp_path / "plugins").read_text("ascii") == text
    assert run("wireshark", "--folder", tmp_path / "none")[1].startswith(f"not installed: {tmp_path}/none/cctrace.lua")
    assert run("wireshark", "--install", "--folder", tmp_path / "x")[1] == f"installed: {tmp_path}/x/cctrace.lua\n"
