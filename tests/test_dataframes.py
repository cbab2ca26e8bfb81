"""Objects are tables for xarray, polars, pyarrow and DuckDB; the recipes of docs/dataframes.md run."""

import contextlib
import re

import numpy as np
import pytest

import cctrace as cct
from cctrace import schema
from cctrace.cli import main
from tests.places import REPOSITORY

PAGE = (REPOSITORY / "docs" / "dataframes.md").read_text(encoding="utf-8")


def test_the_dataset_of_a_flow_has_its_columns_with_units_and_nan_for_what_is_unknown(flow):
    stream, frame = flow.to_xarray(), flow.events.frame()
    assert set(stream.data_vars) == {column.name for column in schema.EVENTS}
    assert stream["rs_rtt_us"].attrs["units"] == "us"
    assert (stream.attrs["src"], stream.attrs["mss"]) == ("10.99.0.1", 1448)
    np.testing.assert_array_equal(stream["time_s"], frame["time_s"])
    assert stream["time_ns"].dtype == np.int64  # epoch nanoseconds do not fit a float
    for column in schema.EVENTS:
        if column.missing is not None:
            np.testing.assert_array_equal(np.isnan(stream[column.name]), frame[column.name].isna())


def test_arrow_takes_events_packets_and_counters_as_they_are(flow):
    pyarrow = pytest.importorskip("pyarrow")
    counters = cct.read(cct.datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst"))
    for table in (flow.events, flow.capture.packets, counters):
        frame = table.frame()
        taken = pyarrow.table(table)
        assert (taken.column_names, taken.num_rows) == (list(frame.columns), len(frame))


def test_the_code_of_the_page_runs(capsys):
    pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    exec(compile("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), "dataframes.md", "exec"), {})
    assert "pkts_acked" in capsys.readouterr().out


def test_the_queries_of_the_page_find_what_the_library_finds(tmp_path, flow):
    duckdb = pytest.importorskip("duckdb")
    (tmp_path / "datasets").symlink_to(REPOSITORY / "datasets")
    answers = []
    with contextlib.chdir(tmp_path):
        for command in re.findall(r"^    cctrace (.*)$", PAGE, re.MULTILINE):
            assert main(command.split()) == 0
        for query in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL):
            answers.append(duckdb.sql(query).fetchall())
    sent, windows, worst = answers
    packets = flow.capture.packets
    first = packets["time_ns"] - packets["time_ns"].min() < 10**9
    assert sent[0] == (0, packets["payload"][first].sum())
    counters = cct.read(cct.datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst")).frame()
    assert windows[0][0][1] == counters["snd_cwnd"].median()
    flows = cct.read(cct.datasets.path("web_server", "sender.pcap.zst")).flows
    large = flows[flows["bytes_sent"] > 100_000]
    assert worst[0][3] == pytest.approx((large["retransmitted_segments"] / large["segments_sent"]).max())
