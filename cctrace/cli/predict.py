"""`cctrace predict`: what the closed forms say, before anything is measured."""

import click
from click.core import ParameterSource

from cctrace.cli.common import command_options, print_json, print_table
from cctrace.errors import ArgumentError


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
    from cctrace.analytic.predict import closed_loop
    from cctrace.analytic.predict import collapse as predicted

    _used_only_with_rate(rate)
    mean_us, sd_us, floor_us = (_microseconds(*each) for each in (("--mean", mean), ("--sd", sd), ("--floor", floor)))
    delay_us = _microseconds("--queue-delay", queue_delay)
    out = predicted(mean_us, sd_us, floor_us, samples, probe_rtt_samples, gain, delay_us)
    if rate is not None:
        out["closed_loop"] = closed_loop(
            mean_us,
            sd_us,
            _rate_bps(rate),
            floor_us,
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
    from cctrace.analytic.predict import buffer_share

    rtt_us, seconds = _microseconds("--rtt", rtt), _microseconds("--duration", duration) / 1e6
    out = buffer_share(gain, ratio, flows, loss_based_flows, _rate_bps(rate), rtt_us, seconds)
    _print(out, as_json)


def _used_only_with_rate(rate):
    """Refuse options of the flow in its loop where no loop was asked for."""
    context = click.get_current_context()
    for name in ("variant", "draws", "rho", "reorder"):
        if rate is None and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise ArgumentError(f"--{name} has a meaning only with --rate, the flow in its loop")


def _microseconds(option, text):
    from cctrace import units

    return 0.0 if text == "0" else units.parse_time_ns(text, option) / 1000


def _rate_bps(text):
    from cctrace import units

    return units.parse_rate_bps(text, "--rate")


def _print(out, as_json):
    if as_json:
        print_json(out)
        return
    rows = []
    for name, value in out.items():
        nested = value.items() if isinstance(value, dict) else [("", value)]
        rows += [(f"{name} {key}".strip(), f"{v:.6g}" if isinstance(v, float) else v) for key, v in nested]
    print_table(("figure", "value"), rows)
