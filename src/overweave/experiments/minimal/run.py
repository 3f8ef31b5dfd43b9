"""The whole evaluation of MINIMAL section 6: growing workloads, load compensation factors, the simulator; claims and figures."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd

from overweave.experiments.base import Claim, Setting
from overweave.experiments.figure_files import write_figures
from overweave.experiments.minimal import claims, figures, measure


def run(setting: Setting) -> list[Claim]:
    """Everything; the tables that an earlier run in the same directory has finished are not computed again."""
    return run_at(setting, measure.sizes(setting.full))


def run_at(setting: Setting, of: measure.Sizes) -> list[Claim]:
    """The evaluation at given sizes."""
    (compared,) = setting.kept(["simulator"], lambda: [measure.compared(of, setting.say)])
    grown, compensated = [], []
    for generator in of.generators:
        for seed in of.seeds:
            name, arguments = f"{generator}-{seed}", (of, generator, seed, setting.say)
            grown += setting.kept([f"clients-{name}"], partial(_one, measure.growing, *arguments))
            compensated += setting.kept([f"lcf-{name}"], partial(_one, measure.compensated, *arguments))
    growing, factors = pd.concat(grown, ignore_index=True), pd.concat(compensated, ignore_index=True)
    setting.say("drawing")
    write_figures(setting.out / "figures", figures.figures(growing, factors))
    return [
        *claims.of_simulator(compared),
        *claims.of_brokers(growing),
        *claims.of_messages(growing),
        *claims.of_latency(growing),
        *claims.of_forwarding(growing),
        *claims.of_load(growing),
        *claims.of_factors(factors),
    ]


def _one(measured: Callable[..., pd.DataFrame], *arguments: Any) -> list[pd.DataFrame]:
    return [measured(*arguments)]
