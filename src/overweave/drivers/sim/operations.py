"""Operations on a simulated network: what operators do to it, and faults on demand."""

from overweave.contract.effects import ModuleAnswer
from overweave.contract.overlay_state import OverlayState
from overweave.contract.stimuli import AskModule, ChangeOverlay, FailOver
from overweave.drivers.sim.connections import ConnectionTable, Ends
from overweave.drivers.sim.nodes import Node
from overweave.drivers.sim.supervisor import BrokerSupervisor


class NetworkOperations:
    """The base of a simulated network."""

    nodes: dict[str, Node]
    answers: dict[str, list[ModuleAnswer]]
    _supervisor: BrokerSupervisor
    _table: ConnectionTable

    # ---- operators

    def ask(self, broker: str, module: str, kind: str, body: bytes = b"") -> str:
        """Have an operator make a request to a module of a broker; the token of the answer."""
        token = f"ask-{len(self.answers)}"
        self.answers[token] = []
        self.nodes[broker].handle(AskModule(token, module, kind, body))
        return token

    # ---- the overlay

    def join_broker(self, broker: str, contact: str) -> None:
        """Start a broker that joins the network at another one."""
        self._supervisor.join(broker, contact)

    def stop_broker(self, broker: str) -> None:
        """Stop a broker permanently."""
        self._supervisor.stop(broker)

    def change_overlay(self, broker: str, state: OverlayState) -> None:
        """Have a broker adopt a state of the overlay, and send it to all others."""
        self.nodes[broker].handle(ChangeOverlay(state))

    # ---- clients

    def fail_over(self, client: str, failed: str, to: str) -> None:
        """Have a client leave a broker, which it cannot reach, for another one."""
        self.nodes[client].handle(FailOver(failed, to))
        self._table.attach(client, to)

    # ---- faults

    def cut_link(self, ends: Ends, for_s: float | None = None) -> None:
        """Close a connection, for some time or permanently."""
        self._table.cut_link(ends, for_s)

    def crash(self, broker: str, for_s: float | None = None, clock_back: bool = False) -> None:
        """Have a broker lose all but its journal, for some time or permanently; then its clock may have gone back."""
        self._supervisor.crash(broker, for_s, clock_back)

    def restart(self, broker: str, incarnation: int | None = None) -> None:
        """Start a crashed broker again; with an incarnation of its past if its clock has gone back."""
        if incarnation is None:
            self._supervisor.restart(broker)
        else:
            self._supervisor.restart_in_past(broker, incarnation)

    def pause(self, broker: str, for_s: float) -> None:
        """Have a broker do nothing for some time, as SIGSTOP does."""
        self._supervisor.pause(broker, for_s)
