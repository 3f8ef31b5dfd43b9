"""Configuration of brokers: one frozen value per part, all defaults here. Files and flags are read in `overweave.cli` only."""

import msgspec

#: The window of the client library: the limit on publications in flight from a live client; after long batches two windows.
CLIENT_WINDOW = 16_384
#: The session of a disconnected client expires after this time, at live brokers and simulated ones.
SESSION_EXPIRY_S = 30.0


class SessionConfig(msgspec.Struct, frozen=True):
    """How two peers exchange frames."""

    #: The limit on unacknowledged rows in flight to a peer, except for the rest of a batch; more wait in the session.
    #: Between brokers, what came from another broker is not counted and does not wait.
    window: int = 1024
    #: Likewise for bytes.
    window_bytes: int = 1 << 26
    #: The number of settled rows after which an acknowledgement is sent at once, otherwise after the delay.
    acknowledge_every: int = 64
    acknowledge_delay_s: float = 0.02
    #: The retransmission period; without progress the pauses double (`overweave.broker.session.backoff`). None: connections
    #: lose nothing.
    retransmit_s: float | None = None


class BrokerConfig(msgspec.Struct, frozen=True):
    """Options of a broker core."""

    session: SessionConfig = SessionConfig()
    #: After this long without an acknowledgement the broker buffers for the client, so that it no longer blocks its publishers;
    #: sooner if a publisher's window is about to fill (`overweave.broker.slow_consumers`). A crash of the broker loses the
    #: buffer. None: publishers wait.
    stall_timeout_s: float | None = None
    #: A client without an acknowledgement for this long is disconnected as a slow consumer. None: never.
    slow_consumer_timeout_s: float | None = None
    #: The most pending messages of one client; beyond that it is disconnected at once.
    pending_max: int = 100_000
    #: The most bytes buffered for one client. Beyond that it blocks its publishers again, or is disconnected if it is stalled.
    pending_bytes_max: int = 1 << 26
    #: The heartbeat period between neighbours and the silence after which a link counts as down, for protocols that reroute.
    #: None: no failure detection.
    heartbeat_s: float | None = None
    link_timeout_s: float = 2.0
    #: How long undeliverable publications are kept.
    undeliverable_timeout_s: float = 10.0
    #: The largest window of a publisher, if it differs from the session's. The dedup window is twice as large.
    publisher_window: int = 0
    #: The number of steps kept for `BrokerCore.story`.
    story_length: int = 0
