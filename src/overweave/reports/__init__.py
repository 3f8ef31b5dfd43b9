"""Reports: from tables to figures and pages that people read. A kind of report is a file and a line in `REPORTS`."""

from collections.abc import Callable, Mapping
from typing import NamedTuple
from xml.etree.ElementTree import Element

from pyspark.sql import SparkSession

from overweave.errors import InvalidInput
from overweave.pipeline.locations import Location, LocationLike
from overweave.reports.labels import shown
from overweave.reports.page import write_page
from overweave.reports.plan import is_plan, plan_contents
from overweave.reports.profile import is_profile, profile_contents
from overweave.reports.sweep import is_sweep, sweep_contents

#: Starts Spark, for reports on what may be large.
MakeSession = Callable[[], SparkSession]


class Report(NamedTuple):
    """A kind of report."""

    #: Whether a directory, or a file, is what it is about.
    fits: Callable[[Location], bool]
    #: The contents of the page.
    contents: Callable[[MakeSession, Location], list[Element]]
    title: str


#: Every kind by its name.
REPORTS: Mapping[str, Report] = {
    "profile": Report(is_profile, lambda start, directory: profile_contents(start(), directory), "Profile"),
    "sweep": Report(is_sweep, lambda _, directory: sweep_contents(directory), "Sweep"),
    "plan": Report(is_plan, lambda _, file: plan_contents(file), "Plan"),
}


def report_of(source: LocationLike) -> str:
    """Which report suits a directory, or the file of a plan."""
    directory = Location.of(source)
    if not directory.is_dir() and not is_plan(directory):
        found = "a file" if directory.exists() else "nothing"
        raise InvalidInput(
            f"{directory}: expected a directory that 'overweave profile' or 'sweep' wrote, or a plan, found {found}"
        )
    for name, report in REPORTS.items():
        if report.fits(directory):
            return name
    raise InvalidInput(f"{directory}: expected the tables of 'overweave profile', or a sweep, found neither")


def write_report(source: LocationLike, page: LocationLike, start: MakeSession) -> str:
    """Write the report of a directory as one HTML file; answers with its kind."""
    directory, out = Location.of(source), Location.of(page)
    if out.is_dir():
        raise InvalidInput(f"{out}: expected a file to write, found a directory")
    kind = report_of(directory)
    title = f"{REPORTS[kind].title} {shown(directory.name if directory.local is None else directory.local.resolve().name)}"
    write_page(out, title, *REPORTS[kind].contents(start, directory))
    return kind
