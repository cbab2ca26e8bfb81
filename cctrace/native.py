"""Compiled functions whose machine code waits on disk: a process that finds it there does without Numba.

Importing Numba and loading functions from its own cache takes as long as reading ten million packets. Readers and the
table of connections therefore name their compiled functions and call them through `Native`:

    find = Native("cctrace.io.records", "find_records")     the module is not imported
    find(data, 24, ...)   --> machine code on disk, and no source of it changed?  load it with llvmlite: milliseconds
                              otherwise  import the module, have Numba compile for these types, keep the object code

Such a function takes int64 numbers, C-contiguous arrays and tuples of them, returns a tuple of int64 numbers, and
neither allocates nor raises: its code then refers to nothing outside itself.
"""

import ctypes
import importlib
import json
import os
import re
import threading
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

# Without Numba's reference counting (`_nrt`), which would cost three quarters of the time.
_OPTIONS: Any = {"nogil": True, "_nrt": False}
_ROOT = Path(__file__).parent


def compiled(**options: Any) -> Any:
    """Decorate a function that `Native` calls, or that such a function calls; for modules that only `Native` imports.

    Compiled anew in every process that imports it: `Native` keeps the outcome, and knows of changes in other files.
    """
    from numba import njit

    return njit(**_OPTIONS, **options)


class Native:
    """A compiled function of another module, called without importing that module where its machine code is on disk.

    It releases the GIL. Under NUMBA_BOUNDSCHECK or NUMBA_DISABLE_JIT Numba itself calls the function.

    Parameters
    ----------
    module, name : str
        Where the function is; decorated with `compiled`.
    """

    def __init__(self, module: str, name: str):
        self._module, self._name = module, name
        self._lock, self._entries = threading.Lock(), {}  # type: ignore[var-annotated]

    def __call__(self, *args):
        """Call the function; TypeError for an array that is not C-contiguous."""
        kinds, words = [], []
        for arg in args:
            _flatten(arg, kinds, words)
        entry = self._entries.get(tuple(kinds))
        if entry is None:
            with self._lock:
                entry = self._entries.get(tuple(kinds)) or self._entry(args, kinds)
                self._entries[tuple(kinds)] = entry
        return entry(args, words)

    def _entry(self, args, kinds):
        if any(os.environ.get(f"NUMBA_{what}", "0") != "0" for what in ("BOUNDSCHECK", "DISABLE_JIT")):
            return self._numba
        source = _path(self._module)
        target = f"{self._module}.{self._name} {kinds!r} {_target()}"
        folder = _cache_folder(source)
        file = folder and folder / f"{source.stem}.{self._name}-{zlib.crc32(target.encode()):08x}.o"
        target += f" {_checksum(self._module):08x}"
        found = _load(file, target) or _compile(self._module, self._name, args)
        if found is None:
            return self._numba
        head, code = found
        if head.get("target") != target:
            _save(file, head | {"target": target}, code)
        return partial(_call, _link(code, head["symbol"], head["arguments"]), head["results"])

    def _numba(self, args, words):
        return getattr(importlib.import_module(self._module), self._name)(*args)


def _flatten(arg, kinds, words):
    """Append what an argument is, and the machine words that Numba's calling convention makes of it."""
    if isinstance(arg, np.ndarray):
        if not (arg.flags.c_contiguous and arg.flags.aligned):
            raise TypeError("a compiled function takes C-contiguous, aligned arrays only")
        kinds += (arg.dtype, arg.ndim)
        # Its owner and parent (none: borrowed), how many elements, of how many bytes, where; shape and strides.
        words += (0, 0, arg.size, arg.itemsize, arg.ctypes.data, *arg.shape, *arg.strides)
    elif isinstance(arg, tuple):
        kinds.append(len(arg))
        for one in arg:
            _flatten(one, kinds, words)
    else:
        kinds.append(int)
        words.append(int(arg))


def _convention(arg):
    """Return Numba's type of an argument and the LLVM types (i: integer, p: pointer) that `_flatten` makes of it."""
    from numba import from_dtype, types

    if isinstance(arg, np.ndarray):
        return types.Array(from_dtype(arg.dtype), arg.ndim, "C"), "ppiip" + "ii" * arg.ndim
    if isinstance(arg, tuple):
        each = [_convention(one) for one in arg]
        return types.Tuple([numba_type for numba_type, _ in each]), "".join(words for _, words in each)
    return types.int64, "i"


def _call(function, results, args, words):
    out, error = (ctypes.c_int64 * results)(), ctypes.c_void_p()
    status = function(ctypes.addressof(out), ctypes.addressof(error), *words)
    if status:
        raise RuntimeError(f"a compiled function failed with status {status}")
    return tuple(out)


def _compile(module, name, args):
    """Have Numba compile a function for arguments like these: (head, object code).

    None where its calling convention is not the one that `_flatten` speaks, or the code needs Numba to run.
    """
    import llvmlite.binding as llvm
    from numba import njit, types

    function = getattr(importlib.import_module(module), name).py_func
    signature, words = zip(*(_convention(arg) for arg in args), strict=True)
    # The wrappers, for calls from Python and from C, would refer to Numba's runtime.
    dispatcher = njit(signature, no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)(function)
    (overload,) = dispatcher.overloads.values()
    result = overload.signature.return_type
    parsed = llvm.parse_assembly(dispatcher.inspect_llvm(overload.signature.args))
    (entry,) = [f for f in parsed.functions if not f.is_declaration and f.linkage.name == "external"]
    arguments = "".join("i" if str(a.type) == "i64" else "p" for a in entry.arguments)
    outside = [f.name for f in parsed.functions if f.is_declaration and not f.name.startswith("llvm.")]
    if arguments != "pp" + "".join(words) or outside or set(result) != {types.int64}:
        return None
    head = {"symbol": entry.name, "arguments": len(arguments), "results": len(result)}
    return head, _machine().emit_object(parsed)


def _machine():
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        llvm.get_host_cpu_name(), features, opt=3, reloc="default", codemodel="jitdefault", jit=True
    )


_engines: list[Any] = []  # own the code that is in use


def _link(code, symbol, arguments):
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * arguments)(engine.get_function_address(symbol))


def _path(module):
    return _ROOT.joinpath(*module.split(".")[1:]).with_suffix(".py")


def _checksum(module):
    """Return a checksum of a module, of everything of cctrace that it imports, and of this file."""
    texts: dict[str, bytes] = {}
    todo = [module, "cctrace.native"]
    while todo:
        if (one := todo.pop()) not in texts:
            texts[one] = _path(one).read_bytes()
            todo += (found.decode() for found in re.findall(rb"^from (cctrace\.[\w.]+) import", texts[one], re.M))
    return zlib.crc32(b"".join(texts[one] for one in sorted(texts)))


def _target():
    """Return what machine code depends on besides its source: the processor and the compiler."""
    import llvmlite
    import llvmlite.binding as llvm

    return f"{llvmlite.__version__} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def _cache_folder(source):
    """Return where to keep the code of a source file, as Numba would choose; None if nothing can be written."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cctrace"
    for folder in (os.environ.get("NUMBA_CACHE_DIR"), source.parent / "__pycache__", user):
        try:
            if folder:
                Path(folder).mkdir(parents=True, exist_ok=True)
                if os.access(folder, os.W_OK):
                    return Path(folder)
        except OSError:
            continue
    return None


def _load(file, target):
    try:
        head, code = file.read_bytes().split(b"\n", 1)
        fields = json.loads(head)
    except (OSError, AttributeError, ValueError):
        return None
    return (fields, code) if (fields["target"], fields["crc"]) == (target, zlib.crc32(code)) else None


def _save(file, head, code):
    if file is None:
        return
    draft = file.with_suffix(f".{os.getpid()}")
    try:
        draft.write_bytes(json.dumps(head | {"crc": zlib.crc32(code)}).encode() + b"\n" + code)
        draft.replace(file)  # at once: another process may be reading it
    except OSError:
        draft.unlink(missing_ok=True)
