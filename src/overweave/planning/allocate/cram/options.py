"""The options of CRAM: every optimisation of THESIS 6.2.3 can be switched off."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec


class CramOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What CRAM does; the defaults are those of the planner."""

    #: A name in `CLOSENESS`.
    closeness: str = "iou"
    #: A name in `RULES`.
    rule: str = "split"
    #: Optimisation 1: groups of identical filters.
    groups: bool = True
    #: Optimisation 2: a name in `SEARCHES`.
    search: str = "bounded"
    #: Optimisation 3: one-to-many clustering.
    one_to_many: bool = True
    #: The number of groups up to which all are clustered at once against the pool; above, in parts (see `dividing`).
    whole_groups: int = 20_000
    #: The most groups of a part; a component with more is cut.
    part_groups: int = 4_096


@dataclass(frozen=True)
class Rule:
    """When a clustering is accepted, and how clusters are placed in the end."""

    #: A clustering must need no more brokers than the last scheme did.
    no_worse: bool = False
    #: Whole clusters are placed first; what fits nowhere as a whole is split.
    split: bool = False


#: ``literal`` is the text: a clustering is accepted if all clusters can be packed into the pool. Large clusters then waste
#: brokers, and the plan may need more than BIN PACKING's. ``no-worse`` also asks that no more brokers are used than before; it
#: has to pack everything again for every pair. ``split`` clusters as ``literal``, whose test rarely needs any packing, and
#: breaks up what does not fit into as many brokers as BIN PACKING needs: it is the default because it is the fastest, is
#: never worse than BIN PACKING in brokers, and keeps most clusters whole, which lowers rates most.
RULES: Mapping[str, Rule] = {"literal": Rule(), "no-worse": Rule(no_worse=True), "split": Rule(split=True)}
