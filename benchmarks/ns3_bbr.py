"""Packets per second of CPU time: ns-3's TcpBbr and cctrace's bbr2022, one flow at 1 Gbit/s and 20 ms, side by side.

    python -m benchmarks.ns3_bbr [--ns3 PYTHON] [--seconds 2]

PYTHON is an interpreter that has ns-3 (default: /opt/ns3/bin/python, or the one that runs this file):

    python3.11 -m venv /opt/ns3 && /opt/ns3/bin/pip install ns3

Without ns-3 it says so and prints its own figure. Both simulate the same dumbbell (a bottleneck of 1 Gbit/s with
2 BDP of buffer, segments of 1448 bytes, an ACK per two) and count data packets; neither counts what it takes to start.
"""

import argparse
import json
import os
import subprocess
import sys
import time

RATE_BPS, RTT_MS, MSS, BUFFER_BYTES = 1_000_000_000, 20, 1448, 5_000_000
DEFAULT_NS3 = "/opt/ns3/bin/python"


def run_ns3(seconds):
    """Simulate in ns-3 and print data packets, goodput and CPU time as JSON."""
    from ns import ns

    ns.Config.SetDefault("ns3::TcpL4Protocol::SocketType", ns.StringValue("ns3::TcpBbr"))
    ns.Config.SetDefault("ns3::TcpSocket::SegmentSize", ns.UintegerValue(MSS))
    ns.Config.SetDefault("ns3::TcpSocket::SndBufSize", ns.UintegerValue(64_000_000))
    ns.Config.SetDefault("ns3::TcpSocket::RcvBufSize", ns.UintegerValue(64_000_000))
    ns.Config.SetDefault("ns3::TcpSocket::DelAckCount", ns.UintegerValue(2))
    nodes = ns.NodeContainer()
    nodes.Create(3)
    access, bottleneck = ns.PointToPointHelper(), ns.PointToPointHelper()
    for helper, rate, delay in ((access, "10Gbps", "10us"), (bottleneck, f"{RATE_BPS}bps", f"{RTT_MS / 2}ms")):
        helper.SetDeviceAttribute("DataRate", ns.StringValue(rate))
        helper.SetChannelAttribute("Delay", ns.StringValue(delay))
    first = access.Install(nodes.Get(0), nodes.Get(1))
    second = bottleneck.Install(nodes.Get(1), nodes.Get(2))
    stack = ns.InternetStackHelper()
    stack.Install(nodes)
    queue = ns.TrafficControlHelper()
    queue.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", ns.StringValue(f"{BUFFER_BYTES}B"))
    queue.Install(second)
    addresses = ns.Ipv4AddressHelper()
    addresses.SetBase(ns.Ipv4Address("10.1.1.0"), ns.Ipv4Mask("255.255.255.0"))
    addresses.Assign(first)
    addresses.SetBase(ns.Ipv4Address("10.1.2.0"), ns.Ipv4Mask("255.255.255.0"))
    ends = addresses.Assign(second)
    ns.Ipv4GlobalRoutingHelper.PopulateRoutingTables()
    there = ns.InetSocketAddress(ends.GetAddress(1), 5201).ConvertTo()
    source = ns.BulkSendHelper("ns3::TcpSocketFactory", there)
    source.SetAttribute("MaxBytes", ns.UintegerValue(0))
    source.Install(nodes.Get(0)).Start(ns.Seconds(0))
    anywhere = ns.InetSocketAddress(ns.Ipv4Address.GetAny(), 5201).ConvertTo()
    sinks = ns.PacketSinkHelper("ns3::TcpSocketFactory", anywhere).Install(nodes.Get(2))
    sinks.Start(ns.Seconds(0))
    ns.Simulator.Stop(ns.Seconds(seconds))
    began = time.process_time()
    ns.Simulator.Run()
    cpu_s = time.process_time() - began
    received = sinks.Get(0).GetTotalRx()
    print(json.dumps({"packets": received / MSS, "goodput_bps": received * 8 / seconds, "cpu_s": cpu_s}))


def run_cctrace(seconds):
    """Simulate the same here; returns the same figures."""
    from cctrace.sim.path import Path
    from cctrace.sim.simulate import simulate

    path = Path(rate=f"{RATE_BPS}bit", rtt=f"{RTT_MS}ms", buffer=f"{BUFFER_BYTES}B")
    simulate(path, "bbr2022", "10ms", ack_every=2)  # compiles, or loads what was compiled
    began = time.process_time()
    flow = simulate(path, "bbr2022", f"{seconds}s", ack_every=2).flows.iloc[0]
    cpu_s = time.process_time() - began
    return {"packets": flow.goodput_bps * seconds / 8 / MSS, "goodput_bps": flow.goodput_bps, "cpu_s": cpu_s}


def ask_ns3(python, seconds):
    """Run ns-3 in its own interpreter; returns its figures, or None with a word on why not."""
    if not os.path.exists(python):
        print(f"ns-3: skipped, there is no {python}; python3.11 -m venv /opt/ns3 && /opt/ns3/bin/pip install ns3")
        return None
    command = [python, os.path.abspath(__file__), "--inside", "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        print(f"ns-3: skipped, this Python cannot run it: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
        return None
    return json.loads(lines[-1])


def _default_python():
    return DEFAULT_NS3 if os.path.exists(DEFAULT_NS3) else sys.executable


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--ns3", metavar="PYTHON", default=DEFAULT_NS3 if os.path.exists(DEFAULT_NS3) else sys.executable
    )
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="simulated by ns-3; cctrace simulates ten times that"
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        run_ns3(options.seconds)
        return
    speeds = []
    for name, result in (
        ("ns-3 TcpBbr", ask_ns3(options.ns3, options.seconds)),
        ("cctrace bbr2022", run_cctrace(10 * options.seconds)),
    ):
        if result is not None:
            speeds.append(result["packets"] / result["cpu_s"])
            print(
                f"{name:16s} {result['packets']:10.0f} packets in {result['cpu_s']:6.2f} s of CPU time: "
                f"{speeds[-1] / 1e6:7.4f} million packets/s  (goodput {result['goodput_bps'] / 1e6:.0f} Mbit/s)"
            )
    if len(speeds) == 2:
        print(f"ratio {speeds[1] / speeds[0]:.0f}")


if __name__ == "__main__":
    main()
