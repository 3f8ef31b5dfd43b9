import numpy as np
from hypothesis import given, strategies as st, settings
from overweave.contract.batches import Rows, Ways, bits_of, numbers_of
from overweave.contract.raw import RawRows, encode_rows
from overweave.language.headers import Header
from overweave.language.messages import Publish
from overweave.language.publications import Publication

lists = st.lists(st.sets(st.integers(0, 300), max_size=60), min_size=1, max_size=8)
def both(ls):
    rows = [Publish(Publication({"x": i}), Header("p", i, destinations=tuple(sorted(l))), b"pay") for i, l in enumerate(ls)]
    return Rows(tuple(rows)), RawRows(encode_rows(rows), len(rows))
def same(a, b):
    assert (a is None) == (b is None)
    if a is not None: assert list(a.publishes()) == list(b.publishes()), (a.publishes(), b.publishes())
@settings(deadline=None, max_examples=300)
@given(lists, st.integers(0, 300), st.lists(st.sets(st.integers(0,300),max_size=150), max_size=4))
def test_same(ls, me, reach):
    a, b = both(ls)
    same(a, b)
    for x, y in zip(a.meant_for(me), b.meant_for(me)): same(x, y)
    seen, hops = set(), []
    for i, r in enumerate(reach):
        r = r - seen; seen |= r; hops.append((f"n{i}", bits_of(r)))
    pa, pb = a.parted(Ways(hops)), b.parted(Ways(hops))
    assert [h for h,_ in sorted(pa, key=str)] == [h for h,_ in sorted(pb, key=str)]
    for (_, x), (_, y) in zip(sorted(pa, key=lambda h: str(h[0])), sorted(pb, key=lambda h: str(h[0]))): same(x, y)
    got = [set() for _ in ls]
    for h, x in pa:
        for p in x.publishes(): got[p.header.sequence] |= set(p.header.destinations)
    assert got == ls
@settings(deadline=None, max_examples=100)
@given(lists)
def test_addr(ls):
    a, b = both([set() for _ in ls])
    found = [(n, np.array([i for i, l in enumerate(ls) if n in l])) for n in sorted(set().union(*ls))]
    same(a.addressed(found), b.addressed(found))
    x = a.addressed(found)
    if x: assert [set(p.header.destinations) for p in x.publishes()] == [l for l in ls if l]
