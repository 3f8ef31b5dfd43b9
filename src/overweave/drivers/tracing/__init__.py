"""Traces: Parquet files of deliveries and statements, written by the simulator and by live brokers."""
