"""The rules of `cctrace.tcp` as Numba's functions, under the same names, for the compiled pass over a capture."""

from types import FunctionType

from numba import njit

from cctrace.tcp import pacing, probe, rack, rate, rtt, undo, window


def _compiled(*modules):
    """Return {name: Numba's function} of the functions of modules, which may call their own and earlier ones."""
    functions = {}
    for module in modules:
        own = [f for f in vars(module).values() if isinstance(f, FunctionType) and f.__module__ == module.__name__]
        scope = vars(module) | functions
        for function in own:
            scope[function.__name__] = njit(FunctionType(function.__code__, scope, function.__name__))
        functions |= {function.__name__: scope[function.__name__] for function in own}
    return functions


globals().update(_compiled(pacing, rtt, probe, rack, undo, rate, window))
