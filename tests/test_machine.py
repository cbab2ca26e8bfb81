"""Plain functions as machine code: Python's numbers, kept in the cache, made anew when anything changed."""

import copy
import ctypes
import hashlib
import math
import os
import platform
import subprocess
import sys
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cctrace import datasets
from cctrace.errors import CompileError
from cctrace.io.source import open_source
from cctrace.lang import elf, entry, machine, objects
from cctrace.lang.fingerprint import Fingerprint
from cctrace.lang.machine import Machine, Prepared
from cctrace.lang.memory import (
    ArrayAt,
    CopyFields,
    RecordOf,
    SameFields,
    SetFields,
    address_of,
    big64,
    call,
    callback,
    forget,
    little64,
    place,
    record_of,
    with_fields,
    words,
)
from tests.places import REPOSITORY

ROW = np.dtype([("code_kind", "u1"), ("big", "?"), ("bytes", "i4"), ("rate", "f8"), ("column", "i8"), ("callee", "i8")])
rows_at = ArrayAt(ROW)
PRIMES = (2, 3, 5, 7)
helpers = types.ModuleType("helpers")


def scaled(x, by=3):
    return x * by, x // by


def work(table, column, until):
    row = table[1]
    row.bytes += 70_000
    row.code_kind = 44
    row.rate = until
    row.big = until > 3
    found, last = 0, -1
    for k in range(until):
        if column[k] in (1, 4) or not -6 <= column[k] < 9:
            continue
        many, few = scaled(int(column[k]))
        found += many - few % PRIMES[k % 4]
        last = k if found % 2 else last
        while few > 0:
            few -= 2
            if few == 1:
                break
            found += 1
    words(row.column)[2:4] = words(row.column)[0:2]
    words(row.column)[1:2] = 9
    rows_at((row.rate and row.column and 0) or place_of(table))[0].bytes = last or 5
    found += call(row.callee, 1, 2, 3)
    return found, last, row.rate / 2, found > 10


def place_of(table):
    return table[0].column


def test_a_compiled_function_gives_the_numbers_of_the_same_one_interpreted():
    add = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)(lambda event, state, ack: event + state + ack)
    outcomes = []
    for way in (work, Machine(work)):
        code = callback(add) if way is work else ctypes.cast(add, ctypes.c_void_p).value
        table, other = np.zeros(2, ROW).view(np.recarray), np.zeros(1, ROW).view(np.recarray)
        data = np.array([7, 8, 0, 0])
        placed = [place(data), place(other), code]
        table.column = [placed[1], placed[0]]
        table.callee = code
        result = way(table, np.array([3, 1, 7, -5, 8, 4, 100, 6], np.int16), 8)
        outcomes.append((result, table.bytes.tolist(), other["bytes"].tolist(), data.tolist()))
        outcomes[-1] += (table.code_kind.tolist(), table.big.tolist())
        forget(placed)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0][0] > 10


def marked(table):
    first, last = table[0], table[table.size - 1]
    last.size += first.flags & 6
    last.flags |= 8
    return last.size


def test_a_field_comes_before_numpys_attribute_of_the_same_name(monkeypatch):
    tables = [np.array([(7, 1), (1, 2)], [("flags", "i8"), ("size", "i8")]) for _ in range(2)]
    results = [Machine(marked)(tables[0])]
    monkeypatch.setattr(machine, "INTERPRETED", True)
    assert [*results, Machine(marked)(tables[1].view(np.recarray))] == [8, 8]
    assert tables[0].tolist() == tables[1].tolist() == [(7, 1), (9, 8)]


def test_interpreted_code_calls_compiled_functions_at_their_address():
    add = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)(lambda event, state, ack: event + state - ack)
    assert call(np.int64(ctypes.cast(add, ctypes.c_void_p).value), 1, np.int64(2), -3) == 6


SHOW = """
import sys
import cctrace
flow = cctrace.read(sys.argv[1]).flow(0)
print(flow.events.frame().to_csv())
print(cctrace.replay(flow, sys.argv[2]).decisions.to_csv())
print(cctrace.identify(flow).candidates)
"""


@pytest.mark.parametrize(("name", "controller"), [("jitter_bbr_sd2ms", "bbr2022"), ("loss_cubic_1pct", "cubic6")])
def test_a_view_a_replay_and_who_sent_are_the_same_interpreted(tmp_path, name, controller):
    with open_source(datasets.path(name, "sender.pcap.zst")) as source:
        (tmp_path / "some.pcap").write_bytes(source.rest()[:40_000])
    command = [sys.executable, "-W", "ignore", "-c", SHOW, tmp_path / "some.pcap", controller]
    shown = [
        subprocess.run(command, env={**os.environ, "CCTRACE_MACHINE": mode}, capture_output=True, text=True, check=True)
        for mode in ("", "interpreted")
    ]
    assert shown[0].stdout == shown[1].stdout
    assert shown[0].stdout.count("\n") > 300


def arithmetic(a, b, x, y):
    shifted = (a >> (b & 63)) ^ (a << (b & 7))
    if b != 0:
        shifted += a // b - a % b
    real = x * 0.5 - y
    if y != 0.0:
        real += x // y + x % y + x / y
    return shifted & 0x7FFFFFFF, min(a, b, 3), max(a, -b), abs(a), real, a < b <= 9, not a or b == 2, int(x), -a, ~b


INTEGERS = st.integers(-(2**31), 2**31) | st.integers(-9, 9)
REALS = st.floats(-1e6, 1e6, allow_subnormal=False)
compiled_arithmetic = Machine(arithmetic)


@settings(max_examples=300)
@given(INTEGERS, INTEGERS, REALS, REALS)
def test_operators_are_those_of_python(a, b, x, y):
    assert repr(compiled_arithmetic(a, b, x, y)) == repr(arithmetic(a, b, x, y))


def overflow(a, b):
    return a // b, a % b


def test_the_one_quotient_that_does_not_fit_wraps_where_the_processor_would_trap():
    assert Machine(overflow)(-(2**63), -1) == (-(2**63), 0)


def divide(a):
    return 7 // a[0]


helpers.divide = divide


def element(a, k):
    return a[k]


def wrong_type(a):
    b = a[0]
    b = a
    return b.size


def unknown(a):
    return sorted(a)


def endless(a):
    return endless(a)


def test_a_division_by_zero_names_its_line():
    line = divide.__code__.co_firstlineno + 1
    with pytest.raises(ZeroDivisionError, match=rf"test_machine.py:{line}: division by zero"):
        Machine(divide)(np.zeros(1, np.int64))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (wrong_type, "b is int in one place"),
        (unknown, "calls sorted, which is not compiled"),
        (endless, "calls itself"),
    ],
)
def test_what_cannot_be_compiled_is_refused_by_file_and_line(function, reason):
    with pytest.raises(CompileError, match=rf"test_machine.py:\d+: .*{reason}"):
        Machine(function)(np.zeros(3, np.int64))


def test_arrays_that_are_read_only_empty_or_of_records_are_taken():
    numbers = np.arange(8)
    numbers.flags.writeable = False
    assert Machine(element)(numbers, 5) == 5
    assert Machine(length)(np.zeros(0, np.int64)) == 0
    assert Machine(length)(np.zeros(3, [("word", "i8"), ("half", "i4")])) == 3


def length(array):
    return len(array)


def test_an_arrays_address_is_numpys_and_that_of_a_copy_its_own():
    plain = np.arange(6)
    read_only = np.frombuffer(b"bytes", np.uint8)
    records = np.zeros(2, [("a", "i8"), ("b", "f8")])
    for array in (
        plain,
        plain[2:],
        plain.reshape(2, 3),
        read_only,
        np.zeros(0),
        np.zeros(()),
        records.view(np.recarray),
    ):
        assert address_of(array) == array.ctypes.data
    prepared = Prepared(plain)
    copied = copy.deepcopy(prepared)
    assert copied.words == [copied.arg.ctypes.data, 6] != prepared.words


def test_arrays_with_gaps_are_refused():
    with pytest.raises(TypeError, match="C-contiguous"):
        Machine(element)(np.zeros((4, 8), np.int64)[:, ::2], 0)


# -- the cache ---------------------------------------------------------------------------------------------------------
CALL = """
import sys
import numpy as np
from cctrace.lang import machine
built, build = [], machine._build
machine._build = lambda *args: built.append(args) or build(*args)

def total({signature}:
    {doc}
    s = 0
    for i in range(n):
        s += a[i]{more}
    return s

print(machine.Machine(total)(np.arange(5), 5), len(built))
"""


def start(folder, doc="'''Sum.'''", more="", signature="a, n)", name="one.py", **environment):
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(CALL.format(doc=doc, more=more, signature=signature))
    environment = os.environ | {"CCTRACE_CACHE": str(folder / "cache"), "PYTHONPATH": str(REPOSITORY)} | environment
    return subprocess.Popen([sys.executable, file], env=environment, stdout=-1, stderr=-1, text=True)


def outcome(process):
    """Return what was printed (sum, pieces of code made), and the lines of warning."""
    out, error = process.communicate(timeout=100)
    assert process.returncode == 0, error
    return out.split(), error.splitlines()


def run(folder, *args, **kwargs):
    return outcome(start(folder, *args, **kwargs))


def signed(data):
    """The bytes of an entry whose checksum is right."""
    return hashlib.sha256(data).hexdigest().encode() + b"\n" + data


def test_another_docstring_comment_annotation_line_or_folder_compiles_nothing(tmp_path):
    assert run(tmp_path) == (["10", "1"], [])
    assert run(tmp_path) == (["10", "0"], [])
    assert run(tmp_path, doc="'''The sum\n\n    of all.\n    '''  # not more") == (["10", "0"], [])
    assert run(tmp_path, signature="a: np.ndarray, n: int) -> int") == (["10", "0"], [])
    assert run(tmp_path, name="elsewhere/two.py") == (["10", "0"], [])
    assert run(tmp_path, more=" + 1") == (["15", "1"], [])


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:-9] + b"damage...",
        lambda data: b"",
        lambda data: b"no code\n" + data,
        lambda data: signed(data.split(b"\n", 1)[1].replace(b'"key": "', b'"key": "another')),
        lambda data: data.replace(b'"words": ', b'"words": 1'),
    ],
    ids=["cut", "overwritten", "empty", "garbage", "of another function", "another head"],
)
def test_damaged_or_stale_code_is_made_anew_with_a_line_of_warning(tmp_path, damage):
    run(tmp_path)
    (entry,) = (tmp_path / "cache").glob("*.o")
    sound = entry.read_bytes()
    entry.write_bytes(damage(sound))
    printed, warnings = run(tmp_path)
    assert printed == ["10", "1"]
    (line,) = warnings
    assert line == f"cctrace: {entry} is damaged or belongs to other code; it is compiled again"
    assert entry.read_bytes() == sound
    assert run(tmp_path) == (["10", "0"], [])


def test_a_home_that_cannot_be_written_is_told_once_and_replaced_by_a_temporary_folder(tmp_path):
    environment = {"CCTRACE_CACHE": "", "HOME": "/dev/null", "TMPDIR": str(tmp_path)}
    for made in ("1", "0"):
        printed, warnings = run(tmp_path, **environment)
        assert printed == ["10", made]
        (line,) = warnings
        assert line.startswith("cctrace: /dev/null/.cache/cctrace cannot be written")
        assert f"kept in {tmp_path}/cctrace-" in line


def test_a_temporary_folder_that_others_can_write_to_is_not_used(tmp_path):
    theirs = tmp_path / f"cctrace-{os.getuid()}"
    theirs.mkdir()
    theirs.chmod(0o777)
    printed, (line,) = run(tmp_path, CCTRACE_CACHE="/dev/null/cache", TMPDIR=str(tmp_path))
    assert printed == ["10", "1"]
    assert not line.endswith(str(theirs))
    assert not list(theirs.iterdir())


def theirs(path):
    path.chmod(0o777 if path.is_dir() else 0o666)


def linked(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


NOT_OURS = [(theirs, "can be written by others"), (linked, "symbolic link")]


@pytest.mark.parametrize(("change", "reason"), NOT_OURS, ids=["written by others", "link"])
def test_a_folder_that_others_can_change_is_not_used_wherever_it_is(tmp_path, change, reason):
    run(tmp_path)
    change(tmp_path / "cache")
    before = {entry: entry.stat().st_mtime_ns for entry in (tmp_path / "cache").iterdir()}
    (tmp_path / "tmp").mkdir()
    printed, (line,) = run(tmp_path, TMPDIR=str(tmp_path / "tmp"))
    assert printed == ["10", "1"]
    assert reason in line
    assert line.startswith(f"cctrace: {tmp_path / 'cache'} ")
    assert {entry: entry.stat().st_mtime_ns for entry in (tmp_path / "cache").iterdir()} == before


@pytest.mark.parametrize(("change", "reason"), [NOT_OURS[0], (linked, "symbolic link")], ids=["others", "link"])
def test_an_entry_that_others_can_change_is_not_loaded(tmp_path, change, reason):
    run(tmp_path)
    (entry,) = (tmp_path / "cache").glob("*.o")
    change(entry)
    printed, (line,) = run(tmp_path)
    assert printed == ["10", "1"]
    assert line.startswith(f"cctrace: {entry} ")
    assert line.endswith("it is compiled again")
    assert reason in line.lower()
    assert run(tmp_path) == (["10", "0"], [])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to others")
def test_the_folder_of_another_user_is_not_used(tmp_path):
    run(tmp_path)
    os.chown(tmp_path / "cache", 12345, 0)
    (tmp_path / "tmp").mkdir()
    printed, (line,) = run(tmp_path, TMPDIR=str(tmp_path / "tmp"))
    assert printed == ["10", "1"]
    assert "belongs to another user (uid 12345)" in line


def test_processes_that_start_at_once_do_not_collide(tmp_path):
    outcomes = [outcome(process) for process in [start(tmp_path, name=f"{k}.py") for k in range(3)]]
    assert {printed[0] for printed, _ in outcomes} == {"10"}
    assert not any(warnings for _, warnings in outcomes)
    assert len(list((tmp_path / "cache").iterdir())) == 1
    assert run(tmp_path) == (["10", "0"], [])


def test_what_was_not_used_for_longest_is_forgotten_first(monkeypatch, tmp_path):
    """By age, 16 simulations of other kinds had made the compiled code of every `analyze` go: 3 s at its next start."""
    from cctrace.lang import cache

    monkeypatch.setattr(cache, "_MAX_BYTES", 5_000)
    stock = tmp_path / "run-stock.o"
    cache._write(stock, "stock", {}, bytes(800))
    for k in range(20):
        cache._write(tmp_path / f"run-{k:020}.o", str(k), {}, bytes(800))
        for age, path in enumerate(sorted(tmp_path.glob("*.o"), key=lambda path: -path.stat().st_mtime_ns)):
            os.utime(path, (1e9 - age, 1e9 - age))
        assert cache._read(stock, hashlib.sha256(b"no key").hexdigest()) is None  # used, if only to be refused
    left = {path.name for path in tmp_path.glob("*.o")}
    assert sum(path.stat().st_size for path in tmp_path.glob("*.o")) <= 5_000
    assert left == {stock.name, *(f"run-{k:020}.o" for k in range(16, 20))}


def test_a_fingerprint_covers_what_a_function_calls_and_the_constants_it_uses(monkeypatch):
    def text():
        found = Fingerprint()
        found.function(work)
        return found.text()

    before = text()
    assert text() == before
    monkeypatch.setitem(globals(), "PRIMES", (2, 3, 5, 11))
    changed = text()
    monkeypatch.setitem(globals(), "scaled", lambda x, by=3: (x, x))
    assert len({before, changed, text()}) == 3


def counted(n):
    def more(k):
        return work(k) + n

    return more


@pytest.mark.parametrize("change", ["constant", "function", "default", "code", "hidden builtin", "cell"])
def test_a_fingerprint_holds_until_anything_that_it_has_read_is_another(monkeypatch, change):
    function = counted(3)
    found = Fingerprint()
    found.function(function)
    assert found.holds()
    if change == "constant":
        monkeypatch.setitem(globals(), "PRIMES", (2, 3, 5, 11))
    elif change == "function":
        monkeypatch.setitem(globals(), "scaled", lambda x, by=3: (x, x))
    elif change == "default":
        monkeypatch.setattr(scaled, "__defaults__", (4,))
    elif change == "code":
        monkeypatch.setattr(scaled, "__code__", (lambda x, by=3: (by, x)).__code__)
    elif change == "hidden builtin":
        monkeypatch.setitem(globals(), "range", scaled)
    else:
        function.__closure__[function.__code__.co_freevars.index("n")].cell_contents = 4
    assert not found.holds()


def helped(a):
    return helpers.divide(a)


def test_functions_of_any_module_are_covered_and_may_fail(monkeypatch):
    before = Fingerprint()
    before.function(helped)
    with pytest.raises(ZeroDivisionError, match=r"test_machine.py:\d+: division by zero"):
        Machine(helped)(np.zeros(1, np.int64))
    monkeypatch.setattr(helpers, "divide", scaled)
    after = Fingerprint()
    after.function(helped)
    assert before.text() != after.text()


def both_orders(data, at):
    return big64(data, at), little64(data, at)


def test_eight_bytes_are_a_number_in_either_order_at_any_place():
    data = np.arange(250, 270).astype(np.uint8)  # some with the highest bit, so that numbers are negative
    for at in range(13):
        found = Machine(both_orders)(Prepared(data), at)
        assert found == both_orders(data, at) == tuple(int(data[at : at + 8].view(kind)[0]) for kind in (">i8", "<i8"))
    with pytest.raises(CompileError, match="an array of bytes only"):
        Machine(both_orders)(np.zeros(9, np.int64), 0)


# -- in use ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "args"), [("element", "int64), 3"), ("both_orders", "uint8), -1"), ("both_orders", "uint8), 1")]
)
def test_every_index_can_be_checked(tmp_path, name, args):
    code = f"import numpy as np; from test_machine import {name}; from cctrace.lang.machine import Machine\n"
    size = 3 if name == "element" else 8
    code += f"try: Machine({name})(np.zeros({size}, np.{args})\nexcept IndexError as error: print(error)"
    environment = {"CCTRACE_MACHINE": "checked", "CCTRACE_CACHE": str(tmp_path)}
    environment |= {"PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests'}"}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True)
    line = globals()[name].__code__.co_firstlineno + 1
    assert done.stdout.endswith(f"test_machine.py:{line}: index out of bounds\n"), done.stderr


def test_a_capture_is_read_interpreted_as_it_is_compiled(tmp_path):
    with open_source(datasets.path("loss_cubic_1pct", "sender.pcap.zst")) as source:
        (tmp_path / "begin.pcap").write_bytes(source.read(3000))
    code = "import sys; from cctrace.flows.table import of_file; print(of_file(sys.argv[1]).rows())"
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", code, str(tmp_path / "begin.pcap")]
    said = []
    for mode in ("interpreted", ""):
        environment = os.environ | {"CCTRACE_MACHINE": mode, "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        said.append(done.stdout)
        assert done.returncode == 0, done.stderr
    assert said[0] == said[1]
    assert "segments_sent" in said[0]


def functions_of_libm(x, numbers):
    last = len(numbers) - 1
    numbers[0:last] = numbers[1 : last + 1]  # may become memmove
    return math.expm1(x) + math.log(x) + x**0.3 + x % 0.7, PRIMES[int(x) % 4] + int(numbers[0])


PAIR = np.dtype([("one", "i8"), ("two", "i8")])
UNION = np.dtype({"names": ["whole", "low", "high"], "formats": ["i8", "i4", "i4"], "offsets": [0, 0, 4]})
pairs_at, unions_at = ArrayAt(PAIR), ArrayAt(UNION)


def other_field(address, other):
    before = pairs_at(address)[0].one
    pairs_at(other)[0].two = before + 1
    return pairs_at(address)[0].one - before


def its_word(address, other):
    before = pairs_at(address)[0].one
    words(other)[0] = before + 1
    return pairs_at(address)[0].one - before


def its_part(address, other):
    before = unions_at(address)[0].whole
    unions_at(other)[0].high = 1
    return unions_at(address)[0].whole - before


@pytest.mark.parametrize(
    ("written", "changes", "loads"), [(other_field, 0, 1), (its_word, 1, 2), (its_part, 1 << 32, 2)]
)
def test_a_field_is_read_again_only_after_what_may_have_changed_it(monkeypatch, written, changes, loads):
    table = np.zeros(2, np.int64)
    assert Machine(written)(table.ctypes.data, table.ctypes.data) == changes
    texts = []
    monkeypatch.setattr(objects, "object_code", lambda text: texts.append(text) or b"")
    entry.build(written, (1, 2), [written], False, {}, {})
    assert str(objects.optimised(texts[0])).count(" = load ") == loads


def rounded(address):
    return pairs_at(address)[0].one // 1000


def test_a_field_that_is_never_negative_is_divided_without_rounding_down(monkeypatch):
    table = np.array([-1, 0])
    assert Machine(rounded)(table.ctypes.data) == -1
    texts = []
    with monkeypatch.context() as patch:
        patch.setattr(objects, "object_code", lambda text: texts.append(text) or b"")
        for naturals in ({}, {PAIR.names: ("one",)}):
            entry.build(rounded, (1,), [rounded], False, {}, naturals)
    assert ["ashr" in str(objects.optimised(text)) for text in texts] == [True, False]
    monkeypatch.setattr(machine, "_MODE", "checked")
    with pytest.raises(ValueError, match="one is not natural"):
        Machine(rounded, naturals={PAIR: ("one",)})(table.ctypes.data)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the convention is LLVM's for some processors")
def test_compiled_functions_save_no_registers_for_each_other(monkeypatch):
    texts = []
    monkeypatch.setattr(objects, "object_code", lambda text: texts.append(text) or b"")
    entry.build(halves, (1,), [halves, scaled], False, {}, {})
    calls = [line for line in texts[0].splitlines() if '@"scaled' in line]
    assert len(calls) == 3  # its definition, and two calls
    assert all("preserve_nonecc" in line for line in calls)


def halves(x):
    return scaled(x)[1] + scaled(x + 1)[1]


def test_llvm_and_its_replacement_load_the_same_code(monkeypatch):
    found = []
    for is_ours in (elf.IS_OURS, False):
        monkeypatch.setattr(elf, "IS_OURS", is_ours)
        found.append([Machine(functions_of_libm)(x, np.arange(70)) for x in (0.1, 1.9, 34.5)])
    assert found[0] == found[1] == [functions_of_libm(x, np.arange(70)) for x in (0.1, 1.9, 34.5)]


@pytest.mark.skipif(not elf.IS_OURS, reason="LLVM loads the code")
def test_a_function_that_the_c_library_lacks_is_named(monkeypatch):
    text = "declare double @{0}(double)\ndefine double @entry(double %x) {{\n  %y = call double @{0}(double %x)\n"
    text += "  ret double %y\n}}"
    monkeypatch.setattr(elf, "_LIBRARIES", elf._LIBRARIES[1:])  # as if Python were not linked with libm
    (address,) = objects.link(objects.object_code(text.format("tanh")), "entry")
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(address)(0.3) == math.tanh(0.3)
    with pytest.raises(OSError, match="calls missing, which neither Python nor libm has"):
        objects.link(objects.object_code(text.format("missing")), "entry")


def test_listing_flows_imports_no_compiler_and_no_pandas():
    file = str(datasets.path("tso_bbr_300m_veth", "sender.pcap.zst"))
    code = f"import sys; from cctrace.cli import main; main(['flows', '--json', {file!r}]); print(*sys.modules)"
    for _ in range(2):  # the first may have to compile
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {"cctrace.lang.lower", "pandas", "scipy"} & set(done.stdout.splitlines()[-1].split())


counters_of = RecordOf([("sent", np.int64), ("lost", np.int64)])


def count_loss(state, other):
    counters_of(state).lost += 2
    other[:] = state
    return counters_of(other).lost - counters_of(other).sent


def test_an_array_of_words_is_a_record_in_the_same_memory():
    for function in (count_loss, Machine(count_loss)):
        state, other = np.array([3, 4]), np.zeros(2, np.int64)
        assert function(state, other) == 3
        assert state.tolist() == other.tolist() == [3, 6]
    with pytest.raises(CompileError, match="only an array of int64"):
        Machine(count_loss)(np.zeros(2), np.zeros(2))


TALLY, SMALL = record_of("sent lost seen"), np.dtype([("sent", np.uint8), ("lost", np.int64)])
is_as_lost, take_counters, forget_losses = (
    SameFields("sent", "lost"),
    CopyFields("sent", seen="lost"),
    SetFields(lost=-1),
)


def update_tally(tallies, smalls):
    same = is_as_lost(tallies[0], smalls[0])
    take_counters(tallies[0], smalls[0])
    forget_losses(smalls[0])
    return 1 if same else 0


@pytest.mark.parametrize(("sent", "same"), [(3, 1), (4, 0)])
def test_many_fields_of_records_are_compared_copied_and_set_at_once(sent, same):
    for function in (lambda *args: update_tally(*map(with_fields, args)), Machine(update_tally)):
        tallies, smalls = np.array([(sent, 7, 0)], TALLY), np.array([(3, 7)], SMALL)
        assert function(tallies, smalls) == same
        assert (tallies.tolist(), smalls.tolist()) == ([(3, 7, 7)], [(3, -1)])
    with pytest.raises(CompileError, match="something other than records"):
        Machine(update_tally)(np.zeros((1, 3), np.int64), np.zeros(1, SMALL))
    with pytest.raises(CompileError, match="there is no field 'lost'"):
        Machine(update_tally)(np.zeros(1, TALLY), np.zeros(1, record_of("sent")))
    with pytest.raises(CompileError, match="said to be known"):
        Machine(update_tally, known={SMALL: {"lost": 7}})(tallies, smalls)
