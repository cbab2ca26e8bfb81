"""Tables and texts in a terminal, whatever its width: nothing is cut, nothing is hidden, and pipes get a line a row."""

import re
import sys

import pandas as pd
import pytest

from cctrace import cli, datasets
from cctrace.cli.common import lines_of, print_table, print_text, wrapped
from cctrace.cli.corpus import _with_causes
from cctrace.diagnosis.catalogue import CAUSES
from cctrace.diagnosis.order import cause_words

COLUMNS = ("flow", "sent", "goodput", "warnings")
ROW = ("10.0.0.1:1 → 10.0.0.2:2", "20 MB", "3 Mbit/s", "it lacks the first packets, and some of the last")


@pytest.fixture
def terminal(monkeypatch, capsys):
    """Return a function that runs something in a terminal of a width and returns the lines that it printed."""

    def printed(width, function, *arguments, **options):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        function(*arguments, **options)
        return re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()

    return printed


def test_a_table_that_fits_is_printed_a_line_a_row(terminal):
    assert terminal(120, print_table, COLUMNS, [ROW]) == lines_of(COLUMNS, [ROW])


def test_a_table_that_is_too_wide_is_stacked_and_loses_nothing(terminal):
    assert terminal(40, print_table, COLUMNS, [ROW]) == [
        "flow",
        "   sent   goodput",
        "10.0.0.1:1 → 10.0.0.2:2",
        "  20 MB  3 Mbit/s",
        "  warnings: it lacks the first packets,",
        "    and some of the last",
    ]


def test_columns_that_are_empty_take_no_line_of_a_stack(terminal):
    lines = terminal(24, print_table, COLUMNS, [(*ROW[:3], "")])
    assert lines == ["flow", "   sent   goodput", ROW[0], "  20 MB  3 Mbit/s"]


def test_ends_that_are_too_long_for_a_line_take_two(terminal):
    assert terminal(20, print_table, COLUMNS, [(*ROW[:3], "")])[-3:-1] == ["10.0.0.1:1", "  → 10.0.0.2:2"]


def test_a_pipe_gets_one_line_a_row_however_long(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    print_table(COLUMNS, [ROW])
    print_text("word " * 50)
    table, row, text = capsys.readouterr().out.splitlines()
    assert (table, row) == tuple(lines_of(COLUMNS, [ROW]))
    assert len(text) == 250


def test_a_text_is_wrapped_between_words_and_numbers_stay_with_their_units(terminal):
    assert terminal(20, print_text, "    also: it sent 20 MB, in 3.5 s") == [
        "    also: it sent",
        "      20 MB, in",
        "      3.5 s",
    ]
    assert wrapped("run /a/rather/long/name-of/a/file", 12) == ["run", "  /a/rather/long/name-of/a/file"]


@pytest.mark.parametrize("width", [80, 140])
def test_analyze_names_flow_and_cause_at_any_width(terminal, tmp_path, width):
    capture = str(datasets.path("loss_cubic_1pct", "sender.pcap.zst"))
    lines = terminal(width, cli.main, ["analyze", capture, "--no-effects", "-o", str(tmp_path)])
    assert max(len(line) for line in lines if "datasets/" not in line and not line.startswith("report:")) <= width
    assert "…" not in "".join(lines)
    table = "\n".join(lines[next(i for i, line in enumerate(lines) if line.startswith("Flow")) :])
    assert "10.99.0.1:40001 → 10.99.0.2:5001" in table
    assert "random loss" in table


@pytest.mark.parametrize("width", [80, 140])
def test_variants_are_named_at_any_width(terminal, width):
    lines = terminal(width, cli.main, ["variants"])
    assert max(map(len, lines)) <= width
    assert {"bbr2022", "quic_cubic"} <= {line.split()[0] for line in lines}


def test_a_corpus_names_causes_beside_its_verdicts():
    frame = pd.DataFrame({"source": ["a"], "verdict": ["receiver_limited"], "flows": [3]})
    assert _with_causes(frame).loc[0].tolist() == ["a", "receiver_limited", "receive window", 3]
    assert _with_causes(frame[["flows"]]).columns.tolist() == ["flows"]


def test_every_cause_has_words_short_enough_for_a_column():
    for name, words in ((name, cause.words) for name, cause in CAUSES.items()):
        assert cause_words(name, 0.9) == words
        assert len(words) <= 35, name
        assert "_" not in words.replace("min_rtt", ""), name
