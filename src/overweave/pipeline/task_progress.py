"""Task progress of Spark: completed and known tasks, polled while jobs run.

Jobs are identified by the job group of the submitting thread. A remote session (Spark Connect) has no tracker, and so no
progress.
"""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark import SparkContext, StatusTracker
from pyspark.sql import SparkSession

#: Receives the numbers of completed and known tasks.
OnTasks = Callable[[int, int], None]
_LOOK_S = 0.3
_GROUP = "spark.jobGroup.id"


@contextmanager
def report_progress(spark: SparkSession, on_tasks: OnTasks | None, every_s: float = _LOOK_S) -> Iterator[None]:
    """Tell ``on_tasks`` how far the jobs of the body are, again and again, from a thread of its own."""
    # Asking a remote session for its context is an AttributeError.
    context: SparkContext | None = getattr(spark, "sparkContext", None)
    if on_tasks is None or context is None:
        yield
        return
    group, over = f"overweave-{uuid.uuid4()}", threading.Event()
    before = context.getLocalProperty(_GROUP)
    context.setLocalProperty(_GROUP, group)
    tasks = _Tasks(context.statusTracker(), group)

    def look() -> None:
        while not over.wait(every_s):
            on_tasks(*tasks.counted())

    looker = threading.Thread(target=look, daemon=True)
    looker.start()
    try:
        yield
    finally:
        over.set()
        looker.join()
        context.setLocalProperty(_GROUP, before)  # type: ignore[arg-type]  # none removes it


class _Tasks:
    """The tasks of a group of jobs. Jobs that are over are looked up once: Spark forgets them in time."""

    def __init__(self, tracker: StatusTracker, group: str) -> None:
        self._tracker, self._group = tracker, group
        self._over: dict[int, int] = {}

    def counted(self) -> tuple[int, int]:
        """How many are done, and how many there are."""
        done = total = 0
        for id in self._tracker.getJobIdsForGroup(self._group):
            job = None if id in self._over else self._tracker.getJobInfo(id)
            if job is None:
                continue
            stages = [stage for stage in map(self._tracker.getStageInfo, job.stageIds) if stage is not None]
            tasks = sum(stage.numTasks for stage in stages)
            if job.status == "RUNNING":
                done, total = done + sum(stage.numCompletedTasks for stage in stages), total + tasks
            else:
                # Stages whose results were there already were left out, and count as done.
                self._over[id] = tasks
        finished = sum(self._over.values())
        return done + finished, total + finished
