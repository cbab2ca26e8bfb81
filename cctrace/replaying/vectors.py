"""Golden vectors: every call into a variant's released code with its result, and the comparison with cctrace's class.

A file `<variant>/<scenario>.parquet` holds one connection. Its folder names the variant; `obbr_mu0.5` is `obbr`
with mu = 0.5. Input columns become a `View` in which everything is observed. The columns after the call are
expected values: `o_*` outputs, `s_*` (`s2_*`, `sc_*`) private state, `f32_*` C floats, `g_*` per-process state.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cctrace import schema
from cctrace.cc import REGISTRY, controller
from cctrace.cc.base import ArrayField, Controller, declared_fields
from cctrace.columns import Bools, Values
from cctrace.errors import ArgumentError, FormatError, StreamError
from cctrace.extras import needed
from cctrace.flows.views import CARRIED, View
from cctrace.replaying.player import Player

_EXPECTED = re.compile(r"(?:f32_)?(?:o_|s_p_|s_|s2_|sc_|g_)|f32_")
# Not in the files: the drivers had ECN off, never drew more than three numbers in a call, and lost single segments.
_NEUTRAL = {"ecn_ok": 0, "delivered_ce": 0, "rs_delivered_ce": 0, "rand3": 0, "skb_segments": 1}


class Vector(NamedTuple):
    """A golden vector: the variant's name, its class and parameters, inputs and expected values."""

    path: str
    variant: str
    controller: type[Controller]
    params: dict[str, Any]
    view: View
    expected: dict[str, Values]


def load(path: str | os.PathLike[str]) -> Vector:
    """Read a golden vector.

    Raises `FormatError` if the file is not a golden vector; names what is wrong. Raises `StreamError` if an input is
    not an integer. Raises `ArgumentError` if its folder does not name a variant.
    """
    path = Path(path)
    if path.suffix != ".parquet":
        raise FormatError(f"{path}: no golden vector (.parquet); of a capture, replay cctrace.read(FILE).flow(0)")
    variant = path.resolve().parent.name
    cls, params = variant_of(variant)
    try:
        table = needed("pyarrow.parquet", "parquet").read_table(path)
    except (needed("pyarrow", "parquet").ArrowInvalid, OSError) as error:
        raise FormatError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from None
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    if "event" not in columns:
        raise FormatError(f"{path}: no column 'event'; not a golden vector")
    try:
        view = _view(path, cls.view, columns)
    except StreamError as error:
        raise StreamError(f"{path}: {error}") from None
    expected = {name: values for name, values in columns.items() if _EXPECTED.match(name)}
    if not expected:
        raise FormatError(f"{path}: no column of expected values (o_..., s_..., f32_..., g_...); not a golden vector")
    return Vector(str(path), variant, cls, params, view, expected)


def variant_of(folder: str) -> tuple[type[Controller], dict[str, Any]]:
    """Return (class, parameters) that a folder of vectors names: ``NAME`` or ``NAME_PARAMVALUE_PARAMVALUE...``."""
    if folder not in REGISTRY:
        for name in sorted(REGISTRY, key=len, reverse=True):
            if re.fullmatch(re.escape(name) + r"(_[A-Za-z_]+-?[0-9.]+)+", folder):
                given = re.findall(r"_([A-Za-z_]+)(-?[0-9.]+)", folder[len(name) :])
                return controller(f"{name}:{','.join(f'{one}={value}' for one, value in given)}")
    return controller(folder)


def _view(path: Path, kind: str, columns: Mapping[str, Values]) -> View:
    names = schema.names(schema.LINUX_VIEW if kind == "linux" else schema.QUIC_VIEW)
    event = columns["event"]
    codes = {name: code for name, code in schema.EVENT_CODES.items() if name in set(event)}
    codes |= {name: schema.EVENT_CODES[own] for name, own in schema.VECTOR_EVENT_NAMES.items()}
    unknown = set(event) - set(codes)
    if unknown:
        raise FormatError(f"{path}: unknown event {min(map(str, unknown))!r}")
    inputs = {name: columns[name] for name in names if name in columns}
    inputs |= {name: np.full(len(event), v) for name, v in _NEUTRAL.items() if name in names and name not in inputs}
    if kind == "linux":
        draws = [name for name in inputs if name.startswith("rand") and name not in _NEUTRAL]
        unbounded = [name for name in draws if f"{name}_max" not in columns]
        if unbounded:
            raise FormatError(f"{path}: column {unbounded[0]!r} without its bound {unbounded[0] + '_max'!r}")
        inputs |= {name: _raw_draw(inputs[name], columns[f"{name}_max"]) for name in draws}
    observed = {field: columns[name] for name, field in CARRIED[kind].items() if name in columns}
    return View(kind, [codes[name] for name in event], inputs, observed)


def _raw_draw(value: Values, bound: Values) -> Values:
    """Return the smallest 32-bit draw r with (r * bound) >> 32 == value; 0 where nothing was drawn (bound 0)."""
    value, bound = value.astype(np.uint64), np.maximum(bound, 1).astype(np.uint64)
    return (((value << np.uint64(32)) + bound - np.uint64(1)) // bound).astype(np.int64)


def golden_field(cls: type[Controller], column: str) -> str | None:
    """Return the recordable name (``bw_v[0]``, ``snd_cwnd``, ``o_ret``) of a golden-vector column, None if absent.

    The prefixes are stripped and carried columns renamed as the schema says; `golden_names` of the class comes first;
    `golden_absent` names what it does not have.

    Raises `ArgumentError` if the class has no such field and does not say why.
    """
    if column in cls.golden_absent:
        return None
    name = _EXPECTED.sub("", column, count=1)
    name = cls.golden_names.get(column, CARRIED[cls.view].get(name, name) if column.startswith("o_") else name)
    if column == "o_ret":
        return column
    field, bracket, index = name.partition("[")
    declared = declared_fields(cls).get(field)
    if isinstance(declared, ArrayField) != bool(bracket) or declared is None:
        raise ArgumentError(
            f"{cls.__name__} has no field {name!r} for the golden column {column!r}; "
            "name it in golden_names, or say in golden_absent why there is none"
        )
    if bracket and not 0 <= int(index.rstrip("]")) < declared.length:
        raise ArgumentError(f"{cls.__name__}: {name!r}, for the golden column {column!r}, is out of range")
    return name


def verify(paths: Iterable[str | os.PathLike[str]], mode: str = "compiled") -> dict[str, Any]:
    """Replay golden vectors and compare every recorded output and state column, floats bit for bit.

    `paths`: vectors, or folders of them (searched recursively). `mode`: "compiled", "interpreted" or "debug". Returns
    ``files``, ``rows``, ``mismatching_rows`` and ``vectors``: per file ``path, variant, rows, mismatching_rows`` and
    ``first``, None or the first mismatch as ``row, column, expected, got``. Raises `ArgumentError` if a path does not
    exist or holds no vector, or a class lacks a field; `StreamError` if a vector lacks a column that its controller
    reads.
    """
    vectors = [verify_file(path, mode) for path in _files(paths)]
    return {
        "files": len(vectors),
        "rows": sum(v["rows"] for v in vectors),
        "mismatching_rows": sum(v["mismatching_rows"] for v in vectors),
        "vectors": vectors,
    }


def verify_file(path: str | os.PathLike[str], mode: str = "compiled") -> dict[str, Any]:
    """Compare one golden vector; see `verify`."""
    vector = load(path)
    fields = {column: golden_field(vector.controller, column) for column in vector.expected}
    record = list(dict.fromkeys(f for f in fields.values() if f))
    try:
        player = Player(vector.view, vector.controller, mode=mode, record=record, **vector.params)
        player.run()
    except StreamError as error:
        raise StreamError(f"{path}: {error}") from None
    wrong: dict[str, tuple[Bools, Values]] = {}  # {column: (rows that differ, its values)}
    for column, expected in vector.expected.items():
        # A column that the class does not have must never move.
        name = fields[column]
        got = player.recorded[name] if name else np.full_like(expected, expected[0])
        if expected.dtype.kind == "f":
            if got.dtype != expected.dtype:
                raise ArgumentError(f"{vector.controller.__name__}.{fields[column]} must be an f32 field ({column})")
            differs = expected.view("u4") != got.view("u4")
        else:
            differs = expected != got
        if differs.any():
            wrong[column] = differs, got
    bad = np.logical_or.reduce([differs for differs, _ in wrong.values()] or [np.zeros(len(vector.view), bool)])
    result = {"path": vector.path, "variant": vector.variant, "rows": len(bad), "mismatching_rows": int(bad.sum())}
    return result | {"first": _first(bad, wrong, vector.expected)}


def _first(bad: Bools, wrong: dict[str, tuple[Values, Values]], expected: dict[str, Values]) -> dict[str, Any] | None:
    if not wrong:
        return None
    row = int(bad.argmax())
    column, got = next((column, got) for column, (differs, got) in wrong.items() if differs[row])
    return {"row": row, "column": column, "expected": expected[column][row].item(), "got": got[row].item()}


def _files(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    files = []
    for path in map(Path, paths):
        found = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        if not found or not found[0].exists():
            raise ArgumentError(f"{path}: no such golden vector, or no .parquet file in the folder")
        files += found
    return files
