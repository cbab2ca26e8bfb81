"""Machine code: from LLVM's text to object code for this processor, and from object code to addresses."""

import os
from functools import lru_cache
from typing import Any

from cctrace.lang import elf

_owners: list[Any] = []  # of the code that is in use
_CPUINFO = "/proc/cpuinfo"
_LEVEL = 3  # of LLVM's optimisation
_PROCESSOR = ("vendor_id", "cpu family", "model", "stepping", "flags")  # lines of it


@lru_cache(maxsize=1)
def target() -> str:
    """Return what object code depends on besides its source: LLVM's version and level, and the processor."""
    import llvmlite

    return f"llvmlite {llvmlite.__version__} level {_LEVEL} {_processor()}"


def _processor() -> str:
    """Return the processor: as Linux describes it where LLVM is not needed to load code, else as LLVM does."""
    if elf.IS_OURS and os.path.exists(_CPUINFO):
        with open(_CPUINFO, encoding="utf-8") as file:
            lines = file.read(1 << 13).split("\n\n")[0].splitlines()  # the first core; the others are equal
        return " ".join(line.partition(":")[2] for line in lines if line.partition(":")[0].rstrip() in _PROCESSOR)
    import llvmlite.binding as llvm

    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


@lru_cache(maxsize=1)
def _machine() -> Any:
    from ctypes.util import find_library

    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if library := find_library("m"):
        llvm.load_library_permanently(library)
    features = llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(
        llvm.get_host_cpu_name(), features, opt=_LEVEL, reloc="default", codemodel="jitdefault", jit=True
    )


def object_code(text: str) -> bytes:
    """Return the object code of a module in LLVM's text, optimised."""
    return _machine().emit_object(optimised(text))


def optimised(text: str) -> Any:
    """Return a module in LLVM's text as LLVM has optimised it; `str` of it is text again."""
    import llvmlite.binding as llvm

    machine = _machine()
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=_LEVEL))
    builder.getModulePassManager().run(module, builder)
    return module


def link(code: bytes, *symbols: str) -> list[int]:
    """Load object code; return the addresses of its symbols. It stays in memory as long as the process."""
    if elf.IS_OURS:
        addresses, memory = elf.loaded(code)
        _owners.append(memory)
        return [addresses[symbol] for symbol in symbols]
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _owners.append(engine)
    return [engine.get_function_address(symbol) for symbol in symbols]
