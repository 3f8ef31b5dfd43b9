"""How a kernel is made: compiled by numba on first use and cached on disk. Nothing is read or written before.

Numba's own cache notices a change of the file in which a kernel stands, but not of the files from which it calls others.
Ours therefore lies in a directory named after the contents of all kernel files.
"""

import functools
import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import core, njit, types
from numba.core import caching, cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

#: How many words a set of filters has: part of the layout, here because `unite_rows` is made for it.
WORDS = 16
#: How many values are compared at once: likewise.
LANES = 8
#: Kernels take arrays, state and numbers; numba infers which.
Kernel = Callable[..., Any]
_config: Any = core.config


def kernel(function: Kernel) -> Kernel:
    """Compile ``function`` without the interpreter: no checks of bounds, no lock, division as numpy does it.

    Kernels borrow arrays and allocate none. Without that, numba counts a reference to every array of a state
    wherever one of them is touched, which took nine tenths of the time.
    """
    return _compiled(function)


def inlined(function: Kernel) -> Kernel:
    """A kernel that becomes part of those that call it: passing a whole state costs more than most of them do."""
    return _compiled(function, forceinline=True)


@functools.cache
def direct(function: Kernel) -> Kernel:
    """What a kernel that takes integers alone is compiled to.

    To call it takes half the time of a call through numba's dispatcher, which has to look at what it is given.
    """
    compiled: Any = function
    signature = (types.int64,) * compiled.py_func.__code__.co_argcount
    compiled.compile(signature)
    made: Kernel = compiled.overloads[signature].entry_point
    return made


def _compiled(function: Kernel, **options: Any) -> Kernel:
    options.update(nogil=True, error_model="numpy", boundscheck=False, _nrt=False)
    made: Any = njit(**options)(function)
    made._cache = _LazyCache(function)
    kernel: Kernel = made
    return kernel


class _LazyCache:
    """A kernel's cache on disk, opened when the kernel is first compiled: an import has no side effects."""

    def __init__(self, function: Kernel) -> None:
        self._function = function

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    @functools.cached_property
    def _opened(self) -> Any:
        directory = _directory()
        if directory is None:
            return caching.NullCache()
        before = _config.CACHE_DIR
        _config.CACHE_DIR = str(directory)  # numba reads the setting when a cache is made
        try:
            return caching.FunctionCache(self._function)
        finally:
            _config.CACHE_DIR = before


def _trailing_zeros(_context, _word):
    def generate(_, builder, __, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


def _ones(_context, _word):
    def generate(_, builder, __, arguments):
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


def _bits_of(_context, _number):
    def generate(_, builder, __, arguments):
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.uint64(types.float64), generate


def _float_of(_context, _bits):
    def generate(_, builder, __, arguments):
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.uint64), generate


def _unite_rows(_context, words, rows, _count, _offset, union):
    """Written in LLVM's own vectors, because a loop over words is not made into them; five times faster."""

    def generate(context, builder, signature, arguments):
        vector = ir.VectorType(ir.IntType(64), WORDS)
        data = [make_array(signature.args[i])(context, builder, arguments[i]).data for i in (0, 1, 4)]
        result = cgutils.alloca_once_value(builder, ir.Constant(vector, [0] * WORDS))
        with cgutils.for_range(builder, arguments[2]) as loop:
            start = builder.add(builder.load(builder.gep(data[1], [loop.index])), arguments[3])
            row = builder.load(builder.bitcast(builder.gep(data[0], [start]), vector.as_pointer()), align=8)
            builder.store(builder.or_(builder.load(result), row), result)
        builder.store(builder.load(result), builder.bitcast(data[2], vector.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(words, rows, types.int64, types.int64, union), generate


def _compare_lanes(_context, bounds, _at, values, _first):
    def generate(context, builder, signature, arguments):
        vector = ir.VectorType(ir.FloatType(), LANES)

        def lanes(array, at):
            data = make_array(signature.args[array])(context, builder, arguments[array]).data
            return builder.load(builder.bitcast(builder.gep(data, [at]), vector.as_pointer()), align=4)

        def bits(comparison):
            return builder.zext(builder.bitcast(comparison, ir.IntType(LANES)), ir.IntType(64))

        low, value = lanes(0, arguments[1]), lanes(2, arguments[3])
        high = lanes(0, builder.add(arguments[1], ir.Constant(ir.IntType(64), LANES)))
        outside = builder.or_(builder.fcmp_ordered(">", low, value), builder.fcmp_ordered(">", value, high))
        equal = builder.or_(builder.fcmp_ordered("==", low, value), builder.fcmp_ordered("==", value, high))
        return builder.or_(bits(outside), builder.shl(bits(equal), ir.Constant(ir.IntType(64), 32)))

    return types.int64(bounds, types.int64, values, types.int64), generate


def _copy_bytes(_context, data, _start, _end, out, _to):
    """A loop over bytes is not made into a copy of them, which takes a twentieth of the time."""

    def generate(context, builder, signature, arguments):
        source, target = (make_array(signature.args[i])(context, builder, arguments[i]).data for i in (0, 3))
        count = builder.sub(arguments[2], arguments[1])
        cgutils.raw_memcpy(builder, builder.gep(target, [arguments[4]]), builder.gep(source, [arguments[1]]), count, 1)
        return builder.add(arguments[4], count)

    return types.int64(data, types.int64, types.int64, out, types.int64), generate


def _load_word(_context, data, _at):
    def generate(context, builder, signature, arguments):
        bytes = make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.load(builder.bitcast(builder.gep(bytes, [arguments[1]]), ir.IntType(64).as_pointer()), align=1)

    return types.uint64(data, types.int64), generate


#: ``compare_lanes(bounds, at, values, first)``: LANES values with as many lower bounds at ``at`` and upper ones behind them; in
#: the low half of the answer a bit for each value outside, in the high half a bit for each that equals a bound.
compare_lanes: Kernel = intrinsic(_compare_lanes)
#: ``unite_rows(words, rows, count, offset, union)``: WORDS words of the union of the rows at ``rows[:count] + offset``.
unite_rows: Kernel = intrinsic(_unite_rows)
#: ``copy_bytes(data, start, end, out, to)``: where the copy ends.
copy_bytes: Kernel = intrinsic(_copy_bytes)
#: ``load_word(data, at)``: eight bytes from anywhere.
load_word: Kernel = intrinsic(_load_word)
#: The position of the lowest bit of a word that is not 0.
trailing_zeros: Kernel = intrinsic(_trailing_zeros)
#: How many bits of a word are set.
ones: Kernel = intrinsic(_ones)
#: The bits of a float, and back.
bits_of: Kernel = intrinsic(_bits_of)
float_of: Kernel = intrinsic(_float_of)


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def _directory() -> Path | None:
    """The cache directory: one with kernels, else a writable one beside the package or in the user's cache, else none."""
    name = f"overweave-kernels-{_fingerprint()}"
    parents = [Path(__file__).parent / "__pycache__"]
    with suppress(RuntimeError):  # a user without a home
        parents.append(Path.home() / ".cache")
    for parent in parents:
        directory = parent / name
        try:
            directory.mkdir(parents=True, exist_ok=True)
            probe = directory / ".writable"
            probe.touch()
            probe.unlink(missing_ok=True)
        except OSError:
            if not any(directory.glob("*.nbi")):
                continue
        return directory
    return None
