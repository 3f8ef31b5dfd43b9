"""Options of planning: every optimisation by name, with the defaults of the planner."""

from typing import Literal

import msgspec


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a plan is made; algorithms ignore what does not concern them."""

    #: CRAM's acceptance rule; see `RULES` for what they mean and why ``split`` is the default.
    rule: str = "split"
    #: CRAM's optimisations 1 to 3 (THESIS 6.2.3).
    groups: bool = True
    search: str = "bounded"
    one_to_many: bool = True
    #: The optimisations of the overlay (6.3.1 to 6.3.3).
    eliminate_forwarders: bool = True
    take_over: bool = True
    best_fit: bool = True
    #: Beyond the thesis (its 8.2): reserved strong brokers, publishers placed while the overlay is built.
    backtrack: bool = True
    publishers_inside: bool = False
    #: MINIMAL: the share of a broker's capacity that is for its own clients (5.4); None: found by iteration, broker by broker.
    lcf: float | None = None
    #: What becomes of a client that needs more than that.
    oversize: Literal["deploy", "error"] = "error"
    #: What clients are compared by: what they received, or their filters as boxes of a content space.
    similarity: Literal["profiles", "boxes"] = "profiles"
    #: GRAPE (5.2.2, 7.3.2).
    priority: Literal["load", "delay"] = "load"
    weight: float = 1.0
    #: Which of equally capable brokers is which, so that the fewest clients move.
    relabel: bool = True
    link_delay_s: float = 0.0
