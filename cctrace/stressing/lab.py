"""A finding as a scenario of the kernel lab in virtual time (docs/lab.md), so that a real sender can repeat it.

The lab's bottleneck is a token bucket whose rate a process changes at given times; netem holds ACKs until slots end
(`slot`); applications write always, or in chunks. Base RTT and random loss are constant there.
"""

from typing import Any

from cctrace.cc import controller, kernel_name
from cctrace.errors import ArgumentError
from cctrace.stressing.stress import Finding
from cctrace.tcp.wire import PACKET_BYTES

OF_LAB = {"bbr3": "bbr"}  # its name in kernels that have BBRv3
LACKING = {"rtt": "base RTTs that change", "loss": "losses at certain times"}
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
    kinds = {disturbance.kind for disturbance in history.disturbances}
    lacking = [text for kind, text in LACKING.items() if kind in kinds]
    if history.hold_s and setting.against is not None:
        lacking.append("ACKs held of one flow only")
    if lacking:
        raise ArgumentError(f"the lab of kernels has no {' and no '.join(lacking)}, which this history needs")
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
    if history.app is not None:
        chunk = setting.chunk_bytes(history.app[0])
        flows[0] |= {"mode": "chunks", "chunk_bytes": chunk, "chunk_interval": round(sum(history.app), 6)}
    # The lab writes `rev_jitter_us` into netem's command line as it stands, between "delay … " and "us rate …".
    slot_us = round(history.hold_s * 1e6)
    slots = {"rev_jitter_us": f"0us slot {slot_us}us {slot_us}"} if slot_us else {}
    return slots | {
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
