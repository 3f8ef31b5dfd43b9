"""Pages: every number is that of the tables, every figure is there, and no name becomes markup."""

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from report_pages import BROKERS, PUBLISHERS, SCRIPT, Page, check_stands_alone

from overweave.errors import InvalidInput
from overweave.pipeline.sweeps.file import sweep_of
from overweave.pipeline.sweeps.results import ERROR, KEY, Results, measured_schema
from overweave.reports import profile_digest as digests
from overweave.reports import write_report
from overweave.reports.labels import number_text
from overweave.reports.profile_digest import digest_of


def rows_of(directory, query):
    """What duckdb says, with the tables of a profile by their names."""
    with duckdb.connect() as connection:
        for table in ("profiles", "publisher_profiles", "load", "summary"):
            connection.execute(f"create view {table} as select * from '{directory / table}/*.parquet'")
        return connection.execute(query).fetchall()


def test_the_digest_adds_up_as_duckdb_does(profile, digest):
    expected = rows_of(
        profile,
        """with l as (select broker, sum(deliveries) as n, sum(forwarded_bytes_per_s) * 0.5 as f from load group by broker)
        select count(*), sum(n), sum(useful_arrivals), sum(pure_forwards), sum(useful_arrivals) / sum(arrivals), sum(f),
        sum(hops_mean * n) / sum(n), sum(delay_s_mean * n) / sum(n), max(delay_s_max) from summary join l using (broker)""",
    )[0]
    names = ("brokers", "deliveries", "useful_arrivals", "pure_forwards", "yield", "forwarded_bytes")
    names += ("hops_mean", "delay_s_mean", "delay_s_max")
    assert [digest.totals[name] for name in names] == pytest.approx(list(expected))
    expected = rows_of(profile, "select count(*), sum(publications), sum(rate_hz) from publisher_profiles")[0]
    assert [digest.totals[name] for name in ("publishers", "publications", "rate_hz")] == pytest.approx(list(expected))
    density = "count / window_publications"
    expected = rows_of(profile, f"select count(*), count(distinct subscription), avg({density}) from profiles")[0]
    assert [digest.totals[name] for name in ("profiles", "subscriptions", "density_mean")] == pytest.approx(list(expected))
    classes = rows_of(profile, f"select least(floor({density} * 20), 19)::int, count(*) from profiles group by 1")
    assert {place: count for place, count in enumerate(digest.densities.counts) if count} == dict(classes)
    assert sum(digest.rates_hz.counts) == len(PUBLISHERS)
    assert digest.rates_hz.high == pytest.approx(3.0)
    top = rows_of(profile, "select broker, arrivals from summary order by 2 desc, 1")
    assert [(row.broker, row.arrivals) for row in digest.brokers_top.itertuples()] == top
    assert {row.subscription for row in digest.profiles_top.itertuples()} == {SCRIPT, "s2", "s3", "s4"}


def test_load_over_time_loses_no_arrival(profile, digest):
    check_load(profile, digest, 0.5)
    assert set(digest.load_top["broker"]) == set(BROKERS)


def test_long_times_are_in_few_steps_and_many_brokers_are_the_largest(spark, profile, monkeypatch):
    monkeypatch.setattr(digests, "STEPS_MAX", 3)
    monkeypatch.setattr(digests, "TOP", 2)
    few = digest_of(spark, profile)
    ((buckets,),) = rows_of(profile, "select count(distinct at_s) from load")
    # The last step is shorter than the others.
    assert buckets % -(-buckets // 3)
    check_load(profile, few, 0.5 * -(-buckets // 3))
    top = rows_of(profile, "select broker from summary order by arrivals desc, broker limit 2")
    assert few.brokers_top["broker"].tolist() == [broker for (broker,) in top]
    assert set(few.load_top["broker"]) == set(few.brokers_top["broker"])
    assert (len(few.profiles_top), few.totals["brokers"]) == (2, 4)
    most = rows_of(profile, "select subscription, publisher from profiles order by count desc, subscription, publisher limit 2")
    assert list(few.profiles_top[["subscription", "publisher"]].itertuples(index=False, name=None)) == most


def check_load(profile, digest, width):
    """The load in steps, against duckdb; the last step may be shorter."""
    first, last = rows_of(profile, "select min(at_s), max(at_s) from load")[0]
    assert (digest.start_s, digest.step_s) == (first, width)
    query = f"""with steps as (select floor((at_s - {first}) / {width} + 1e-9)::int as step, * from load)
        select step, broker, sum(arrivals) / least({width}, {last} + 0.5 - {first} - step * {width})
        from steps group by step, broker"""
    expected = {(step, broker): rate for step, broker, rate in rows_of(profile, query)}
    found = {(row.step, row.broker): row.input_hz for row in digest.load_top.itertuples()}
    shown = set(digest.brokers_top["broker"])
    assert found == pytest.approx({place: rate for place, rate in expected.items() if place[1] in shown})
    for row in digest.load.itertuples():
        rates = [rate for (step, _), rate in expected.items() if step == row.step]
        assert (row.input_hz, row.input_hz_max) == pytest.approx((sum(rates), max(rates)))


def test_the_page_of_a_profile(spark, profile, digest, tmp_path):
    assert write_report(profile, tmp_path / "report.html", lambda: spark) == "profile"
    page = Page(tmp_path / "report.html")
    check_stands_alone(page)
    assert set(page.images) == {"load-over-time", "load-map", "arrivals", "output", "delays", "rates", "densities"}
    texts = set(page.texts)
    assert {SCRIPT, "s2", "s3", "s4", *PUBLISHERS, "$B_1^$ <b>&", "日本�"} <= texts
    assert {
        number_text(digest.totals[name]) for name in ("publications", "deliveries", "forwarded_bytes", "yield", "delay_s_mean")
    } <= texts
    assert {number_text(value) for value in digest.brokers_top["delay_s_p99"].dropna()} <= texts
    assert {"Load over time", "Brokers", "Publishers", "Profiles"} <= texts
    assert BROKERS[0] in page.texts


def test_that_only_the_largest_are_shown_is_said(profile, digest, tmp_path, monkeypatch):
    monkeypatch.setattr("overweave.reports.profile.TOP", 2)
    monkeypatch.setattr("overweave.reports.profile.digest_of", lambda *_: digest)
    write_report(profile, tmp_path / "report.html", lambda: None)
    texts = Page(tmp_path / "report.html").texts
    assert "The 2 largest of 4 brokers." in texts
    assert "The 2 largest of 8 profiles." in texts
    assert not any("publishers." in text for text in texts)


def test_an_empty_profile_is_said_to_be_empty(spark, profile, tmp_path):
    for path in ("profiles", "publisher_profiles", "load", "summary"):
        table = pq.read_table(profile / path)
        (tmp_path / path).mkdir()
        pq.write_table(table.slice(0, 0), tmp_path / path / "a.parquet")
    write_report(tmp_path, tmp_path / "report.html", lambda: spark)
    assert any("nothing arrived anywhere" in text for text in Page(tmp_path / "report.html").texts)


# ---- sweeps

DOCUMENT = {
    "overlay": {"shape": "chain", "brokers": [2, 4, 8]},
    "routing": {"protocol": ["filter", "flooding"]},
    "workload": {"publishers": 1, "subscriptions_per_publisher": 1},
    "sweep": {"repetitions": 2, "kind": "replay"},
}


def finished(directory, fails=0, missing=0):
    """A sweep whose measures are made up: nothing has to be evaluated to be reported."""
    sweep = sweep_of(DOCUMENT)
    results, schema = Results(sweep, directory), measured_schema(sweep.measures)
    for number, task in enumerate(sweep.tasks[: len(sweep.tasks) - missing]):
        row = {KEY: task.key}
        if number < fails:
            row[ERROR] = f"{SCRIPT} is no scenario"
        else:
            row |= {
                name: kind(10 * task.parameters["overlay_brokers"] + task.parameters["seed"])
                for name, kind in sweep.measures.items()
            }
        results.add(pa.Table.from_pylist([row], schema))
    results.close()
    return sweep


def never():
    raise AssertionError("a sweep needs no Spark")


def test_the_page_of_a_sweep(tmp_path):
    sweep = finished(tmp_path, fails=1)
    assert write_report(tmp_path, tmp_path / "report.html", never) == "sweep"
    page = Page(tmp_path / "report.html")
    check_stands_alone(page)
    assert len(page.images) == len(sweep.figures) == 4
    assert f"{SCRIPT} is no scenario" in page.texts
    # Four brokers, both seeds: 41 and 42.
    assert "41.5 ± 6.353" in page.texts
    assert "Failures" in page.texts
    assert {"brokers", "protocol", "shape", "chain", "filter", "flooding"} <= set(page.texts)


def test_a_sweep_that_goes_on_says_what_is_missing(tmp_path):
    finished(tmp_path, missing=5)
    write_report(tmp_path, tmp_path / "report.html", never)
    texts = Page(tmp_path / "report.html").texts
    assert "The sweep is not complete: 5 scenarios are not finished." in texts
    assert "Failures" not in texts


@pytest.mark.parametrize(("fails", "missing"), [(12, 0), (0, 12)])
def test_a_sweep_without_any_result_has_no_figures(tmp_path, fails, missing):
    finished(tmp_path, fails, missing)
    write_report(tmp_path, tmp_path / "report.html", never)
    page = Page(tmp_path / "report.html")
    assert page.images == {}
    assert "No scenario is finished." in page.texts


def test_directories_of_others_are_refused(tmp_path, profile):
    (tmp_path / "file").touch()
    for path, text in [("none", "found nothing"), ("file", "found a file"), (".", "found neither")]:
        with pytest.raises(InvalidInput, match=text):
            write_report(tmp_path / path, tmp_path / "report.html", never)
    with pytest.raises(InvalidInput, match="expected a file to write, found a directory"):
        write_report(profile, tmp_path, never)
    assert not (tmp_path / "report.html").exists()


def test_tables_with_other_columns_are_refused(spark, profile, tmp_path):
    for path in ("profiles", "publisher_profiles", "load", "summary"):
        (tmp_path / path).mkdir()
        pq.write_table(pq.read_table(profile / path), tmp_path / path / "a.parquet")
    other = pq.read_table(profile / "load").drop(["at_s"])
    # Spark's own note of the columns goes, too.
    pq.write_table(other.replace_schema_metadata(None), tmp_path / "load" / "a.parquet")
    with pytest.raises(InvalidInput, match="load: expected a column 'at_s'"):
        write_report(tmp_path, tmp_path / "report.html", lambda: spark)
