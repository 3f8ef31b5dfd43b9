"""Sessions: an ordered stream to and from one peer over a connection that may lose, repeat, reorder or break.

Each row of a publication and each control message has a sequence number. The receiver processes them in order. It settles
each one when everything that it caused is settled. The sender retransmits what is not settled. So a publication stays with a
peer until the last broker and client on its path has it, and the crash of one broker loses nothing.

A peer that restarts has a higher epoch and no state. Both directions then start again at 0. Unsettled publications are sent
again, and so is addressed control. Other control is not, because the routing state is synchronised again (`SyncEnd`).

============== ===============================================================================
`Handshake`    the epochs of both ends, and whether both know them
`Inbound`      order, settlement and acknowledgement of what arrives
`Outbound`     window, in-flight store and retransmission of what is sent
`StallBuffer`  what the broker buffers for a stalled client
`Session`      one peer: the three parts together
`AckScheduler` delayed acknowledgements of all sessions of a core
============== ===============================================================================

Frames to send are appended to the caller's list of effects.
"""

from overweave.broker.session.ack_scheduler import AckScheduler
from overweave.broker.session.barriers import Barrier
from overweave.broker.session.handshake import EpochCounter
from overweave.broker.session.session import Session

__all__ = ["AckScheduler", "Barrier", "EpochCounter", "Session"]
