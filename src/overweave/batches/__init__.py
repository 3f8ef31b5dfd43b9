"""Batches: publications in flight, rows at a time, as objects or as bytes."""
