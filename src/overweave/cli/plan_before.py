"""The load of the current network, for comparison with a plan."""

from typing import TYPE_CHECKING

from overweave.errors import InvalidInput

if TYPE_CHECKING:
    from overweave.planning.plan import Before
    from overweave.planning.problem import Problem


def before_of(problem: "Problem") -> tuple["Before | None", str | None]:
    """The current network with its load, or the reason why it is unknown."""
    from overweave.planning.current import current_load
    from overweave.planning.plan import Before, loads_of, totals_of

    if problem.today is None:
        return None, "SOURCE has no places of clients"
    try:
        ids, load = current_load(problem)
    except InvalidInput as error:
        return None, str(error) if problem.today.links else "--network names the links of the network"
    return Before(links=problem.today.links, load=loads_of(load, ids), totals=totals_of(load, 0, None)), None
