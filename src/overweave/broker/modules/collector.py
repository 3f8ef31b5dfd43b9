"""The collector (CBC, THESIS 6.1): it answers operators with observations and profiles of all brokers, and publishes states of
the overlay.

BIR and BIA are a convergecast over the tree of the current epoch (`Gather`): 2(n - 1) messages for n brokers, and the parts of
long answers. The module watches publications only during a profile, and while observations ask for the delays of deliveries. A
profile ends when its operator stops it, or no longer extends its lease; the delays end with theirs.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import msgspec

from overweave.broker.modules.delivery_delays import DeliveryDelays
from overweave.broker.modules.gather import Gather, Gathered, in_parts
from overweave.broker.modules.observed_clients import observed_clients
from overweave.broker.modules.profiler import Profiler
from overweave.contract.effects import SetTimer
from overweave.contract.modules import (
    BrokerView,
    ControlApplied,
    Environment,
    Module,
    ModuleEffect,
    ModuleStimulus,
    NeighboursChanged,
    OperatorRequest,
    PublishOverlay,
    Reply,
    Routed,
    Started,
    Unwatch,
    Watch,
)
from overweave.contract.observation import (
    CHANGE,
    OBSERVE,
    BrokerObservation,
    Observation,
    ObserveRequest,
)
from overweave.contract.overlay_state import OverlayState
from overweave.contract.profiles import (
    PROFILE_KINDS,
    PROFILE_LIMIT,
    PROFILE_READ,
    PROFILE_START,
    PROFILE_WINDOWS,
    Collected,
    Observed,
    ProfileAnswer,
    ProfileRequest,
    ProfilesChanged,
    PublisherWindows,
    SubscriptionProfiles,
)
from overweave.contract.stimuli import TimerFired
from overweave.errors import InvalidInput
from overweave.language.headers import OverlayEpoch
from overweave.language.values import excerpt

_KINDS = (OBSERVE, CHANGE, *PROFILE_KINDS)
_LEASE, _DELAYS_LEASE = "profile-lease", "delays-lease"
#: The time for an observation, and the number of levels of brokers that it reaches if none answers.
_OBSERVE_S, _LEVELS = 5.0, 50
_WATCHED = (Routed, ControlApplied)


class _Question(msgspec.Struct, frozen=True):
    #: The current epoch of the asked broker: the request travels in its tree.
    epoch: OverlayEpoch
    kind: str
    profile: ProfileRequest | None = None
    #: See `ObserveRequest`.
    delays_s: float = 0.0


_state_decoder, _question_decoder = msgspec.msgpack.Decoder(OverlayState), msgspec.msgpack.Decoder(_Question)
_profile_decoder, _observe_decoder = msgspec.msgpack.Decoder(ProfileRequest), msgspec.msgpack.Decoder(ObserveRequest)


class Collector(Module):
    """The collector of one broker."""

    def __init__(self, environment: Environment) -> None:
        self._broker = environment.broker
        self._url = environment.addresses.get(environment.broker, "")
        self._capacity = environment.capacity
        self._view: BrokerView | None = None
        self._neighbours: tuple[str, ...] = ()
        self._profiler: Profiler | None = None
        #: The delays of deliveries while observations ask for them.
        self._delays: DeliveryDelays | None = None
        self._lease_end_s = self._delays_end_s = self._now_s = 0.0
        #: Effects that answers to requests bring about.
        self._effects: list[ModuleEffect] = []
        self._gather: Gather[Collected] = Gather(
            environment.broker,
            Collected,  # type: ignore[arg-type]
            answer=self._answer,
            merge=_merged,
            on_gathered=_ignore,
            select=self._select,
        )

    def handle(self, stimulus: ModuleStimulus, now_s: float) -> Iterator[ModuleEffect]:
        """See `Module.handle`."""
        if isinstance(stimulus, Routed):
            if self._profiler is not None:
                self._profiler.on_routed(stimulus, self._neighbours)
            if self._delays is not None:
                self._delays.on_routed(stimulus, self._neighbours, now_s)
            return
        self._now_s = now_s
        if isinstance(stimulus, ControlApplied):
            if self._profiler is not None:
                self._profiler.on_control(stimulus)
        elif isinstance(stimulus, OperatorRequest):
            yield from self._on_request(stimulus, now_s)
        elif isinstance(stimulus, TimerFired) and stimulus.name == _LEASE:
            yield from self._on_lease(now_s)
        elif isinstance(stimulus, TimerFired) and stimulus.name == _DELAYS_LEASE:
            yield from self._on_delays_lease(now_s)
        else:
            if isinstance(stimulus, Started | NeighboursChanged):
                self._neighbours = stimulus.neighbours
            if isinstance(stimulus, Started):
                self._view = stimulus.broker
            yield from self._gather.handle(stimulus, now_s)
        yield from self._performed()

    def status(self) -> Mapping[str, object]:
        """The profile in progress, if there is one."""
        return {} if self._profiler is None else {"profile": self._profiler.name, "rings": self._profiler.count}

    # ---- requests

    def _on_request(self, request: OperatorRequest, now_s: float) -> Iterator[ModuleEffect]:
        try:
            if request.kind not in _KINDS:
                text = f"request {excerpt(request.kind)}: expected one of the module 'collector': {', '.join(_KINDS)}"
                raise InvalidInput(text)
            if request.kind == CHANGE:
                yield PublishOverlay(self._changed(request.body))
                yield Reply(request.token)
                return
            profile = None if request.kind == OBSERVE else _profile_of(request)
            delays_s = _observe_of(request).delays_s if profile is None else 0.0
        except InvalidInput as error:
            yield Reply(request.token, error=str(error))
            return
        question = msgspec.msgpack.encode(_Question(self._broker_view.overlay_state().current, request.kind, profile, delays_s))
        deadline_s = _OBSERVE_S if profile is None else profile.deadline_s
        on_gathered = partial(self._on_gathered, request.token)
        yield from self._gather.ask(question, now_s, deadline_s, deadline_s / _LEVELS, on_gathered=on_gathered)

    def _changed(self, body: bytes) -> OverlayState:
        """The state of a change, whose version must be higher than the present one."""
        try:
            state = _decoded(body)
            self._broker_view.check_overlay(state)
            present = self._broker_view.overlay_state().version
            if state.version <= present:
                raise InvalidInput(f"version: expected one above {_text(present)}, got {_text(state.version)}")
        except InvalidInput as error:
            raise InvalidInput(f"change: {error}") from None
        return state

    @property
    def _broker_view(self) -> BrokerView:
        assert self._view is not None, "a collector that has not started"
        return self._view

    # ---- answers

    def _select(self, question: bytes, neighbours: tuple[str, ...]) -> Iterable[str]:
        """The neighbours in the epoch of the request; where that is not open, all of them."""
        return self._broker_view.overlay_status().neighbours.get(_question_decoder.decode(question).epoch, neighbours)

    def _answer(self, question: bytes) -> Collected:
        asked, view, profiler = _question_decoder.decode(question), self._broker_view, self._profiler
        profile = asked.profile
        if profile is None:
            self._count_delays(asked.delays_s)
            return Observed({self._broker: self._observation(view)})
        if asked.kind == PROFILE_START:
            return self._started(profile)
        if profiler is None or profiler.name != profile.name:
            return self._idle(asked.kind)
        if asked.kind == PROFILE_WINDOWS:
            return PublisherWindows(profiler.windows(), [])
        if asked.kind == PROFILE_READ:
            return profiler.profiles()
        if asked.kind == PROFILE_LIMIT:
            profiler.limit(profile.limits)
        else:
            self._stop()
        return ProfilesChanged([self._broker], {})

    def _observation(self, view: BrokerView) -> BrokerObservation:
        return BrokerObservation(
            self._broker,
            self._url,
            self._capacity,
            view.overlay_status(),
            tuple(observed_clients(view)),
            view.unsettled_rows(),
            {} if self._delays is None else dict(self._delays.counts),
        )

    def _idle(self, kind: str) -> Collected:
        """The answer about a profile that this broker does not have."""
        if kind == PROFILE_WINDOWS:
            return PublisherWindows([], [self._broker])
        return SubscriptionProfiles([], [self._broker]) if kind == PROFILE_READ else ProfilesChanged([], {})

    def _on_gathered(self, token: str, gathered: Gathered[Collected]) -> Iterator[Reply]:
        found = gathered.value
        assert found is not None
        if isinstance(found, Observed):
            body = msgspec.msgpack.encode(Observation(self._broker_view.overlay_state(), found.brokers, gathered.missing))
        else:
            body = msgspec.msgpack.encode(ProfileAnswer(found, gathered.missing))
        *pieces, last = in_parts(body)
        for piece in pieces:
            yield Reply(token, piece, more=True)
        yield Reply(token, last)

    # ---- profiles

    def _started(self, profile: ProfileRequest) -> ProfilesChanged:
        """Begin a profile, or extend the lease of the one in progress."""
        profiler = self._profiler
        if profiler is not None and profiler.name != profile.name:
            return ProfilesChanged([], {self._broker: profiler.name})
        self._lease_end_s = self._now_s + profile.lease_s
        if profiler is not None:
            return ProfilesChanged([], {})
        self._profiler = Profiler(self._broker, profile.name, profile.bits, self._broker_view)
        self._effects += [Watch(_WATCHED), SetTimer(_LEASE, self._lease_end_s)]
        return ProfilesChanged([self._broker], {})

    def _stop(self) -> None:
        self._profiler = None
        self._effects.append(Unwatch(_WATCHED if self._delays is None else (ControlApplied,)))

    def _on_lease(self, now_s: float) -> Iterator[ModuleEffect]:
        """End a profile whose operator has gone away."""
        if self._profiler is None:
            return
        if now_s < self._lease_end_s:
            yield SetTimer(_LEASE, self._lease_end_s)
        else:
            self._stop()

    # ---- delays of deliveries

    def _count_delays(self, time_s: float) -> None:
        """Count the delays of deliveries for some time from now on; 0: as long as before."""
        if time_s <= 0:
            return
        self._delays_end_s = max(self._delays_end_s, self._now_s + time_s)
        if self._delays is None:
            self._delays = DeliveryDelays()
            self._effects += [Watch((Routed,)), SetTimer(_DELAYS_LEASE, self._delays_end_s)]

    def _on_delays_lease(self, now_s: float) -> Iterator[ModuleEffect]:
        """End the count when nobody asks for it any more."""
        if now_s < self._delays_end_s:
            yield SetTimer(_DELAYS_LEASE, self._delays_end_s)
            return
        self._delays = None
        if self._profiler is None:
            yield Unwatch((Routed,))

    def _performed(self) -> list[ModuleEffect]:
        effects, self._effects = self._effects, []
        return effects


def _profile_of(request: OperatorRequest) -> ProfileRequest:
    try:
        profile = _profile_decoder.decode(request.body)
        profile.check()
    except (msgspec.DecodeError, InvalidInput) as error:
        raise InvalidInput(f"{request.kind}: {error}") from None
    return profile


def _observe_of(request: OperatorRequest) -> ObserveRequest:
    try:
        found = _observe_decoder.decode(request.body) if request.body else ObserveRequest()
        found.check()
    except (msgspec.DecodeError, InvalidInput) as error:
        raise InvalidInput(f"{request.kind}: {error}") from None
    return found


def _decoded(body: bytes) -> OverlayState:
    try:
        state = _state_decoder.decode(body)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"expected a state of the overlay: {error}") from None
    return state


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{int(version[1])}"


def _merged(one: Collected, other: Collected) -> Collected:
    """The answers of two sets of brokers to one request."""
    assert type(one) is type(other), "answers to one request"
    one.add(other)  # type: ignore[arg-type]
    return one


def _ignore(_: object) -> Iterable[ModuleEffect]:
    return ()
