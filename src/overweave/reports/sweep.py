"""The report of a sweep: its figures, the means in numbers, and what failed. A table of scenarios is small: it needs no Spark."""

import re
from xml.etree.ElementTree import Element

import pandas as pd

from overweave.pipeline.locations import Location, LocationLike
from overweave.pipeline.sweeps.results import ERROR, MANIFEST_NAME, Manifest, read_manifest, read_metrics
from overweave.pipeline.sweeps.summary import OVERLOADED
from overweave.reports.confidence import mean_and_margin
from overweave.reports.labels import label, number_text
from overweave.reports.line_chart import sweep_figure
from overweave.reports.page import Number, Text, element, facts, image, section, table
from overweave.reports.style import Figure

#: A page shows no more rows of a table; the rest is in Parquet.
ROWS_MAX = 500
_SEED = "seed"
#: Figures are numbered; what else is in their folder is not ours.
_OURS = re.compile(r"[0-9][0-9]-.*\.(svg|png)")


def is_sweep(directory: LocationLike) -> bool:
    """Whether a directory is one that ``overweave sweep`` wrote."""
    return (Location.of(directory) / MANIFEST_NAME).is_file()


def write_figures(directory: LocationLike) -> list[Location]:
    """Write the figures of a sweep below its directory, each as SVG and PNG, in place of those of an earlier run."""
    folder = Location.of(directory) / "figures"
    folder.make_directory()
    for old in folder.list():
        if _OURS.fullmatch(old.name):
            (folder / old.name).remove()
    for figure in _figures(read_manifest(directory), read_metrics(directory).to_pandas()):
        (folder / f"{figure.name}.svg").write_bytes(figure.svg.encode())
        (folder / f"{figure.name}.png").write_bytes(figure.png)
    return [folder / each.name for each in folder.list() if _OURS.fullmatch(each.name)]


def sweep_contents(directory: LocationLike) -> list[Element]:
    """The contents of the page."""
    note, metrics = read_manifest(directory), read_metrics(directory).to_pandas()
    failed = metrics[metrics[ERROR].notna()]
    varied = _varied(note, metrics)
    counts = [("scenarios", note.scenarios), ("finished", len(metrics) - len(failed)), ("failed", len(failed))]
    repeated = metrics[_SEED].nunique() if _SEED in metrics else 1
    contents = [facts([("kind", note.kind), *counts, ("seeds", repeated)])]
    if len(metrics) < note.scenarios:
        left = note.scenarios - len(metrics)
        contents.append(element("p", f"The sweep is not complete: {left:,} scenarios are not finished."))
    figures = _figures(note, metrics)
    if figures:
        contents.append(section("Figures", *map(image, figures)))
    contents.append(section("Means", *_means(note, metrics, varied)))
    if OVERLOADED in metrics and metrics[OVERLOADED].notna().any():
        contents.append(section("Overloaded", *_overloaded(metrics[metrics[OVERLOADED].notna()], varied)))
    if len(failed):
        contents.append(section("Failures", *_failures(failed, varied)))
    contents.append(section("The same in all scenarios", _constants(note, metrics, varied)))
    return contents


def _figures(note: Manifest, metrics: pd.DataFrame) -> list[Figure]:
    if not metrics[ERROR].isna().any():
        return []
    return [sweep_figure(metrics, each, number) for number, each in enumerate(note.figures, start=1)]


def _varied(note: Manifest, metrics: pd.DataFrame) -> list[str]:
    """What makes scenarios differ, besides seeds."""
    return [name for name in note.parameters if name != _SEED and metrics[name].nunique(dropna=False) > 1]


def _means(note: Manifest, metrics: pd.DataFrame, varied: list[str]) -> list[Element]:
    """Every measure of every kind of scenario, with its margin where there were repetitions."""
    good = metrics[metrics[ERROR].isna()]
    if not len(good):
        return [element("p", "No scenario is finished.")]
    measures = [name for name in note.measures if good[name].notna().any() and pd.api.types.is_numeric_dtype(good[name])]
    by = varied or [note.parameters[0]]
    groups = good.drop_duplicates(by)[by].reset_index(drop=True)
    columns = {name: groups.merge(mean_and_margin(good, by, name), how="left", on=by) for name in measures}
    rows = [
        [*(_value(value) for value in groups.iloc[number][by]), *(_margin(columns[name].iloc[number]) for name in measures)]
        for number in range(min(len(groups), ROWS_MAX))
    ]
    found = [table([str(label(name)) for name in (*by, *measures)], rows)]
    if len(groups) > ROWS_MAX:
        found.append(element("p", f"The first {ROWS_MAX} of {len(groups):,}; the table metrics has all.", class_="faint"))
    if good.duplicated(by).any():
        found.append(element("p", "Mean ± half of the 95 % confidence interval (Student's t).", class_="faint"))
    return found


def _overloaded(overloaded: pd.DataFrame, varied: list[str]) -> list[Element]:
    """The overloaded scenarios, with the utilisation of each overloaded part."""
    note = "The utilisation of these brokers or uplinks is at least 1: delays grow with the length of the run."
    return [element("p", note), _scenarios(overloaded, varied, OVERLOADED)]


def _failures(failed: pd.DataFrame, varied: list[str]) -> list[Element]:
    return [_scenarios(failed, varied, ERROR)]


def _scenarios(metrics: pd.DataFrame, varied: list[str], text: str) -> Element:
    """Scenarios by what makes them differ, with a column of text."""
    columns = [*varied, *([_SEED] if _SEED in metrics else [])]
    rows = [[*(_value(row[name]) for name in columns), Text(row[text])] for _, row in metrics.head(ROWS_MAX).iterrows()]
    return table([*(str(label(name)) for name in columns), text], rows)


def _constants(note: Manifest, metrics: pd.DataFrame, varied: list[str]) -> Element:
    same = [name for name in note.parameters if name not in varied and name != _SEED and len(metrics)]
    return table(["parameter", "value"], [[str(label(name)), _value(metrics[name].iloc[0])] for name in same])


def _value(value: object) -> object:
    plain = value.item() if hasattr(value, "item") else value
    return int(plain) if isinstance(plain, float) and plain.is_integer() else plain


def _margin(row: "pd.Series[float]") -> Number:
    if pd.isna(row["margin"]) or not row["margin"]:
        return Number(number_text(_value(row["mean"])))
    return Number(f"{number_text(row['mean'])} ± {number_text(row['margin'])}")
