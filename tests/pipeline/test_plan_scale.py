"""Large profiles on Spark: the same problem and the same plan as in one process."""

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overweave.bench.scale import exponent, measure, write_figures
from overweave.bench.scale_tables import Shape, broker_rows, profile_rows, publisher_rows, subscription_rows, write_case
from overweave.errors import InvalidInput
from overweave.pipeline import plan_scale
from overweave.pipeline.plan_brokers import Network, read_brokers
from overweave.pipeline.plan_parts import run_on
from overweave.pipeline.plan_scale import is_large, read_large_problem
from overweave.pipeline.planning import read_problem
from overweave.planning.allocate.cram import cram
from overweave.planning.allocate.cram.options import CramOptions
from overweave.planning.allocate.cram.parts import run_here
from overweave.planning.canonical import canonical
from overweave.planning.make import make_plan
from overweave.planning.model import make_model
from overweave.planning.problem import Goals


def write(directory, shape, *, per_client=1, subscriptions=True):
    """A case as files, without Spark; ``per_client`` subscriptions have one client."""
    rows = np.arange(shape.subscriptions)
    told = dict(subscription_rows(shape, rows))
    told["client"] = [f"c{i // per_client}" for i in rows.tolist()]
    told["broker"] = [told["broker"][i - i % per_client] for i in rows.tolist()]
    tables = {
        "profiles": profile_rows(shape, rows),
        "publisher_profiles": publisher_rows(shape, np.arange(shape.publishers)),
        "brokers": broker_rows(shape, np.arange(len(shape.bandwidths))),
    }
    if subscriptions:
        tables["subscription_lifetimes"] = told
    for name, columns in tables.items():
        (directory / name).mkdir(parents=True)
        pq.write_table(pa.table(dict(columns)), directory / name / "part-0.parquet")
    return Network(read_brokers(directory / "brokers"))


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        (Shape(900, 1), {}),
        (Shape(600, 3, sizes=True), {}),
        (Shape(600, 2), {"per_client": 3}),
        (Shape(300, 1), {"subscriptions": False}),
    ],
)
def test_spark_reads_the_same_problem_and_makes_the_same_plan(spark, tmp_path, shape, options):
    network = write(tmp_path, shape, **options)
    ours, plain = read_large_problem(spark, tmp_path, network, Goals()), read_problem(tmp_path, network, Goals())
    assert len(ours.vectors) == len(plain.vectors)
    assert sorted(ours.units.ids) == sorted(plain.units.ids)
    if "subscriptions" not in options:
        assert ours.units.ids == plain.units.ids
    place = {id: i for i, id in enumerate(plain.units.ids)}
    order = np.array([place[id] for id in ours.units.ids])
    np.testing.assert_allclose(ours.units.output_bytes_per_s, plain.units.output_bytes_per_s[order], rtol=1e-12)
    assert ours.units.filters.tolist() == plain.units.filters[order].tolist()
    for i in range(0, len(order), 7):
        assert vectors_of(ours, i) == vectors_of(plain, order[i])
    assert make_plan(ours).encode() == make_plan(plain).encode()


def vectors_of(problem, unit):
    units, vectors = problem.units, problem.vectors
    rows = range(units.row_start[unit], units.row_start[unit + 1])
    return {
        problem.publishers.ids[vectors.publisher[units.rows[i]]]: (
            vectors.words[units.rows[i]].tolist(),
            int(units.row_deliveries[i]),
        )
        for i in rows
    }


@pytest.mark.parametrize("metric", ["iou", "xor"])
@pytest.mark.parametrize("part_groups", [200, 40])
def test_tasks_of_spark_make_the_clusters_of_one_process(spark, tmp_path, metric, part_groups):
    network = write(tmp_path, Shape(600, 2, sizes=True))
    model = make_model(canonical(read_problem(tmp_path, network, Goals())))
    options = CramOptions(closeness=metric, whole_groups=100, part_groups=part_groups)
    here, there = (
        cram(options, run)(model, model.items, model.bins, np.random.default_rng(0)) for run in (run_here, run_on(spark))
    )
    assert here.bin.tolist() == there.bin.tolist()
    assert here.clusters == there.clusters < len(model.items)


def test_a_case_made_by_spark_is_that_of_its_rows(spark, tmp_path):
    shape = Shape(500, 2)
    write_case(spark, shape, tmp_path / "case")
    write(tmp_path / "plain", shape)
    for name in ("profiles", "publisher_profiles", "brokers"):
        made, plain = (pq.read_table(tmp_path / each / name).to_pylist() for each in ("case", "plain"))
        assert sorted(map(repr, made)) == sorted(map(repr, plain))


def test_about_a_quarter_of_the_vectors_are_distinct():
    for shape in (Shape(40_000, 1), Shape(20_000, 3)):
        words = profile_rows(shape, np.arange(shape.subscriptions))["words"]
        distinct = len({each.tobytes() for each in words})
        assert 0.15 < distinct / len(words) * shape.per_filter < 0.9


@pytest.mark.parametrize(
    ("table", "column", "value", "expected"),
    [
        ("subscription_lifetimes", "subscription", "s9999", "subscription 's1': expected one that the profile knows"),
        ("publisher_profiles", "publisher", "P9999", "publisher 'P1': expected one that the profile knows"),
        ("subscription_lifetimes", "broker", "B9999", "client 'c0' is at broker 'B9999', which is not in brokers"),
    ],
)
def test_what_does_not_belong_together_is_named(spark, tmp_path, table, column, value, expected):
    network = write(tmp_path, Shape(60, 1))
    file = tmp_path / table / "part-0.parquet"
    columns = pq.read_table(file).to_pydict()
    columns[column][0] = value
    pq.write_table(pa.table(columns), file)
    with pytest.raises(InvalidInput, match=expected):
        read_large_problem(spark, tmp_path, network, Goals())


def test_large_is_told_by_the_number_of_profiles(tmp_path, monkeypatch):
    write(tmp_path, Shape(60, 1))
    assert not is_large(tmp_path)
    monkeypatch.setattr(plan_scale, "ROWS_ON_DRIVER", 50)
    assert is_large(tmp_path)
    assert not is_large(tmp_path / "nowhere")


def test_a_case_is_measured_in_a_process_of_its_own(tmp_path):
    shape = Shape(400, 1)
    write(tmp_path / "case", shape)
    found = measure(shape, "cram-iou", tmp_path / "case")
    assert (found.subscriptions, found.components, found.brokers_offered) == (400, shape.publishers, len(shape.bandwidths))
    assert 0 < found.brokers <= found.brokers_offered
    assert found.cpu_s > 0 < found.python_mb
    larger = msgspec.structs.replace(found, subscriptions=4_000, cpu_s=100 * found.cpu_s)
    assert exponent(found, larger, "cpu_s") == pytest.approx(2)
    write_figures([found, larger], tmp_path / "figures")
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"scale.json", "scale.svg", "scale.png"}
