"""Benchmarks: one module each, with ``run``; figures are ratios against a baseline measured in the same run."""
