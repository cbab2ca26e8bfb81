"""The agent: statistics of finished flows go to their bin; a bin with enough of them advances."""

import json
import os
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Self

import numpy as np
import pandas as pd

from cctrace import presets
from cctrace.analytic.pilaw import SIGMOID_SLOPE, utility
from cctrace.arguments import check_argument, check_choice, whole
from cctrace.documents import json_file
from cctrace.errors import ArgumentError, FormatError
from cctrace.files import write_text
from cctrace.learn.search import METHODS, Search

NEAR_BETA = 1e-6
COLUMNS = ("min_rtt_us", "bw_bps", "goodput_bps", "lost_share", "beta", "k")
_FORM = "cctrace learning agent 1"


@dataclass
class Agent:
    """A search per bin of BBRx's table, fed with statistics of flows.

    Parameters
    ----------
    flows : int
        N: flows whose mean utility counts as one trial [Chung18] Eq. 7.
    slope : float
        Of the utility's sigmoid; the paper gives none, PCC Allegro's is 100.
    gamma : float
        Target utilisation that simulated flows have; the paper uses 1 and 0.98.
    method : {"parabola", "gradient"}
        How a bin is searched; the paper's is gradient ascent.
    continues : bool
        A bin that has elected is searched again, from the beta that it elected, so that it follows its network.

    Attributes
    ----------
    searches : list of Search
        Per bin, in the order of models/bbrx_table1.json.
    waiting : list of list of float
        Per bin, the utilities of flows since the last trial was complete.

    Raises
    ------
    ArgumentError
        If a parameter is not positive.

    Examples
    --------
    >>> import pandas as pd
    >>> agent = Agent(flows=1)
    >>> agent.now(0)
    (4, 0.45)
    >>> flow = {"min_rtt_us": 20e3, "bw_bps": 2e6, "goodput_bps": 1.9e6, "lost_share": 0.0, "beta": 0.45, "k": 4}
    >>> agent.observe(pd.DataFrame([flow])), agent.done
    (1, False)
    """

    flows: int = 24
    slope: float = SIGMOID_SLOPE
    searches: list[Search] = field(default_factory=list)
    waiting: list[list[float]] = field(default_factory=list)
    gamma: float = 1.0
    method: str = "parabola"
    continues: bool = False

    def __post_init__(self) -> None:
        whole("flows", self.flows, 1)
        check_argument(isinstance(self.slope, Real) and self.slope > 0, "slope", self.slope, "a positive number")
        check_argument(isinstance(self.gamma, Real) and 0.5 <= self.gamma <= 1, "gamma", self.gamma, "from 0.5 to 1")
        check_choice("method", self.method, METHODS)
        self.bins = [(cell["min_rtt_ms"], cell["rate_mbps"]) for cell in presets.bins("bbrx_table1")]
        self.searches = self.searches or [METHODS[self.method]() for _ in self.bins]
        self.waiting = self.waiting or [[] for _ in self.bins]

    def bin_of(self, min_rtt_us: float, bw_bps: float) -> int:
        """Return the number of the bin of a flow, by its min_rtt (us) and bandwidth estimate (bit/s)."""
        for number, bounds in enumerate(self.bins):
            values = (min_rtt_us / 1e3, bw_bps / 1e6)
            inside = (low <= v and (high is None or v < high) for v, (low, high) in zip(values, bounds, strict=True))
            if all(inside):
                return number
        raise ArgumentError(f"min_rtt_us={min_rtt_us!r}, bw_bps={bw_bps!r}: no bin has these")

    def now(self, number: int) -> tuple[int, float]:
        """Return the (k, beta) for flows of a bin to use: the search's current trial, or the elected values."""
        return self.searches[number].wanted() or self.searches[number].elected()

    def observe(self, flows: pd.DataFrame) -> int:
        """Process the statistics of finished flows.

        Parameters
        ----------
        flows : DataFrame
            A row per flow: ``min_rtt_us``, ``bw_bps`` (which choose the bin), ``goodput_bps``, ``lost_share``, and
            the ``beta`` and ``k`` that it ran with; flows that ran with others than the bin's current values are
            ignored.

        Returns
        -------
        int
            Number of flows that counted.

        Raises
        ------
        ArgumentError
            If a column is missing.
        """
        missing = [name for name in COLUMNS if name not in flows]
        if missing:
            raise ArgumentError(f"flows: no column {', '.join(missing)} (needed: {', '.join(COLUMNS)})")
        counted = 0
        for min_rtt_us, bw_bps, goodput_bps, lost_share, beta, k in flows[list(COLUMNS)].to_numpy(float).tolist():
            number = self.bin_of(min_rtt_us, bw_bps)
            search = self.searches[number]
            if self.continues and search.wanted() is None:
                search = self.searches[number] = METHODS[self.method](first=search.elected())
            wanted = search.wanted()
            if wanted is None or k != wanted[0] or abs(beta - wanted[1]) > NEAR_BETA:
                continue
            counted += 1
            self.waiting[number].append(float(utility(goodput_bps / 1e6, lost_share, self.slope)))
            if len(self.waiting[number]) == self.flows:
                search.note(float(np.mean(self.waiting[number])))
                self.waiting[number] = []
        return counted

    @property
    def done(self) -> bool:
        """Whether every bin has elected."""
        return all(search.wanted() is None for search in self.searches)

    def table(self, elected: bool = False) -> dict[str, Any]:
        """Return the table, as models/bbrx_table1.json is written: for flows to use now, or only what was elected."""
        bins = []
        for number, (min_rtt_ms, rate_mbps) in enumerate(self.bins):
            k, beta = self.searches[number].elected() if elected else self.now(number)
            cell = {"min_rtt_ms": min_rtt_ms, "rate_mbps": rate_mbps, "beta": beta, "k": k}
            bins.append(cell | {"trials": len(self.searches[number].tried)})
        provenance = f"cctrace learn: {self.flows} flows a trial, utility [Chung18] Eq. 6 with slope {self.slope:g}"
        return {"provenance": provenance, "gamma": [self.gamma], "delta": "min_rtt", "bins": bins}

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the agent's state, to be read by `load`; the file is replaced only when it is complete."""
        state = {"form": _FORM, "flows": self.flows, "slope": self.slope, "gamma": self.gamma, "waiting": self.waiting}
        state |= {"method": self.method, "continues": self.continues, "first": [s.first for s in self.searches]}
        state["tried"] = [search.tried for search in self.searches]
        write_text(file, json.dumps(state, indent=1))

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Self:
        """Return the agent that `save` wrote. Raises `FormatError` if the file is not an agent's."""
        with json_file(file, "the state of a learning agent") as state:
            if state["form"] != _FORM:
                raise ValueError(f"its form is {state['form']!r}")
            search = METHODS[state["method"]]
            searches = [
                search([(int(k), float(b), float(u)) for k, b, u in trials], (int(first[0]), float(first[1])))
                for trials, first in zip(state["tried"], state["first"], strict=True)
            ]
            waiting = [list(map(float, w)) for w in state["waiting"]]
            settings = {name: state[name] for name in ("flows", "slope", "gamma", "method", "continues")}
            agent = cls(searches=searches, waiting=waiting, **settings)
        if not len(agent.searches) == len(agent.waiting) == len(agent.bins):
            raise FormatError(f"{file}: has {len(agent.searches)} bins, the table has {len(agent.bins)}")
        return agent
