"""What has to be advertised before something is published, against the definition."""

from hypothesis import given, settings
from hypothesis import strategies as st

from overweave.drivers.tcp.advertiser import Advertiser, advertisement
from overweave.language.publications import Publication
from overweave.language.relations import admits
from overweave.language.syntax import parse_filter
from overweave.testing import strategies

acts = st.lists(
    st.tuples(st.just("publish"), strategies.publications())
    | st.tuples(st.sampled_from(["add", "remove"]), st.integers(0, 3), strategies.filters()),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(acts)
def test_everything_is_advertised_and_nothing_twice(several):
    advertiser, own, automatic = Advertiser(), {}, []
    for act, *arguments in several:
        if act == "publish":
            (publication,) = arguments
            missing = advertiser.missing(publication)
            if missing is None:
                assert any(admits(filter, publication) for filter in (*own.values(), *automatic))
            else:
                assert not any(admits(filter, publication) for filter in own.values())
                assert admits(missing, publication)
                assert missing not in automatic
                automatic.append(missing)
                advertiser.advertised(publication)
        elif act == "add":
            own[str(arguments[0])] = arguments[1]
            advertiser.add(str(arguments[0]), arguments[1])
        else:
            own.pop(str(arguments[0]), None)
            advertiser.remove(str(arguments[0]))


def test_what_has_too_many_attributes_for_a_filter_is_left_to_the_broker():
    assert Advertiser().missing(Publication({f"x{number}": 1 for number in range(1025)})) is None


def test_a_class_that_is_no_number_is_advertised_as_present():
    nan = Publication({"class": float("nan")})
    assert advertisement(nan) == parse_filter("[class,isPresent,0]")
    assert admits(advertisement(nan), nan)
