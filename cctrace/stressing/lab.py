"""A finding as a scenario of the kernel lab in virtual time (docs/lab.md), so that a real sender can repeat it.

The lab's bottleneck is a token bucket whose rate a process changes at given times. Its delays and its loss are
constant, its receiver acknowledges at once, and its applications write always or in chunks of a size: it repeats
histories of rates, and no others.
"""

from typing import Any

from cctrace.cc import controller, kernel_name
from cctrace.errors import ArgumentError
from cctrace.stressing.stress import Finding
from cctrace.tcp.wire import PACKET_BYTES

OF_LAB = {"bbr3": "bbr"}  # kernels with BBRv3 call it so
LACKING = {"rtt": "base RTTs that change", "loss": "losses at certain times"}
HELD, PAUSES = "held ACKs", "pauses of the application by the clock"
SENDER_PORT, RECEIVER_PORT = 40001, 5001
SYSCTL = {  # windows of 64 MB, and no memory of former connections
    "net.ipv4.tcp_rmem": "4096 131072 67108864",
    "net.ipv4.tcp_wmem": "4096 65536 67108864",
    "net.ipv4.tcp_no_metrics_save": "1",
}
IP_BYTES = 1500  # of a full packet, which the lab's rates and buffers count


def lab_scenario(finding: Finding, name: str) -> dict[str, Any]:
    """Return the fields of a lab's scenario: rates in Mbit/s of IP bytes, delays in us, the buffer in bytes.

    Raises `ArgumentError` if the history has something that the lab does not.
    """
    history, setting = finding.history, finding.problem.setting
    kinds = {one.kind for one in history.disturbances}
    lacking = [text for kind, text in LACKING.items() if kind in kinds]
    lacking += [HELD] * (history.hold_s > 0) + [PAUSES] * (history.app is not None)
    if lacking:
        raise ArgumentError(f"the lab of kernels changes rates only; this history has {', '.join(lacking)}")
    of_ip = IP_BYTES / PACKET_BYTES
    steps = [
        [round(at, 6), round(value * setting.rate_bps * of_ip / 1e6, 6)] for at, value in history.steps("rate", 1.0)
    ]
    one_way_us = setting.rtt_ns // 2000
    flows = [
        {
            "id": k,
            "sport": SENDER_PORT + k,
            "dport": RECEIVER_PORT + k,
            "start": 0.0,
            "stop": setting.duration_s,
            "cc": cc,
        }
        for k, cc in enumerate(_kernel_name(sender.cc) for sender in setting.senders(history))
    ]
    return {
        "name": name,
        "rate": steps[0][1],
        "steps": steps,
        "fwd_delay": one_way_us,
        "rev_delay": setting.rtt_ns // 1000 - one_way_us,
        "buffer": int(setting.buffer_bytes * of_ip),
        "qdisc": "droptail",
        "seconds": setting.duration_s,
        "seed": 1,
        "poll_ms": 10,
        "snaplen": 100,
        "sysctl": SYSCTL,
        "flows": flows,
    }


def _kernel_name(spec: Any) -> str:
    cls, _ = controller(spec)
    name = getattr(cls, "__name__", str(spec)) if isinstance(spec, type) else str(spec).partition(":")[0]
    if isinstance(spec, type) or cls.view != "linux":
        raise ArgumentError(f"the lab of kernels has no {name}: only controllers that Linux has")
    return OF_LAB.get(name, kernel_name(name))
