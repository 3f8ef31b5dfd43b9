"""Workloads of any size, made by Spark: a kind is a file and a line in `WORKLOADS`.

Every row is a function of the seed and of its number, so the tables are the same however many tasks make them.
"""

from collections.abc import Mapping

from overweave.pipeline.workloads import boxes, classes, mesh, quotes, stock
from overweave.pipeline.workloads.base import Kind

#: Every kind by its name.
WORKLOADS: Mapping[str, Kind] = {
    "stock": Kind(stock.StockOptions, stock.make),
    "classes": Kind(classes.ClassesOptions, classes.make),
    "boxes": Kind(boxes.BoxesOptions, boxes.make),
    "mesh": Kind(mesh.MeshOptions, mesh.make),
    "quotes": Kind(quotes.QuotesOptions, quotes.make),
}
