"""Live migrations: clients and brokers in processes of their own, migrations under traffic, kill -9, drains, and an oracle.

``python -m overweave.testing.live_migrations``; the guide to testing says how to read the result.
"""
