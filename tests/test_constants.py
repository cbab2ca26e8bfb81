"""The tables of constants of each package: complete, in use, and what a fifth more or less changes is on record."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.constants import (
    KINDS,
    PACKAGES,
    RESULTS,
    Row,
    attempt,
    changed,
    differs,
    flows,
    moved,
    names_read,
    table,
)
from cctrace.estimates import Estimate
from cctrace.path import constants as of_path

CCTRACE = Path(of_path.__file__).parents[1]
TABLES = {package: rows for package in PACKAGES if (rows := table(package))}


@pytest.mark.parametrize("package", TABLES)
def test_every_number_of_a_package_has_a_unit_a_kind_and_a_reason(package):
    text = (CCTRACE / package / "constants.py").read_text(encoding="utf-8")
    assigned = re.findall(r"^([A-Z][A-Z0-9_]+)\b.* = ", text, re.M)
    assert assigned == [row.name for row in TABLES[package]]
    assert len(set(assigned)) == len(assigned)
    for row in TABLES[package]:
        assert row.kind in KINDS, row
        assert row.unit, row
        assert len(row.why) > 5, row


def test_packages_that_judge_have_few_constants():
    assert sum(len(TABLES[package]) for package in ("diagnosis", "fit", "identification")) <= 250


@pytest.fixture(scope="module")
def names_in_code():
    files = [file for file in CCTRACE.rglob("*.py") if file.name != "constants.py"]
    return {name for file in files for name in re.findall(r"\w+", file.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("package", TABLES)
def test_every_number_is_used(package, names_in_code):
    assert {row.name for row in TABLES[package]} <= names_in_code


def test_a_moved_number_is_moved_where_it_is_used_and_only_meanwhile():
    from cctrace.path import neighbours

    row = next(row for row in TABLES["path"] if row.name == "COMMON_GAIN")
    with moved(row, 1.2):
        assert pytest.approx(1.2 * row.value) == neighbours.COMMON_GAIN
    assert neighbours.COMMON_GAIN == row.value == of_path.COMMON_GAIN


def test_counts_of_items_move_by_one_at_least():
    from cctrace.path import losses

    row = next(row for row in TABLES["path"] if row.name == "MIN_DROPS")
    with moved(row, 1.2):
        assert row.value + 1 == losses.const.MIN_DROPS
    with moved(row, 1 / 1.2):
        assert row.value > losses.const.MIN_DROPS


def test_an_answer_differs_that_is_another_word_or_outside_its_interval():
    assert differs("droptail", "codel")
    assert not differs(Estimate(10.0, 9.0, 11.0), Estimate(10.9, 10.0, 12.0))
    assert differs(Estimate(10.0, 9.0, 11.0), Estimate(11.1, 10.0, 12.0))
    assert differs(Estimate(10.0, 9.0, 11.0), Estimate(None, 9.0, None))


def test_a_number_that_decides_changes_answers_and_one_that_does_not_changes_none():
    asked = {"loss": flows("path")["loss"]}
    before = {"loss": attempt("path", asked["loss"])}
    assert before["loss"]["verdicts"]
    unused = next(row for row in TABLES["path"] if row.name == "MAX_GAPS")
    assert changed(unused, asked, before) == {"+20 %": 0, "-20 %": 0}
    hundredfold = Row("path", "LEAST_RTTS", of_path.LEAST_RTTS, "RTTs", "set", "")
    with moved(hundredfold, 1000):
        assert attempt("path", asked["loss"]) != before["loss"]
    read = names_read("path", asked["loss"])
    assert "LEAST_RTTS" in read
    assert "SHARE_DRAWS" not in read  # of `fit.Share`, which is not asked


def as_recorded(value):
    """Return a number, or a table of numbers, as JSON gives it back."""
    return json.loads(json.dumps(value))


def test_the_record_holds_every_number_of_the_tables():
    recorded = json.loads(RESULTS.read_text(encoding="utf-8"))
    known = {f"{row.package}.{row.name}": row.value for rows in TABLES.values() for row in rows}
    moved = {key for key, value in known.items() if recorded.get(key, {}).get("value", ()) != as_recorded(value)}
    assert moved == set(), "run python -m benchmarks.constants (--only NAME where a value is another)"
    assert set(recorded) == set(known)
