"""The report of a profile: the load of brokers, publishers and subscriptions."""

from xml.etree.ElementTree import Element

import pandas as pd
from pyspark.sql import SparkSession

from overweave.pipeline.locations import LocationLike
from overweave.pipeline.streaming.versions import current
from overweave.pipeline.tables import folder_of
from overweave.reports.brokers import profile_figures
from overweave.reports.labels import label
from overweave.reports.page import element, facts, image, section, table
from overweave.reports.profile_digest import TABLES, TOP, digest_of

#: The totals at the top, in this order.
_FACTS = (
    ("brokers", "brokers with traffic"),
    ("publishers", "publishers with traffic"),
    ("publications", "publications"),
    ("rate_hz", "publications per second"),
    ("subscriptions", "subscriptions with matches"),
    ("profiles", "profiles"),
    ("density_mean", "density of profiles, mean"),
    ("arrivals", "arrivals at brokers"),
    ("useful_arrivals", "with a local match"),
    ("pure_forwards", "pure forwards"),
    ("yield", "yield"),
    ("delivered_bytes", "sent to clients (B)"),
    ("forwarded_bytes", "sent to neighbours (B)"),
    ("deliveries", "deliveries to subscriptions"),
    ("hops_mean", "hops, mean"),
    ("delay_s_mean", "delay, mean (s)"),
    ("delay_s_max", "delay, maximum (s)"),
)
_BROKERS = (
    "broker", "arrivals", "useful_arrivals", "pure_forwards", "yield_share", "delivered_bytes", "forwarded_bytes", "output_bytes",
    "deliveries", "hops_mean", "delay_s_mean", "delay_s_p50", "delay_s_p99",
)  # fmt: skip
_PUBLISHERS = ("publisher", "broker", "publications", "rate_hz", "bytes_per_s", "message_bytes")
_PROFILES = ("subscription", "publisher", "count", "density", "window_publications", "first_sequence", "last_sequence")
_WORDS = {"yield_share": "yield", "count": "publications got"}


def is_profile(directory: LocationLike) -> bool:
    """Whether a directory has the tables of ``overweave profile``."""
    tables = current(directory)
    return all(any(each.name.endswith(".parquet") for each in folder_of(tables, name).list()) for name in TABLES)


def profile_contents(spark: SparkSession, directory: LocationLike) -> list[Element]:
    """The contents of the page."""
    digest = digest_of(spark, directory)
    totals = digest.totals
    if not totals["brokers"]:
        return [element("p", "The profile is empty: nothing arrived anywhere.")]
    figures = {part: [image(each) for each in some] for part, some in profile_figures(digest).items()}
    return [
        facts([(text, totals[name]) for name, text in _FACTS]),
        section("Load over time", *figures["load"]),
        section("Brokers", *figures["brokers"], *_top("brokers", digest.brokers_top, _BROKERS, totals["brokers"])),
        section(
            "Publishers", *figures["publishers"], *_top("publishers", digest.publishers_top, _PUBLISHERS, totals["publishers"])
        ),
        section("Profiles", *figures["profiles"], *_top("profiles", digest.profiles_top, _PROFILES, totals["profiles"])),
    ]


def _top(what: str, rows: pd.DataFrame, columns: tuple[str, ...], total: float | None) -> list[Element]:
    """The largest, and how many there are that are not shown."""
    headings = [_WORDS.get(name, str(label(name))) for name in columns]
    found = [table(headings, ([_plain(value) for value in row] for row in rows[list(columns)].itertuples(index=False)))]
    if total is not None and total > TOP:
        found.append(element("p", f"The {TOP} largest of {int(total):,} {what}.", class_="faint"))
    return found


def _plain(value: object) -> object:
    """The value as a Python object; None if missing."""
    plain = value.item() if hasattr(value, "item") else value
    return None if pd.isna(plain) else plain
