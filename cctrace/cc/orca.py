"""Orca: CUBIC whose window a learned policy rescales every 20 ms. The policy is yours; its weights are not shipped.

Model:  every interval   a = policy(last 10 observations) in [-1, 1],   cwnd = max(4, 4^a * cwnd)
        in between       CUBIC, per ACK

            SLOW_START: cwnd * 1.1 per interval, on top of CUBIC --(cwnd > ssthresh)--> the policy decides

An observation is seven numbers about the interval that ends, each about 0 to 1 on any path:

    0  throughput / max throughput so far              bytes/s delivered
    1  pacing rate / max throughput, at most 10
    2  5 * loss rate / max throughput                  bytes/s marked lost
    3  RTT samples in the interval / cwnd
    4  length of the interval, s
    5  min RTT / smoothed RTT
    6  min(1, 1.25 * min RTT / smoothed RTT)           1: the delay is within the margin that the reward forgives

A policy is a function of an array of shape (10, 7), the newest observation last, zeros before the first; `.ravel()` is
the 70-vector of the released network. It returns one number; what lies outside [-1, 1] is clipped.

>>> from cctrace.cc.orca import with_policy
>>> HalfOnDelay = with_policy(lambda seen: -0.5 if seen[-1, 6] < 1 else 0.0)  # halve the window while a queue stands

`with_policy` gives a class that is accepted wherever a controller's name is; `onnx_policy(path)` loads a policy, and so
does ``orca:policy=model.onnx``. All but the policy is compiled; the policy stays Python (NumPy, ONNX), and is asked
once per interval.

Left open, and chosen here: the released kernel patch reports throughput and losses; here they are the
segments delivered and marked lost, times the MSS. An interval ends with the first ACK that has an RTT after 20 ms (the
release sleeps 20 ms, then waits for an RTT). The normaliser of observations is off in the release and absent here. The
pacing rate it sees is the one that Linux computes for every flow, whether or not it is paced; nothing is paced by it.

Sources: [Abbasloo20] section 4; [orca-src] Soheil-ab/Orca rl-module/envwrapper.py, src/orca-server-mahimahi.cc.
Differs from cubic (Linux 4.15; the release patches 4.13) in: pkts_acked (adds the interval and the decision).
"""

import functools
import os
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from cctrace.cc.ack import Ack
from cctrace.cc.asking import answering, ask
from cctrace.cc.base import Controller, Param, floats
from cctrace.cc.cubic import Cubic
from cctrace.cc.linux import USEC_PER_MSEC, USEC_PER_SEC
from cctrace.errors import ArgumentError
from cctrace.extras import pip

Policy = Callable[[np.ndarray], float]
OBSERVATION = 7
HISTORY = 10
MIN_CWND = 4
SLOW_START_GROWTH = 1.1  # per interval
DELAY_MARGIN = 1.25
LOSS_WEIGHT = 5
MAX_PACING = 10.0


def no_policy(observations: np.ndarray) -> float:
    """Stand for the policy that the user has to give."""
    raise ArgumentError(
        "orca needs a policy, and its learned weights are not part of cctrace: "
        "'orca:policy=model.onnx', or the class of cctrace.cc.orca.with_policy(function)"
    )


def with_policy(policy: Policy) -> type[Controller]:
    """Return an `Orca` class that asks `policy`.

    `policy`: takes an ndarray of shape (10, 7), see the module's header, and returns a number, clipped to [-1, 1].
    Raises `ArgumentError` if `policy` is not callable.
    """
    if not callable(policy):
        raise ArgumentError(f"policy={policy!r} is not a function of an array of shape ({HISTORY}, {OBSERVATION})")
    return type("Orca", (Orca,), {"policy_at": _address_of(policy), "__module__": __name__})


def _address_of(policy: Policy) -> int:
    """Return where compiled code asks a policy."""

    def decide(numbers: np.ndarray) -> float:
        action = float(policy(numbers.reshape(HISTORY, OBSERVATION)))
        if action != action:
            raise ArgumentError("the policy of orca returned NaN; it must return a number in [-1, 1]")
        return action

    return answering(decide, HISTORY * OBSERVATION)


def onnx_policy(path: str | os.PathLike[str]) -> Policy:
    """Return the policy that an ONNX model computes.

    `path`: a model of one input of shape (1, 70), float32, and one output, the action. Raises `ArgumentError` if
    there is no such file, it is not an ONNX model, or onnxruntime is not installed.
    """
    if not os.path.isfile(path):
        raise ArgumentError(f"policy={os.fspath(path)!r}: no such file; give an ONNX model of Orca's learned weights")
    try:
        import onnxruntime
    except ImportError:
        raise ArgumentError(f"{path}: an ONNX policy needs onnxruntime: {pip()} install onnxruntime") from None
    try:
        session = onnxruntime.InferenceSession(str(path))
    except Exception as problem:  # onnxruntime raises classes of its own for each way in which a file is no model
        raise ArgumentError(f"policy={os.fspath(path)!r} is not an ONNX model ({problem})".replace("\n", " ")) from None
    name = session.get_inputs()[0].name

    def policy(observations: np.ndarray) -> float:
        inputs = {name: observations.astype(np.float32).reshape(1, -1)}
        return float(np.ravel(session.run(None, inputs)[0])[0])

    return policy


@functools.lru_cache(maxsize=16)
def _with_file(cls: type[Controller], path: str) -> type[Controller]:
    return with_policy(onnx_policy(path))


class Orca(Cubic):
    """Orca's frame around a policy; see the module's header."""

    named_settings: ClassVar[dict[str, Any]] = {"policy": _with_file}
    params = Cubic.params | {"interval_ms": Param(20, 1, 10_000, "time between decisions, ms [Abbasloo20]")}

    policy_at: int = _address_of(no_policy)
    past = floats(HISTORY * OBSERVATION)
    interval_start_us: int = 0
    delivered_before: int = 0  # segments, before the interval
    lost_before: int = 0
    rtt_samples: int = 0
    max_throughput: float = 0.0  # bytes/s
    slow_start_passed: bool = False

    def pkts_acked(self, ack: Ack) -> None:  # [orca-src] CntThread
        """Count the ACK; at the end of an interval let the policy rescale the window."""
        super().pkts_acked(ack)
        if ack.rs_rtt_us < 0:
            return
        if self.interval_start_us == 0:
            self.start_interval(ack)
        self.rtt_samples = self.rtt_samples + 1
        if ack.now_us - self.interval_start_us >= self.interval_ms * USEC_PER_MSEC:
            self.end_interval(ack)
            self.start_interval(ack)

    def start_interval(self, ack: Ack) -> None:
        """Begin a monitor interval."""
        self.interval_start_us = ack.now_us
        self.delivered_before = ack.delivered
        self.lost_before = ack.lost
        self.rtt_samples = 0

    def end_interval(self, ack: Ack) -> None:  # [orca-src] CntThread
        """Speed up slow start, or decide."""
        self.slow_start_passed = self.slow_start_passed or self.snd_ssthresh < self.snd_cwnd
        if not self.slow_start_passed:
            self.snd_cwnd = int(SLOW_START_GROWTH * self.snd_cwnd)
            return
        self.observe(ack)
        action = ask(self.policy_at, self.past)
        percent = int(100 * 4.0 ** min(max(action, -1.0), 1.0))
        self.snd_cwnd = max(percent * self.snd_cwnd // 100, MIN_CWND)

    def observe(self, ack: Ack) -> None:  # [orca-src] envwrapper.py TCP_Env_Wrapper.get_state
        """Append the interval's seven numbers to the policy's observations."""
        seconds = (ack.now_us - self.interval_start_us) / USEC_PER_SEC
        throughput = (ack.delivered - self.delivered_before) * ack.mss / seconds
        loss_rate = (ack.lost - self.lost_before) * ack.mss / seconds
        self.max_throughput = max(self.max_throughput, throughput)
        srtt_us = max(ack.srtt_us8, 1) / 8
        oldest = len(self.past) - OBSERVATION
        for i in range(oldest):
            self.past[i] = self.past[i + OBSERVATION]
        self.past[oldest] = self.of_most(throughput)
        self.past[oldest + 1] = min(self.of_most(self.stack_pacing_rate(ack)), MAX_PACING)
        self.past[oldest + 2] = self.of_most(LOSS_WEIGHT * loss_rate)
        self.past[oldest + 3] = self.rtt_samples / self.snd_cwnd
        self.past[oldest + 4] = seconds
        self.past[oldest + 5] = ack.tcp_min_rtt_us / srtt_us
        self.past[oldest + 6] = min(DELAY_MARGIN * ack.tcp_min_rtt_us / srtt_us, 1.0)

    def of_most(self, rate: float) -> float:
        """Return a rate as a share of the largest throughput so far; 0 before there is any."""
        return rate / self.max_throughput if self.max_throughput > 0.0 else 0.0

    def stack_pacing_rate(self, ack: Ack) -> float:
        """Bytes/s that Linux would pace CUBIC at [Linux415] tcp_update_pacing_rate."""
        ratio = 2.0 if self.snd_cwnd < self.snd_ssthresh // 2 else 1.2
        window = max(self.snd_cwnd, ack.packets_out) * ack.mss
        return ratio * window * USEC_PER_SEC * 8 / max(ack.srtt_us8, 1)
