"""A streaming session: the player over a simulated transport or over rates alone, and its quality of experience."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from cctrace.arguments import check_argument, whole
from cctrace.display import Carded, Jsonable
from cctrace.errors import ArgumentError
from cctrace.sim.path import Path
from cctrace.sim.result import Simulation
from cctrace.sim.served import Served
from cctrace.streaming.player import Ask, Player, Progress, Settings, TimeUp
from cctrace.streaming.rates import Rates
from cctrace.streaming.video import Video
from cctrace.units import format_percent

MS = 1_000_000
PATIENCE = 10  # a session ends after this many times the length of its video


@dataclass(frozen=True)
class Session(Carded, Jsonable):
    """The result of a session.

    Attributes
    ----------
    segments : DataFrame
        One row per segment: ``quality``, ``bitrate_kbps``, ``requested_s``, ``first_byte_s``, ``received_s``,
        ``download_ms`` (of these ``latency_ms`` until the first byte), ``bits``, ``buffer_s`` (at the request).
    abandoned : DataFrame
        Abandoned downloads, with the same columns.
    average_quality : float
        Mean quality of the segments, from 0.
    switches, switches_down : int
        Segments whose quality differs from that of the one before; those with a lower one.
    rebuffering_ratio : float
        (playback time - length of the video) / length: time stalled after the first frame.
    stalls : int
        Number of interruptions.
    startup_s : float
        From the first request to the first frame.
    complete : bool
        Whether the video was played to its end.
    settings : Settings
    simulation : Simulation or None
        The transport: the server's flow (the first) and its competitors.

    Examples
    --------
    >>> from cctrace.streaming import Video, play_rates
    >>> session = play_rates([(1000, 5000, 75)], Video.of([230, 477, 991], segment_s=3, minutes=1))
    >>> session.complete, session.stalls
    (True, 0)
    """

    segments: pd.DataFrame
    abandoned: pd.DataFrame
    average_quality: float
    switches: int
    switches_down: int
    rebuffering_ratio: float
    stalls: int
    startup_s: float
    complete: bool
    settings: Settings
    simulation: Simulation | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures of the session, {name: value}; with a transport also losses and RTT of its flow."""
        bits = self.segments.bits.sum() + self.abandoned.bits.sum()
        out = {
            "average_quality": self.average_quality,
            "average_bitrate_kbps": float(self.segments.bitrate_kbps.mean()),
            "switches": self.switches,
            "switches_down": self.switches_down,
            "rebuffering_ratio": self.rebuffering_ratio,
            "stalls": self.stalls,
            "startup_s": self.startup_s,
            "abandoned": len(self.abandoned),
            "downloaded_mbit": float(bits / 1e6),
            "complete": self.complete,
        }
        if self.simulation is not None:
            flow = self.simulation.flows.iloc[0]
            out |= {"retransmit_ratio": float(flow.retransmit_ratio), "rtt_mean_us": float(flow.rtt_mean_us)}
        return out

    def __repr__(self) -> str:
        return (
            f"<Session of {len(self.segments)} segments: average quality {self.average_quality:.2f}, {self.switches} "
            f"switches ({self.switches_down} down), rebuffering {format_percent(self.rebuffering_ratio, 2)}>"
        )

    def _card(self) -> tuple[str, list[tuple[str, object]], list[str]]:
        found = self.to_dict()
        rows: list[tuple[str, object]] = [
            ("average quality", f"{self.average_quality:.2f} ({found['average_bitrate_kbps'] / 1000:.3f} Mbit/s)"),
            ("switches", f"{self.switches}, {self.switches_down} of them down"),
            ("rebuffering", f"{format_percent(self.rebuffering_ratio, 2)}, {self.stalls} stalls"),
            ("startup", f"{self.startup_s:.2f} s"),
            ("abandoned", f"{found['abandoned']} downloads"),
        ]
        if self.simulation is not None:
            rows.append((self.simulation.flows.cc[0], f"{format_percent(found['retransmit_ratio'], 2)} retransmitted"))
        left = [] if self.complete else [f"ended after {PATIENCE} times the length of the video"]
        return f"Session: {len(self.segments)} segments, rule {self.settings.rule}", rows, left


def play(
    path: Path,
    cc: Any,
    video: Video | None = None,
    seed: int = 1,
    *,
    others: Sequence[Any] = (),
    mode: str = "compiled",
    packets: bool = False,
    settings: Settings | None = None,
    **changes: Any,
) -> Session:
    """Stream a video over a simulated path, in closed loop: client, server, its controller, the network.

    The client requests one segment at a time; the server's flow sends it as fast as its controller permits, and is idle
    until the next request. Only bytes that arrived in order count.

    Parameters
    ----------
    path : Path
    cc : str, class or Sender
        The server's controller.
    video : Video, optional
        Default: ten minutes of Big Buck Bunny's ten bitrates, in segments of 4 s, all of nominal size.
    seed : int
    others : sequence of str, class or Sender
        Flows that share the path.
    mode : "compiled", "interpreted" or "debug"
    packets : bool
        Record the packets, for ``session.simulation.to_pcap`` (TCP).
    settings : Settings, optional
        Of the player.
    **changes
        Fields of `Settings`, for example ``rule="bola"``.

    Returns
    -------
    Session

    Raises
    ------
    ArgumentError
        For a wrong setting, path or controller.

    Examples
    --------
    >>> from cctrace.sim.path import Path
    >>> video = Video.of((100, 200), segment_s=1, minutes=0.05)
    >>> played = play(Path(rate="3Mbit", rtt="40ms", buffer="2bdp"), "reno", video, mode="interpreted")
    >>> played.segments.quality.tolist(), played.rebuffering_ratio, played.complete
    ([0, 1, 1], 0.0, True)
    """
    check_argument(isinstance(path, Path), "path", path, "a cctrace.Path")
    video = _video(video)
    settings = _settings(settings, changes)
    with Served(path, cc, others, whole("seed", seed), mode=mode, packets=packets) as connection:
        limit_ns = connection.now_ns + round(PATIENCE * video.length_s * 1e9)
        player = Player(video, settings, Transport(connection, limit_ns))
        complete = player.run()
        return _session(player, complete, connection.result())


def play_rates(
    periods: Iterable[tuple[float, float, float]],
    video: Video | None = None,
    *,
    settings: Settings | None = None,
    **changes: Any,
) -> Session:
    """Stream a video over rates and latencies, without transport.

    Parameters
    ----------
    periods : list of (ms, kbit/s, latency in ms)
        Repeated after the last one; `rates.read_periods` reads Sabre's traces.
    video, settings, **changes
        As `play`.

    Returns
    -------
    Session
        Without `simulation`.

    Raises
    ------
    ArgumentError
        For a wrong setting or period.

    Examples
    --------
    >>> play_rates([(30_000, 5000, 75), (30_000, 1500, 200)]).segments.quality.tolist()[:6]
    [0, 6, 6, 6, 6, 6]
    """
    player = Player(_video(video), _settings(settings, changes), Rates(periods))
    return _session(player, player.run(), None)


class Transport:
    """A `Served` connection as the network of a `Player`; calls `ask` as Sabre does, every 50 ms or 12,000 bits."""

    def __init__(self, connection: Served, limit_ns: int) -> None:
        self.connection, self.limit_ns = connection, limit_ns

    def wait(self, ms: float) -> None:
        """Let time pass."""
        self.connection.idle(self.connection.now_ns + round(ms * MS))

    def download(self, size: float, quality: int, ask: Ask | None) -> Progress:
        """See `Network`; the client's clock has a resolution of 1 ms."""
        began, connection = self.connection.now_ns, self.connection
        size_in_bytes = int(-(-size // 8))
        connection.request(size_in_bytes)
        first_ms = self._until(began, 1)
        asked_ms = bits = 0.0
        while True:
            if ask is None:
                ms = self._until(began, size_in_bytes)
            else:
                self._until(began, min(int(-(-(bits + Rates.STEP_BITS) // 8)), size_in_bytes))
                ms = self._until(began, size_in_bytes, began + round((asked_ms + Rates.STEP_MS) * MS))
            bits = min(8 * connection.received_bytes(), size)
            progress = Progress(quality, size, bits, ms, max(0, min(first_ms, ms - 1)))
            if bits >= size:
                return progress
            if ask and (lower := ask(progress)) is not None:
                connection.cancel()
                return progress._replace(abandon_to=lower)
            asked_ms = ms

    def _until(self, began: int, size_bytes: int, until_ns: int | None = None) -> float:
        """Wait for `size_bytes`, or until a time; return ms since the request."""
        connection = self.connection
        until_ns = self.limit_ns if until_ns is None else min(until_ns, self.limit_ns)
        now = connection.wait(size_bytes, until_ns)
        if now >= self.limit_ns:
            raise TimeUp((now - began) / MS)
        return (now - began) / MS


def _video(video: Video | None) -> Video:
    check_argument(video is None or isinstance(video, Video), "video", video, "a cctrace.streaming.Video, or None")
    return Video.of() if video is None else video


def _settings(settings: Settings | None, changes: dict[str, Any]) -> Settings:
    """Return settings with changes; ArgumentError for an unknown name."""
    given = settings is None or isinstance(settings, Settings)
    check_argument(given, "settings", settings, "a cctrace.streaming.Settings, or None")
    known = [one.name for one in fields(Settings)]
    for name in changes:
        if name not in known:
            raise ArgumentError(f"{name}={changes[name]!r} is not a setting of a player; there are: {', '.join(known)}")
    return replace(Settings() if settings is None else settings, **changes)


def _session(player: Player, complete: bool, simulation: Simulation | None) -> Session:
    rows = pd.DataFrame(player.downloads)
    rows.insert(2, "bitrate_kbps", [player.video.bitrates_kbps[q] for q in rows.quality])
    given_up = rows.pop("abandoned")
    taken = rows[~given_up].reset_index(drop=True)
    steps = np.diff(taken.quality)
    return Session(
        taken,
        rows[given_up].reset_index(drop=True),
        float(taken.quality.mean()),
        int((steps != 0).sum()),
        int((steps < 0).sum()),
        player.stalled_ms / 1000 / player.video.length_s,
        player.stalls,
        player.startup_ms / 1000,
        complete,
        player.settings,
        simulation,
    )
