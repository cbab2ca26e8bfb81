"""Comparison of a replay with the state polled from the kernel.

A value *agrees at a poll* if it agrees at some instant between the poll's first and second time stamp, and with
`slack_polls` at some instant within that many polls before and after: a state that changes between polls may appear
one poll early or late. BBR is compared from its first bandwidth sample on.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.cc.linux import STARTUP_GAIN
from cctrace.columns import Bools, Columns, Floats, Values, frame_of, rows_of_spans
from cctrace.display import Carded, Jsonable
from cctrace.errors import ArgumentError
from cctrace.flows.source import flow_of
from cctrace.io.counters.tcpinfo import BBR_MODES
from cctrace.replaying.model import model_of
from cctrace.units import format_share

if TYPE_CHECKING:
    import pandas as pd

    from cctrace.replaying.run import Run

# Name, tcp_info column, `model_table` column, factor from the kernel's unit to the model's.
QUANTITIES = {
    "bw": ("bbr_bw_Bps", "bw_Bps", 1.0),
    "min_rtt": ("bbr_min_rtt_us", "min_rtt_us", 1.0),
    "pacing_gain": ("bbr_pacing_gain", "pacing_gain", 1 / 256),
    "cwnd_gain": ("bbr_cwnd_gain", "cwnd_gain", 1 / 256),
    "cwnd": ("snd_cwnd", "cwnd_segments", 1.0),
    "ssthresh": ("snd_ssthresh", "ssthresh_segments", 1.0),
    "mode": ("bbr_mode", "mode", 1.0),
    "inflight_hi": ("bbr_inflight_hi", "inflight_hi_segments", 1.0),
    "inflight_lo": ("bbr_inflight_lo", "inflight_lo_segments", 1.0),
    "bw_lo": ("bbr_bw_lo_Bps", "bw_lo_Bps", 1.0),
}
NOT_MEASURED_BPS = 1  # what v2 and v3 report before the first bandwidth sample; v1 reports 0
OF_BOUNDED = ("mode", "inflight_hi", "inflight_lo", "bw_lo")  # reported by the kernels of BBRv2 and v3 only


class Comparison(Carded, Jsonable):
    """Agreement of a replayed run with the kernel's own polls.

    Parameters
    ----------
    run : Run
        Of a flow with tcp_info attached.

    Attributes
    ----------
    polls : ndarray of int64
        Rows of the flow's tcp_info that are compared.
    startup : ndarray of bool, shape of `polls`
        Those before BBR left STARTUP, by the gains that the kernel logged. They are counted separately: while the
        estimates settle, a single sample decides.
    locked : float
        Share of the gain cycles in which the replay is in step with the sends; NaN without cycles.

    Raises
    ------
    ArgumentError
        If the flow has no tcp_info, or none of it lies within the replay.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> polls = cct.read(cct.datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst"))
    >>> compared = cct.replay(flow.attach(polls), "cubic6").compare()
    >>> bool(compared.to_dict()["cwnd_2"] > 0.99)
    True
    """

    def __init__(self, run: Run) -> None:
        flow = flow_of(run.source)
        info = flow.tcpinfo if flow else None
        if flow is None or info is None:
            raise ArgumentError("nothing to compare with: attach the kernel's tcp_info to the flow first")
        self.flow = flow
        self.run = run
        self._info = info
        time_ns = run.held["time_ns"]
        self.polls = np.flatnonzero((info["time_ns"] > time_ns[0]) & (info["time_after_ns"] < time_ns[-1]))
        if not len(self.polls):
            raise ArgumentError(f"{info.source}: no poll lies within the replayed time")
        measured = np.flatnonzero(info["bbr_bw_Bps"][self.polls] > NOT_MEASURED_BPS)
        if len(measured):
            self.polls = self.polls[measured[0] :]
        gain = info["bbr_pacing_gain"][self.polls]
        self.startup = (gain > 0).any() & ~np.logical_or.accumulate(gain <= STARTUP_GAIN)
        # With a coarse clock, rows with the poll's time stamp may precede or follow it.
        self._low = np.searchsorted(time_ns, info["time_ns"][self.polls], side="left") - 1
        self._high = np.searchsorted(time_ns, info["time_after_ns"][self.polls], side="right") - 1

    @functools.cached_property
    def model(self) -> Columns:
        """State of the replayed controller after each call, in common units; see `replaying.model.model_table`."""
        return dict(model_of(self.run))

    @property
    def quantities(self) -> tuple[str, ...]:
        """Names of the quantities that both the replay and the polls have."""
        return tuple(
            name
            for name, (_, replayed, _) in QUANTITIES.items()
            if replayed in self.model and not np.isnan(self._logged(name)).all()
        )

    def _logged(self, name: str) -> Values:
        """Return the kernel's value at each poll, in the model's unit; NaN if missing, inf for no bound."""
        column, _, unit = QUANTITIES[name]
        if name in OF_BOUNDED:
            is_reported = self._info["bbr_version"][self.polls] > 1
            if not is_reported.any():
                return np.full(len(self.polls), np.nan)
        if name == "mode":
            return np.where(is_reported, _codes(self._info[column][self.polls]), np.nan)
        values = self._info[column][self.polls]
        none = np.where(is_reported, np.inf, np.nan) if name in OF_BOUNDED else np.nan
        least = NOT_MEASURED_BPS + 1 if name == "bw" else 0
        return np.where(values >= least, values * unit, none)

    def _replayed(self, name: str) -> Values:
        """Return the replay's value after each call."""
        values = self.model[QUANTITIES[name][1]]
        return _codes(values) if name == "mode" else values

    def agrees(self, name: str, rel: float = 0.0, absolute: float = 0.0, slack_polls: int = 0) -> Bools:
        """Return for each poll whether a quantity agrees; bool, shape of `polls`.

        Raises
        ------
        ArgumentError
            If the controller or the polls do not have the quantity.
        """
        if name not in self.quantities:
            raise ArgumentError(f"{name!r} cannot be compared here; what can: {', '.join(self.quantities)}")
        want, values = self._logged(name), self._replayed(name)
        last = len(want) - 1
        low = self._low[np.maximum(np.arange(last + 1) - slack_polls, 0)]
        high = self._high[np.minimum(np.arange(last + 1) + slack_polls, last)]
        sizes = np.maximum(high - low + 1, 0)  # empty if the polls' times go back
        poll = np.repeat(np.arange(last + 1), sizes)
        rows = rows_of_spans(low, sizes)
        got, target = values[rows], want[poll]
        with np.errstate(invalid="ignore"):  # of two unset bounds
            near = (got == target) | (np.abs(got - target) <= np.maximum(rel * np.abs(target), absolute))
        found = np.zeros(last + 1, bool)
        np.logical_or.at(found, poll, near)
        return found

    def share_within(
        self, name: str, rel: float = 0.0, absolute: float = 0.0, slack_polls: int = 0, startup: bool = False
    ) -> float:
        """Return the share of polls after STARTUP (or of those in it) at which a quantity agrees; NaN of none.

        Polls without the quantity are left out: a file may also have rows of other things, as flent's throughput.

        >>> import cctrace as cct
        >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
        >>> polls = cct.read(cct.datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst"))
        >>> compared = cct.replay(flow.attach(polls), "cubic6").compare()
        >>> round(compared.share_within("cwnd", absolute=2), 2)
        1.0
        """
        counts = (self.startup == startup) & ~np.isnan(self._logged(name))
        counted = self.agrees(name, rel, absolute, slack_polls)[counts]
        return float(counted.mean()) if len(counted) else float("nan")

    @property
    def locked(self) -> float:
        """Share of the gain cycles in step with the sends; NaN without any."""
        return self.run.inferred.in_step

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for reports and JSON: {name: share of polls}, `polls` and `locked`.

        They cover the polls after STARTUP, or those in it if the kernel never left it.
        """
        only_startup = bool(self.startup.all())
        out = {"polls": int(np.count_nonzero(self.startup == only_startup)), "locked": self.locked}
        wanted = {
            "bw_0.1%": ("bw", 1e-3, 0.0, 0),
            "bw_1%": ("bw", 1e-2, 0.0, 0),
            "min_rtt_1%": ("min_rtt", 1e-2, 0.0, 0),
            "pacing_gain": ("pacing_gain", 0.0, 1e-6, 1),
            "cwnd_gain": ("cwnd_gain", 0.0, 1e-6, 1),
            "cwnd_2": ("cwnd", 0.0, 2.0, 0),
            "ssthresh": ("ssthresh", 0.0, 0.0, 0),
            "mode": ("mode", 0.0, 0.0, 1),
            "inflight_hi": ("inflight_hi", 0.0, 0.0, 0),
            "inflight_lo": ("inflight_lo", 0.0, 0.0, 0),
            "bw_lo_1%": ("bw_lo", 1e-2, 0.0, 0),
        }
        if self.flow.caveats:  # a coarse stream allows no more
            wanted |= {"bw_5%": ("bw", 5e-2, 0.0, 0), "min_rtt_5%": ("min_rtt", 5e-2, 0.0, 0)}
        for label, (name, rel, absolute, slack) in wanted.items():
            if name in self.quantities:
                out[label] = self.share_within(name, rel, absolute, slack, only_startup)
        return out

    def __repr__(self) -> str:
        return f"<Comparison of {self.run.controller.__name__}: {len(self.polls)} polls, {', '.join(self.quantities)}>"

    def _card(self) -> tuple[str, list[tuple[str, object]], list[str]]:
        figures = [(name, value if name == "polls" else format_share(value)) for name, value in self.to_dict().items()]
        return f"Replay of {self.run.controller.__name__} against the kernel: shares of polls", figures, []

    def frame(self) -> pd.DataFrame:
        """Return `table` as a DataFrame."""
        return frame_of(self.table())

    def table(self) -> Columns:
        """Return columns with one element per poll: time, and the kernel's and the replay's value of each quantity.

        ``time_s`` counts from the flow's first packet (of counters alone: from their first poll), ``time_ns`` is on
        the capture's clock.
        """
        time_ns = self._info["time_ns"][self.polls]
        table = {"time_s": self.flow.seconds(time_ns), "time_ns": time_ns}
        for name in self.quantities:
            column, replayed, _ = QUANTITIES[name]
            table[f"{name}_kernel"] = self._info[column][self.polls] if name == "mode" else self._logged(name)
            table[f"{name}_replay"] = self.model[replayed][self._low]
        return table


def _codes(modes: Any) -> Floats:
    """Return indices of mode names in BBR_MODES as float64; NaN for other names."""
    codes = np.full(len(modes), np.nan)
    for code, name in enumerate(BBR_MODES):
        codes[np.asarray(modes) == name] = code
    return codes
