"""The equations of STOCH 4 as they are printed: one broker and one class after the other, in numbers of a hundred digits."""

import math
from decimal import Decimal, localcontext


def plain(parents, arrival_hz, lifetime_s, publication_hz):
    """Equations 1 to 14 in all; ``parents`` by broker, rates by broker and class."""
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = 100, -(10**9), 10**9
        return {name: +value for name, value in _plain(parents, arrival_hz, lifetime_s, publication_hz).items()}


def _plain(parents, arrival_hz, lifetime_s, publication_hz):
    brokers, classes = range(len(parents)), range(len(arrival_hz[0]))
    children = {b: [c for c in brokers if parents[c] == b] for b in brokers}
    root = parents.index(-1)

    def rate(values, b, f):
        return Decimal(float(values[b][f]))

    def none(b, f):  # 1 and 3
        here = (-rate(arrival_hz, b, f) * rate(lifetime_s, b, f)).exp()
        return here * math.prod((none(c, f) for c in children[b]), start=Decimal(1))

    def arrivals(b, f):  # 8
        return rate(arrival_hz, b, f) + sum(arrivals(c, f) for c in children[b])

    def path(b):
        return [] if b == root else [b, *path(parents[b])]

    omega = {f: sum(rate(publication_hz, b, f) for b in brokers) for f in classes}
    entries = {f: sum(1 - none(c, f) for b in brokers for c in children[b]) for f in classes}  # 4 and 5
    others = [b for b in brokers if b != root]
    root_rate = sum(entries[f] * omega[f] for f in classes)  # 6
    additional = sum(rate(publication_hz, b, f) * sum(none(p, f) for p in path(b)) for f in classes for b in others)  # 7
    control = sum(2 * arrivals(b, f) * none(b, f) for f in classes for b in others)  # 9 and 10
    flooding = sum(len(children[b]) for b in brokers) * sum(omega.values())  # 11
    saved = flooding - (root_rate + additional)  # 12
    simple = 2 * sum(arrivals(b, f) for f in classes for b in others)  # 14
    local = sum(rate(arrival_hz, b, f) * rate(lifetime_s, b, f) for f in classes for b in brokers)  # 2
    return {
        "local_entries": local,
        "routing_entries": sum(entries.values()),
        "notification_rate_root": root_rate,
        "notification_rate_additional": additional,
        "notification_rate": root_rate + additional,
        "control_rate": control,
        "control_rate_simple": simple,
        "flooding_rate": flooding,
        "saved_notification_rate": saved,
        "saved_rate": saved - control,  # 13
    }
