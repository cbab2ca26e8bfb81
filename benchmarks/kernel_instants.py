"""When interrupts came in the lab that runs Linux in virtual time, as its captures and tables of polls show."""

import csv

import numpy as np

from benchmarks.aqm_lab import opened
from cctrace.tcp.wheel import fires_ns

TIMER_STEP_NS = 256  # of the lab's clock
READS_TCP = "tcpinfo.csv"
POLLED = {READS_TCP: 768, "queue.csv": 256}  # readings of the clock between what wakes a process and what it notes
POLL_ENDS_NS = 1536  # after it has noted its time, the process that polls TCP's counters waits again
NOTED_NS, TICK_LASTS_NS = 2048, 1000  # the same where other processes had their turn; after a tick is due
LOOKS_AGAIN_NS = 6 * TIMER_STEP_NS  # readings of the clock, after connecting, before it looks whether data are due
POLL_LASTS_NS = {"6.12": 1792, "6.1": 2304}  # a poll of the counters: readings of the clock


BOOT_NS = 1_800_000_000_000_000_000  # what the lab's clock shows as a kernel boots
# Of tcpdump's ring (TPACKET_V3, libpcap 1.10): the size of a block and of its header, what precedes a packet's bytes
# there and a multiple of which it takes, and the time after which a block that is not full is handed over.
BLOCK_BYTES, BLOCK_HEADER, PACKET_HEADER, PACKET_STEP, BLOCK_LASTS_S = 262_144, 48, 86, 8, 1
ETHERNET = 14


def passages(sender, receiver, start_ns):
    """Return when packets arrived at the receiver and at the sender, when data left, and ACKs, ns since the start.

    What follows a packet of the other direction within a step of the clock is a nanosecond later: the order of a
    capture is that of the events.
    """
    found = []
    for c, direction, least in ((receiver, 0, 0), (sender, 1, 0), (sender, 0, 1), (receiver, 1, 0)):
        if c is None:
            found.append(np.zeros(0, np.int64))
            continue
        times = c["time_ns"]
        first = np.searchsorted(times, times)  # of those of one instant
        later = times + (c["direction"][first] != c["direction"])
        found.append(np.unique(later[(c["direction"] == direction) & (c["payload"] >= least)]) - start_ns)
    return found


def hz_of(kernel):
    """Return the ticks per second of a kernel image.

    >>> hz_of("linux-bbr3-hz1000"), hz_of("linux-bbr3")
    (1000, 250)
    """
    return 1000 if "hz1000" in kernel else 250


def polls_of(folder, scenario, instants, sender):
    """Return when interrupts woke another process and left their rest to ksoftirqd, ns since the start; and from when
    to when the process that polls TCP's counters had the CPU.

    Before a process that polls notes its time, that which receives may have had its turn; that interrupt brought a
    packet. 6.12 leaves the rest of a tick, and what the process that reads the counters, if it woke as well, has not
    done by the sender's next packet. 6.1 leaves it whoever woke, tcpdump too.
    """
    start_ns, kernel = scenario["start_realtime_ns"], scenario["kernel"]
    found, packets = [], np.unique(np.concatenate([np.array([-NOTED_NS]), *instants])) // 2 * 2
    done = left = np.zeros(0, np.int64)
    for name, soonest_ns in POLLED.items():
        files = list(folder.glob(f"{name}*"))
        noted = np.unique(times_of(files[0])) - start_ns if files else np.zeros(0, np.int64)
        before = packets[np.searchsorted(packets, noted - soonest_ns, side="right") - 1]
        found.append((noted, np.where(noted - before <= NOTED_NS, before, noted - soonest_ns)))
        if name == READS_TCP:
            at_sender = np.unique(np.concatenate([packets[:1], *instants[1:3]])) // 2 * 2
            last = at_sender[np.searchsorted(at_sender, noted, side="right") - 1]
            done = last[noted - last <= NOTED_NS]
        else:
            left = np.setdiff1d(before[noted - before == soonest_ns], done)
    ends = found[0][0] + POLL_ENDS_NS
    found = [woken_with(*one, *other) for one, other in (found, found[::-1])]
    busy = found[0], ends
    if kernel.startswith("6.1."):
        dumped = full_blocks(sender, scenario["parameters"]["snaplen"], hz_of(scenario["kernel_image"])) - start_ns
        return np.unique(np.concatenate([*found, dumped])), busy
    woken = np.unique(np.concatenate(found))
    since_tick = woken % (1_000_000_000 // hz_of(scenario["kernel_image"]))
    return np.union1d(woken[since_tick < TICK_LASTS_NS], left), busy


def woken_with(noted, woken, others_noted, others_woken):
    """Return when a process was woken that polls as often as another, which runs first if one interrupt woke both."""
    at = np.searchsorted(others_noted, noted) - 1
    together = (at >= 0) & (noted - others_noted[at] <= NOTED_NS) if len(others_noted) else np.zeros(len(noted), bool)
    return np.where(together, others_woken[at], woken) if together.any() else woken


def full_blocks(c, snaplen, hz):
    """Return when a packet did not fit into the current block of tcpdump's ring, which woke tcpdump, ns [Linux61]
    __packet_lookup_frame_in_block, prb_retire_rx_blk_timer_expired.

    A block that has waited for a second is handed over with a tick.
    """
    taken = PACKET_HEADER + np.minimum(c["ip_len"] + ETHERNET, snaplen)
    full, used = [], BLOCK_HEADER
    due_ns = fires_ns(0, BLOCK_LASTS_S * hz, hz)  # the ring is set up right after the kernel has booted
    for time_ns, size in zip((c["time_ns"] - BOOT_NS).tolist(), (-(-taken // PACKET_STEP)).tolist(), strict=True):
        while due_ns <= time_ns:
            used = BLOCK_HEADER
            due_ns = fires_ns(due_ns, BLOCK_LASTS_S * hz, hz)
        if used + size * PACKET_STEP >= BLOCK_BYTES:
            full.append(time_ns + BOOT_NS)
            used = BLOCK_HEADER
            due_ns = fires_ns(time_ns, BLOCK_LASTS_S * hz, hz)
        used += size * PACKET_STEP
    return np.array(full, np.int64)


def writes(flow, looks, connected_ns):
    """Yield when an application that writes pieces on a clock finds some due, ns since the start, and their bytes.

    It looks once it is connected, and after each poll of the counters.
    """
    first = connected_ns + LOOKS_AGAIN_NS
    looks = np.append(first, looks[(looks > first) & (looks < flow["stop"] * 1e9)])
    due = np.floor(looks / 1e9 / flow["chunk_interval"]).astype(int) + 1
    for at_ns, count in zip(looks.tolist(), np.diff(due, prepend=0).tolist(), strict=True):
        if count:
            yield at_ns, count * flow["chunk_bytes"]


def times_of(file):
    """Return the times of a table of the lab, ns."""
    with opened(file) as lines:
        return np.array([int(row["time_ns"]) for row in csv.DictReader(lines)], np.int64)
