"""How kernels see a state: through one pointer.

Numba would pass a tuple of thirty arrays as two hundred numbers, at every call of every kernel. A state is therefore handed over
as the address of a table with the address and length of each of its arrays, and ``state.slots`` in a kernel reads that table.
"""

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
    return np.array([(array.ctypes.data, len(array)) for array in state], np.int64)


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
        strides=cgutils.pack_array(builder, [ir.Constant(word, stride) for stride in prototype.strides]),
        itemsize=ir.Constant(word, prototype.itemsize),
        meminfo=None,
    )
    return made._getvalue()


def _state_at(_context, _address):
    def generate(context, builder, _signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(_state_type))

    return _state_type(types.int64), generate


#: The state whose table lies at an address.
state_at: Kernel = intrinsic(_state_at)
