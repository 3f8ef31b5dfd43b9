"""Batches: publications on their way, rows at a time, as objects or as bytes."""
