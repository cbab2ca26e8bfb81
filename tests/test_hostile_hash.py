"""Captures cannot be written so that all their connections fall into one place of the hash table."""

import numpy as np
from wire import ethernet, ipv6, pcap, tcp

from cctrace.io.captures import decode, frames
from cctrace.io.captures.packets import Packets
from cctrace.io.layout import CONN_FIELDS


def probes(key, ends):
    """How far the places of connections, each from one of `ends`, lie from where they belong, in all."""
    conns, table, count = np.zeros((len(ends), CONN_FIELDS), np.int64), np.full(1024, -1, np.int64), 0
    for k, (hi, lo) in enumerate(ends):
        which = (np.int64(hi), np.int64(lo), np.int64(0), np.int64(1), (6 << 32) | (1000 << 16) | 443)
        slot, _, _ = decode._find(conns, table, key, which)
        decode._open_connection(conns, k, which, 0)
        home, _, _ = decode._find(conns[:0], np.full(len(table), -1, np.int64), key, which)
        table[slot] = k
        count += (slot - home) % len(table)
    return count


def test_addresses_chosen_to_collide_are_spread_by_the_secret():
    # Without a secret the place was that of lo + 31 * hi: all of these are equal.
    with np.errstate(over="ignore"):
        ends = [(k, -31 * k) for k in range(300)]
        # Linear probing of a table a quarter full needs 0.17 steps; all in one place 150. Every key will do.
        for key in (frames._SECRET, np.array([5, 7], np.int64) << 40 | 1, np.array([-3, 0x1234567890ABCDEF], np.int64)):
            assert probes(key, ends) < 3 * len(ends)


def test_what_is_read_does_not_depend_on_the_secret(tmp_path, monkeypatch):
    import cctrace as cct

    path = tmp_path / "x.pcap"
    records = [(10**18 + k * 1000, ethernet(ipv6(tcp(1000 + k % 7, 80, seq=k), src=k % 50))) for k in range(500)]
    path.write_bytes(pcap(records))
    found = []
    for secret in (1, 0x7654321076543211):
        monkeypatch.setattr(frames, "_SECRET", np.array([secret, secret], np.int64))
        packets = cct.read(path).packets
        assert isinstance(packets, Packets)
        found.append([column.tolist() for column in (*packets.columns.values(), *packets.connections.values())])
    assert found[0] == found[1]
    assert len(found[0][-1]) == 350
