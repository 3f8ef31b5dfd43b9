"""CRAM as the text has it (THESIS 6.2.3), with sets and lists, every closeness computed and everything packed every time."""

import math
from fractions import Fraction

import numpy as np


def closeness(name, a, b):
    both = len(a & b)
    if name == "intersect":
        return Fraction(both)
    if name == "xor":
        return Fraction(1, len(a ^ b)) if a != b else Fraction(2)
    below = len(a) + len(b) if name == "ios" else len(a | b)
    return Fraction(both * both, below) if below else Fraction(0)


class LiteralCram:
    def __init__(self, model, items, bins, metric, *, no_worse=False, groups=True, one_to_many=True):
        self.model, self.bins, self.metric, self.no_worse, self.identical = model, bins, metric, no_worse, groups
        self.one_to_many = one_to_many and metric != "xor"
        self.pinned = [i for i in range(len(items)) if items.fixed[i] >= 0]
        free = [i for i in range(len(items)) if items.fixed[i] < 0]
        self.sets = [bits_of(model.table, int(profile)) for profile in items.profile]
        # A unit: items, bits, output, entries.
        self.units = {n: ((i,), self.sets[i], int(items.output[i]), int(items.entries[i])) for n, i in enumerate(free)}
        self.next = len(free)
        self.items = items
        self.profile_of, self.group_of_profile, self.members = [], {}, []
        for n in self.units:
            self.members[self.group(self.units[n][1])].append(n)
        self.failed = set()

    def group(self, bits):
        if self.identical and bits in self.group_of_profile:
            return self.group_of_profile[bits]
        self.group_of_profile[bits] = len(self.profile_of)
        self.profile_of.append(bits)
        self.members.append([])
        return len(self.profile_of) - 1

    def light_first(self, g):
        return sorted(self.members[g], key=lambda n: (self.units[n][2], n))

    def pack(self, units):
        """The brokers used, and the broker of each unit; None if something fits nowhere."""
        bins = self.bins
        state = [[0, set(), 0] for _ in range(len(bins))]

        def put(b, bits, output, entries):
            now = state[b]
            union = now[1] | bits
            input = sum(int(self.model.input_weight[p]) for p, _ in union)
            if not bins.holds(b, now[0] + output, input, now[2] + entries):
                return False
            state[b] = [now[0] + output, union, now[2] + entries]
            return True

        placed = {}
        broker = bins.broker.tolist()
        for i in self.pinned:
            assert put(
                broker.index(int(self.items.fixed[i])), self.sets[i], int(self.items.output[i]), int(self.items.entries[i])
            )
        opened = {broker.index(int(self.items.fixed[i])) for i in self.pinned}
        for n, (_, bits, output, entries) in sorted(units.items(), key=lambda each: (-each[1][2], each[0])):
            chosen = next((b for b in range(len(bins)) if put(b, bits, output, entries)), None)
            if chosen is None:
                return None
            placed[n] = chosen
        return len(opened | set(placed.values())), placed

    def joined(self, parts):
        items = tuple(i for n in parts for i in self.units[n][0])
        bits = frozenset().union(*(self.units[n][1] for n in parts))
        return items, bits, sum(self.units[n][2] for n in parts), sum(self.units[n][3] for n in parts)

    def passes(self, parts):
        changed = {n: unit for n, unit in self.units.items() if n not in parts}
        changed[self.next] = self.joined(parts)
        found = self.pack(changed)
        return found is not None and not (self.no_worse and found[0] > self.pack(self.units)[0])

    def commit(self, parts):
        made = self.joined(parts)
        of = {n: next(g for g, members in enumerate(self.members) if n in members) for n in parts}
        home = next((g for g in of.values() if self.profile_of[g] == made[1]), None)
        for n in parts:
            self.members[of[n]].remove(n)
            del self.units[n]
        self.units[self.next] = made
        g = self.group(made[1]) if home is None else home
        self.members[g].append(self.next)
        self.failed.discard((g, g))
        self.next += 1

    def largest(self, passes, least, most):
        found = 0
        while least <= most:
            middle = math.ceil((least + most) / 2)
            if passes(middle):
                found, least = middle, middle + 1
            else:
                most = middle - 1
        return found

    def run(self):
        while True:
            pairs = [
                (-closeness(self.metric, self.profile_of[g], self.profile_of[h]), g, h)
                for g in range(len(self.members))
                for h in range(g, len(self.members))
                if self.members[g] and self.members[h] and (g != h or len(self.members[g]) > 1) and (g, h) not in self.failed
            ]
            value, g, h = min(pairs, default=(0, 0, 0))
            if value == 0:
                break
            self.step(g, h, -value)
        return self

    def step(self, g, h, value):
        one, other = self.profile_of[g], self.profile_of[h]
        if g == h:
            left = self.light_first(g)
            while len(left) > 1:
                count = self.largest(lambda count: self.passes(left[:count]), 2, len(left))  # noqa: B023
                if count < 2:
                    break
                self.commit(left[:count])
                left = left[count:]
            self.failed.add((g, g))
        elif one > other or one < other:
            wide, narrow = (g, h) if one > other else (h, g)
            head, others = self.light_first(wide)[0], self.light_first(narrow)
            count = self.largest(lambda count: self.passes([head, *others[:count]]), 1, len(others))
            if count:
                self.commit([head, *others[:count]])
            else:
                self.failed.add((g, h))
        else:
            for parts in self.coverings(g, h, value) if self.one_to_many else ():
                if self.passes(parts):
                    self.commit(parts)
                    return
            pair = [self.light_first(g)[0], self.light_first(h)[0]]
            if self.passes(pair):
                self.commit(pair)
            else:
                self.failed.add((g, h))

    def coverings(self, g, h, value):
        found = []
        for group, partner in ((g, h), (h, g)):
            budget = self.units[self.light_first(partner)[0]][2]
            covered = [
                c
                for c in range(len(self.members))
                if self.members[c] and self.profile_of[c] and self.profile_of[c] < self.profile_of[group]
            ]
            union, parts = set(), [self.light_first(group)[0]]
            while covered:
                best = min(covered, key=lambda c: (-len(self.profile_of[c] - union), c))
                unit = self.light_first(best)[0]
                if not self.profile_of[best] - union or self.units[unit][2] > budget:
                    break
                budget -= self.units[unit][2]
                union |= self.profile_of[best]
                parts.append(unit)
            if len(parts) > 1 and closeness(self.metric, frozenset(union), self.profile_of[group]) > value:
                found.append((-closeness(self.metric, frozenset(union), self.profile_of[group]), group, parts))
        return [parts for _, _, parts in sorted(found)]

    def clusters(self):
        return {frozenset(unit[0]) for unit in self.units.values()}

    def bins_of(self):
        _, placed = self.pack(self.units)
        return {i: placed[n] for n, unit in self.units.items() for i in unit[0]}


def bits_of(table, profile):
    publishers, words = table.of(profile)
    found = set()
    for p, row in zip(publishers.tolist(), words, strict=True):
        bits = np.unpackbits(row.astype("<u8").view(np.uint8), bitorder="little")
        found |= {(p, b) for b in np.flatnonzero(bits).tolist()}
    return frozenset(found)
