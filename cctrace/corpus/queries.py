"""Queries over a corpus: lazy tables and aggregates.

Nothing is read before it is asked for:

    corpus = cct.corpus.open("results")
    corpus.flows.frame(["goodput_bps", "rtt_min_us"])     the columns asked for of one table
    corpus.verdicts_by("source")                          how often each verdict occurs
    corpus.pooled("base_rtt_us", by="network")            a fitted quantity per group, with partial pooling
    corpus.drift("goodput_bps", every="D")                quantiles over time
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import pandas as pd

from cctrace.corpus import plots, tables
from cctrace.corpus.compaction import committed_parts
from cctrace.corpus.runs import identity
from cctrace.corpus.store import Store, open_store
from cctrace.corpus.tasks import Row, tables_of
from cctrace.corpus.whatif import MARGIN, compared
from cctrace.errors import ArgumentError
from cctrace.extras import needed

PARTITIONS = ("date", "source")
NOT_IDENTIFIED = "not identified"  # a controller that no counters name, in a corpus without the task identify
_ENDS = (("", "value"), ("_low", "low"), ("_high", "high"), ("_spread", "spread"))


def open(where: str | os.PathLike[str]) -> Corpus:
    """Open the results of a corpus; nothing is read yet.

    Parameters
    ----------
    where : str
        Folder or URL that `run` wrote.

    Returns
    -------
    Corpus

    Raises
    ------
    ArgumentError
        If there is no corpus, or one of another schema version.

    Examples
    --------
    >>> import tempfile
    >>> import cctrace as cct
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = cct.corpus.run(cct.datasets.path("web_server", "sender.pcap.zst"), folder, tasks=["flows"])
    ...     print(cct.corpus.open(folder).flows.name)
    flows
    """
    return Corpus(where)


class Table:
    """One table of a corpus: the committed rows, read on demand.

    Attributes
    ----------
    name : str
    columns : list of str
        Those of the rows, and `date` and `source`.

    Examples
    --------
    >>> import tempfile
    >>> import cctrace as cct
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = cct.corpus.run(cct.datasets.path("web_server", "sender.pcap.zst"), folder, tasks=["flows"])
    ...     table = cct.corpus.open(folder).flows
    ...     print(table.name, "source" in table.columns)
    flows True
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store, self.name = store, name
        self.columns = [column.name for column in tables.TABLES[name]] + list(PARTITIONS)

    def __len__(self) -> int:
        return self.dataset.count_rows()

    def __repr__(self) -> str:
        return f"<Table {self.name}: {len(self):,} rows of {', '.join(self.columns)}>"

    @functools.cached_property
    def dataset(self) -> Any:
        """The table as a `pyarrow.dataset.Dataset`, which filters and streams."""
        pa = needed("pyarrow", "parquet")
        arrow = needed("pyarrow.dataset", "parquet")
        parts = [self._store.at(name) for name in committed_parts(self._store, self.name)]
        fields = [pa.field(name, pa.string()) for name in PARTITIONS]
        schema = pa.schema([*tables.arrow_schema(self.name), *fields])
        if not parts:
            return arrow.dataset(pa.Table.from_pylist([], schema=schema))
        return arrow.dataset(
            parts,
            schema,
            format="parquet",
            filesystem=self._store.filesystem(),
            partitioning=arrow.partitioning(pa.schema(fields), flavor="hive"),
            partition_base_dir=self._store.at(self.name),
        )

    def frame(self, columns: Sequence[str] | None = None, **equal: Any) -> pd.DataFrame:
        """Return rows as a DataFrame, in an order that does not depend on parts.

        `columns`: all by default. `equal`: what columns have to be, for example ``verdict="receiver_limited"``. Raises
        `ArgumentError` if there is no such column.
        """
        wanted = list(columns or self.columns)
        if unknown := {*wanted, *equal} - set(self.columns):
            raise ArgumentError(f"{self.name}: no column {sorted(unknown)}; it has {', '.join(self.columns)}")
        arrow = needed("pyarrow.compute", "parquet")
        condition = None
        for name, value in equal.items():
            one = arrow.field(name) == value
            condition = one if condition is None else condition & one
        order = [*PARTITIONS, *tables.ORDER[self.name]]
        read = self.dataset.to_table([*dict.fromkeys([*wanted, *order])], filter=condition)
        whole_numbers = {needed("pyarrow", "parquet").int64(): pd.Int64Dtype()}  # ns do not fit floats, which NaN takes
        return (
            read.sort_by([(name, "ascending") for name in order])
            .select(wanted)
            .to_pandas(types_mapper=whole_numbers.get)
        )

    def dask(self) -> Any:
        """Return the table as a Dask DataFrame, for data larger than memory."""
        frames = needed("dask.dataframe", "cluster")
        parts = [self._store.path(name) for name in committed_parts(self._store, self.name)]
        return frames.read_parquet(parts)


class Corpus:
    """The results of a run over many captures.

    Attributes
    ----------
    where : str
    tasks : list of str
    captures, errors, flows, verdicts, limits, events, controllers, paths, collapse, replays, whatifs : Table
        Those that the tasks fill.

    Raises
    ------
    ArgumentError
        If there is no corpus in `where`, or a table is asked for that none of its tasks fills.

    Examples
    --------
    >>> import tempfile
    >>> import cctrace as cct
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = cct.corpus.run(cct.datasets.path("web_server", "sender.pcap.zst"), folder, tasks=["flows"])
    ...     corpus = Corpus(folder)
    ...     len(corpus.captures.frame()), len(corpus.flows.frame())
    (1, 11)
    """

    def __init__(self, where: str | os.PathLike[str]) -> None:
        self._store = open_store(where)
        self.where, self.tasks = str(self._store), identity(self._store)["tasks"]
        self.tables = {name: Table(self._store, name) for name in tables_of(self.tasks)}

    def __getattr__(self, name: str) -> Table:
        if name in self.__dict__.get("tables", ()):
            return self.tables[name]
        if name in tables.TABLES:
            raise ArgumentError(f"{self.where}: no table {name}; its tasks are {','.join(self.tasks)}")
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<Corpus {self.where}: {', '.join(self.tables)}>"

    def verdicts_by(self, by: str | None = None) -> pd.DataFrame:
        """Return how often flows had each verdict: a DataFrame of group, verdict, flows, share, goodput_median_bps.

        `by`: column of the groups, such as source, network, date, controller.
        """
        return self._counted("verdicts", "verdict", by, goodput_median_bps=("goodput_bps", "median"))

    def controllers_by(self, by: str | None = None) -> pd.DataFrame:
        """Return how often flows had each controller: as identified; else as counters name it, or "not identified"."""
        if "controllers" in self.tables:
            return self._counted("controllers", "controller", by, probability_mean=("probability", "mean"))
        return self._counted("verdicts", "controller", by)

    @property
    def unnamed(self) -> str:
        """What stands for a controller that neither counters nor the task `identify` name."""
        return "unknown" if "controllers" in self.tables else NOT_IDENTIFIED

    def _counted(self, table: str, column: str, by: str | None, **more: tuple[str, str]) -> pd.DataFrame:
        groups = [by] if by else []
        wanted = [*groups, column, *(name for name, _ in more.values())]
        frame = getattr(self, table).frame(list(dict.fromkeys(wanted)))
        frame[column] = frame[column].fillna(self.unnamed)
        keys = list(dict.fromkeys([*groups, column]))
        counts = frame.groupby(keys, dropna=False).agg(flows=(column, "size"), **more).reset_index()
        of = counts.groupby(by)["flows"].transform("sum") if by else counts["flows"].sum()
        counts.insert(list(counts.columns).index("flows") + 1, "share", counts["flows"] / of)
        order = [*groups, "flows", column] if by != column else ["flows", column]
        counts = counts.sort_values(order, ascending=[name != "flows" for name in order])
        return counts.reset_index(drop=True)

    def collapse_by(self, by: str | None = None) -> pd.DataFrame:
        """Return the thresholds of minRTT collapse per group and controller.

        `by`: column of the groups, such as network. Returns DataFrame: Group, controller, flows, share_yes (would
        collapse), and the means of threshold and present sd with their 95 % intervals (us), as in `pooled`; and the
        factors `_spread` by which flows differ.
        """
        rows = []
        known = self.collapse.frame()
        known = known[known["refused"].isna()]
        for (controller, *group), frame in known.groupby(["controller", *([by] if by else [])]):
            row = {by: group[0]} if by else {}
            share_yes = float((frame["collapses"] == "yes").mean())
            row |= {"controller": controller, "flows": len(frame), "share_yes": share_yes}
            for quantity in ("threshold_sd_us", "sd_us"):
                (found,) = _pooled(frame, quantity, None).to_dict("records") or [{}]
                row |= {f"{quantity}{end}": found.get(side) for end, side in _ENDS}
            rows.append(row)
        return pd.DataFrame(rows)

    def whatif_by(self, by: str | None = None, figure: str = "goodput", margin: float = MARGIN) -> pd.DataFrame:
        """Return for how many flows another controller would have done better, or worse.

        Parameters
        ----------
        by : str, optional
            Column of the groups, such as source, network, own.
        figure : {"goodput", "rtt", "share"}
            What counts: more goodput, a shorter mean RTT, a smaller retransmitted share.
        margin : float
            From which on a change counts: relative, of the share in parts of one.

        Returns
        -------
        DataFrame
            See `cctrace.corpus.whatif.compared`.

        Raises
        ------
        ArgumentError
            If the task whatif did not run, or `figure` is another.
        """
        return compared(self.whatifs.frame(), by, figure, margin)

    def pooled(self, quantity: str, by: str = "source") -> pd.DataFrame:
        """Return a fitted quantity per group, flows and groups pooled by `cct.fit.Hierarchical`.

        Parameters
        ----------
        quantity : str
            Column of `paths` with an interval: rate_bps, base_rtt_us, buffer_bytes, random_loss, jitter_sd_us; or of
            `collapse`: threshold_sd_us, sd_us (of its first controller).
        by : str
            Column of the groups.

        Returns
        -------
        DataFrame
            See `cctrace.corpus.groups.pooled`.
        """
        for table in ("paths", "collapse"):
            if table in self.tables and f"{quantity}_low" in self.tables[table].columns:
                frame = self.tables[table].frame(
                    [*dict.fromkeys([by, quantity, f"{quantity}_low", f"{quantity}_high"])]
                )
                return _pooled(frame, quantity, by)
        columns = [name for table in self.tables.values() for name in table.columns]
        known = [name.removesuffix("_low") for name in columns if name.endswith("_low")]
        raise ArgumentError(
            f"quantity={quantity!r}: of tasks {','.join(self.tasks)} allowed are {', '.join(known) or 'none'}"
        )

    def drift(self, quantity: str = "goodput_bps", every: str = "D", by: str | None = None) -> pd.DataFrame:
        """Return how a quantity of flows changed over time.

        Parameters
        ----------
        quantity : str
            Column with numbers of a table that has `start_ns`: flows, verdicts, paths, ...
        every : str
            Span of time as pandas names it: "h", "D", "W", "MS".
        by : str, optional
            Column of the groups.

        Returns
        -------
        DataFrame
            Group, time (start of the span, UTC), flows, low (10th percentile), median, high (90th).
        """
        table = next((t for t in self.tables.values() if {quantity, "start_ns"} <= set(t.columns)), None)
        if table is None:
            raise ArgumentError(f"quantity={quantity!r}: no table of this corpus has it beside start_ns")
        frame = table.frame([*dict.fromkeys([*([by] if by else []), "start_ns", quantity])]).dropna()
        starts = pd.to_datetime(frame["start_ns"].astype("int64"), unit="ns", utc=True).dt.tz_localize(None)
        frame["time"] = starts.dt.to_period(every.removesuffix("S") if every.endswith("MS") else every).dt.start_time
        if not pd.api.types.is_numeric_dtype(frame[quantity]):
            raise ArgumentError(f"quantity={quantity!r}: not a number")
        groups = frame.groupby([*([by] if by else []), "time"])[quantity]
        low, median, high = (groups.quantile(share) for share in (0.1, 0.5, 0.9))
        found = pd.DataFrame({"flows": groups.size(), "low": low, "median": median, "high": high})
        return found.reset_index()

    def overview(self, by: str | None = None) -> Row:
        """Return the output of `cctrace corpus info`: numbers, and DataFrames as far as the tasks allow."""
        packets = self.captures.dataset.to_table(["packets"])["packets"].to_numpy()
        out: Row = {
            "captures": len(self.captures) + len(self.errors),
            "packets": int(packets.sum()),
            "errors": len(self.errors),
        }
        kinds = self.errors.frame(["kind"]).groupby("kind").size().rename("captures").reset_index()
        out["errors_by_kind"] = kinds
        if "verdicts" in self.tables:
            out["verdicts"] = self.verdicts_by(by)
        if {"verdicts", "controllers"} & self.tables.keys():
            controllers = self.controllers_by(by if by != "controller" else None)
            if (controllers["controller"] != NOT_IDENTIFIED).any():
                out["controllers"] = controllers
        if "collapse" in self.tables:
            out["collapse"] = self.collapse_by(by if by != "controller" else None)
        if "whatifs" in self.tables:
            out["whatif"] = self.whatif_by(by if by in ("source", "date", "network") else None)
        return out

    def plot_verdicts(self, by: str = "source", ax: Any = None) -> Any:
        """Draw the shares of the verdicts in each group; returns the axes of matplotlib."""
        return plots.shares(self.verdicts_by(by), by, "verdict", ax)

    def plot_controllers(self, by: str = "source", ax: Any = None) -> Any:
        """Draw the shares of the controllers in each group."""
        return plots.shares(self.controllers_by(by), by, "controller", ax)

    def plot_pooled(self, quantity: str, by: str = "source", ax: Any = None) -> Any:
        """Draw a fitted quantity per group with its interval."""
        return plots.intervals(self.pooled(quantity, by), quantity, by, ax)

    def plot_drift(self, quantity: str = "goodput_bps", every: str = "D", by: str | None = None, ax: Any = None) -> Any:
        """Draw how a quantity of flows changed over time: median, and a band that holds 80 % of the flows."""
        return plots.drift(self.drift(quantity, every, by), quantity, by, ax)


def _pooled(frame: pd.DataFrame, quantity: str, by: str | None) -> pd.DataFrame:
    from cctrace.corpus.groups import pooled  # takes time

    return pooled(frame, quantity, by)
