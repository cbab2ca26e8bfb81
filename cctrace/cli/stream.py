"""`cctrace stream`: a video over a simulated path, and its quality of experience."""

from typing import Any

import click

from cctrace.cli.arguments import FILE, TIME_NS, controllers_option, trust_option
from cctrace.cli.common import command_options, print_json, print_table, progress
from cctrace.cli.path_options import given, path_of, path_options
from cctrace.errors import ArgumentError
from cctrace.files import write_text
from cctrace.units import format_percent


@click.command(short_help="A video (DASH) over a simulated path: quality, switches, rebuffering.")
@path_options
@controllers_option("--cc", "--controller", "names", help="Controllers of the server, one session each.")
@controllers_option("--beside", "others", help="Controllers of flows that share the path throughout.")
@click.option("--network", type=FILE, help="A network trace of Sabre instead of a path: rates, no transport.")
@click.option("--movie", type=FILE, help="A manifest of Sabre.  [default: Big Buck Bunny's ten bitrates, 4 s]")
@click.option(
    "--length", "length_ns", type=TIME_NS, help="Length of the video.  [default: ten minutes, or the manifest's]"
)
@click.option(
    "--rule",
    type=click.Choice(["dynamic", "dynamicdash", "bola", "bolae", "throughput"]),
    default="dynamic",
    help="How the client chooses qualities.",
)
@click.option("--estimate", type=click.Choice(["ewma", "sliding"]), default="ewma", help="How it estimates throughput.")
@click.option("--max-buffer", "buffer_ns", type=TIME_NS, default="25s", help="Largest buffer of the client.")
@click.option("--no-abandon", is_flag=True, help="Never give up a download for a lower quality.")
@click.option("--seed", default=1, help="Seed of all random draws.")
@click.option("--csv", type=click.Path(dir_okay=False), metavar="FILE", help="Write a row per segment and session.")
@trust_option
@command_options()
def stream(
    names: list[str],
    others: list[str],
    network: Any,
    movie: Any,
    length_ns: int | None,
    seed: int,
    csv: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Stream a video in closed loop: client, server, its controller, the path; a session per controller.

    \b
    cctrace stream --rate 30Mbit --rtt 270ms --buffer 0.25bdp --loss 1% --cc quic_bbr,quic_cubic
    cctrace stream --network network.json --movie movie.json --rule bola
    """
    if network is not None and (names or others or given(options)):
        raise ArgumentError(f"--network has no transport: leave out {', '.join(given(options)) or '--cc'}")
    if network is None and not names:
        raise ArgumentError("give --cc, the controllers of the server, and a path; or --network")
    from cctrace.streaming import Video, play, play_rates, read_periods  # slow to import: report mistakes first

    settings = {
        "rule": options["rule"],
        "estimate": options["estimate"],
        "buffer_s": options["buffer_ns"] / 1e9,
        "abandon": not options["no_abandon"],
    }
    video = Video.of() if movie is None else Video.read(movie)
    video = video if length_ns is None else video.cut(length_ns / 1e9)
    if network is not None:
        sessions = {"-": play_rates(read_periods(network), video, **settings)}
    else:
        path = path_of(options, seed)
        with progress("streaming (the first run on a machine compiles the simulation, some seconds)"):
            sessions = {name: play(path, name, video, seed, others=others, **settings) for name in names}
    if csv is not None:
        import pandas as pd

        segments = pd.concat([one.segments.assign(cc=name) for name, one in sessions.items()])
        write_text(csv, segments.to_csv(index=False))
    if as_json:
        print_json(
            [
                {"cc": name} | session.to_dict() | {"qualities": session.segments.quality.tolist()}
                for name, session in sessions.items()
            ]
        )
        return
    print_table(
        ("cc", "quality", "bitrate", "switches", "down", "rebuffering", "stalls", "startup", "retransmitted"),
        [_row(name, session.to_dict()) for name, session in sessions.items()],
        title=f"{video.length_s:g} s of video, qualities 0 to {len(video.bitrates_kbps) - 1}, rule {options['rule']}",
    )


def _row(name: str, found: Any) -> tuple[Any, ...]:
    ended = "" if found["complete"] else " (left)"
    retransmitted = found.get("retransmit_ratio")
    return (
        name,
        f"{found['average_quality']:.2f}",
        f"{found['average_bitrate_kbps'] / 1000:.3f} Mbit/s",
        found["switches"],
        found["switches_down"],
        f"{format_percent(found['rebuffering_ratio'], 2)}{ended}",
        found["stalls"],
        f"{found['startup_s']:.2f} s",
        "-" if retransmitted is None else format_percent(retransmitted, 2),
    )
