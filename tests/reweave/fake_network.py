"""A network as coordinators see it, in plain Python, with the invariants of a change checked at every moment.

Brokers adopt states one by one and in any order, publications take their time, brokers crash and return, clients go away, and
every broker answers an observation at a moment of its own.
"""

from overweave.contract.modules import Capacity
from overweave.contract.observation import BrokerObservation, Observation, ObservedClient
from overweave.contract.overlay_state import EpochTree, Member, OverlayState, OverlayStatus, OverlayVersion, Phase
from overweave.reweave.coordinator import MoveClients, PublishState, StartBroker, StopBroker, WriteNetworkFile
from overweave.reweave.situation import Situation


def stable(brokers, links, epoch=0, change=""):
    members = tuple(Member(id, f"tcp://{id}", number) for number, id in enumerate(brokers, 1))
    tree = EpochTree(epoch, tuple(brokers), tuple(links))
    return OverlayState(OverlayVersion(epoch, Phase.TRIMMED), members, (tree,), epoch, change)


def answer(id, state, clients=(), synced=None, unsettled=None, capacity=None, neighbours=None):
    neighbours = neighbours or {tree.epoch: tree.neighbours(id) for tree in state.trees}
    synced = state.epochs if synced is None else synced
    status = OverlayStatus(state.version, state.change, state.current, tuple(synced), unsettled or {}, neighbours)
    return BrokerObservation(id, f"tcp://{id}", capacity or Capacity(), status, tuple(clients))


class FakeNetwork:
    def __init__(self, random, state, clients, publishers=()):
        self.random = random
        self.states = {member.id: state for member in state.members}
        self.flooded = state
        #: The brokers that answer, client by client the broker, and who is away.
        self.down, self.running = set(), set(self.states)
        self.clients, self.publishers, self.away = dict(clients), set(publishers), set()
        self.failures, self.file_is_current, self.previous = {}, True, None
        #: Publications that are under way, by their first broker and epoch; the epochs in which a broker is synchronised.
        self.unsettled = []
        self.synced = {id: set(state.epochs) for id in self.states}
        self.violations, self.phases = [], [state.version]

    # ---- what happens by itself

    def tick(self):
        random = self.random
        for id in random.sample(sorted(self.states), len(self.states)):
            if id in self.down:
                continue
            if self.states[id].version < self.flooded.version and random.random() < 0.6:
                self.adopt(id, self.flooded)
            for epoch in self.states[id].epochs:
                if random.random() < 0.5:
                    self.synced[id].add(epoch)
        for client in sorted(self.publishers - self.away):
            home = self.clients[client]
            if home not in self.down and random.random() < 0.5:
                state = self.states[home]
                self.unsettled.append((home, state.current))
                self.check_used(home, state)
        self.unsettled = [each for each in self.unsettled if random.random() < 0.5]

    def check_used(self, home, state):
        """A publication of a new epoch needs everybody's tables in it."""
        if state.version.phase == Phase.USED and not self.is_ready:
            self.violations.append(f"{home} uses epoch {state.current} before all are ready")

    def adopt(self, id, state):
        closing = set(self.states[id].epochs) - set(state.epochs)
        if any(epoch in closing for _, epoch in self.unsettled):
            self.violations.append(f"{id} closes {closing} with publications under way: {self.unsettled}")
        if state.version.phase == Phase.TRIMMED:
            gone = {member.id for member in self.states[id].members} - {member.id for member in state.members}
            if any(self.clients[client] in gone for client in self.clients):
                self.violations.append(f"{gone} are trimmed with clients")
        self.states[id] = state
        self.synced[id] &= set(state.epochs)

    def crash(self):
        # One that is asked has to be there.
        id = self.random.choice(sorted(self.states))
        self.down.add(id)
        self.synced[id] = set(self.states[id].epochs[:1])

    def restore(self):
        self.down &= set(self.states) - self.running

    def reboot(self, brokers):
        """All processes end, and only some brokers start again: those of the old network file."""
        for id in self.states:
            self.synced[id] = set(self.states[id].epochs[:1])
        self.running &= set(brokers)
        self.down = set(self.states) - self.running

    # ---- the coordinator's side

    def observe(self):
        observed, missing = {}, []
        state = max((self.states[id] for id in self.states if id not in self.down), key=lambda each: each.version)
        for id in sorted(self.states):
            if self.random.random() < 0.3:
                self.tick()
            if id in self.down:
                missing.append(id)
                continue
            unsettled = {}
            for broker, epoch in self.unsettled:
                if broker == id:
                    unsettled[epoch] = unsettled.get(epoch, 0) + 1
            clients = [
                ObservedClient(client, client not in self.away, 1, int(client in self.publishers))
                for client, home in sorted(self.clients.items())
                if home == id
            ]
            observed[id] = answer(id, self.states[id], clients, sorted(self.synced[id]), unsettled)
        found = Observation(state, observed, tuple(missing))
        situation = Situation(
            observation=found, previous=self.previous, running=frozenset(self.running),
            file_is_current=self.file_is_current, failures=self.failures, batch=3,
        )  # fmt: skip
        self.previous = found
        return situation

    def execute(self, command):
        match command:
            case PublishState(state):
                self.published(state)
            case StartBroker(broker, contact):
                assert broker not in self.running
                assert contact in self.states
                self.running.add(broker)
                if broker in self.down:  # its journal has its state
                    self.down.discard(broker)
                    return
                self.states[broker] = self.flooded
                self.synced[broker] = set(self.flooded.epochs)
            case MoveClients(moves):
                for move in moves:
                    self.move(move)
            case StopBroker(broker):
                if any(home == broker for home in self.clients.values()) or broker in {m.id for m in self.flooded.members}:
                    self.violations.append(f"{broker} is stopped while in use")
                self.running.discard(broker)
                self.states.pop(broker, None)
                self.down.discard(broker)
            case WriteNetworkFile(state):
                assert state.version == self.flooded.version
                self.file_is_current = True

    def published(self, state):
        if state.version <= self.flooded.version:  # the broker refuses it
            assert state == self.flooded
            return
        if state.version.phase == Phase.USED:
            epoch = state.current
            ready = {id for id, each in self.states.items() if epoch in each.epochs and epoch in self.synced[id]}
            self.is_ready = ready >= {member.id for member in state.members}
        self.flooded, self.file_is_current = state, False
        self.phases.append(state.version)
        if state.version.phase in (Phase.TRIMMED, Phase.REVERTED):
            # Those that were trimmed are out of reach once they know.
            for id in set(self.states) - {member.id for member in state.members}:
                self.adopt(id, state)
                del self.states[id]

    def move(self, move):
        if self.clients[move.client] != move.source or move.client in self.away:
            return
        if not self.flooded.is_stable:
            self.violations.append(f"{move} while two epochs are open")
        if self.random.random() < 0.2:
            self.failures = {**self.failures, move.client: self.failures.get(move.client, 0) + 1}
        else:
            self.clients[move.client] = move.to
