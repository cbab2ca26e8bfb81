"""`cctrace predict`: predictions of the closed forms, without measurements."""

from collections.abc import Iterable
from typing import Any

import click
from click.core import ParameterSource

from cctrace.cli.arguments import POSITIVE_TIME_NS, RATE_BPS, TIME_NS, controller_option, options
from cctrace.cli.common import command_options, echo, print_json, print_table, progress
from cctrace.errors import ArgumentError
from cctrace.units import format_share, format_time

_ABOVE_0 = click.FloatRange(0, min_open=True)


@click.group(short_help="Closed forms: minRTT collapse, shares of a buffer.")
def predict() -> None:
    """Evaluate the analytic models for a path, with each model's domain of validity."""


@predict.command(short_help="Will delay variation make BBR collapse?")
@click.option(
    "--mean", "mean_ns", type=POSITIVE_TIME_NS, required=True, help="Mean RTT without queue, for example 5ms."
)
@click.option("--sd", "sd_ns", type=POSITIVE_TIME_NS, required=True, help="Its standard deviation (jitter).")
@click.option("--floor", "floor_ns", type=TIME_NS, default="0us", help="Propagation delay: no RTT is below it.")
@click.option("--samples", type=_ABOVE_0, default=10_000.0, help="Effective number of RTT samples in PROBE_BW.")
@click.option("--probe-rtt-samples", type=_ABOVE_0, default=160.0, help="Effective number of RTT samples in PROBE_RTT.")
@click.option("--gain", "cwnd_gain", type=_ABOVE_0, default=2.0, help="BBR's cwnd_gain.")
@click.option("--queue-delay", "queue_ns", type=TIME_NS, default="0", help="Queueing delay in PROBE_BW.")
@click.option("--rate", "rate_bps", type=RATE_BPS, help="Link rate: also predict the closed loop, with dependent RTTs.")
@controller_option("--variant", default="bbr2016", help="With --rate: the controller.")
@click.option(
    "--draws",
    type=click.Choice(["packet", "burst", "slot"]),
    default="packet",
    help="With --rate: one draw of jitter per packet, burst or 5 ms.",
)
@click.option(
    "--rho",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    help="With --rate: correlation of successive draws.",
)
@click.option("--reorder", is_flag=True, help="With --rate: the path does not keep the packets' order (netem).")
@click.option("--before", is_flag=True, help="With --rate: the jitter is before the bottleneck's queue, not behind it.")
@command_options()
def collapse(rate_bps: float | None, variant: str, as_json: bool, **options: Any) -> None:
    """Predict minRTT collapse for a normal RTT truncated at the propagation delay (Kumar et al., Eqs. 9 and 11)."""
    from cctrace.analytic.predict import closed_loop
    from cctrace.analytic.predict import collapse as predicted

    context = click.get_current_context()
    for name in ("variant", "draws", "rho", "reorder", "before"):
        if rate_bps is None and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise ArgumentError(f"--{name} needs --rate: it is about the closed loop")
    mean_us, sd_us, floor_us, delay_us = (options[f"{name}_ns"] / 1000 for name in ("mean", "sd", "floor", "queue"))
    path = {"mean_us": mean_us, "sd_us": sd_us, "floor_us": floor_us, "queue_delay_us": delay_us}
    out = predicted(**path, **{name: options[name] for name in ("samples", "probe_rtt_samples", "cwnd_gain")})
    if rate_bps is not None:
        process: dict[str, Any] = {name: options[name] for name in ("draws", "rho", "before")}
        process["ordered"] = not options["reorder"]
        with progress("integrating over the loop's RTTs"):
            out["closed_loop"] = closed_loop(mean_us, sd_us, rate_bps, floor_us, variant, **process)
    _print(out, as_json, _collapse_words(out, mean_us, sd_us, options["cwnd_gain"]))


def _collapse_words(out: dict[str, Any], mean_us: float, sd_us: float, gain: float) -> list[str]:
    """Return what the figures mean, a list of sentences."""

    def time(us: float) -> str:
        return format_time(us * 1000)

    chance, limit, least = out["probability"], out["threshold_sd_us"], out["expected_min_rtt_us"]
    likely = "likely" if chance >= 0.5 else "unlikely"
    likely = "certain" if chance > 0.999 else "excluded" if chance < 0.001 else likely
    where = f"{'any' if chance >= 0.5 else 'no'} jitter makes it the rule"
    if limit is not None:
        side = "above" if sd_us > limit else "at most"
        where = f"a jitter of {time(sd_us)} is {side} the {time(limit)} at which it becomes the rule"
        if sd_us > limit and chance < 0.5:
            where += f", but so long that hardly any RTT is below {time(mean_us / gain)}"
    words = [
        f"If RTT samples are independent, minRTT collapse is {likely} (probability {format_share(chance)}): {where}.",
        f"BBR is expected to take {time(least)} for the path's RTT, whose mean is {time(mean_us)}; below "
        f"{time(mean_us / gain)} its window no longer fills the path.",
    ]
    if "closed_loop" in out:
        loop = out["closed_loop"]
        limit = loop["threshold_sd_us"]
        words.append(
            f"In its loop, where RTTs depend on each other: probability {format_share(loop['probability'])}, expected "
            f"min_rtt {time(loop['expected_min_rtt_us'])}; "
            + ("collapse never becomes the rule." if limit is None else f"collapse becomes the rule at {time(limit)}.")
        )
        if loop["domain"].startswith("outside"):
            words.append(f"That lies outside of the model's domain: {loop['domain'].removeprefix('outside: ')}.")
    return words


@predict.command(short_help="How do BBR and loss-based flows share a buffer?")
@options(
    click.option("--gain", type=_ABOVE_0, default=2.0, help="BBR's cwnd_gain."),
    click.option("--ratio", required=True, type=_ABOVE_0, help="Buffer in bandwidth-delay products."),
    click.option("--flows", default=1, type=click.IntRange(1, 1_000_000), help="BBR flows."),
    click.option("--loss-based-flows", default=1, type=click.IntRange(1, 1_000_000), help="Loss-based flows."),
    click.option("--rate", "rate_bps", type=RATE_BPS, default="40Mbit", help="Link rate (Ware's model)."),
    click.option("--rtt", "rtt_ns", type=POSITIVE_TIME_NS, default="40ms", help="Base RTT (Ware's model)."),
    click.option("--duration", "duration_ns", type=POSITIVE_TIME_NS, default="120s",
                 help="How long the flows are active together (Ware's model)."),
)  # fmt: skip
@command_options()
def share(ratio: float, rtt_ns: int, duration_ns: int, as_json: bool, **options: Any) -> None:
    """Predict BBR's share of a drop-tail buffer after oBBR, Ware et al. and Mishra et al."""
    from cctrace.analytic.predict import buffer_share

    out = buffer_share(ratio=ratio, rtt_us=rtt_ns / 1000, duration_s=duration_ns / 1e9, **options)
    _print(out, as_json, _share_words(out, ratio))


def _share_words(out: dict[str, Any], ratio: float) -> list[str]:
    words = [
        f"In a buffer of {ratio:g} bandwidth-delay products BBR is to get {format_share(out['bbr_share'])} of the "
        f"link, the loss-based flows {format_share(out['loss_based_share'])} (oBBR's model)."
    ]
    low, high = (format_share(out["mishra"][f"bbr_share_{end}"]) for end in ("low", "high"))
    between = low if low == high else f"{low} to {high}"
    words.append(
        f"Other models say {format_share(out['ware']['bbr_share'])} (Ware et al.) and {between} (Mishra et al.)."
    )
    outside = [f for f, value in (("oBBR's", out), ("Ware's", out["ware"]), ("Mishra's", out["mishra"]))
               if value["domain"].startswith("outside")]  # fmt: skip
    if outside:
        words.append(f"Outside the domain of {' and '.join(outside)} model: see why below.")
    return words


def _print(out: dict[str, Any], as_json: bool, words: Iterable[str]) -> None:
    if as_json:
        print_json(out)
        return
    echo("\n".join([*words, ""]))
    rows = []
    for name, value in out.items():
        nested = value.items() if isinstance(value, dict) else [("", value)]
        rows += [
            (f"{name} {key}".strip(), f"{v:.6g}" if isinstance(v, float) else "none" if v is None else v)
            for key, v in nested
        ]
    print_table(("figure", "value"), rows)
