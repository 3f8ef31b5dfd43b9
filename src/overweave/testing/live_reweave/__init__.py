"""Plans applied to a live network: the real commands, clients in processes of their own, kill -9, and an oracle.

``python -m overweave.testing.live_reweave``; the guide to testing says how to read the result.
"""
