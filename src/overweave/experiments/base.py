"""What every experiment is given, and what it answers with."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pandas as pd
from pyspark.sql import SparkSession

from overweave.pipeline.sweeps.base import Document
from overweave.pipeline.sweeps.file import sweep_of
from overweave.pipeline.sweeps.results import ERROR, Results, read_metrics
from overweave.pipeline.sweeps.running import run_sweep


class Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    """A claim of a paper: its text, the published result, ours, and whether they agree."""

    claim: str
    published: Any
    ours: Any
    holds: bool
    #: Why it does not hold, where that is known.
    reason: str | None = None


class Setting(NamedTuple):
    """How an experiment is run."""

    #: Where tables and figures go.
    out: Path
    #: At the size of the paper, or in minutes.
    full: bool
    #: Gives the session, when it is first needed.
    start: Callable[[], SparkSession]
    #: Shows the current activity.
    say: Callable[[str], None]

    def swept(self, name: str, document: Document) -> Any:
        """The table of a sweep (pandas), kept in the folder ``name``; finished scenarios are not computed again."""
        sweep = sweep_of(document)
        self.say(f"{name}: {len(sweep.tasks):,} scenarios")
        results = Results(sweep, self.out / name)
        run_sweep(
            self.start, sweep, results, on_done=lambda done: self.say(f"{name}: {done:,} of {len(sweep.tasks):,} scenarios")
        )
        table = read_metrics(self.out / name).to_pandas()
        failed = table[table[ERROR].notna()]
        if len(failed):
            raise RuntimeError(f"{self.out / name}: {len(failed)} scenarios failed, the first: {failed[ERROR].iloc[0]}")
        return table

    def kept(self, names: Sequence[str], measure: Callable[[], Sequence[pd.DataFrame]]) -> list[pd.DataFrame]:
        """The tables of ``measure``, kept by name as CSV; existing ones are not measured again."""
        paths = [self.out / f"{name}.csv" for name in names]
        if not all(path.exists() for path in paths):
            self.say(names[0])
            for path, table in zip(paths, measure(), strict=True):
                # A table is there when it is whole.
                table.to_csv(path.with_suffix(".part"), index=False)
                path.with_suffix(".part").replace(path)
        return [pd.read_csv(path) for path in paths]
