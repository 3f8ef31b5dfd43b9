"""Codes with which brokers reject clients that another broker may serve."""

#: The broker stops; it has not joined its network, or has to join it again; it has left the overlay.
STOPPING, NOT_JOINED, LEFT_OVERLAY = "stopping", "not-joined", "left-overlay"
UNAVAILABLE = frozenset((STOPPING, NOT_JOINED, LEFT_OVERLAY))
