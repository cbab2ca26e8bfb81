"""Loads object code into memory without LLVM, whose libraries take as long to load as NumPy.

LLVM's large code model, which objects.py compiles for, refers to everything by its 64-bit address: the relocations in
an ELF object for x86-64 are the address of a symbol plus a number and, in the unwind tables that some versions of LLVM
add, its distance from where it is written. `loaded` copies the sections, fills in these numbers and makes the code
executable. Object code for other processors is left to LLVM's own loader.
"""

import contextlib
import ctypes
import mmap
import os
import struct
import sys
from typing import NamedTuple

IS_OURS = sys.platform == "linux" and os.uname().machine == "x86_64"
# [gABI] https://www.sco.com/developers/gabi, chapters "Sections", "Symbol Table", "Relocation"; [psABI-x86-64] 4.4.1
_SECTIONS = struct.Struct("<40xQ10xHHH")  # of the header: where their table begins; size of an entry, number, names
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_SYMTAB, _RELA, _NOBITS = 2, 4, 8
_WRITE, _ALLOC = 1, 2
_R_X86_64_64, _R_X86_64_PC64 = 1, 24
_LIBRARIES = (None, "libm.so.6")  # what Python is linked with; glibc's libm if that is not part of it


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int  # of a symbol table: its strings
    info: int  # of relocations: the section they apply to
    alignment: int
    entry_size: int


def loaded(code: bytes) -> tuple[dict[str, int], mmap.mmap]:
    """Return the addresses of an object's symbols, and the memory that holds it, which the caller must keep.

    Raises OSError if memory cannot be made executable, or the C library lacks a function that the code calls.
    """
    begin, size, number, _ = _SECTIONS.unpack_from(code)
    sections = [_Section(*_SECTION.unpack_from(code, begin + k * size)) for k in range(number)]
    # What is written gets pages of its own, after the code and its constants.
    places, end, read_only = {}, 0, 0
    for writable in (0, _WRITE):
        read_only, end = end, -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
        for k, section in enumerate(sections):
            if section.flags & _ALLOC and section.flags & _WRITE == writable:
                places[k] = -(-end // max(section.alignment, 1)) * max(section.alignment, 1)
                end = places[k] + section.size
    memory = mmap.mmap(-1, max(end, 1))
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for k, place in places.items():
        if sections[k].kind != _NOBITS:
            memory[place : place + sections[k].size] = code[sections[k].offset :][: sections[k].size]
    (table,) = (section for section in sections if section.kind == _SYMTAB)
    addresses = _addresses(code, table, sections[table.link], {k: base + place for k, place in places.items()})
    for section in sections:
        if section.kind == _RELA and section.info in places:
            _relocate(code, section, memory, base, places[section.info], addresses)
    _execute(base, read_only)
    return {name: address for name, address in addresses if name}, memory


def _addresses(code: bytes, table: _Section, strings: _Section, places: dict[int, int]) -> list[tuple[str, int]]:
    """Return name and address of each symbol; those of other libraries are looked up in the process."""
    found = []
    for name, _, _, section, value, _ in _SYMBOL.iter_unpack(code[table.offset :][: table.size]):
        begin = strings.offset + name
        text = code[begin : code.index(b"\0", begin)].decode()
        if section in places:
            found.append((text, places[section] + value))
        elif section == 0 and text:
            found.append((text, _address(text)))
        else:
            found.append(("", 0))  # the file's name, and sections that are not loaded
    return found


def _address(name: str) -> int:
    """Return the address of a function of the C library."""
    for library in _LIBRARIES:
        with contextlib.suppress(OSError, AttributeError):
            return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value or 0
    raise OSError(f"compiled code calls {name}, which neither Python nor libm has")


def _relocate(
    code: bytes, section: _Section, memory: mmap.mmap, base: int, place: int, addresses: list[tuple[str, int]]
) -> None:
    for offset, info, addend in _RELOCATION.iter_unpack(code[section.offset :][: section.size]):
        symbol, kind = divmod(info, 1 << 32)
        if kind not in (_R_X86_64_64, _R_X86_64_PC64):
            raise OSError(f"object code has a relocation of kind {kind}; the large code model has none")
        here = base + place + offset if kind == _R_X86_64_PC64 else 0
        struct.pack_into("<Q", memory, place + offset, (addresses[symbol][1] + addend - here) % (1 << 64))


def _execute(base: int, size: int) -> None:
    """Make memory readable and executable, and no longer writable."""
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if protect(base, size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), f"compiled code cannot be made executable: {os.strerror(ctypes.get_errno())}")
