"""Chaos: a live network of processes, faults by a schedule, clients that write down what happens, and a checker of it all.

``python -m overweave.testing.chaos`` or ``make chaos``; the guide to testing says how to read the result.
"""
