"""The whole evaluation of THESIS 7.3: bandwidths, plans, the sweep of lengths, unseen quotes; then claims and figures."""

import msgspec

from overweave.experiments.base import Claim, Setting
from overweave.experiments.figure_files import write_figures
from overweave.experiments.thesis_allocation import claims, figures, measure, unseen


def run(setting: Setting) -> list[Claim]:
    """Everything; the tables that an earlier run in the same directory has finished are not computed again."""
    return run_at(setting, measure.sizes(setting.full))


def run_at(setting: Setting, of: measure.Sizes) -> list[Claim]:
    """The evaluation at given sizes."""
    (found,) = setting.kept(["bandwidths"], lambda: [measure.bandwidths(of)])
    bandwidth = dict(zip(found["brokers"].tolist(), found["bandwidth_bytes_per_s"].tolist(), strict=True))
    (compared,) = setting.kept(["comparison"], lambda: [measure.comparison(of, bandwidth, setting.say)])
    (swept,) = setting.kept(["lengths"], lambda: [measure.lengths(of, bandwidth, setting.say)])
    base = msgspec.structs.replace(of.base, bandwidth_bytes_per_s=bandwidth[of.base.brokers])
    (later,) = setting.kept(["unseen"], lambda: [unseen.unseen(base, of.workloads, setting.say)])
    setting.say("drawing")
    write_figures(setting.out / "figures", [*figures.figures(compared, swept), *unseen.figures(later)])
    return [
        *claims.of_bandwidths(found),
        *claims.of_brokers(compared),
        *claims.of_rates(compared),
        *claims.of_utilisation(compared),
        *claims.of_paths(compared),
        *claims.of_delays(compared),
        *claims.of_breakdown(compared),
        *claims.of_metrics(compared),
        *claims.of_overload(compared),
        *claims.of_times(compared),
        *claims.of_lengths(swept),
        *unseen.claims(later),
    ]
