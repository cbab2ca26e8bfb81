"""Set up the memory of a simulation from a path and its flows."""

import mmap
from types import SimpleNamespace

import numpy as np

from cctrace import schema
from cctrace.cc import controller
from cctrace.cc.base import checked_params
from cctrace.errors import ArgumentError
from cctrace.lang import memory
from cctrace.lang.fields import fields_of, record_dtype
from cctrace.lang.machine import INTERPRETED, with_fields
from cctrace.sim.core import bridge, receive_window, structs, write_queue
from cctrace.sim.core.aqm import pie_vars_init
from cctrace.sim.core.delay import next_delay
from cctrace.sim.core.receiver import KEPT_BLOCKS
from cctrace.sim.core.rings import RINGS
from cctrace.sim.core.rng import seeded
from cctrace.sim.core.view import DRAWN, LINUX_BITS, LINUX_COLUMNS, Q_RAND, QUIC_BITS, draw
from cctrace.tcp.ecn import ACCURATE_ECN, NO_ECN
from cctrace.tcp.wire import HEADER_BYTES, PACKET_BYTES, QUIC_ACK_BYTES
from cctrace.units import parse_size_bytes

FIRST_NS = 1_000_000_000  # when a simulation starts: the stacks' clocks do not start at zero
_CACHE_LINES_APART = 5
_FIRST_RING = 128  # entries that a flow's rings begin with
MAX_PACKETS = 1 << 18  # in the path and its buffer
MAX_WINDOW = "64MB"
MAX_LATE_NS = 1_000_000
PUSH_LATE_NS = 1_000_000  # nginx's timers are counted in milliseconds
MS = 1_000_000
_CLOCKS = 1  # of what a seed draws: where a receiver's millisecond begins


class World:
    """The arrays of one simulation, placed; `record` is its WORLD record, `flows` its FLOW records.

    `columns` is `flows` again, by ``["name"]`` alone, which is twenty times as fast as an attribute of a record.
    """

    def __init__(self, path, flows, seed, compiled, exact):
        self.compiled = compiled and not INTERPRETED
        self._placed = []
        self._kept = []
        self._controllers = []  # per flow: the layout of its record, or the object itself
        self.worlds = with_fields(np.zeros(1, structs.WORLD))
        self.record = self.worlds[0]
        self.columns = np.zeros(len(flows), structs.FLOW)
        self.flows = self.columns.view(np.recarray)
        w = _blank(structs.WORLD)
        w.flows = self.place(with_fields(self.columns))
        w.n = len(flows)
        w.entrants = 1 << (len(flows) - 1).bit_length()
        w.last_key_ns = structs.NEVER // w.entrants - 1
        w.tournament = self.place(np.full(2 * w.entrants, structs.NEVER))
        w.timer_step_ns = 1
        w.instants = self.place(np.full(structs.INSTANTS_HEAD, structs.INSTANTS_HEAD))
        w.linux_draws = self.place(np.zeros(DRAWN, np.int64))
        w.quic_view = self.place(with_fields(np.zeros(1, structs.QUIC_VIEW_ROW)))
        w.rng = self.place(seeded(seed).view(np.int64))
        ring = self._ring_size(path, flows)
        try:
            self._set_path(w, path)
            if path.aqm != "droptail":
                self._set_aqm(w, path, flows)
            clocks_ns = np.random.default_rng([seed, _CLOCKS]).integers(0, MS, len(flows))
            places = self.columns.view(np.int64).reshape(len(flows), -1)[:, structs.VIEW_WORD :]
            for index, (flow, clock_ns, place) in enumerate(zip(flows, clocks_ns, places, strict=True)):
                f = _blank(structs.FLOW)
                f.index = index
                self._set_flow(f, flow, path, ring, int(clock_ns))
                if f.profile == structs.QUIC:
                    f.cc_view = w.quic_view
                else:
                    f.cc_view, f.v_ecn_ok = self.place(place[:LINUX_COLUMNS]), int(f.ecn > NO_ECN)
                if flow.profile != "reference" and not exact:
                    self._set_lateness(f, flow, path)
                self.columns[index] = tuple(vars(f).values())
            self._draw_first(w)
            self.worlds[0] = tuple(vars(w).values())
        except BaseException:
            self.close()
            raise

    def has(self, profile, usual):
        """Whether all fields have the values that `structs.known_values` tells."""
        rows = (self.worlds, self.columns)
        return all(
            (row.view(np.int64).reshape(len(row), -1)[:, places] == values).all()
            for row, (places, values) in zip(rows, structs.known_words(profile, usual), strict=True)
        )

    def prescribe_draws(self, draws):
        """Prescribe raw random numbers for the controllers, to be used before any others."""
        self.record.given = len(draws)
        self.record.given_draws = self.place(np.array(draws, np.int64))
        self._draw_first(self.record)

    def lose(self, flow, orders, behind=()):
        """Prescribe the lost transmissions of a flow (counted from 0).

        The queue drops them, except those that are also in `behind`, which are lost after they have passed it.
        """
        f = self.flows[flow]
        f.losses_given, f.lost_given, f.lost_at = 1, len(orders), 0
        places = np.where(np.isin(orders, behind), structs.LOST_BEHIND, structs.LOST_IN_QUEUE)
        f.lost_orders = self.place(np.append(np.array(orders, np.int64) << 2 | places, 0))

    def delay(self, flow, delays_ns):
        """Prescribe how long SYN, ACK and each transmission of a flow take from the bottleneck to the receiver."""
        f = self.flows[flow]
        f.delays_given, f.delays = len(delays_ns), self.place(np.array(delays_ns, np.int64))

    def prescribe_instants(self, kinds, polls=(), busy=((), ())):
        """Prescribe recorded instants at which packets pass, if close to the time at which they are due.

        `kinds` are the times of ARRIVALS, ACKS, SENDS and ANSWERS, ns of the simulation, each in ascending order;
        `polls` those of the interrupts that woke the process that polls the counters; it had the CPU from the times
        `busy[0]` to `busy[1]`.
        """
        given = [*kinds, (), polls, *busy]
        ends = structs.INSTANTS_HEAD + np.cumsum([0, *map(len, given)])
        self.record.instants = self.place(np.concatenate([ends, *given]).astype(np.int64))

    def _draw_first(self, w):
        """Put random numbers for the first call into each view that is in use."""
        of_quic = self.columns["profile"] == structs.QUIC
        with np.errstate(over="ignore"):
            if not of_quic.all():
                draw(w, w.linux_draws, 0, 0, LINUX_BITS)
            if of_quic.any():
                draw(w, w.quic_view, Q_RAND, 0, QUIC_BITS)

    def place(self, array):
        """Keep an array for the life of the world; return its address."""
        address = memory.place(array)
        self._placed.append(address)
        return address

    @staticmethod
    def array(address):
        """Return the int64 array at an address."""
        return memory.words(address).view(np.int64)

    def state_bytes(self, flow):
        """Return the current state of a flow's controller: the bytes of a record of its class (`lang.fields`)."""
        controller = self._controllers[flow]
        if isinstance(controller, np.dtype):
            return self.array(self.columns["state"][flow]).tobytes()[: controller.itemsize]
        record = np.zeros((), record_dtype(type(controller)))
        for name in fields_of(type(controller)):
            record[name] = getattr(controller, name)
        for slot, name in enumerate(bridge.shared_fields(type(controller))[1:], 1):
            record[name] = self.array(self.flows[flow].state)[slot]  # the stack may have written it since the last call
        return record.tobytes()

    def check(self):
        """Raise the error of a failed call to a compiled controller, if any."""
        for code in self._kept:
            code.check()

    def close(self):
        """Forget the arrays."""
        memory.forget(self._placed)

    def _set_path(self, w, path):
        w.buffer_bytes = path.buffer_bytes
        least = HEADER_BYTES if path.shared else 500  # bytes of a packet: ACKs of either stack have more
        size = 1 << int(np.ceil(np.log2(path.buffer_bytes / least + 16)))
        w.q_mask = size - 1
        w.q_ns = self.place(np.zeros(size, np.int64))
        w.q_bytes = self.place(np.zeros(size, np.int64))
        w.q_which = self.place(np.full(size, structs.NO_DATA))
        times, rates = path.link_steps()
        w.steps_ns = self.place(times + FIRST_NS)
        w.steps_Bps = self.place(rates / 8.0)
        w.steps = len(times)
        w.free_at = FIRST_NS
        w.serve_at = structs.NEVER
        w.police_at = FIRST_NS
        w.shape_at = FIRST_NS
        for name, value in path.world_fields().items():
            shifted = value + FIRST_NS if name in ("loss_ns", "shape_ns") else value
            setattr(w, name, self.place(shifted) if isinstance(shifted, np.ndarray) else shifted)
        tables = [path.delay_steps(self.place, before) for before in (True, False)]
        for words, _ in tables:
            words[:, 0] += FIRST_NS
        self._delays = [(len(words), self.place(words.ravel()), self.place(reals.ravel())) for words, reals in tables]

    def _set_aqm(self, w, path, flows):
        """Set up a queue under active management."""
        q = with_fields(np.zeros(1, structs.AQM))
        for name, value in path.aqm_fields().items():
            setattr(q[0], name, value)
        q[0].mtu = max(flow.sizes[1] for flow in flows)
        q[0].next_update += FIRST_NS
        pie_vars_init(q[0])
        count = {structs.FQ_CODEL: len(flows), structs.DUALPI2: 2}.get(int(q[0].kind), 1)
        queues = with_fields(np.zeros(count, structs.LANE))
        for queue in queues:
            for ring in ("flow", "order", "at"):
                setattr(queue, ring, self.place(np.zeros(w.q_mask + 1, np.int64)))
        w.aqm, w.lanes, w.n_lanes = self.place(q), self.place(queues), count

    def queue_delay_ns(self, at_ns):
        """Return how long a packet that came now would wait, in a queue that serves in the order of arrival."""
        w = self.record
        delay = max(int(w.free_at) - FIRST_NS - at_ns, 0)
        if w.aqm == 0:
            return delay
        q = structs.aqms(w.aqm)[0]
        rate = self.array(w.steps_Bps).view(np.float64)[w.step]
        return delay + (int((w.queue_bytes - q.serving) * 1e9 / rate) if rate > 0 else 0)

    def _leg(self, base_ns, delays):
        """Return the address of a stretch of a flow's path."""
        leg = _blank(structs.LEG)
        leg.base_ns = base_ns
        leg.steps, leg.words, leg.reals = delays
        next_delay(leg, FIRST_NS)
        return self.place(with_fields(np.array([tuple(vars(leg).values())], structs.LEG)))

    @staticmethod
    def _ring_size(path, flows):
        """A power of two that holds what can be outstanding: several times path and buffer, whatever the controller."""
        extra_ns = max(0 if flow.rtt_ns is None else flow.rtt_ns - path.rtt_ns for flow in flows)
        pipe = path.max_rate_bps() / 8e9 * (path.max_delay_ns() + max(extra_ns, 0)) + path.buffer_bytes
        pipe += path.world_fields()["shape_bucket"] if path.has_only_shaper else 0  # which passes at once
        packet = min(PACKET_BYTES if flow.mss is None else flow.sizes[1] for flow in flows)
        if pipe / packet > MAX_PACKETS:
            raise ArgumentError(
                f"path and buffer hold {pipe / 1e6:.0f} MB, more than the {MAX_PACKETS} packets allowed"
            )
        return 1 << int(np.clip(np.ceil(np.log2(16 * pipe / 500 + 4096)), 12, 20))

    def _set_rings(self, f, size):
        """Give a flow memory for its rings, which the system allocates on use; at first they use a part of it."""
        # In one piece, so that those of one index are not in one cache set.
        lengths = size * np.array(list(RINGS.values()))
        ends = np.cumsum(lengths + _CACHE_LINES_APART * 8)
        block = _memory(int(ends[-1]))
        addresses = self.place(block) + 8 * (ends - lengths)
        if not self.compiled:
            records = {"seg": structs.SEGMENT, "tx": structs.TRANSMISSION, "ack": structs.ACK}
            records |= {"told": structs.TOLD, "way": structs.COMING, "arr": structs.COMING}
            for name, end, length in zip(RINGS, ends, lengths, strict=True):
                piece = block[end - length : end]
                self.place(with_fields(piece.view(records[name])) if name in records else piece)
        for name, address in zip(RINGS, addresses, strict=True):
            setattr(f, name, address)
        f.most_mask, f.ack_mask = size - 1, _FIRST_RING // 2 - 1
        f.mask = f.least_mask = min(size, _FIRST_RING) - 1

    def _set_flow(self, f, flow, path, ring, clock_ns):
        cls, params = controller(flow.cc)
        quic = cls.view == "quic"
        profile = structs.QUIC if quic else structs.PROFILES[flow.profile]
        f.profile = profile
        self._set_rings(f, ring)
        f.sack_blocks = self.place(np.zeros(2 * KEPT_BLOCKS, np.int64))
        f.mss, f.wire_bytes = flow.sizes
        if f.wire_bytes > path.buffer_bytes:
            raise ArgumentError(
                f"mss={flow.mss!r}: a packet of {f.wire_bytes} bytes does not fit buffer={path.buffer!r}"
            )
        f.has_on_ack, f.by_acks = int(cls.has_on_ack), int(cls.app_limited_by_acks)
        f.entries = sum(1 << code for name, code in schema.LINUX_EVENTS.items() if hasattr(cls, name))
        f.fq = int(flow.fq)
        self._set_controller(f, cls, params | bridge.params_of_stack(cls, flow))
        f.max_rate = flow.max_pacing_rate_Bps or f.max_rate
        f.rtt_tally = self.place(np.zeros(structs.TALLY_SIZE, np.int64))
        f.queue_tally = self.place(np.zeros(structs.TALLY_SIZE, np.int64))
        self._set_windows(f, flow, ring)
        f.start_ns = FIRST_NS + flow.start_ns
        f.stop_ns = FIRST_NS + flow.stop_ns if flow.stop_ns is not None else structs.NEVER
        f.hz = flow.hz
        f.tick_us = 1_000_000 // flow.hz if profile == structs.LINUX else 1
        self._set_way(f, flow, path)
        self._set_acks(f, flow)
        f.rcv_clock_ns = clock_ns
        f.ack_slot_ns = flow.ack_slot_ns
        f.comp_sack_nr = flow.comp_sack_nr
        f.ecn = structs.FEEDBACK[flow.feedback]
        if f.ecn != NO_ECN:
            f.ect_marks = structs.ECT | structs.ECT_1 if cls.ect_1 else structs.ECT
            f.ect_always = int(cls.ecn_echo != "classic" or f.ecn == ACCURATE_ECN)
        f.delivered = 1
        f.app_kind, f.app_bytes, f.app_period_ns, f.app_on_ns = flow.application
        f.app_at = f.start_ns
        for timer in structs.TIMERS:
            setattr(f, timer, structs.NEVER)
        f.undo_marker = f.d1 = f.d2 = f.d3 = -1
        f.min_rtt = schema.U32_MAX
        f.reordering = 3
        f.reo_wnd_steps = 1
        f.q_late_ns = flow.push_late_ns

    @staticmethod
    def _set_windows(f, flow, ring):
        """Give a flow the send buffer and the receive window that it begins with."""
        f.rwnd = parse_size_bytes(flow.rwnd or MAX_WINDOW) // f.mss
        f.most_out = min(f.rwnd, ring // 4)  # what the rings hold; a window may be larger
        f.snd_right = f.rcv_right = structs.NEVER
        f.sndbuf, f.most_sndbuf = write_queue.FIRST_SNDBUF_BYTES, write_queue.MAX_SNDBUF_BYTES
        if flow.send_buffer is not None:
            f.sndbuf = f.most_sndbuf = max(
                write_queue.SNDBUF_FACTOR * flow.send_buffer_bytes, write_queue.MIN_SNDBUF_BYTES
            )
        f.max_window = receive_window.FIRST_WINDOW_BYTES if flow.rwnd is None else f.rwnd * f.mss
        f.kernel = structs.KERNELS[flow.kernel]
        f.rcv_truesize = structs.TRUESIZE_BYTES
        f.rcv_ratio = receive_window.scaling_ratio(f.kernel, structs.TRUESIZE_BYTES)
        if f.profile == structs.LINUX and flow.rwnd is None:
            f.snd_right = f.rcv_right = f.rcv_ssthresh = receive_window.FIRST_WINDOW_BYTES
            if f.kernel != structs.LINUX_6_18:
                f.rcv_ssthresh = receive_window.FIRST_CLAMP_BYTES
            f.rcvbuf = receive_window.FIRST_BUFFER_BYTES
            f.rcv_copied = min(receive_window.INITIAL_COPIED, receive_window.FIRST_WINDOW_BYTES // f.mss) * f.mss

    def _set_way(self, f, flow, path):
        """Give a flow its delays: before and behind the bottleneck, and back."""
        f.fwd_ns = path.rtt_ns - path.reverse_ns if flow.rtt_ns is None else flow.rtt_ns - path.reverse_ns
        before_ns = path.before_ns(f.fwd_ns)
        if before_ns > 0 or path.jitter_before is not None:
            f.before = self._leg(before_ns, self._delays[0])
        f.behind = self._leg(f.fwd_ns - before_ns, self._delays[1])
        f.rev_ns = path.reverse_ns
        f.ack_bytes = f.wire_bytes - f.mss + (QUIC_ACK_BYTES if f.profile == structs.QUIC else 0)

    @staticmethod
    def _set_lateness(f, flow, path):
        """Set the hosts' inaccuracy: a sender processes an ACK within a packet's service time, QUIC's timer fires
        within a ms.

        The former prevents phase-locking of flows [Floyd92].
        """
        f.ack_late_ns = min(round(f.wire_bytes * 8e9 / path.max_rate_bps()), MAX_LATE_NS)
        if flow.push_late is None:
            f.q_late_ns = PUSH_LATE_NS

    @staticmethod
    def _set_acks(f, flow):
        policy = flow.ack_policy
        f.ack_every, f.delack_ns, f.after_gap = policy.every, policy.delay_ns, policy.after_gap
        f.decimated_from, f.decimated_every = policy.decimated_from, policy.decimated_every
        f.decimated_ns = policy.decimated_ns(int(f.fwd_ns + f.rev_ns))
        f.rcv_largest = -1

    def _set_controller(self, f, cls, params):
        """Give the flow its controller: a function pointer and its record, or an object and the fields it shares."""
        params = checked_params(cls, params)
        f.paced = int(cls.sets_pacing_rate or params.get("paced", 0) != 0 or f.fq == 1)
        f.max_rate, f.gso_max = params.get("max_pacing_rate", 0), params.get("gso_max_bytes", 0)
        f.pace_overhead = cls.pacing_overhead_bytes
        f.slow_burst = cls.slow_burst_segments
        f.parts_as_v2 = int(cls.parts_as_v2)
        if self.compiled:
            from cctrace.lang.compile import compiled

            code = next((kept for kept in self._kept if kept.cls is cls), None) or compiled(cls)
            state = code.new_state(**params)
            self._kept.append(code)
            self._controllers.append(code.state_dtype)
            f.cc = code.address
            slots = {name: offset // 8 for name, (_, offset, *_) in code.state_dtype.fields.items()}
        else:
            instance = cls(**params)
            self._controllers.append(instance)
            shared = bridge.shared_fields(cls)
            state = np.array([int(getattr(instance, name)) for name in shared], np.int64)
            f.cc = bridge.address_of(instance)
            self._placed.append(int(f.cc))
            slots = {name: slot for slot, name in enumerate(shared)}
        f.q_ssthresh_slot = slots.get("ssthresh", 0)
        f.min_rtt_slot = slots["min_rtt_us"] if cls.bursts_by_min_rtt else 0
        f.burst_slot = slots.get("max_tso_burst", 0)
        f.state = self.place(state)


def _blank(dtype):
    """Return the fields of a record, all zero, to be filled in: NumPy's take ten times as long to set."""
    return SimpleNamespace(**dict.fromkeys(dtype.names, 0))


def _memory(words):
    """Return zeros, which the system provides on first use (`np.zeros` may clear recycled memory).

    Private ones: the system takes twice as long to provide what processes could share.
    """
    kind = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    return np.frombuffer(mmap.mmap(-1, 8 * words, **kind), np.int64)
