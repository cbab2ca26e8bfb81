"""Joint analysis of two captures of one connection: one-way delays of segments and ACKs, and losses on the path.

A packet is matched by sequence and acknowledgement numbers and IPv4 identification, which distinguishes a
retransmission from the original; without identification (IPv6) by its TCP time stamp and, among equals, order.
Super-packets are split into segments, whose identifications count up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cctrace.columns import rows_of_spans
from cctrace.errors import ArgumentError

if TYPE_CHECKING:
    from cctrace.flows.flow import Flow


def join(sender: Flow, receiver: Flow) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Join a flow captured at the sender with the same flow captured at the receiver; return segments and ACKs.

    Both are DataFrames with one row per transmission by the sender, or by the receiver: ``time_ns`` (when it left,
    clock of that side), ``seq`` (`ack` for ACKs; 32-bit, as sent), ``delay_us`` (arrival on the other capture's clock
    less departure, NaN if lost) and ``lost``. Only departures within the time that both captures cover: from the first
    to the last packet of that endpoint, of any kind, that both show. The delays contain the difference of the two
    clocks; ``segments.attrs["clock_offset_us"]`` estimates it (receiver minus sender) as if the two smallest delays
    were equal. Raises `ArgumentError` if the two captures do not show the same connection.
    """
    if sender.key != receiver.key:
        raise ArgumentError(f"not the same connection: {sender.key} and {receiver.key}")
    tables = []
    for data in (True, False):
        here, there = (sender, receiver) if data else (receiver, sender)
        tables.append(_match(_packets(here, data), _packets(there, data), data))
    segments, acks = tables
    if not segments["delay_us"].notna().any():
        raise ArgumentError(f"no segment of {sender.key} is in both captures")
    offset = (segments["delay_us"].min() - acks["delay_us"].min()) / 2 if acks["delay_us"].notna().any() else np.nan
    segments.attrs["clock_offset_us"] = acks.attrs["clock_offset_us"] = float(offset)
    return segments, acks


def _packets(flow: Flow, data: bool) -> pd.DataFrame:
    """Return one row per packet that one side sent (of data: the sender), super-packets split into segments."""
    packets, c = flow.capture.packets, flow.capture.connections
    rows = c.rows_of(flow.index)
    rows = rows[packets["direction"][rows] == (c.sender[flow.index] if data else 1 - c.sender[flow.index])]
    mss = int(c.mss[flow.index])
    count = np.maximum(1, -(-packets["payload"][rows].astype(np.int64) // mss))
    at = np.repeat(rows, count)
    nth = rows_of_spans(0, count)
    table = pd.DataFrame(
        {
            "time_ns": packets["time_ns"][at],
            "wanted": (packets["payload"][at] > 0) == data,
            "seq": (packets["seq"][at].astype(np.int64) + nth * mss) & 0xFFFFFFFF,
            "ack": packets["ack"][at].astype(np.int64),
            "ip_id": (packets["ip_id"][at].astype(np.int64) + nth) & 0xFFFF,
            "tsval": packets["tsval"][at].astype(np.int64),
        }
    )
    table["nth"] = table.groupby(["seq", "ack", "ip_id", "tsval"]).cumcount()
    return table


def _match(left: pd.DataFrame, right: pd.DataFrame, data: bool) -> pd.DataFrame:
    """Return the wanted rows of `left` with the delay until each appears in `right`."""
    keys = ["seq", "ack", "ip_id", "tsval", "nth"]
    both = left.merge(right[[*keys, "time_ns"]], on=keys, how="left", suffixes=("", "_there"))
    arrived = both["time_ns_there"].notna()
    # Differences are taken as integers: epoch nanoseconds do not fit a float.
    there = both["time_ns_there"].astype("Int64").fillna(0).to_numpy(np.int64)
    delay = np.where(arrived, (there - both["time_ns"].to_numpy(np.int64)) / 1000, np.nan)
    out = pd.DataFrame({"time_ns": both["time_ns"], "seq" if data else "ack": both["seq" if data else "ack"]})
    out["delay_us"] = delay
    out["lost"] = ~arrived
    wanted, covered = both["wanted"].to_numpy(copy=True), np.flatnonzero(arrived)
    wanted[: covered[0] if len(covered) else None] = False
    wanted[covered[-1] + 1 if len(covered) else 0 :] = False
    return out[wanted].reset_index(drop=True)
