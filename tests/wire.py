"""Builds packets and capture files by hand, byte by byte, for the tests of the readers."""

import io
import struct
import tarfile
import zipfile

from cctrace.io import read_file

PCAP_MAGIC = {(1000, 16): 0xA1B2C3D4, (1, 16): 0xA1B23C4D, (1000, 24): 0xA1B2CD34}


def tcp_options(mss=None, wscale=None, sack_ok=False, timestamps=None, sacks=()):
    out = b""
    if mss is not None:
        out += struct.pack("!BBH", 2, 4, mss)
    if wscale is not None:
        out += b"\x01" + struct.pack("!BBB", 3, 3, wscale)
    if sack_ok:
        out += b"\x01\x01\x04\x02"
    if timestamps:
        out += b"\x01\x01" + struct.pack("!BBII", 8, 10, *timestamps)
    if sacks:
        out += b"\x01\x01" + struct.pack("!BB", 5, 2 + 8 * len(sacks)) + b"".join(struct.pack("!II", *s) for s in sacks)
    return out


def tcp(sport=1000, dport=80, seq=1, ack=2, flags=0x10, window=500, options=b"", payload=b""):
    options += b"\0" * (-len(options) % 4)
    word = (5 + len(options) // 4) << 12 | flags
    return struct.pack("!HHIIHHHH", sport, dport, seq, ack, word, window, 0, 0) + options + payload


def ipv4(
    payload, src="10.0.0.1", dst="10.0.0.2", protocol=6, ident=7, tos=0, ttl=64, fragment=0, options=b"", length=None
):
    header = 20 + len(options)
    addresses = b"".join(bytes(int(x) for x in a.split(".")) for a in (src, dst))
    length = header + len(payload) if length is None else length
    fixed = struct.pack("!BBHHHBBH", 0x40 | header // 4, tos, length, ident, fragment, ttl, protocol, 0)
    return fixed + addresses + options + payload


def ipv6(payload, src=1, dst=2, next_header=6, traffic_class=0, hops=64, length=None):
    length = len(payload) if length is None else length
    word = 6 << 28 | traffic_class << 20
    addresses = b"".join((0xFD << 120 | a).to_bytes(16, "big") for a in (src, dst))
    return struct.pack("!IHBB", word, length, next_header, hops) + addresses + payload


def ethertype(packet):
    return 0x0800 if packet[0] >> 4 == 4 else 0x86DD


def ethernet(packet, tags=(), kind=None):
    header = b"\x02" * 12 + b"".join(struct.pack("!HH", tpid, 5) for tpid in tags)
    return header + struct.pack("!H", kind or ethertype(packet)) + packet


def pcap(records, link=1, big=False, unit_ns=1, header=16, snaplen=262144, version=(2, 4)):
    """Return a pcap file; records are (time_ns, frame) or (time_ns, captured bytes, original length)."""
    order = ">" if big else "<"
    out = bytearray(struct.pack(order + "IHHiIII", PCAP_MAGIC[unit_ns, header], *version, 0, 0, snaplen, link))
    for time_ns, frame, *original in records:
        length = original[0] if original else len(frame)
        seconds, rest = divmod(time_ns, 10**9)
        out += struct.pack(order + "IIII", seconds, rest // unit_ns, len(frame), length) + b"\0" * (header - 16) + frame
    return bytes(out)


def block(kind, body, big=False):
    """Return one pcapng block."""
    order = ">" if big else "<"
    body += b"\0" * (-len(body) % 4)
    length = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + length + body + length


def option(code, value, big=False):
    return struct.pack((">" if big else "<") + "HH", code, len(value)) + value + b"\0" * (-len(value) % 4)


def section(big=False):
    return block(0x0A0D0D0A, struct.pack((">" if big else "<") + "IHHq", 0x1A2B3C4D, 1, 0, -1), big)


def interface(link=1, big=False, snaplen=0, options=b""):
    return block(1, struct.pack((">" if big else "<") + "HHI", link, 0, snaplen) + options, big)


def enhanced(units, frame, iface=0, big=False, original=None, options=b""):
    """Return an enhanced packet block; `units` is the time in the resolution of the interface."""
    length = len(frame) if original is None else original
    head = struct.pack((">" if big else "<") + "5I", iface, units >> 32, units & 0xFFFFFFFF, len(frame), length)
    return block(6, head + frame + b"\0" * (-len(frame) % 4) + options, big)


def obsolete(units, frame, iface=0, big=False):
    head = struct.pack(
        (">" if big else "<") + "2H4I", iface, 3, units >> 32, units & 0xFFFFFFFF, len(frame), len(frame)
    )
    return block(2, head + frame, big)


def simple(frame, big=False, original=None):
    return block(3, struct.pack((">" if big else "<") + "I", len(frame) if original is None else original) + frame, big)


def members(files):
    """Return (name, data) of a dict, or of a list, in which two may have one name."""
    return files.items() if isinstance(files, dict) else files


def tar(files, mode="w:gz"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, data in members(files):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members(files):
            archive.writestr(name, data)
    return out.getvalue()


def read(data, **options):
    """Read a file that holds these bytes, or this text."""
    return read_file(io.BytesIO(data.encode() if isinstance(data, str) else data), **options)
