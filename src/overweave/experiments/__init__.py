"""Experiments: one folder per paper, from its claims to runs, tables and figures. `PAPERS` names them."""

from collections.abc import Mapping

#: By name: the module with ``run(setting) -> list[Claim]``.
PAPERS: Mapping[str, str] = {
    "dest": "overweave.experiments.dest.run",
    "minimal": "overweave.experiments.minimal.run",
    "stoch": "overweave.experiments.stoch.run",
    "thesis-allocation": "overweave.experiments.thesis_allocation.run",
}
