"""`cctrace simulate`: what would happen on a modelled path."""

import click
from click.core import ParameterSource

from cctrace.cli.arguments import controller_name, file_option, rate_option, time_option
from cctrace.cli.common import command_options, print_json, print_table, progress

KEYS = (
    "goodput_bps", "retransmit_ratio", "rtt_mean_us", "rtt_p95_us", "queue_delay_mean_us", "queue_delay_p95_us",
)  # fmt: skip


@click.command(short_help="Controllers over a modelled path.")
@rate_option("--rate", help="Bottleneck rate on the wire, for example 40Mbit.")
@click.option("--path", "preset", metavar="NAME", help="A path that ships with cctrace; other options change it.")
@file_option("--rate-steps", metavar="FILE", help="Steps: lines `seconds Mbit/s [RTT in ms [loss in %]]`.")
@file_option("--trace", metavar="FILE", help="Mahimahi trace or UCC log (its RTT and loss too), repeated for an hour.")
@time_option("--rtt", help="Base RTT.  [default: that of the file, if it has one, else 40ms]")
@click.option("--buffer", default="1bdp", show_default=True, metavar="SIZE", help="Queue: 200kB, 2bdp, 100packets.")
@click.option("--jitter", default="none", metavar="KIND:…", help="normal:sd=10ms,per=packet|burst|slot:5ms[,reorder]")
@click.option("--loss", metavar="SHARE", help="Random loss before the queue.  [default: the file's, else none]")
@click.option(
    "--cc", "--controller", "cc", required=True, metavar="NAME,…", help="A controller per flow: bbr2022,obbr:mu=0.5"
)
@click.option("--ack-every", default=1, show_default=True, help="Segments per ACK.")
@click.option("--ecn", is_flag=True, help="Flows negotiate ECN (profile linux).")
@click.option("--ecn-threshold", metavar="SIZE", help="Mark from this queue on: bytes, or BDPs.")
@click.option("--aqm", type=click.Choice(["droptail", "codel"]), default="droptail", show_default=True)
@click.option("--shaper", metavar="RATE,BURST", help="Token bucket that empties the queue: 10Mbit,100kB")
@click.option("--policer", metavar="RATE,BURST", help="Token bucket that drops what exceeds it: 10Mbit,100kB")
@click.option("--exact", is_flag=True, help="Exact clocks, which may let flows lock each other out.")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(file_okay=False, writable=True),
    metavar="DIR",
    help="Explain the TCP flows in DIR/report.html, as analyze does of captures.",
)
@click.option("--pcap", type=click.Path(dir_okay=False), metavar="FILE", help="Write the TCP flows as a capture.")
@click.option("--side", type=click.Choice(["sender", "receiver"]), default="sender", help="Where --pcap captures.")
@click.option("--profile", type=click.Choice(["reference", "linux"]), default="linux", show_default=True)
@time_option("--duration", default="60s", show_default=True)
@click.option("--seed", default=1, show_default=True)
@command_options()
def simulate(preset, rate, rate_steps, trace, cc, ack_every, profile, duration, seed, as_json, **options):
    """Run one flow per controller over a shared bottleneck, and print what each of them got.

    The figures are for the run, and as tail_* for its last 67 %. Profile reference is the stack of the golden
    vectors, linux a current kernel; QUIC controllers always have the QUIC stack.
    """
    from cctrace.cc import controller
    from cctrace.errors import ArgumentError

    path = _path(preset, rate, rate_steps, trace, seed, options)
    from cctrace.sim.simulate import simulate as run  # takes time: mistakes are said before

    common = {"profile": profile, "ack_every": ack_every, "ecn": options["ecn"]}
    controllers = [controller_name(name, "--cc") for name in split_controllers(cc)]
    folder = options["folder"]
    keep = options["pcap"] is not None or folder is not None
    quic = [name for name in controllers if controller(name)[0].view == "quic"]
    if keep and quic:
        raise ArgumentError(f"--pcap and --output are for TCP, and {quic[0]} is QUIC: leave them out")
    with progress("simulating (what a machine simulates first is compiled before, some seconds)"):
        sim = run(path, controllers, duration, seed, packets=keep, exact=options["exact"], **common)
        if options["pcap"]:
            sim.to_pcap(options["pcap"], options["side"])
        page = _report(sim, folder, options["side"], controllers) if folder else None
    rows = [
        {"cc": row.cc} | {prefix + key: getattr(row, prefix + key) for prefix in ("", "tail_") for key in KEYS}
        for row in sim.flows.itertuples()
    ]
    if page:
        click.echo(f"report: {page}", err=True)
    if as_json:
        whole = {"duration_s": sim.duration_s, "seed": seed, "profile": profile, "notes": sim.notes}
        print_json({"flows": rows, "link": sim.link} | whole)
        return
    for note in sim.notes:
        click.echo(f"note: {note}", err=True)
    print_table(
        ("cc", "goodput", "retransmitted", "RTT", "RTT p95", "queue", "queue p95"),
        [
            (
                row["cc"],
                f"{row['tail_goodput_bps'] / 1e6:.3f} Mbit/s",
                f"{row['tail_retransmit_ratio']:.4%}",
                *(f"{row['tail_' + key] / 1000:.2f} ms" for key in KEYS[2:]),
            )
            for row in rows
        ],
        title=f"last 67 % of {sim.duration_s:g} s; utilisation {sim.link['utilisation']:.1%}, "
        f"fairness {sim.link['jain']:.3f}",
    )


def _path(preset, rate, rate_steps, trace, seed, options):
    """Return the path that the options describe."""
    from cctrace.errors import ArgumentError
    from cctrace.sim.path import Path
    from cctrace.sim.traces import read_steps

    if sum(option is not None for option in (preset, rate, rate_steps, trace)) != 1:
        raise ArgumentError("give one of --rate, --rate-steps, --trace and --path")
    fields = {name: _bucket(options[name]) for name in ("shaper", "policer")}
    fields |= {name: options[name] for name in ("rtt", "buffer", "jitter", "loss", "aqm", "ecn_threshold")}
    if preset is not None:
        context = click.get_current_context()
        given = {n: v for n, v in fields.items() if context.get_parameter_source(n) is not ParameterSource.DEFAULT}
        return Path.preset(preset, seed, **given)
    if trace is not None:
        return Path(trace=trace, **fields)
    if rate_steps is None:
        return Path(rate=rate, **fields)
    return Path(**read_steps(rate_steps) | {name: value for name, value in fields.items() if value is not None})


def _bucket(text):
    """Split RATE,BURST."""
    return None if text is None else tuple(part.strip() for part in text.split(","))


def split_controllers(text):
    """Split ``bbr2022,obbr:mu=0.5,beta=1``: a piece PARAM=VALUE belongs to the controller before it.

    Examples
    --------
    >>> split_controllers("bbr2022,obbr:mu=0.5,cubic")
    ['bbr2022', 'obbr:mu=0.5', 'cubic']
    >>> split_controllers("bbr2:loss_thresh=0.2,beta=0.3")
    ['bbr2:loss_thresh=0.2,beta=0.3']
    """
    names = []
    for piece in text.split(","):
        if names and "=" in piece and ":" not in piece:
            names[-1] += f",{piece}"
        else:
            names.append(piece.strip())
    return names


def _report(sim, folder, side, controllers):
    """Write the capture that either end would have taken, and the report of it; return the page."""
    from pathlib import Path

    from cctrace.explain.analyze import analyze
    from cctrace.report.overview import write_report

    Path(folder).mkdir(parents=True, exist_ok=True)
    capture = Path(folder) / f"{side}.pcap"
    sim.to_pcap(capture, side)
    # Which controller sent a flow is known; it is replayed where it is the same for all.
    same = controllers[0] if len(set(controllers)) == 1 else None
    return write_report(analyze([capture], controller=same), folder)
