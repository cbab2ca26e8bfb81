"""Recordings of the lab that runs Linux in virtual time, and the simulation of the same path with the lab's clock.

A recording is a folder with scenario.json, sender.pcap and, where packets were lost, receiver.pcap; or one entry of a
file that `keep` wrote, which holds of each only what a comparison needs. docs/simulation.md says what is not modelled.
"""

import json

import numpy as np

import cctrace as cct
from benchmarks.kernel_instants import POLL_LASTS_NS, TIMER_STEP_NS, hz_of, passages, polls_of, writes
from cctrace.cc import controller
from cctrace.sim.capture import ends
from cctrace.sim.core.receive_window import scaling_ratio
from cctrace.sim.core.structs import HANDSHAKE, SERVED, TAP_ECHO, TAP_LACKS, TAP_SENT, legs
from cctrace.sim.core.view import DRAWN
from cctrace.sim.core.world import FIRST_NS, World
from cctrace.sim.jitter import Jitter
from cctrace.sim.path import Path
from cctrace.sim.runner import Runner
from cctrace.sim.sender import Sender
from cctrace.tcp.flags import SYN
from cctrace.tcp.small_queue import SKB_OVERHEAD_BYTES, SKB_OVERHEAD_BYTES_6_1

COLUMNS = ("time_ns", "direction", "flags", "seq", "payload", "ip_id", "tsval", "ip_len")
LINK_BPS, TBF_BURST_BYTES = 10**10, 1600  # of a bottleneck whose rate changes (tbf, which counts frames)
PACKET_BYTES, FRAME_BYTES = 1500, 1514  # of IP, as the lab's netem counts them, and on Ethernet, as its tbf does
MSS, IP_HEADERS = 1448, 52  # with time stamps; the lab's bottleneck counts IP bytes
IN_PART = 0.1  # of a packet's time at the bottleneck: less is none
LINK_NS = FRAME_BYTES * 8 * 10**9 // LINK_BPS  # of a frame there, and on the link that keeps jitter in order
STEP_LATE_S = 50e-6  # of a change of the rate: the slack of the timer of the process that makes it
JITTER_DELAYS = 4097  # to draw from
PSCHED_TICK_NS = 64  # in which netem counts delays
MAX_SKB_FRAGS = 17  # page fragments of an skb; a veth hands segments over in such
SKB_OVERHEAD = {"6.12": SKB_OVERHEAD_BYTES, "6.1": SKB_OVERHEAD_BYTES_6_1}
WMEM_MAX = 212_992  # the largest SO_SNDBUF that the lab's kernels grant (net.core.wmem_max)
NOT_MODELLED = ("jitter_reorders", "rev_jitter_us", "rev_loss", "reorder", "rcvbuf", "gso_max_segs")


def packets_of(file):
    """Return the columns of the first connection of a capture, as int64, in order of time."""
    table = cct.read(str(file)).packets
    c = {name: table[name][table["conn"] == table["conn"][0]].astype(np.int64) for name in COLUMNS}
    order = np.argsort(c["time_ns"], kind="stable")
    return {name: values[order] for name, values in c.items()}


def segmented(c):
    """Return the columns of a capture with one row for each segment of a super-packet (tcp_gso_segment)."""
    count = np.maximum(-(-c["payload"] // MSS), 1)
    row, before = np.repeat(np.arange(len(count)), count), np.cumsum(count) - count
    nth = np.arange(len(row)) - before[row]
    cut = {name: values[row] for name, values in c.items()}
    cut["payload"] = np.minimum(cut["payload"] - nth * MSS, MSS)
    cut["ip_len"] -= c["payload"][row] - cut["payload"]
    cut["seq"] = (cut["seq"] + nth * MSS) % 2**32
    cut["ip_id"] = (cut["ip_id"] + nth) % 2**16
    return cut


def transmissions(c):
    """Return (first byte, time in ns) of every segment of data that a sender's capture shows."""
    first = int(c["seq"][np.flatnonzero(c["flags"] & SYN)[0]]) + 1
    data = (c["direction"] == 0) & (c["payload"] > 0)
    return (c["seq"][data] - first) % 2**32, c["time_ns"][data]


def offsets(sent):
    """Return the first byte of each segment sent, of the rows that a tap noted of them."""
    index, lacks = sent[:, 2], (sent[:, 1] >> 3 + TAP_LACKS) & (1 << TAP_ECHO - TAP_LACKS) - 1
    size = np.zeros(index.max(initial=-1) + 1, np.int64)
    size[index] = MSS - lacks
    return (np.cumsum(size) - size)[index]


def lost(sender, receiver, packet_ns):
    """Return the numbers, from 0, of the sender's transmissions that no receiver's capture shows, and of some of them.

    The latter got lost behind the bottleneck, which takes `packet_ns` for a packet: it had served them, as the distance
    between their neighbours' arrivals shows.
    """
    keys, times = [], []
    for c in (sender, receiver):
        data = (c["direction"] == 0) & (c["payload"] > 0)
        keys.append(np.column_stack([c[name][data] for name in ("seq", "tsval", "ip_id")]).tolist())
        times.append(c["time_ns"][data])
    arrived = dict(zip(map(tuple, keys[1]), times[1].tolist(), strict=True))
    at = [arrived.get(tuple(key)) for key in keys[0]]
    missing = [number for number, time_ns in enumerate(at) if time_ns is None]
    data = (sender["direction"] == 0) & (sender["payload"] > 0)
    takes_ns = (packet_ns * (sender["payload"][data] + IP_HEADERS) / PACKET_BYTES).tolist()
    alone_ns = [np.inf if at_ns is None else at_ns - sent_ns for at_ns, sent_ns in zip(at, times[0], strict=True)]
    path_ns = min((late - takes for late, takes in zip(alone_ns, takes_ns, strict=True)), default=0)
    behind, free_ns, least = [], 0.0, 0.5
    for number in missing:
        if number == 0 or at[number - 1] is not None:  # the first of some in a row
            following = next((k for k in range(number, len(at)) if at[k] is not None), None)
            before_ns = at[number - 1] if number else 0
            free_ns = 0.0 if following is None else at[following] - before_ns - takes_ns[following]
            # The bottleneck had nothing to do when that one came: not all of the time went into those before.
            idle = following is not None and alone_ns[following] - path_ns < (1 + IN_PART) * takes_ns[following]
            least = 1 - IN_PART if idle else 0.5
        if free_ns > least * takes_ns[number]:
            behind.append(number)
            free_ns -= takes_ns[number]
    return missing, behind


def delays_of(sender, receiver, start_ns, packet_ns):
    """Return how long SYN, ACK and each transmission took from the bottleneck to the receiver, 0 if it did not arrive.

    The bottleneck takes `packet_ns` for a packet, and dropped those that did not arrive.
    """
    keys, times, sizes = [], [], []
    for c in (sender, receiver):
        mine = np.flatnonzero(c["direction"] == 0)
        mine = mine[(np.arange(len(mine)) < HANDSHAKE) | (c["payload"][mine] > 0)]
        keys.append(np.column_stack([c[name][mine] for name in ("seq", "tsval", "ip_id", "payload")]).tolist())
        times.append((c["time_ns"][mine] - start_ns).tolist())
        sizes.append(c["ip_len"][mine].tolist())
    arrived = dict(zip(map(tuple, keys[1]), times[1], strict=True))
    took, free_ns = np.zeros(len(keys[0]), np.int64), 0
    for k, (key, time_ns, size) in enumerate(zip(keys[0], times[0], sizes[0], strict=True)):
        at_ns = arrived.get(tuple(key))
        if at_ns is not None:
            free_ns = max(free_ns, time_ns) + packet_ns * size // PACKET_BYTES
            took[k] = at_ns - free_ns
    return took


def drawn(file, cc, hz):
    """Return the raw random numbers that BBR drew, as a replay of the sender's capture infers them.

    Its socket's SO_MAX_PACING_RATE, without which departures may not show fq, is in the counters beside it.
    """
    cls = controller(cc)[0]
    count = len(cls.probe_draws) if cls.probe_draws else 1 if cls.phase_choices else 0
    if count == 0:
        return []
    flow = cct.read(str(file)).flow(0)
    for counters in file.parent.glob("tcpinfo.csv*"):
        flow = flow.attach(cct.read(str(counters)))
    calls = cct.replay(flow, f"{cc}{',' if ':' in cc else ':'}hz={hz}").inferred.script.draws
    return [number for _, *numbers in calls for number in numbers[:count]]


def controller_of(kernel, cc):
    """Return the project's name of a kernel's controller: which BBR "bbr" is depends on the kernel image.

    BBRv2 runs on 6.1, whose GSO_MAX_SIZE is eight times that of the kernel it was released for.
    """
    if cc == "bbr":
        return "bbr3" if "bbr3" in kernel else "bbr2022"
    return {"cubic": "cubic6", "bbr2": "bbr2:gso_max_bytes=524280"}.get(cc, cc)


class Recording:
    """One recording of the lab: what was sent, and the path it was sent over.

    `offsets` (bytes) and `times` (ns since the flow was to start) are those of all segments sent, `lost` the numbers of
    those that did not arrive (None: nobody looked), `lost_behind` of those of them that the bottleneck had served,
    `draws` BBR's random numbers, `phase_ns` the hidden part of the clock, in a list of one. `instants` are the times at
    which the captures show packets (`passages`), none where the simulation is to have a clock of its own; `polls` those
    at which another process woke, `busy` from when to when it ran (`polls_of`), `looks` when it then looked if data
    were due; `delays` those of packets behind the bottleneck if it has jitter (`delays_of`).
    """

    def __init__(
        self, scenario, offsets, times, syn_ns, draws, losses,
        behind=(), instants=(), polls=(), late=(), busy=((), ()),
    ):  # fmt: skip
        self.scenario, self.parameters, self.name = scenario, scenario["parameters"], scenario["name"]
        self.release = ".".join(scenario["kernel"].split(".")[:2])
        self.controller = controller_of(scenario["kernel_image"], self.parameters["flows"][0]["cc"])
        self.offsets, self.times, self.syn_ns = offsets, times, syn_ns
        self.draws, self.lost, self.lost_behind, self.phase_ns = draws, losses, behind, [0]
        self.instants, self.polls, self.delays, self.busy = instants, polls, late, busy
        self.looks = np.asarray(busy[1])
        self.is_app = self.parameters["flows"][0].get("mode") == "chunks"  # it writes pieces on a clock

    @classmethod
    def read(cls, folder, inferring=True):
        """Return the recording in a folder; `inferring` what BBR drew takes seconds."""
        scenario = json.loads((folder / "scenario.json").read_text())
        file = next(folder.glob("sender.pcap*"))
        captured = packets_of(file)
        sender = segmented(captured)
        start_ns = scenario["start_realtime_ns"]
        offsets, times = transmissions(sender)
        found = list(folder.glob("receiver.pcap*"))
        cc = controller_of(scenario["kernel_image"], scenario["parameters"]["flows"][0]["cc"])
        draws = drawn(file, cc, hz_of(scenario["kernel_image"])) if inferring else []
        receiver = packets_of(found[0]) if found else None
        p = scenario["parameters"]
        losses, behind = lost(sender, receiver, PACKET_BYTES * 8e3 / p["rate"]) if found else (None, ())
        packet_ns = PACKET_BYTES * 10**9 // int(p["rate"] * 1e6 / 8)
        late = delays_of(sender, receiver, start_ns, packet_ns) if found and p.get("jitter_us") else ()
        if not p.get("loss"):
            behind = ()  # the queue dropped them; after a step of the rate their neighbours' distance tells nothing
        instants = passages(sender, receiver, start_ns)
        syn_ns = int(sender["time_ns"][0]) - start_ns
        polls, busy = polls_of(folder, scenario, instants, captured)
        told = draws, losses, behind, instants, polls, late, busy
        return cls(scenario, offsets, times - start_ns, syn_ns, *told)

    @property
    def seconds(self):
        """How long the flow was to send."""
        return self.parameters["flows"][0]["stop"]

    @property
    def bucket(self):
        """Whether the bottleneck is a token bucket: where its rate changes, or super-packets reach it."""
        return bool(self.parameters.get("steps") or self.parameters.get("tso"))

    def not_modelled(self):
        """Return what of the scenario the simulated lab does not have."""
        p, flow = self.parameters, self.parameters["flows"][0]
        found = [name for name in NOT_MODELLED if p.get(name)]
        found += [f"qdisc {p['qdisc']}"] if p.get("qdisc", "droptail") != "droptail" else []
        found += ["several flows"] if len(p["flows"]) > 1 else []
        found += [] if self.is_app or flow.get("mode", "bulk") == "bulk" else ["application"]
        chance = p.get("loss") or p.get("jitter_us") or p.get("policer")
        found += ["losses, jitter or a policer without receiver.pcap"] if chance and self.lost is None else []
        return found

    def path(self, by_chance=False):
        """Return the simulated path; rates are in whole bytes a second, as tc rounds them."""
        p = self.parameters
        chance = {"loss": f"{100 * p.get('loss', 0)}%", "loss_behind": True} if by_chance else {}
        bottleneck, packets = {"rate": 8 * int(p["rate"] * 1e6 / 8)}, max(2, round(p["buffer"] / PACKET_BYTES))
        if self.bucket:  # which lets a lone packet pass at once, and counts frames
            rates = p.get("steps") or [(0, p["rate"])]
            late = [(t + STEP_LATE_S if t else t, rate * 1e6 * FRAME_BYTES / PACKET_BYTES) for t, rate in rates]
            steps = [(t, 8 * int(rate / 8)) for t, rate in late]
            bottleneck = {"rate": LINK_BPS, "shaper": (steps, f"{TBF_BURST_BYTES}B")}
            packets = round(p["buffer"] * FRAME_BYTES / PACKET_BYTES) // FRAME_BYTES  # bfifo drops what does not fit
        forward_ns, reverse_ns = (
            p[name] * 1000 // PSCHED_TICK_NS * PSCHED_TICK_NS for name in ("fwd_delay", "rev_delay")
        )
        if self.bucket:
            forward_ns -= LINK_NS  # the lab's link behind the bucket takes no time
        if by_chance and (jitter_ns := p.get("jitter_us", 0) * 1000):  # netem's is uniform, and keeps the order
            forward_ns -= jitter_ns
            delays_ns = np.linspace(0, 2 * jitter_ns, JITTER_DELAYS)
            chance |= {"jitter": Jitter("empirical", samples_ns=delays_ns)}
        return Path(
            **bottleneck,
            rtt=f"{forward_ns + reverse_ns}ns",
            reverse=f"{reverse_ns}ns",
            buffer=f"{packets}packets",
            **chance,
        )

    def sender(self):
        """Return the simulated sender."""
        flow = self.parameters["flows"][0]
        sndbuf, most_Bps = flow.get("sndbuf"), flow.get("max_pacing_rate")
        return Sender(
            self.controller,
            start=f"{self.syn_ns}ns",
            stop=f"{self.seconds}s",
            ack_every=2,
            hz=hz_of(self.scenario["kernel_image"]),
            kernel=self.release,
            fq=bool(self.parameters.get("fq")),
            send_buffer=f"{min(sndbuf, WMEM_MAX)}B" if sndbuf else None,
            max_pacing_rate=f"{8 * most_Bps}bit" if most_Bps else None,
        )

    def world(self, compiled=True, seed=None):
        """Return the World of the simulation: the lab's clock, and what skbs take in its kernel.

        Without a seed it is told what chance decided in the recording, and when interrupts of its clock came.
        """
        world = World(self.path(seed is not None), [self.sender()], seed or 1, compiled, exact=True)
        w, f = world.record, world.flows[0]
        w.timer_step_ns = w.clock_read_ns = TIMER_STEP_NS
        w.timer_phase_ns = self.phase_ns[0]
        w.one_host = 1
        w.poll_ns, w.poll_lasts_ns = self.parameters["poll_ms"] * 1_000_000, POLL_LASTS_NS[self.release]
        f.wire_bytes = f.mss + IP_HEADERS + (FRAME_BYTES - PACKET_BYTES if self.bucket else 0)
        f.rcv_clock_ns = 0  # one host, one clock
        f.cuts_skbs = 0 if self.parameters.get("tso") else 1
        f.rcv_frags = MAX_SKB_FRAGS
        f.rcv_truesize = f.mss + SKB_OVERHEAD[self.release]
        f.rcv_ratio = scaling_ratio(f.kernel, f.rcv_truesize)
        if self.is_app:
            f.app_kind, f.app_bytes = SERVED, 0
        if seed is not None:
            legs(f.behind)[0].apart_ns = LINK_NS if self.parameters.get("jitter_us") else 0
            return world
        if self.lost is not None:
            world.lose(0, self.lost, self.lost_behind)
        if len(self.delays):
            world.delay(0, self.delays)
        if self.draws:
            world.prescribe_draws(self.draws)
        if len(self.instants):
            busy = FIRST_NS + np.asarray(self.busy, np.int64)
            world.prescribe_instants([FIRST_NS + times for times in self.instants], FIRST_NS + self.polls, busy)
        return world

    def simulated(self, seconds, mode="compiled"):
        """Return (first byte, time in ns) of every segment that the simulated sender sends."""
        return self._run(self.world(mode == "compiled"), seconds, mode)[:2]

    def used(self, seconds):
        """Return how many of the draws the simulated controller has used by then."""
        world = self.world()
        try:
            self._advance(Runner(world, "compiled", trace=False, packets=False), seconds)
            w = world.record
            return int(w.given_used) - DRAWN if w.given_used < w.given else len(self.draws)
        finally:
            world.close()

    def by_chance(self, seed):
        """Return the same where the seed decides losses and draws, over the whole time, and the mean RTT in us."""
        return self._run(self.world(seed=seed), self.seconds, "compiled")

    def _run(self, world, seconds, mode):
        try:
            runner = Runner(world, mode, trace=False, packets=True)
            self._advance(runner, seconds)
            rows = ends(world.flows[0], runner.packets[0]).rows
            rtt_us = world.flows[0].rtt_sum_us / max(world.flows[0].rtt_count, 1)
        finally:
            world.close()
        sent = rows[(rows[:, 1] & 7) == TAP_SENT]
        return offsets(sent), sent[:, 0] - FIRST_NS, rtt_us

    def _advance(self, runner, seconds):
        """Run a simulation whose application writes as the recorded one."""
        f = runner.world.flows[0]
        if self.is_app:
            runner.to(f.start_ns)
            runner.to(connected := int(f.app_at))
            due = writes(self.parameters["flows"][0], self.looks[self.looks < seconds * 1e9], connected - FIRST_NS)
            for at_ns, size in due:
                runner.to(FIRST_NS + at_ns - 1)
                f.app_at, f.app_bytes = FIRST_NS + at_ns, size
        runner.to(FIRST_NS + int(seconds * 1e9))

    def until(self, seconds):
        """Return (first byte, time in ns) of every segment sent before a time."""
        early = self.times < seconds * 1e9
        return self.offsets[early], self.times[early]


def recordings(folders):
    """Return the folders of the recordings in or below `folders`."""
    found = []
    for folder in folders:
        files = [folder / "scenario.json"] if (folder / "scenario.json").exists() else folder.glob("*/scenario.json")
        found += sorted(file.parent for file in files)
    return found


def keep(recordings, seconds, file):
    """Write what a comparison needs of the first seconds of recordings, with their scenarios, as a file for `kept`."""
    arrays, entries = {}, []
    for k, r in enumerate(recordings):
        offsets, times = r.until(seconds)
        arrays |= {
            f"offsets_{k}": np.diff(offsets, prepend=0),
            f"times_{k}": np.diff(times, prepend=0) // TIMER_STEP_NS,
        }
        told = {"syn_ns": r.syn_ns, "draws": r.draws, "phase_ns": r.phase_ns, "seconds": seconds}
        losses = None if r.lost is None else [number for number in r.lost if number < len(offsets)]
        arrays |= {
            f"instants_{k}_{kind}": np.diff(times[times < seconds * 1e9], prepend=0)
            for kind, times in enumerate([*r.instants, r.polls])
        }
        arrays |= {f"looks_{k}": np.diff(r.looks[r.looks < seconds * 1e9], prepend=0)} if r.is_app else {}
        arrays |= {f"delays_{k}": np.asarray(r.delays[: len(offsets) + HANDSHAKE], np.int32)} if len(r.delays) else {}
        told["lost_behind"] = [number for number in r.lost_behind if number < len(offsets)]
        scenario = {name: r.scenario[name] for name in ("name", "parameters", "kernel", "kernel_image", "sha256")}
        entries.append({"scenario": scenario, "lost": losses} | told)
    np.savez_compressed(file, entries=np.frombuffer(json.dumps(entries).encode(), np.uint8), **arrays)


def kept(file):
    """Return {name: (recording, seconds)} of a file that `keep` wrote."""
    held = np.load(file)
    found = {}
    for k, entry in enumerate(json.loads(held["entries"].tobytes())):
        offsets, times = np.cumsum(held[f"offsets_{k}"]), np.cumsum(held[f"times_{k}"]) * TIMER_STEP_NS
        told = [entry.get(name, ()) for name in ("syn_ns", "draws", "lost", "lost_behind")]
        r = Recording(entry["scenario"], offsets, times, *told)
        r.phase_ns, r.delays = entry["phase_ns"], held.get(f"delays_{k}", ())
        names = [f"instants_{k}_{kind}" for kind in range(5)]
        *r.instants, r.polls = [np.cumsum(held.get(name, ())).astype(np.int64) for name in names]
        r.looks = np.cumsum(held.get(f"looks_{k}", ()))
        found[r.name] = r, entry["seconds"]
    return found
