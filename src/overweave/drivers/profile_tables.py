"""Tables of profiles from the answers of brokers: the same columns, with the same meaning, as those of traces
(`overweave.pipeline.steps.profiles`).

Brokers answer at different moments. So a profile is limited, shortly before it is read, to publications up to numbers that their
publishers will soon reach (`limits_of`). When these have arrived everywhere, it is read, and all rings end at the same numbers. A
window does not begin before all brokers had begun. If a publisher has been faster than expected, its window begins where its
rings still reach back to. Within their windows, profiles are exact.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overweave.contract.profiles import ProfiledSubscription, PublisherWindow, PublisherWindows, SubscriptionProfiles

Words = NDArray[np.uint64]
#: Rings whose masks are computed at once.
_CHUNK = 1_024


class ProfileTables(NamedTuple):
    """The tables ``profiles``, ``publisher_profiles`` and ``subscription_lifetimes``, by columns."""

    profiles: dict[str, list[object]]
    publishers: dict[str, list[object]]
    subscriptions: dict[str, list[object]]


class _Window(NamedTuple):
    """The window of a publisher: its interval of sequence numbers, and those in it that were used."""

    first: int
    last: int
    words: Words


class ProfileMerge:
    """The answers of one profile, merged."""

    def __init__(self, bits: int) -> None:
        self._bits = bits
        #: The last number of each publisher before all brokers had begun.
        self._before: dict[str, int] = {}

    def begin(self, windows: PublisherWindows) -> None:
        """All brokers have begun: what was published before is left out."""
        for each in windows.publishers:
            self._before[each.publisher] = max(self._before.get(each.publisher, -1), each.last_sequence)

    def tables(self, windows: PublisherWindows, profiles: SubscriptionProfiles) -> ProfileTables:
        """The tables of a profile; subscriptions that are in force nowhere are left out."""
        parts: dict[str, list[PublisherWindow]] = {}
        for each in sorted(windows.publishers, key=lambda each: (each.publisher, each.broker)):
            parts.setdefault(each.publisher, []).append(each)
        ends = _ends_of_rings(profiles)
        found = {id: self._window(id, of, ends.get(id, -1)) for id, of in parts.items()}
        found = {id: window for id, window in found.items() if window.words.any()}
        in_force = {each.subscription: each for each in sorted(profiles.in_force, key=lambda each: each.broker, reverse=True)}
        return ProfileTables(
            self._profiles(profiles, found, in_force), _publishers(parts, found), _subscriptions(list(in_force.values()))
        )

    def _window(self, publisher: str, parts: list[PublisherWindow], rings_end: int) -> _Window:
        """A publisher that has moved has published at several brokers."""
        last = max(part.last_sequence for part in parts)
        first = max(
            min(part.first_sequence for part in parts),
            last - self._bits + 1,
            rings_end - self._bits + 1,
            self._before.get(publisher, -1) + 1,
        )
        rings = np.stack([_words(part.vector) for part in parts])
        lasts = np.array([part.last_sequence for part in parts])
        masked = rings & self._masks(np.full(len(parts), first), lasts)
        return _Window(first, last, np.bitwise_or.reduce(masked, axis=0))

    def _masks(self, first: NDArray[np.int64], last: NDArray[np.int64]) -> Words:
        """The places of intervals of at most as many numbers as there are bits, a row each."""
        places = np.arange(self._bits)
        masks = np.empty((len(first), self._bits // 64), np.uint64)
        for at in range(0, len(first), _CHUNK):
            begin, length = first[at : at + _CHUNK, None], (last - first + 1)[at : at + _CHUNK, None]
            inside = (places - begin) % self._bits < length
            masks[at : at + _CHUNK] = np.packbits(inside, axis=1, bitorder="little").view("<u8")
        return masks

    def _profiles(
        self, rings: SubscriptionProfiles, windows: dict[str, _Window], in_force: dict[str, ProfiledSubscription]
    ) -> dict[str, list[object]]:
        subscriptions, publishers = list(rings.subscriptions), list(rings.publishers)
        is_of = np.array([id in in_force for id in subscriptions], np.bool_)
        has_window = np.array([id in windows for id in publishers], np.bool_)
        subscription, publisher = np.array(rings.of_subscription, np.int64), np.array(rings.of_publisher, np.int64)
        names = ("subscription", "publisher", "first_sequence", "last_sequence", "words", "count", "window_publications")
        chosen = np.flatnonzero(is_of[subscription] & has_window[publisher]) if len(subscription) else np.zeros(0, np.int64)
        if not len(chosen):
            return {name: [] for name in names}
        # A subscription that has moved has rings at several brokers.
        chosen = chosen[np.lexsort((publisher[chosen], subscription[chosen]))]
        subscription, publisher = subscription[chosen], publisher[chosen]
        own = [windows.get(id) or _Window(0, 0, np.zeros(self._bits // 64, np.uint64)) for id in publishers]
        first, last = (np.array([window[i] for window in own])[publisher] for i in (0, 1))
        vectors = np.stack([_words(vector) for vector in rings.vectors])[np.array(rings.of_vector)[chosen]]
        ends = np.minimum(np.array(rings.ends, np.int64)[chosen], last)
        words = vectors & self._masks(first, np.maximum(ends, first - 1)) & np.stack([each.words for each in own])[publisher]
        starts = np.flatnonzero(np.diff(subscription, prepend=-1) | np.diff(publisher, prepend=-1))
        words = np.bitwise_or.reduceat(words, starts, axis=0)
        count = np.bitwise_count(words).sum(axis=1)
        some = np.flatnonzero(count)
        pairs = [(subscriptions[subscription[i]], publishers[publisher[i]]) for i in starts[some]]
        sizes = [_ones(windows[of].words) for _, of in pairs]
        columns: tuple[list[object], ...] = (
            [id for id, _ in pairs], [of for _, of in pairs], [windows[of].first for _, of in pairs],
            [windows[of].last for _, of in pairs], words[some].view(np.int64).tolist(), count[some].tolist(), list(sizes),
        )  # fmt: skip
        return dict(zip(names, columns, strict=True))


def limits_of(windows: PublisherWindows, ahead_s: float) -> dict[str, int]:
    """The number that each publisher will have reached after some time, at its rate."""
    limits: dict[str, int] = {}
    for each in windows.publishers:
        lasted_s = max(each.last_at_s - each.first_at_s, ahead_s)
        ahead = math.ceil(each.publications / lasted_s * ahead_s)
        limits[each.publisher] = max(limits.get(each.publisher, -1), each.last_sequence + ahead)
    return limits


def _ends_of_rings(profiles: SubscriptionProfiles) -> dict[str, int]:
    """The highest number of each publisher that any subscription has received."""
    ends = np.full(len(profiles.publishers), -1, np.int64)
    np.maximum.at(ends, np.array(profiles.of_publisher, np.int64), np.array(profiles.ends, np.int64))
    return dict(zip(profiles.publishers, ends.tolist(), strict=True))


def _publishers(parts: dict[str, list[PublisherWindow]], windows: dict[str, _Window]) -> dict[str, list[object]]:
    """The columns of the publishers that have published within their windows."""
    rows: list[tuple[object, ...]] = []
    for id, window in windows.items():
        of = parts[id]
        count, size = sum(part.publications for part in of), sum(part.bytes for part in of)
        lasted_s = max(part.last_at_s for part in of) - min(part.first_at_s for part in of)
        # Between n publications there are n - 1 intervals.
        rate_hz = (count - 1) / lasted_s if lasted_s > 0 else 0.0
        broker = max(of, key=lambda part: part.last_sequence).broker
        ends = window.first, window.last, _ones(window.words)
        rows.append((id, broker, *ends, count, rate_hz, rate_hz * size / count, size / count))
    names = (
        "publisher", "broker", "first_sequence", "last_sequence", "window_publications", "publications", "rate_hz",
        "bytes_per_s", "message_bytes",
    )  # fmt: skip
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _subscriptions(in_force: list[ProfiledSubscription]) -> dict[str, list[object]]:
    in_force = sorted(in_force, key=lambda each: each.subscription)
    none: list[object] = [None] * len(in_force)
    columns: dict[str, list[object]] = {
        name: [getattr(each, name) for each in in_force] for name in ("subscription", "client", "broker", "filter")
    }
    return {**columns, "subscribed_at_s": none, "withdrawn_at_s": none}


def _words(vector: bytes) -> Words:
    return np.frombuffer(vector, "<u8").astype(np.uint64)


def _ones(words: Words) -> int:
    return int(np.bitwise_count(words).sum())
