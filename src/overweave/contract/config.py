"""Configuration of brokers: one frozen value per part, all defaults here. Files and flags are read in `overweave.cli` only."""

import msgspec


class SessionConfig(msgspec.Struct, frozen=True):
    """How two peers exchange frames."""

    #: Contents that may be on their way to a peer without its acknowledgement; more wait in the session.
    window: int = 1024
    #: After so many settled contents an acknowledgement goes out at once, else after the delay.
    acknowledge_every: int = 64
    acknowledge_delay_s: float = 0.02
    #: Send again what was not acknowledged for so long, doubling up to the maximum. None: connections lose nothing.
    resend_s: float | None = None
    resend_s_max: float = 5.0


class BrokerConfig(msgspec.Struct, frozen=True):
    """What a broker core needs to know besides its neighbours."""

    session: SessionConfig = SessionConfig()
    #: Goes into trace rows.
    run: str = "run"
    #: Write a trace row per arrival.
    trace: bool = False
