"""Rows of similarity between boxes (MINIMAL eq 1 to 5), summed per client or per broker; no matrix is kept."""

from overweave.matching.kernels.compile import inlined, kernel


@inlined
def shared(x_lo, x_hi, x, y_lo, y_hi, y):
    """The volume that box ``x`` of one set shares with box ``y`` of another."""
    volume = 1.0
    for k in range(x_lo.shape[1]):
        width = min(x_hi[x, k], y_hi[y, k]) - max(x_lo[x, k], y_lo[y, k])
        if width <= 0:
            return 0.0
        volume *= width
    return volume


@inlined
def share(x_lo, x_hi, x, y_lo, y_hi, y, volume):
    """The share of box ``x`` of one set that box ``y`` of another covers."""
    both = shared(x_lo, x_hi, x, y_lo, y_hi, y)
    return both / volume[x] if both > 0 else 0.0


@kernel
def volumes(lo, hi, out):
    """The volume of every box, in the same order of factors as `shared`: the interest of a box in one around it is exactly 1."""
    for i in range(len(lo)):
        out[i] = shared(lo, hi, i, lo, hi, i)


@kernel
def interest_row(first, last, ad_lo, ad_hi, ad_volume, sub_lo, sub_hi, sub_owner, out):
    """Add to every client the interest of advertisements ``first`` … ``last - 1`` in its subscriptions (eq 3)."""
    for x in range(first, last):
        for y in range(len(sub_lo)):
            out[sub_owner[y]] += share(ad_lo, ad_hi, x, sub_lo, sub_hi, y, ad_volume)


@kernel
def received(first, last, sub_lo, sub_hi, ad_lo, ad_hi, ad_volume, ad_rate):
    """The rate at which subscriptions ``first`` … ``last - 1`` receive from all advertisements (4.3)."""
    total = 0.0
    for y in range(first, last):
        for x in range(len(ad_lo)):
            total += ad_rate[x] * share(ad_lo, ad_hi, x, sub_lo, sub_hi, y, ad_volume)
    return total


@kernel
def publisher_at(first, last, ad_lo, ad_hi, ad_volume, ad_rate, sub_lo, sub_hi, sub_owner, home, similarity, local):
    """Add, per broker, the interest of advertisements in its subscriptions, and the rate that these receive of them."""
    for x in range(first, last):
        for y in range(len(sub_lo)):
            at = home[sub_owner[y]]
            if at >= 0:
                interest = share(ad_lo, ad_hi, x, sub_lo, sub_hi, y, ad_volume)
                similarity[at] += interest
                local[at] += ad_rate[x] * interest


@kernel
def overlaps_at(first, last, sub_lo, sub_hi, sub_volume, sub_owner, home, similarity):
    """Add, per broker, the overlap (eq 1) of subscriptions ``first`` … ``last - 1`` with its subscriptions."""
    for y in range(first, last):
        for z in range(len(sub_lo)):
            at = home[sub_owner[z]]
            if at >= 0:
                both = shared(sub_lo, sub_hi, y, sub_lo, sub_hi, z)
                if both > 0:
                    similarity[at] += (both / sub_volume[y]) * (both / sub_volume[z])


@kernel
def received_at(first, last, sub_lo, sub_hi, ad_lo, ad_hi, ad_volume, ad_rate, ad_owner, home, local):
    """Add, per broker, the rate that subscriptions ``first`` … ``last - 1`` receive from its publishers."""
    for y in range(first, last):
        for x in range(len(ad_lo)):
            at = home[ad_owner[x]]
            if at >= 0:
                local[at] += ad_rate[x] * share(ad_lo, ad_hi, x, sub_lo, sub_hi, y, ad_volume)


@kernel
def mark_matches(points, bits, sub_lo, sub_hi, sub_owner, home, words):
    """Set, for each broker, the bits of the points that lie in some box there."""
    for y in range(len(sub_lo)):
        at = home[sub_owner[y]]
        for i in range(len(points)):
            inside = True
            for k in range(points.shape[1]):
                if points[i, k] < sub_lo[y, k] or points[i, k] >= sub_hi[y, k]:
                    inside = False
                    break
            if inside:
                words[at, 0] |= bits[i]
