"""How fast captures are read, side by side in one run: cctrace, dpkt, the decompressors alone, tshark.

    python -m benchmarks.ingest CAPTURE [--packets 5000000] [--dpkt-packets 200000]

The capture (a pcap, plain or compressed) is tiled to the asked size, time stamps shifted from tile to tile. Every
figure is packets per second of one whole read of a warm file; peers that are not installed are left out.
"""

import argparse
import hashlib
import os
import platform
import shutil
import socket
import subprocess
import tempfile
import threading
import time

import numpy as np

from cctrace.io import read_file
from cctrace.io.captures import pcap
from cctrace.io.captures.frames import Frames
from cctrace.io.source import open_source


def tile(path, packets, out):
    """Write at least `packets` packets to `out`: the records of `path` again and again, later each time.

    Each time they are of further connections, between other ports: with the same sequence numbers in the same
    connection, all data but those of the first time would be retransmissions.
    """
    with open_source(path) as source:
        data = np.frombuffer(b"".join(iter(lambda: source.read(1 << 22), b"")), np.uint8).copy()
    big, unit_ns, header, swap, _ = pcap._file_header(bytes(data[:24]), path)
    frames = Frames(len(data) // 16)
    count, end, _ = pcap.find_records(
        data, 24, len(data), big, unit_ns, header, swap, pcap.MAX_RECORD, len(frames.offset),
        frames.offset, frames.caplen, frames.wirelen, frames.time_ns,
    )  # fmt: skip
    span_s = int(frames.time_ns[:count].max() - frames.time_ns[:count].min()) // 10**9 + 1
    at = (frames.offset[:count] - header)[:, None] + np.arange(4)
    order = ">u4" if big else "<u4"
    seconds = data[at].copy().view(order)
    ports = places_of_ports(
        data, frames.offset[:count], int.from_bytes(data[20:24].tobytes(), "big" if big else "little")
    )
    numbers = data[ports].copy().view(">u2")
    with open(out, "wb") as file:
        file.write(data[:24])
        tiles = -(-packets // count)
        for i in range(tiles):
            data[at] = (seconds + np.uint32(i * span_s)).astype(order).view(np.uint8)
            data[ports] = (numbers + np.uint16(i)).astype(">u2").view(np.uint8)
            file.write(data[24:end])
    return tiles * count


def places_of_ports(data, offset, link):
    """Return where the ports of IPv4's TCP segments are, shape (segments, 4)."""
    ip = offset + _LINKS[link]
    ip = ip[(data[ip] >> 4 == 4) & (data[ip + 9] == socket.IPPROTO_TCP)]
    return (ip + (data[ip] & 15).astype(np.int64) * 4)[:, None] + np.arange(4)


_LINKS = {1: 14, 101: 0, 113: 16}  # bytes before the IP header: Ethernet, raw IP, Linux cooked


def machine():
    """Name what the figures were measured on: processor, cores, load before the run."""
    with open("/proc/cpuinfo") as file:
        models = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    return f"{models[0] if models else platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"


def timed(function, *args, repeat=9):
    """Best time of `repeat` calls, in seconds: a virtual machine may take a second to get back memory that it freed."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        function(*args)
        best = min(best, time.perf_counter() - start)
    return best


def read_dpkt(path, packets):
    """Decode with dpkt what cctrace decodes: addresses, TCP fields and options."""
    import dpkt

    with open(path, "rb") as file:
        reader = dpkt.pcap.Reader(file)
        raw = reader.datalink() in (12, 14, 101)
        for n, (_, frame) in enumerate(reader):
            ip = dpkt.ip.IP(frame) if raw else dpkt.ethernet.Ethernet(frame).data
            tcp = ip.data
            _ = (ip.src, ip.dst, ip.len, tcp.sport, tcp.dport, tcp.seq, tcp.ack, tcp.flags, tcp.win)
            _ = dpkt.tcp.parse_opts(tcp.opts)
            if n + 1 == packets:
                return


def drain(path):
    """Decompress only."""
    buffer = memoryview(bytearray(4 << 20))
    with open_source(path) as source:
        while source.readinto(buffer):
            pass


def drain_beside(path):
    """Decompress while another core hashes bytes in its cache, without Python's lock: what a busy core alone costs."""
    ended, data = threading.Event(), bytes(1 << 18)

    def work():
        while not ended.is_set():
            hashlib.sha256(data)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        drain(path)
    finally:
        ended.set()
        thread.join()


def quietly(command):
    """Run a program, its output thrown away."""
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def read_both(path):
    """Read a file twice at the same time."""
    threads = [threading.Thread(target=read_file, args=(path,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("capture")
    parser.add_argument("--packets", type=int, default=5_000_000)
    parser.add_argument("--dpkt-packets", type=int, default=200_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        big = os.path.join(folder, "big.pcap")
        packets = tile(args.capture, args.packets, big)
        print(f"{packets} packets, {os.path.getsize(big) / 1e9:.2f} GB; {machine()}")
        read_file(args.capture)  # compile, or load from the cache
        compare(big, packets, args.dpkt_packets, folder)


def compare(big, packets, dpkt_packets, folder):
    def line(what, seconds, n=packets, base=None):
        rate = n / seconds
        print(f"{what:34s} {rate / 1e6:9.3f} M packets/s" + (f"  {rate / base:8.2f} x" if base else ""), flush=True)
        return rate

    base = line("dpkt", timed(read_dpkt, big, dpkt_packets, repeat=1), min(dpkt_packets, packets))
    plain = line("cctrace, plain", timed(read_file, big), base=base)
    line("  reading alone", timed(drain, big))
    for name, command in (("gzip", "gzip -1 -k"), ("zstd", "zstd -q -k -1")):
        if shutil.which(name):
            subprocess.run([*command.split(), big], check=True)
            packed = big + (".gz" if name == "gzip" else ".zst")
            alone = line(f"  {name} decompression alone", timed(drain, packed))
            line("  the same, another core busy", timed(drain_beside, packed), base=alone)
            line(f"cctrace, {name} (x: of alone)", timed(read_file, packed), base=alone)
            os.remove(packed)
    line("cctrace, two at once (x: of one)", timed(read_both, big), 2 * packets, plain)
    peers = (("tshark, six fields", ["tshark", "-r", big, "-T", "fields", *(x for f in _TSHARK for x in ("-e", f))]),)
    for name, command in peers:
        if shutil.which(command[0]):
            peer = line(name, timed(quietly, command, repeat=1))
            print(f"cctrace, plain: {plain / peer:.0f} x {name.split(',')[0]}")


_TSHARK = ("frame.time_epoch", "ip.src", "tcp.srcport", "tcp.seq_raw", "tcp.ack_raw", "tcp.len")

if __name__ == "__main__":
    main()
