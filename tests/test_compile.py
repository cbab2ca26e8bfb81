"""Compiled classes give the numbers of interpreted ones, and what cannot be compiled is refused with file and line."""

import ctypes
import itertools
import linecache
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cctrace.cc.base import LinuxController, Param, f32, floats, ints
from cctrace.cc.cmath import u32
from cctrace.errors import CompileError
from cctrace.flows.views import View
from cctrace.lang import compile as engine
from cctrace.lang import elf, objects
from cctrace.replaying.player import Player
from cctrace.replaying.run import replay
from tests.places import REPOSITORY

_cells = itertools.count()


def cell(source, **names):
    """Define a class as a notebook cell does: its source is known to linecache only."""
    filename = f"<cell {next(_cells)}>"
    source = textwrap.dedent(source)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    scope = {"__name__": "__main__"}
    exec("from cctrace.cc.base import *\nfrom cctrace.cc.cmath import *\nimport math", scope)
    scope |= names
    exec(compile(source, filename, "exec"), scope)
    return [value for value in scope.values() if isinstance(value, type)][-1], filename


def stream(rows=200, seed=1):
    rng = np.random.default_rng(seed)
    event = np.where(np.arange(rows) == 0, 0, rng.choice([1, 1, 1, 2, 5], rows))
    columns = {name: rng.integers(0, 2**32, rows) for name in ("rand0", "rand1", "rand2", "rand3")}
    columns |= {"now_us": np.arange(rows) * 1000, "rs_rtt_us": rng.integers(-1, 50_000, rows)}
    return View("linux", event, columns | {"delivered": np.cumsum(rng.integers(0, 5, rows))})


def same_numbers(cls, view, record="all", **params):
    runs = [replay(view, cls, mode=mode, record=record, **params) for mode in ("compiled", "debug")]
    for name in runs[0].decisions:
        fast, slow = (run.decisions[name].to_numpy() for run in runs)
        assert fast.dtype == slow.dtype, name
        assert fast.tobytes() == slow.tobytes() if name != "event" else (fast == slow).all(), name
    return runs[0]


TABLE = (3, 1, 4, 1, 5)
SCALE = f32(1.5)


def smoothed(old, new, weight=8):
    return old + (new - old) // weight


class Base(LinuxController):
    params = LinuxController.params | {"share": Param(0.25, 0.0, 1.0, "of the window that a loss takes")}

    rounds: int = 0
    srtt_us: int = 0
    gain: f32 = f32(1.0)
    mean: float = 0.0
    low: bool = False
    ring = ints(5, -1)
    means = floats(3)

    def on_ack(self, ack):
        self.rounds += 1
        self.step(ack, self.rounds % 5)

    def step(self, ack, place):
        self.ring[place] = ack.rs_rtt_us if ack.rs_rtt_us >= 0 else TABLE[place]
        self.srtt_us = smoothed(self.srtt_us, ack.rs_rtt_us)
        for k in range(len(self.ring)):
            self.mean = self.mean + self.ring[k] / 5
        self.means[place % 3] = self.mean

    def ssthresh(self, ack):
        return max(int(self.snd_cwnd * (1 - self.share)), 2)


class Middle(Base):
    def step(self, ack, place):
        super().step(ack, place)
        self.gain = f32(self.gain * SCALE) if self.gain < f32(100.0) else f32(1.0)
        self.low = self.srtt_us < 20_000 and not self.low


class Leaf(Middle):
    def step(self, ack, place):
        if self.random_below(ack, 10) < 5:
            super().step(ack, place)
        self.snd_cwnd = u32(self.snd_cwnd + place)

    def undo_cwnd(self, ack):
        return self.snd_cwnd + 1


def test_a_three_level_chain_of_super_gives_the_same_numbers():
    run = same_numbers(Leaf, stream(2000), share=0.5)
    assert run.state["rounds"] > 1000
    assert 0 < run.decisions["low"].mean() < 1
    assert set(run.decisions["ring[4]"]) > {-1}


def test_a_class_in_a_notebook_cell_overrides_one_method_with_or_without_super():
    with_super, _ = cell(
        """
        FLOOR = 7

        class Mine(Leaf):
            def step(self, ack, place):
                super().step(ack, place)
                self.snd_cwnd = max(self.snd_cwnd, FLOOR)
        """,
        Leaf=Leaf,
    )
    without, _ = cell(
        """
        class Mine(Leaf):
            def step(self, ack, place):
                self.snd_cwnd = place
        """,
        Leaf=Leaf,
    )
    view = stream()
    assert same_numbers(with_super, view).decisions["snd_cwnd"].min() >= 7
    assert same_numbers(without, view).state["srtt_us"] == 0


def test_the_stack_stores_what_ssthresh_and_undo_cwnd_return():
    view = View(
        "linux",
        [2, 1, 5, 1],
        {"now_us": [0] * 4, "rs_rtt_us": [0] * 4} | {f"rand{k}": [2**32 - 1] * 4 for k in range(4)},
    )
    run = same_numbers(Leaf, view, record=["o_ret", "snd_ssthresh", "snd_cwnd"])
    assert run.decisions["o_ret"].tolist() == [7, 0, 12, 0]
    assert run.decisions["snd_ssthresh"].tolist()[1:] == [7, 7, 7]
    assert run.decisions["snd_cwnd"].tolist() == [10, 11, 11, 14]


# -- random classes ----------------------------------------------------------------------------------------------------
INT_LEAVES = ["self.a", "self.b", "ack.rs_rtt_us", "ack.delivered", "TABLE[self.a % 5]", "3", "-7", "0x7FFFFFFF"]


def _int(inner):
    pairs = st.tuples(inner, inner)
    return (
        pairs.flatmap(lambda p: st.sampled_from("+-*&|^").map(lambda op: f"s32({p[0]} {op} {p[1]})"))
        | pairs.map(lambda p: f"({p[0]} // ({p[1]} % 7 + 1))")
        | pairs.map(lambda p: f"idiv({p[0]}, {p[1]} % 7 - 8)")
        | pairs.map(lambda p: f"(min({p[0]}, {p[1]}) if {p[0]} < {p[1]} else max(u32({p[0]}), {p[1]}) >> 3)")
        | pairs.map(lambda p: f"self.ring[({p[0]}) % 4]")
    )


INTS = st.recursive(st.sampled_from(INT_LEAVES), _int, max_leaves=6)
FLOATS = st.recursive(
    st.sampled_from(["self.x", "0.1", "1.0", "float(self.g)"]) | INTS.map(lambda i: f"float({i})"),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]}) * 1e-6"),
    max_leaves=3,
)
SINGLES = st.recursive(
    st.sampled_from(["self.g", "f32(0.1)"]) | INTS.map(lambda i: f"f32({i})"),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
        lambda p: f"f32(f32({p[0]} {p[1]} {p[2]}) * f32(1e-9))"
    ),
    max_leaves=3,
)
STATEMENTS = (
    INTS.map("self.a = s32({})".format)
    | INTS.map("self.b = s32({})".format)
    | FLOATS.map("self.x = {}".format)
    | SINGLES.map("self.g = {}".format)
    | st.tuples(INTS, INTS).map(lambda p: f"self.ring[({p[0]}) % 4] = s32({p[1]})")
    | st.tuples(INTS, INTS).map(lambda p: f"if {p[0]} > {p[1]}: self.b += 1")
    | st.sampled_from(["self.flag = not self.flag", "super().step(ack)", "if self.flag: return"])
)
BODIES = st.lists(STATEMENTS, min_size=2, max_size=6).map(lambda lines: textwrap.indent("\n".join(lines), " " * 8))
FIRST = """
class First(LinuxController):
    a: int = 1
    b: int = 0
    x: float = 0.5
    g: f32 = f32(0.5)
    flag: bool = False
    ring = ints(4)

    def on_ack(self, ack):
        self.step(ack)

    def step(self, ack):
        self.a = s32(self.a + ack.delivered)

class Second(First):
    def step(self, ack):
{}

class Third(Second):
    def step(self, ack):
{}
"""


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(BODIES, BODIES)
def test_random_classes_give_the_same_numbers(second, third):
    cls, _ = cell(FIRST.format(second, third), TABLE=TABLE)
    with np.errstate(all="ignore"):
        same_numbers(cls, stream(60))


# -- what is refused ---------------------------------------------------------------------------------------------------
REFUSED = {
    "self.a = ack.rtt": r"reads ack.rtt, which is no column of the linux view",
    "self.c = 1": r"uses self.c, which is no declared field",
    "self.a = self.hz + self.nothing": r"uses self.nothing, which is no declared field",
    "self.hz = 1": r"assigns to self.hz, which is a parameter",
    "ack.delivered = 1": r"assigns to ack.delivered; inputs are read only",
    "self.ring = self.ring": r"assigns to the array self.ring; assign to its elements",
    "self.a = 'text'": r"uses 'text' \(str\); constants are numbers",
    "self.a = 1 << 64 if self.a else 18446744073709551616": r"constants are numbers of at most 64 bits",
    "self.a = sum([1, 2])": r"calls sum, which is not compiled",
    "self.a = max(x for x in (1, 2))": r"uses GeneratorExp, which is not compiled",
    "self.a = len([x for x in (1, 2)])": r"uses ListComp, which is not compiled",
    "f = lambda: 1": r"uses lambda, which is not compiled",
    "def f(): return 1": r"uses a nested function, which is not compiled",
    "try: self.a = 1\n        except ValueError: pass": r"uses try, which is not compiled",
    "self.a = f'{self.a}'": r"uses a string, which is not compiled",
    "for v in self.ring: self.a = v": r"loops over something other than range",
    "print(self.a)": r"calls print, which is not compiled",
    "self.a = unheard_of": r"uses 'unheard_of', which is not defined",
    "self.a = self.helper": r"uses self.helper, which is a method",
    "self.nothing()": r"has no method 'nothing'",
    "self.a = math.factorial(3)": r"calls math.factorial, which is not compiled",
    "self.a = self.x.real": r"reads the attribute 'real' of something other than self and ack",
    "if self.a: return 1": r"returns a value on some paths",
    "self.on_ack(ack)": r"calls itself",
    "assert self.a": r"uses Assert, which is not compiled",
    "self.a = LIST[0]": r"uses LIST \(list\); constants are numbers",
}
CLASS = """
LIST = [1]

class Toy(LinuxController):
    a: int = 0
    x: float = 0.0
    g: f32 = f32(0.0)
    flag: bool = False
    ring = ints(4)

    def helper(self):
        return 1

    def on_ack(self, ack):
        self.a = ack.delivered
        {}
"""
LINE = 16  # of the statement under test


@pytest.mark.parametrize("statement", REFUSED)
def test_what_cannot_be_compiled_is_refused_with_file_line_and_reason(statement):
    cls, filename = cell(CLASS.format(statement))
    with pytest.raises(CompileError, match=rf"^{filename}:\d+: .*{REFUSED[statement]}") as error:
        engine.compiled(cls)
    if not re.search("calls itself|some paths", REFUSED[statement]):  # those name the function
        assert f"{filename}:{LINE}:" in str(error.value)


MISTYPED = {
    "self.a = min(self.a, 7.9)": "field 'a' is declared int, but float is assigned to it",
    "self.a = self.a / 2": "field 'a' is declared int, but float is assigned to it",
    "self.ring[1] = 0.5 * self.a": "an element of an array field is declared int, but float is assigned to it",
    "self.x = self.a": "field 'x' is declared float, but int is assigned to it",
    "self.x = self.g": "field 'x' is declared float, but f32 is assigned to it",
    "self.g = float(self.g)": "field 'g' is declared f32, but float is assigned to it",
    "self.flag = self.a": "field 'flag' is declared bool, but int is assigned to it",
}


@pytest.mark.parametrize("statement", MISTYPED)
def test_a_mistyped_field_fails_in_both_modes_with_the_same_message(statement):
    cls, filename = cell(CLASS.format(statement))
    view = View("linux", [1, 1], {"delivered": [100, 200]})
    for mode in ("compiled", "debug"):
        with pytest.raises(CompileError) as error:
            Player(view, cls, mode=mode).run()
        assert str(error.value) == f"{filename}:{LINE}: {MISTYPED[statement]}"


def test_interpreted_recording_never_drops_a_fraction():
    cls, _ = cell(CLASS.format("self.a = min(self.a, 7.9)"))
    with pytest.raises(CompileError, match="field 'a' is declared int, but float is assigned"):
        Player(View("linux", [1], {"delivered": [100]}), cls, mode="interpreted", record=["a"]).run()


@pytest.mark.parametrize(
    "statement", ["self.g = f32(self.g * 0.1)", "self.flag = self.g > 0.1", "self.g = max(self.g, 1)"]
)
def test_arithmetic_that_mixes_c_floats_with_other_numbers_is_refused(statement):
    # NumPy rounds the other operand to single precision, C widens the float to double.
    cls, filename = cell(CLASS.format(statement))
    with pytest.raises(CompileError, match=rf"{filename}:{LINE}: on_ack: f32 and (float|int) are mixed"):
        Player(View("linux", [1], {"delivered": [100]}), cls).run()


def test_debug_mode_refuses_an_integer_that_does_not_fit_64_bits():
    cls, filename = cell(CLASS.format("self.a = self.a << 63"))
    with pytest.raises(CompileError, match=rf"{filename}:{LINE}: field 'a' is declared int \(64 bits\), but 922337"):
        Player(View("linux", [1], {"delivered": [100]}), cls, mode="debug").run()


def test_a_default_of_another_kind_than_declared_is_refused():
    cls, _ = cell("class Toy(LinuxController):\n    x: float = 0\n")
    with pytest.raises(CompileError, match=r"Toy.x is declared float, but its default 0 is int"):
        engine.compiled(cls)


# -- cache and C entry -------------------------------------------------------------------------------------------------
def test_parameters_and_recorded_columns_compile_nothing_new():
    view = stream()
    before = engine.compiled(Leaf)
    runs = replay(view, Leaf, share=[0.1, 0.2, 0.3], record=["snd_cwnd"])
    assert [run.params["share"] for run in runs] == [0.1, 0.2, 0.3]
    replay(view, Leaf, share=0.7, record="all")
    assert engine.compiled(Leaf) is before


def test_the_c_entry_point_decides_as_the_class_does():
    code = engine.compiled(Leaf)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(code.address)
    state, ack = code.new_state(share=0.5), np.zeros(1, code.ack_dtype)
    ack["rand0"] = 2**32 - 1
    assert call(1, state.ctypes.data, ack.ctypes.data) == 0
    assert state["snd_cwnd"] == 11
    state["snd_cwnd"] = 40
    assert call(2, state.ctypes.data, ack.ctypes.data) == 20


PROGRAM = """
import numpy as np
from cctrace.cc.base import LinuxController, ints
from cctrace.lang import compile as lang
from cctrace.lang.cache import cache_dir
from cctrace.replaying.run import replay
from cctrace.flows.views import View

built, build = [], lang._build
lang._build = lambda *args: built.append(args) or build(*args)

class Toy(LinuxController):
    ring = ints(3)
    def on_ack(self, ack):
        self.ring[ack.delivered % 3] = ack.delivered
        self.snd_cwnd = self.snd_cwnd + self.ring[0]

run = replay(View("linux", [1, 1, 1], {"now_us": [1, 2, 3], "delivered": [5, 6, 7]}), Toy)
print(run.decisions.snd_cwnd.tolist(), int(not built), cache_dir())
"""


def _processes(tmp_path, count, **env):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    env = os.environ | {"PYTHONPATH": str(REPOSITORY), "TMPDIR": str(tmp_path)} | env
    start = [
        subprocess.Popen([sys.executable, path], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(count)
    ]
    outputs = [process.communicate(timeout=120) for process in start]
    assert all(process.returncode == 0 for process in start), outputs
    return [re.fullmatch(r"(\[.*\]) (\d) (.*)\n", out).groups() for out, _ in outputs]


def test_two_first_runs_at_once_and_a_third_from_the_cache_agree(tmp_path):
    cache = str(tmp_path / "cache")
    first = _processes(tmp_path, 2, CCTRACE_CACHE=cache)
    (third,) = _processes(tmp_path, 1, CCTRACE_CACHE=cache)
    assert {numbers for numbers, _, _ in [*first, third]} == {"[10, 16, 22]"}
    assert third[1:] == ("1", cache)
    assert not list(Path(cache).glob("*.tmp"))


def test_a_cache_that_cannot_be_written_is_replaced_by_a_temporary_one(tmp_path):
    ((numbers, _, where),) = _processes(tmp_path, 1, CCTRACE_CACHE="/dev/null/cache")
    assert numbers == "[10, 16, 22]"
    assert where.startswith(str(tmp_path))


def test_what_a_notebook_assigns_anew_is_compiled_anew():
    text = """
        FLOOR = 700

        def floor(cwnd):
            return max(cwnd, FLOOR)

        class Mine(LinuxController):
            def on_ack(self, ack):
                self.step(ack)

            def step(self, ack):
                self.snd_cwnd = floor(self.snd_cwnd)
        """
    mine, _ = cell(text)
    other, _ = cell(text.replace("max", "3 * max"))
    view = View("linux", [1], {"now_us": [0]})
    cwnd = lambda: same_numbers(mine, view).state["snd_cwnd"]  # noqa: E731
    assert cwnd() == 700
    mine.step.__globals__["FLOOR"] = 800
    assert cwnd() == 800
    mine.step.__globals__["floor"] = other.step.__globals__["floor"]
    assert cwnd() == 2100
    child = type("Child", (mine,), {"__module__": mine.__module__})
    assert same_numbers(child, view).state["snd_cwnd"] == 2100
    child.step = Leaf.undo_cwnd  # which it had inherited
    assert same_numbers(child, view).state["snd_cwnd"] == 10
    mine.step = Leaf.undo_cwnd
    assert cwnd() == 10
    del mine.step
    with pytest.raises(CompileError, match="Mine has no method 'step'"):
        cwnd()


def test_a_changed_constant_is_not_answered_from_the_cache():
    view = View("linux", [1], {"delivered": [0], "now_us": [0]})
    states = [replay(view, cell(CLASS.format(f"self.a = {bound}"))[0]).state for bound in (3, 10)]
    assert [state["a"] for state in states] == [3, 10]


def test_a_small_function_put_in_place_of_its_call_keeps_its_own_constants():
    cls, _ = cell(
        """
        scale = 7

        def scaled(x):
            return x % 1000 * scale + 1

        class Mine(LinuxController):
            one: int = 0
            two: int = 0

            def on_ack(self, ack):
                scale = 100  # hides the constant of `scaled`, which must not notice
                self.one = scaled(self.two) + scale
                self.two = self.later(ack) + scaled(self.step(ack))

            def later(self, ack):
                return self.one if ack.delivered > 3 else self.two

            def step(self, ack):
                self.one = self.one + 1
                return self.one
        """
    )
    same_numbers(cls, stream(50))


@pytest.mark.skipif(not elf.IS_OURS, reason="LLVM loads the code of other processors itself")
def test_object_code_with_unwind_tables_is_loaded():
    # LLVM 20 (llvmlite 0.45) writes them for all functions, later ones for those that ask for them.
    code = objects.object_code(
        "@more = internal global i64 5\n"
        "define i64 @sum(i64 %a) uwtable {\n %b = load volatile i64, ptr @more\n %c = add i64 %a, %b\n ret i64 %c\n}"
    )
    addresses, memory = elf.loaded(code)
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(addresses["sum"])(37) == 42
    # The function's entry in the table points to it, from where the entry stands.
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    words = ((place, int.from_bytes(memory[place : place + 8], "little", signed=True)) for place in range(len(memory)))
    assert any(word and begin + place + word == addresses["sum"] for place, word in words)
