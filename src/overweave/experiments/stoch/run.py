"""The whole evaluation: sweeps on Spark, then claims, tables and figures."""

import time

import pandas as pd

from overweave.experiments.base import Claim, Setting
from overweave.experiments.figure_files import write_figures
from overweave.experiments.stoch import claims, figures, scenarios
from overweave.experiments.stoch.validation import compared, summarised


def run(setting: Setting) -> list[Claim]:
    """Everything; what an earlier run in the same directory has finished is not computed again."""
    # The start of Spark is not the sweep's.
    setting.start()
    finished = (setting.out / "analysis" / "metrics").exists()
    began_s = time.monotonic()
    topologies = setting.swept("analysis", scenarios.topologies())
    seconds = None if finished else time.monotonic() - began_s
    rates = setting.swept("publication-rates", scenarios.publication_rates())
    runs = [
        setting.swept(f"validation-{protocol}", scenarios.validation(protocol, setting.full))
        for protocol in (*scenarios.PUBLISHED, *scenarios.EXTENSIONS)
    ]
    validated = compared(pd.concat(runs, ignore_index=True))
    found = [
        *claims.of_figures(topologies),
        *claims.of_crossings(),
        *claims.of_sweep(len(topologies), seconds),
        *claims.of_validation(validated),
    ]
    if setting.full:
        runs_at_scale = setting.swept("paper-scale", scenarios.paper_scale())
        at_scale = compared(runs_at_scale, ("overlay_width", "workload_subscriptions"))
        at_scale.to_csv(setting.out / "paper-scale.csv", index=False)
        found += claims.of_paper_scale(at_scale)
    setting.say("drawing")
    validated.to_csv(setting.out / "validation-scenarios.csv", index=False)
    by = ["routing_protocol", "workload_lifetimes", "measure"]
    summarised(validated, by).to_csv(setting.out / "validation.csv", index=False)
    write_figures(setting.out / "figures", figures.figures(topologies, rates, validated))
    return found
