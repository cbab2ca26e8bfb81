"""Plain functions as machine code: ``Machine(function)`` compiles a function and all it calls, once.

What is written in plain Python, over numbers, numpy arrays and records, runs as it is when it is called directly
(interpreted), and as machine code when it is called through a `Machine`:

    def total(table, until):                      # module cctrace/room/kernel.py
        sum_ = 0
        for i in range(until):
            sum_ += words(table[i].column)[0]     # `cctrace.lang.memory`: an array by its address
        return sum_

    compiled_total = Machine(total)               # compiles nothing yet
    compiled_total(table, 10) == total(table, 10)

Arguments are int64 numbers, C-contiguous arrays and tuples of arrays; the machine compiles once for each combination of
dtypes. An array of records is a `numpy.recarray` where it is to be interpreted. The function returns an integer, a
tuple of integers, or nothing.

In such functions:

* numbers are int64, uint64, float64, float32 and bool; ``np.int64(...)``, ``float(...)`` and the like convert; a
  variable keeps one type;
* a record is passed about and changed in place: ``f.cwnd += 1``; an element of an array likewise, ``a[i]``, ``a[i, k]``,
  and slices ``a[i:j] = b[k:l]``;
* memory that is known by its address only is reached with `cctrace.lang.memory`: ``words(w.buffer)[k]``; other compiled
  code (a controller's `Compiled.address`) is called with ``call(address, event, state, ack)``;
* module-level functions of any module may be called, module-level numbers and tuples of numbers are constants;
* nothing is allocated; there are no strings, lists, exceptions, closures or * arguments.
"""

import types


from cctrace.lang import memory


class Machine:
    """The compiled form of a plain function.

    Parameters
    ----------
    function : function
        See the module's text for what it may contain.
    """

    def __init__(self, function):
        self.function = function
        self._dispatcher = None

    def __call__(self, *args):
        """Call the compiled function."""
        if self._dispatcher is None:
            self._dispatcher = _Numba().dispatcher(self.function)
        return self._dispatcher(*args)


class _Numba:
    """Numba's form of a function and of all it calls."""

    def __init__(self):
        self.made = {memory.call: _call_address()}

    def dispatcher(self, function):
        from numba import njit

        if function not in self.made:
            dtype = getattr(function, "dtype", None)
            if dtype is not None:
                self.made[function] = _array_at(dtype)
            else:
                scope = {name: self.value(function, name) for name in function.__code__.co_names}
                scope = {name: value for name, value in scope.items() if value is not None}
                copy = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__)
                self.made[function] = njit(nogil=True)(copy)
        return self.made[function]

    def value(self, function, name):
        value = function.__globals__.get(name)
        ours = isinstance(value, types.FunctionType) and value.__module__.partition(".")[0] not in ("numpy", "math")
        return self.dispatcher(value) if ours else value


def _array_at(dtype):
    from llvmlite import ir
    from numba import carray, njit
    from numba import types as numba_types
    from numba.extending import intrinsic

    @intrinsic
    def pointer(typingctx, address):
        def codegen(context, builder, signature, args):
            return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

        return numba_types.voidptr(numba_types.int64), codegen

    element, huge = dtype if dtype.fields else dtype.type, 1 << 40

    @njit
    def array(address):
        return carray(pointer(address), huge, element)

    return array


def _call_address():
    from llvmlite import ir
    from numba import types as numba_types
    from numba.extending import intrinsic

    @intrinsic
    def call(typingctx, address, event, state, ack):
        def codegen(context, builder, signature, args):
            word = ir.IntType(64)
            function = builder.inttoptr(args[0], ir.FunctionType(word, [word] * 3).as_pointer())
            return builder.call(function, args[1:])

        return numba_types.int64(*[numba_types.int64] * 4), codegen

    return call
