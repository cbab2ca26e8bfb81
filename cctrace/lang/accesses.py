"""Records and arrays in memory: how compiled code reads and writes them.

LLVM is told which accesses cannot alias (by type-based metadata): a field of a record is only ever accessed as that
field, of that dtype, or through an array of plain numbers (`memory.words`), which may lie anywhere. A field that has
been read need not be read again after another one was written, although both records are known only by their address.
No machine may therefore access the same memory as records of two dtypes.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cctrace.lang.emit import LLVM, Array, Emitter, Record, Scalar, Shape, Value, described, kind_of_dtype, number
from cctrace.lang.memory import ArrayAt, CopyFields, FieldsAtOnce, HasFields, RecordOf, SameFields, SetFields

MAX_NATURAL = (1 << 62) - 1  # the sum of two is a natural number of 64 bits, too
_dtypes: dict[Any, Any] = {}


def canonical(dtype: np.dtype) -> int:
    """Return a number that stands for a dtype; equal dtypes have the same."""
    known = _dtypes.get(id(dtype))
    if known is None:
        known = _dtypes[id(dtype)] = (_dtypes.setdefault(str(dtype), len(_dtypes)), dtype)  # kept: no other gets its id
    return known[0]


@functools.lru_cache(maxsize=256)
def _share_bytes(dtype: np.dtype) -> bool:
    places = sorted((offset, offset + field.itemsize) for field, offset, *_ in (dtype.fields or {}).values())
    return any(end > begin for (_, end), (begin, _) in itertools.pairwise(places))


class Accesses(Emitter):
    """Emits the instructions that read and write memory."""

    def __init__(self) -> None:
        super().__init__()
        self.columns: set[str] = set()  # of the view that a controller reads
        self.fields: dict[str, str] = {}  # of a pointer to a field of a record: the metadata of an access
        self.naturals: set[str] = set()  # pointers to fields that are not negative

    def load(self, dtype: np.dtype, pointer: str) -> Value:
        """Return what is at a pointer: a number, a record, an array."""
        if dtype.subdtype:
            element, shape = dtype.subdtype
            return Array(element, pointer, shape)
        if dtype.fields:
            return Record(dtype, pointer)
        kind, how = kind_of_dtype(dtype), f", align {dtype.alignment}{self.fields.get(pointer, '')}"
        if pointer in self.naturals:
            how += f", !range !{{i64 0, i64 {MAX_NATURAL + 1}}}"
        if dtype.itemsize == 8 or kind == "f32":
            return Scalar(kind, self.op(f"load {LLVM[kind]}, ptr {pointer}{how}"))
        text = self.op(f"load i{8 * dtype.itemsize}, ptr {pointer}{how}")
        if kind == "bool":
            return Scalar(kind, self.op(f"icmp ne i8 {text}, 0"))
        return Scalar(kind, self.op(f"{'s' if dtype.kind == 'i' else 'z'}ext i{8 * dtype.itemsize} {text} to i64"))

    def store(self, dtype: np.dtype, pointer: str, value: Scalar) -> None:
        """Write a number of the right kind."""
        text, size = value.text, dtype.itemsize
        if value.kind == "bool":
            text = self.op(f"zext i1 {text} to i8")
        elif value.kind in ("int", "uint") and size < 8:
            text = self.op(f"trunc i64 {text} to i{8 * size}")
        llvm_type = LLVM[value.kind] if value.kind in ("float", "f32") else f"i{8 * size}"
        self.do(f"store {llvm_type} {text}, ptr {pointer}, align {dtype.alignment}{self.fields.get(pointer, '')}")

    def field(self, record: Record, name: str) -> tuple[np.dtype, str]:
        """Return (dtype, pointer) of a field."""
        fields = record.dtype.fields
        if fields is None or name not in fields:
            self.refuse(f"there is no field {name!r} in this record")
        dtype, offset = fields[name][:2]
        pointer = self.op(f"getelementptr i8, ptr {record.text}, i64 {offset}")
        if not dtype.subdtype and not dtype.fields:
            self.fields[pointer] = self._access(record.dtype, offset)
        return dtype, pointer

    def field_value(self, record: Record, name: str) -> Value:
        """Return the value of a field."""
        return self.load(*self.field(record, name))

    def put_field(self, record: Record, name: str, value: Value) -> None:
        """Write a number to a field."""
        raise NotImplementedError

    def _fields_at_once(self, what: FieldsAtOnce, records: Sequence[Value]) -> Value:
        """Compare, copy or set many fields of records."""
        if not all(isinstance(record, Record) for record in records):
            self.refuse(f"gives {type(what).__name__} something other than records")
        record: Any = records[0]
        other: Any = records[-1]
        if isinstance(what, SameFields):
            return self._all_equal(record, {name: self.field_value(other, name) for name in what.names})
        if isinstance(what, HasFields):
            return self._all_equal(record, {name: number(value) for name, value in what.values.items()})
        if isinstance(what, CopyFields):
            for name, source in what.sources.items():
                self.put_field(record, name, self.field_value(other, source))
        if isinstance(what, SetFields):
            for name, value in what.values.items():
                self.put_field(record, name, number(value))
        return None

    def _all_equal(self, record: Record, values: Mapping[str, Value]) -> Scalar:
        tests = [self.compare("==", self.field_value(record, name), value) for name, value in values.items()]
        return Scalar("bool", functools.reduce(lambda a, b: self.op(f"and i1 {a}, {b}"), tests))

    def _access(self, dtype: np.dtype, offset: int) -> str:
        """Return the metadata of an access to the field at an offset; fields that overlap are one to LLVM."""
        place = f"{canonical(dtype)}" if _share_bytes(dtype) else f"{canonical(dtype)}.{offset}"
        kind = f'!{{!"{place}", !{{!"memory"}}, i64 0}}'
        return f", !tbaa !{{{kind}, {kind}, i64 0}}"

    def in_memory(self, what: ArrayAt | RecordOf | FieldsAtOnce, args: Sequence[Value]) -> Value:
        """Return the array at an address, or the record that an array of int64 holds; or see `_fields_at_once`."""
        source = args[0]
        if isinstance(what, FieldsAtOnce):
            return self._fields_at_once(what, args)
        if isinstance(what, ArrayAt):
            return Array(what.dtype, self.op(f"inttoptr i64 {self.convert(source, 'int').text} to ptr"), (None,))
        if not isinstance(source, Array) or source.dtype != np.int64:
            self.refuse(f"takes {described(source)} for a record, which only an array of int64 holds")
        return Record(what.dtype, source.text)

    def element(self, array: Array, places: Sequence[Value], checked: bool) -> tuple[np.dtype, str, Shape]:
        """Return (dtype, pointer) of an element, or of a row of an array of two dimensions."""
        flat, rest = "", array.shape[len(places) :]
        for index, length in zip(places, array.shape, strict=False):
            place = self._within(index, length, checked)
            flat = self.op(f"add i64 {self.op(f'mul i64 {flat}, {length}')}, {place}") if flat else place
        for length in rest:
            flat = self.op(f"mul i64 {flat}, {length}")
        size = array.dtype.itemsize
        pointer = self.op(f"getelementptr [{size} x i8], ptr {array.text}, i64 {flat}")
        return array.dtype, pointer, rest

    def _within(self, index: Value, length: int | str | None, checked: bool) -> str:
        """Return an index; a negative one counts from the end, as in Python."""
        place = self.convert(index, "int").text
        constant = place.lstrip("-").isdigit()
        if length is None or (constant and not checked and int(place) >= 0):
            return place
        if constant and isinstance(length, int):
            if not -length <= int(place) < length:
                self.refuse(f"index {place} is out of bounds of {length} elements")
            return str(int(place) % length)
        negative = self.op(f"icmp slt i64 {place}, 0")
        place = self.op(f"select i1 {negative}, i64 {self.op(f'add i64 {place}, {length}')}, i64 {place}")
        if checked:
            self.fail_if(self.op(f"icmp uge i64 {place}, {length}"), "index out of bounds")
        return place
