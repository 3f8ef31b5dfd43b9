"""The dictionary: every text that some filter mentions, attribute names included, has a code.

A publication's text is looked up once; equality is then a comparison of codes. Open addressing over exact bytes; texts are
counted by reference and go when nobody mentions them. The hash is seeded, so that nobody outside can choose colliding texts.
"""

import numpy as np

from overweave.matching.kernels.compile import inlined, kernel
from overweave.matching.kernels.handle import state_at
from overweave.matching.kernels.state import (
    GONE,
    HASH_SEED,
    HEAP_GARBAGE,
    HEAP_USED,
    NONE,
    TEXT_TABLE_USED,
    TEXTS_FREE,
    TEXTS_LIVE,
    TEXTS_USED,
)


@inlined
def find_text(state, data, start, length):
    """The code of ``data[start : start + length]``, or NONE."""
    digest = _hash(state.counters[HASH_SEED], data, start, length)
    mask = np.uint64(len(state.text_table) - 1)
    at = digest & mask
    while True:
        code = state.text_table[at]
        if code == NONE:
            return np.int32(NONE)
        if code >= 0 and state.texts[code].hash == digest and _same(state, code, data, start, length):
            return code
        at = (at + np.uint64(1)) & mask


@kernel
def intern_text(state, data, start, length):
    """The code of a text, new or not; the caller owes it a reference."""
    code = find_text(state, data, start, length)
    if code != NONE:
        return code
    code = _new_code(state)
    text = state.texts[code]
    text.hash = _hash(state.counters[HASH_SEED], data, start, length)
    text.offset = state.counters[HEAP_USED]
    text.length = length
    text.references = 0
    text.number_column = NONE
    text.text_column = NONE
    _copy(data, start, state.heap, text.offset, length)
    state.counters[HEAP_USED] += length
    state.counters[TEXTS_LIVE] += 1
    _enter(state.text_table, text.hash, code, state.counters)
    return code


@kernel
def release_text(state, code):
    """Give one reference back; a text that nobody refers to goes."""
    text = state.texts[code]
    text.references -= 1
    if text.references > 0:
        return
    mask = np.uint64(len(state.text_table) - 1)
    at = text.hash & mask
    while state.text_table[at] != code:
        at = (at + np.uint64(1)) & mask
    state.text_table[at] = GONE
    state.counters[HEAP_GARBAGE] += text.length
    state.counters[TEXTS_LIVE] -= 1
    text.length = NONE
    text.offset = state.counters[TEXTS_FREE]
    state.counters[TEXTS_FREE] = code


@kernel
def rebuild_texts(address, table, heap):
    """Enter all texts into an empty ``table`` and move their bytes into ``heap``, without the garbage."""
    state = state_at(address)
    used = 0
    state.counters[TEXT_TABLE_USED] = 0
    for code in range(state.counters[TEXTS_USED]):
        text = state.texts[code]
        if text.length == NONE:
            continue
        _copy(state.heap, text.offset, heap, used, text.length)
        text.offset = used
        used += text.length
        _enter(table, text.hash, code, state.counters)
    state.counters[HEAP_USED] = used
    state.counters[HEAP_GARBAGE] = 0


@inlined
def _hash(seed, data, start, length):
    """FNV-1a over the bytes, finished so that the low bits depend on all of them."""
    digest = np.uint64(14695981039346656037) ^ np.uint64(seed)
    for i in range(start, start + length):
        digest = (digest ^ np.uint64(data[i])) * np.uint64(1099511628211)
    return digest ^ (digest >> np.uint64(32))


@inlined
def _same(state, code, data, start, length):
    text = state.texts[code]
    if text.length != length:
        return False
    offset = text.offset
    for i in range(length):
        if state.heap[offset + i] != data[start + i]:
            return False
    return True


@inlined
def _copy(source, source_start, target, target_start, length):
    for i in range(length):
        target[target_start + i] = source[source_start + i]


@kernel
def _new_code(state):
    code = state.counters[TEXTS_FREE]
    if code == NONE:
        code = state.counters[TEXTS_USED]
        state.counters[TEXTS_USED] += 1
    else:
        state.counters[TEXTS_FREE] = state.texts[code].offset
    return np.int32(code)


@kernel
def _enter(table, digest, code, counters):
    mask = np.uint64(len(table) - 1)
    at = digest & mask
    while table[at] >= 0:
        at = (at + np.uint64(1)) & mask
    if table[at] == NONE:
        counters[TEXT_TABLE_USED] += 1
    table[at] = code
