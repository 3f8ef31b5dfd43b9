"""The client core: attachments to brokers, subscriptions, publishing, and migrations between brokers."""

from overweave.broker.client.core import ClientCore

__all__ = ["ClientCore"]
