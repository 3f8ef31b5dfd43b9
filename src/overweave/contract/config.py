"""Configuration of brokers: one frozen value per part, all defaults here. Files and flags are read in `overweave.cli` only."""

import msgspec

#: The window of the client library: so many publications of a live client are in flight, two windows at most after long batches.
CLIENT_WINDOW = 16_384


class SessionConfig(msgspec.Struct, frozen=True):
    """How two peers exchange frames."""

    #: Rows that may be on their way to a peer without its acknowledgement, but for the rest of a batch; more wait in the session.
    #: Between brokers, what came from another broker is not counted and does not wait.
    window: int = 1024
    #: Likewise for bytes.
    window_bytes: int = 1 << 26
    #: After so many settled rows an acknowledgement goes out at once, else after the delay.
    acknowledge_every: int = 64
    acknowledge_delay_s: float = 0.02
    #: The retransmission period; None: connections lose nothing.
    resend_s: float | None = None


class BrokerConfig(msgspec.Struct, frozen=True):
    """What a broker core needs to know besides its neighbours."""

    session: SessionConfig = SessionConfig()
    #: A client that settles nothing for so long, though there is something to settle, no longer holds its publishers back; when
    #: they are about to stop, not even for so long (`overweave.broker.patience`). The broker keeps what waits for it, and if it
    #: crashes then, that is lost to the client. None: they wait for it.
    stall_s: float | None = None
    #: A client that settles nothing for so long is cut off. None: never.
    patience_s: float | None = None
    #: So many contents may wait for one client before it is cut off without patience.
    queue_max: int = 100_000
    #: So many bytes the broker keeps for one client. Then the client holds its publishers back, or is cut off if it stands still.
    kept_bytes_max: int = 1 << 26
    #: Where routing finds other ways when links fail: how often neighbours hear from each other, and after which silence a link
    #: does not work. None: links are taken to work.
    heartbeat_s: float | None = None
    silence_s: float = 2.0
    #: What is meant for a broker that cannot be reached is kept for so long.
    unreachable_s: float = 10.0
    #: The largest window that a publisher may have, where that is not the session's. Duplicates are found within two of them.
    publisher_window: int = 0
    #: How many steps of messages a broker remembers for `BrokerCore.story`.
    story_length: int = 0
