"""`cctrace predict`: what the closed forms say, before anything is measured."""

import click

from cctrace.cli.common import command_options, print_json, print_table


@click.group(short_help="Closed forms: minRTT collapse, shares of a buffer.")
def predict():
    """What the analytic models say about a path, each figure with the domain of its model."""


@predict.command(short_help="Will delay variation make BBR collapse?")
@click.option("--mean", required=True, metavar="TIME", help="Mean RTT without queue, for example 5ms.")
@click.option("--sd", required=True, metavar="TIME", help="Its standard deviation (jitter).")
@click.option(
    "--floor", default="0us", show_default=True, metavar="TIME", help="Propagation delay: no RTT is below it."
)
@click.option("--samples", default=10_000.0, show_default=True, help="RTT samples in PROBE_BW, effective number.")
@click.option("--probe-rtt-samples", default=160.0, show_default=True, help="RTT samples in PROBE_RTT.")
@click.option("--gain", default=2.0, show_default=True, help="BBR's cwnd_gain.")
@click.option("--queue-delay", default="0", show_default=True, metavar="TIME", help="Queueing delay in PROBE_BW.")
@click.option("--rate", metavar="RATE", help="Link rate: predict the flow in its loop too, dependent RTTs and all.")
@click.option("--variant", default="bbr2016", show_default=True, help="With --rate: the controller.")
@click.option(
    "--draws",
    type=click.Choice(["packet", "burst", "slot"]),
    default="packet",
    show_default=True,
    help="With --rate: one draw of jitter per packet, burst or 5 ms.",
)
@click.option("--rho", default=0.0, show_default=True, help="With --rate: correlation of successive draws.")
@click.option("--reorder", is_flag=True, help="With --rate: the path does not keep the packets' order (netem).")
@command_options()
def collapse(
    mean, sd, floor, samples, probe_rtt_samples, gain, queue_delay, rate, variant, draws, rho, reorder, as_json
):
    """Predict minRTT collapse for a normal RTT truncated at the propagation delay (Kumar et al., Eqs. 9 and 11)."""
    from cctrace import units
    from cctrace.analytic.predict import closed_loop
    from cctrace.analytic.predict import collapse as predicted

    out = predicted(
        _microseconds(mean),
        _microseconds(sd),
        _microseconds(floor),
        samples,
        probe_rtt_samples,
        gain,
        _microseconds(queue_delay),
    )
    if rate is not None:
        out["closed_loop"] = closed_loop(
            _microseconds(mean),
            _microseconds(sd),
            units.parse_rate_bps(rate),
            _microseconds(floor),
            variant=variant,
            draws=draws,
            ordered=not reorder,
            rho=rho,
        )
    _print(out, as_json)


@predict.command(short_help="How do BBR and loss-based flows share a buffer?")
@click.option("--gain", default=2.0, show_default=True, help="BBR's cwnd_gain.")
@click.option("--ratio", required=True, type=float, help="Buffer in bandwidth-delay products.")
@click.option("--flows", default=1, show_default=True, help="BBR flows.")
@click.option("--loss-based-flows", default=1, show_default=True, help="Loss-based flows.")
@click.option("--rate", default="40Mbit", show_default=True, metavar="RATE", help="Link rate (Ware's model).")
@click.option("--rtt", default="40ms", show_default=True, metavar="TIME", help="Base RTT (Ware's model).")
@click.option("--duration", default="120s", show_default=True, metavar="TIME", help="Time together (Ware's model).")
@command_options()
def share(gain, ratio, flows, loss_based_flows, rate, rtt, duration, as_json):
    """Predict BBR's share of a drop-tail buffer after oBBR, Ware et al. and Mishra et al."""
    from cctrace import units
    from cctrace.analytic.predict import buffer_share

    seconds = _microseconds(duration) / 1e6
    out = buffer_share(gain, ratio, flows, loss_based_flows, units.parse_rate_bps(rate), _microseconds(rtt), seconds)
    _print(out, as_json)


def _microseconds(text):
    from cctrace import units

    return 0.0 if text == "0" else units.parse_time_ns(text) / 1000


def _print(out, as_json):
    if as_json:
        print_json(out)
        return
    rows = []
    for name, value in out.items():
        nested = value.items() if isinstance(value, dict) else [("", value)]
        rows += [(f"{name} {key}".strip(), f"{v:.6g}" if isinstance(v, float) else v) for key, v in nested]
    print_table(("figure", "value"), rows)
