"""The whole evaluation, theme by theme: tables, claims and figures."""

import os

from overweave.experiments.base import Claim, Setting
from overweave.experiments.dest import chains, claims, figures, general, lists, reorganisation, robustness, tables
from overweave.experiments.figure_files import write_figures


def run(setting: Setting) -> list[Claim]:
    """Everything; the tables that an earlier run in the same directory has finished are not computed again."""
    processes, full = os.cpu_count() or 1, setting.full
    (chained,) = setting.kept(["chains"], lambda: [chains.measure_all(chains.chains(full), processes)])
    names = ("general", "general-brokers", "general-rates")
    loaded = general.Measured(*setting.kept(names, lambda: general.measure_all(general.setups(full), processes)))
    (listed,) = setting.kept(["lists"], lambda: [lists.measure_all(lists.setups(full), processes)])
    (known,) = setting.kept(["tables"], lambda: [tables.measure()])
    (failed,) = setting.kept(["robustness"], lambda: [robustness.measure_all(robustness.setups(full), processes)])
    (changed,) = setting.kept(["reorganisation"], lambda: [reorganisation.measure_all(reorganisation.setups(full), processes)])
    setting.say("drawing")
    write_figures(setting.out / "figures", figures.figures(chained, loaded, listed, changed, failed))
    return [
        *claims.of_chains(chained),
        *claims.of_general(loaded),
        *claims.of_lists(listed),
        *claims.of_tables(known),
        *claims.of_reorganisation(changed),
        *claims.of_robustness(failed),
    ]
