"""Heavy data work on Spark: workloads, matching in bulk, profiles, load. Steps are pure functions from tables to tables."""
