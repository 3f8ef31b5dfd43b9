"""Partitions: which filters a publication can match at all.

Each filter lies in one partition, named by its access key: the rarest of its equalities; without one, the presence of a
column that few others mention; without that, none (the universal partition). Equalities that are not a filter's access key are
counted here too, to know which are rare.

Within a partition filters lie in segments (`overweave.matching.kernels.segments`).
"""

import numpy as np

from overweave.matching.kernels.compile import bits_of, inlined, kernel
from overweave.matching.kernels.handle import state_at
from overweave.matching.kernels.segments import take_from_segment
from overweave.matching.kernels.state import (
    EQUAL,
    GONE,
    HASH_SEED,
    NONE,
    PARTITION_TABLE_USED,
    PARTITIONS_FREE,
    PARTITIONS_LIVE,
    PARTITIONS_USED,
    PRESENT,
    TEXT,
    UNIVERSAL,
)
from overweave.matching.kernels.texts import release_text


@inlined
def find_equality(state, column, value, fine):
    """The partition of an equality, or NONE."""
    table = state.partition_table
    mask = np.uint64(len(table) - 1)
    at = _hash(state.counters[HASH_SEED], column, value, fine) & mask
    while True:
        number = table[at]
        if number == NONE:
            return np.int32(NONE)
        if number >= 0:
            found = state.partitions[number]
            if found.column == column and found.value == value and found.fine == fine:
                return number
        at = (at + np.uint64(1)) & mask


@kernel
def mention_equality(state, column, value, fine):
    """Count one more filter with this equality; its partition."""
    number = find_equality(state, column, value, fine)
    if number == NONE:
        number = _new_partition(state, EQUAL, column, value, fine)
        state.columns[column].keys += 1
        if state.columns[column].kind == TEXT:
            state.texts[np.int32(value)].references += 1
        state.counters[PARTITIONS_LIVE] += 1
        _enter(state.partition_table, state.partitions, number, state.counters)
    state.partitions[number].mentions += 1
    return number


@kernel
def unmention_equality(state, number):
    """Count one filter less; an equality that nobody asks for goes, with its text."""
    partition = state.partitions[number]
    partition.mentions -= 1
    if partition.mentions > 0:
        return
    mask = np.uint64(len(state.partition_table) - 1)
    at = _hash(state.counters[HASH_SEED], partition.column, partition.value, partition.fine) & mask
    while state.partition_table[at] != number:
        at = (at + np.uint64(1)) & mask
    state.partition_table[at] = GONE
    state.counters[PARTITIONS_LIVE] -= 1
    state.columns[partition.column].keys -= 1
    if state.columns[partition.column].kind == TEXT:
        release_text(state, np.int32(partition.value))
    _free_partition(state, number)


@kernel
def presence_partition(state, column):
    """The partition of the filters that need a value in this column; made when it is new."""
    if state.columns[column].present == NONE:
        state.columns[column].present = _new_partition(state, PRESENT, column, 0.0, 0)
    return state.columns[column].present


@kernel
def remove_from_partition(state, slot):
    """Take a filter out of its segment; the partition it was in."""
    partition = take_from_segment(state, slot)
    found = state.partitions[partition]
    if found.first == NONE and found.kind == PRESENT:
        state.columns[found.column].present = NONE
        _free_partition(state, partition)
        return np.int32(NONE)
    return partition


@kernel
def rebuild_partitions(address, table):
    """Enter all equalities into an empty ``table``."""
    state = state_at(address)
    state.counters[PARTITION_TABLE_USED] = 0
    for number in range(state.counters[PARTITIONS_USED]):
        if state.partitions[number].kind == EQUAL:
            _enter(table, state.partitions, number, state.counters)


@kernel
def _new_partition(state, kind, column, value, fine):
    fresh = state.counters[PARTITIONS_FREE]
    if fresh == NONE:
        fresh = state.counters[PARTITIONS_USED]
        state.counters[PARTITIONS_USED] += 1
    else:
        state.counters[PARTITIONS_FREE] = state.partitions[fresh].first
    partition = state.partitions[fresh]
    partition.value = value
    partition.fine = fine
    partition.column = column
    partition.kind = kind
    partition.mentions = 0
    partition.first = NONE
    partition.shared = NONE
    partition.members = NONE
    partition.scanned = 0
    return np.int32(fresh)


@kernel
def _free_partition(state, number):
    state.partitions[number].kind = UNIVERSAL  # not found by `rebuild_partitions`
    state.partitions[number].first = state.counters[PARTITIONS_FREE]
    state.counters[PARTITIONS_FREE] = number


@inlined
def _hash(seed, column, value, fine):
    digest = bits_of(value) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(np.int64(column) * 65_536 + fine)
    digest = (digest ^ np.uint64(seed) ^ (digest >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    digest = (digest ^ np.uint64(seed) ^ (digest >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return digest ^ (digest >> np.uint64(31))


@kernel
def _enter(table, partitions, number, counters):
    partition = partitions[number]
    mask = np.uint64(len(table) - 1)
    at = _hash(counters[HASH_SEED], partition.column, partition.value, partition.fine) & mask
    while table[at] >= 0:
        at = (at + np.uint64(1)) & mask
    if table[at] == NONE:
        counters[PARTITION_TABLE_USED] += 1
    table[at] = number
