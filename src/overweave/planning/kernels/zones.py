"""Zones of interest: unions of boxes as disjoint boxes, so that areas are exact sums, and their intersections."""

from overweave.matching.kernels.compile import kernel
from overweave.planning.kernels.boxes import shared


@kernel
def disjoint(order, lo, hi, count, out_lo, out_hi, stack_lo, stack_hi, stack_next):
    """Append disjoint boxes of the same union as the boxes ``order``, from position ``count`` of ``out``; where they end.

    -1 where ``out`` or the stack is too small. Every box is cut by those before it; what is left of a cut, at most two parts per
    axis, is cut by the next ones. Large boxes first leave the fewest parts.
    """
    begin, axes = count, lo.shape[1]
    for i in order:
        known, depth = count, 1
        for k in range(axes):
            stack_lo[0, k], stack_hi[0, k] = lo[i, k], hi[i, k]
        stack_next[0] = begin
        while depth > 0:
            depth -= 1
            at = stack_next[depth]
            while at < known and shared(stack_lo, stack_hi, depth, out_lo, out_hi, at) <= 0:
                at += 1
            if count == len(out_lo):
                return -1
            for k in range(axes):
                out_lo[count, k], out_hi[count, k] = stack_lo[depth, k], stack_hi[depth, k]
            if at == known:
                count += 1
                continue
            if depth + 2 * axes > len(stack_lo):
                return -1
            # The place behind the last box is scratch for the remainder.
            for k in range(axes):
                for above in range(2):
                    left = out_hi[at, k] < out_hi[count, k] if above else out_lo[count, k] < out_lo[at, k]
                    if left:
                        for m in range(axes):
                            stack_lo[depth, m], stack_hi[depth, m] = out_lo[count, m], out_hi[count, m]
                        if above:
                            stack_lo[depth, k] = out_hi[at, k]
                            out_hi[count, k] = out_hi[at, k]
                        else:
                            stack_hi[depth, k] = out_lo[at, k]
                            out_lo[count, k] = out_lo[at, k]
                        stack_next[depth] = at + 1
                        depth += 1
    return count


@kernel
def zone_row(zone, start, lo, hi, area, out):
    """The similarity of a zone with every zone: the product of the shares that the common area has of both."""
    for other in range(len(area)):
        both = 0.0
        for x in range(start[zone], start[zone + 1]):
            for y in range(start[other], start[other + 1]):
                both += shared(lo, hi, x, lo, hi, y)
        out[other] = (both / area[zone]) * (both / area[other]) if both > 0 else 0.0
