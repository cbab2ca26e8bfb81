"""The entry point of a compiled module: a C function of 64-bit words, which `lang.machine` calls."""

from collections.abc import Sequence
from types import FunctionType
from typing import Any

import numpy as np

from cctrace.lang import cache, objects
from cctrace.lang.definitions import where_of
from cctrace.lang.emit import LLVM, Array, Scalar, Several, Value
from cctrace.lang.expressions import Expressions
from cctrace.lang.fields import Known, Naturals
from cctrace.lang.lower import Module


class _Main(Expressions):
    """The entry point of a module: an external function of words that calls the compiled one."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.module, self.needs = module, module.needs
        self.taken = 0

    def word(self) -> str:
        """Return the name of the next word."""
        self.taken += 1
        return f"%w{self.taken - 1}"

    def value(self, arg: Any) -> Value:
        """Return the value of an argument like `arg`, built from words."""
        if isinstance(arg, np.ndarray):
            pointer = self.op(f"inttoptr i64 {self.word()} to ptr")
            return Array(arg.dtype, pointer, tuple(self.word() for _ in arg.shape))
        if isinstance(arg, tuple):
            return Several(tuple(map(self.value, arg)))
        if isinstance(arg, float):
            return Scalar("float", self.op(f"bitcast i64 {self.word()} to double"))
        return Scalar("int", self.word())

    def results(self, result: Value) -> list[str]:
        """Store the numbers of a result; return their kinds."""
        kinds = []
        numbers = result.items if isinstance(result, Several) else () if result is None else (result,)
        for k, item in enumerate(numbers):
            if not isinstance(item, Scalar):
                self.refuse("a function that is called from Python returns numbers")
            word = self.convert(item, "float" if item.kind in ("float", "f32") else "int")
            self.do(f"store {LLVM[word.kind]} {word.text}, ptr {self.op(f'getelementptr i64, ptr %out, i64 {k}')}")
            kinds.append(item.kind)
        return kinds


def build(
    function: FunctionType,
    args: Sequence[Any],
    functions: list[FunctionType],
    checked: bool,
    known: Known,
    naturals: Naturals,
) -> cache.Made:
    """Return what the cache keeps of a function for arguments like these."""
    module = Module(checked, known, naturals, None)
    main = _Main(module)
    main.where = where_of(function)
    values = [main.value(arg) for arg in args]
    result = main.call(module.function(function, values), values)
    kinds = main.results(result)
    main.label("exit")
    main.do(f"ret i64 {main.op('load i64, ptr %status')}")
    given = ", ".join(["ptr %out", *(f"i64 %w{k}" for k in range(main.taken))])
    head = f"define i64 @entry({given}) {{\nentry:\n  %status = alloca i64\n  store i64 0, ptr %status"
    module.texts.append("\n".join([head, *main.allocas, *main.lines, "}"]))
    shape = "several" if isinstance(result, Several) else "one"
    description = {"words": main.taken, "results": kinds, "shape": shape, "sites": places(module.sites, functions)}
    return description, objects.object_code(module.text())


def places(sites: list[tuple[str, FunctionType, int]], functions: list[FunctionType]) -> list[tuple[str, int, int]]:
    """Return the sites of a module with the number of each function, as the cache keeps them."""
    number = {function: k for k, function in enumerate(functions)}
    return [(kind, number[function], line) for kind, function, line in sites]
