"""How kernels see a state: through one pointer.

Numba would pass a tuple of thirty arrays as two hundred numbers, at every call of every kernel. A state is therefore handed over
as the address of a table with the address and length of each of its arrays, and ``state.slots`` in a kernel reads that table.
"""

import math
from ctypes import c_void_p
from typing import Any

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model
from numba.np.arrayobj import make_array, populate_array
from numpy.typing import NDArray

from overweave.matching.kernels.compile import Kernel
from overweave.matching.kernels.state import State, new_state

_PROTOTYPE = new_state()
_POSITIONS = {name: i for i, name in enumerate(State._fields)}


def table_of(state: State) -> NDArray[np.int64]:
    """The table that stands for ``state``; its address is valid as long as both are kept and no array is replaced."""
    return np.array([number for array in state for number in (address_of(array), len(array))], np.int64)


def address_of(array: NDArray[Any]) -> int:
    """Where the array's data lie."""
    return c_void_p.from_address(id(array) + _DATA).value or 0


def _find_data() -> int:
    """Where in an array object the address of its data stands: to read it there is seven times faster than to ask numpy."""
    array = np.zeros(1)
    return next(at for at in range(0, 64, 8) if c_void_p.from_address(id(array) + at).value == array.ctypes.data)


_DATA = _find_data()


class _StateType(types.Type):
    def __init__(self) -> None:
        super().__init__(name="overweave.State")


_state_type = _StateType()
register_model(_StateType)(models.OpaqueModel)


@infer_getattr
class _StateAttributes(AttributeTemplate):
    key = _StateType

    def generic_resolve(self, _type, name):  # type: ignore[override]
        array = getattr(_PROTOTYPE, name)
        return types.Array(from_dtype(array.dtype), array.ndim, "C")


@lower_getattr_generic(_StateType)
def _load_array(context, builder, _type, table, name):
    prototype = getattr(_PROTOTYPE, name)
    word = context.get_value_type(types.intp)
    entries = builder.bitcast(table, word.as_pointer())
    position = 2 * _POSITIONS[name]
    address, length = (builder.load(builder.gep(entries, [ir.Constant(word, position + i)])) for i in (0, 1))
    made = make_array(types.Array(from_dtype(prototype.dtype), prototype.ndim, "C"))(context, builder)
    populate_array(
        made,
        data=builder.inttoptr(address, made.data.type),
        shape=cgutils.pack_array(builder, [length, *(ir.Constant(word, size) for size in prototype.shape[1:])]),
        strides=cgutils.pack_array(builder, [ir.Constant(word, stride) for stride in _strides(prototype)]),
        itemsize=ir.Constant(word, prototype.itemsize),
        meminfo=None,
    )
    return made._getvalue()


def _strides(array: NDArray[Any]) -> list[int]:
    """As numpy has them unless there is nothing in the array."""
    return [array.itemsize * math.prod(array.shape[axis + 1 :]) for axis in range(array.ndim)]


def _state_at(_context, _address):
    def generate(context, builder, _signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(_state_type))

    return _state_type(types.int64), generate


def _bytes_at(_context, _address, _length):
    """As numpy has bytes that may only be read, so that kernels are compiled for one kind of array."""
    kind = types.Array(types.uint8, 1, "C", readonly=True)

    def generate(context, builder, _signature, arguments):
        word = context.get_value_type(types.intp)
        made = make_array(kind)(context, builder)
        populate_array(
            made,
            data=builder.inttoptr(arguments[0], made.data.type),
            shape=cgutils.pack_array(builder, [arguments[1]]),
            strides=cgutils.pack_array(builder, [ir.Constant(word, 1)]),
            itemsize=ir.Constant(word, 1),
            meminfo=None,
        )
        return made._getvalue()

    return kind(types.int64, types.int64), generate


#: ``bytes_at(address, length)``: bytes that somebody keeps alive meanwhile.
bytes_at: Kernel = intrinsic(_bytes_at)
#: The state whose table lies at an address.
state_at: Kernel = intrinsic(_state_at)
