"""The modules of a live broker, and what they know of it."""

from collections.abc import Iterable, Mapping

from overweave.broker.modules import make_modules, with_collector
from overweave.broker.modules.tracer import Tracer
from overweave.contract.modules import Capacity, Environment, Module
from overweave.drivers.tcp.settings import BrokerSettings
from overweave.overlay.parts import Broker


def modules_of(
    settings: BrokerSettings, neighbours: Iterable[str], addresses: Mapping[str, str], *, traced: bool
) -> dict[str, Module]:
    """The modules in the settings of a broker, its collector, and the tracer."""
    environment = environment_of(settings, neighbours, addresses)
    modules = with_collector(environment, make_modules(environment, settings.modules))
    return {"tracer": Tracer(settings.id, settings.run), **modules} if traced else modules


def environment_of(settings: BrokerSettings, neighbours: Iterable[str], addresses: Mapping[str, str]) -> Environment:
    """The environment of the modules of a broker."""
    about = settings.overlay.broker(settings.id) if settings.id in settings.overlay else Broker(settings.id)
    capacity = Capacity(
        about.output_bandwidth_bytes_per_s,
        about.matching_delay_base_s,
        about.matching_delay_per_subscription_s,
        about.capacity_hz,
    )
    return Environment(settings.id, tuple(neighbours), about.cluster, about.role, capacity, addresses)
