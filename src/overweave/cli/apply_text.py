"""The difference between a network and its target, the end of a change, and the status of an overlay, as text."""

from collections.abc import Mapping, Sequence

from overweave.contract.observation import Observation
from overweave.reweave.difference import Difference
from overweave.reweave.situation import ids_text, version_text
from overweave.reweave.states import current_tree

_STAYED_SHOWN = 10


def difference_text(difference: Difference, observation: Observation, rate_hz: float) -> str:
    """What a change does, for confirmation."""
    tree = current_tree(observation.state)
    now, clients = len(tree.brokers), sum(len(each.clients) for each in observation.brokers.values())
    joined = {*difference.started, *(id for link in difference.links_opened for id in link)}
    after = len({*tree.brokers, *joined} - {*difference.stopped})
    lines = [
        f"brokers     {now:,} now, {after:,} afterwards{_some('start', difference.started)}{_some('stop', difference.stopped)}",
        f"links       {len(difference.links_opened):,} opened, {len(difference.links_closed):,} closed",
        f"clients     {len(difference.moves):,} of {clients:,} move, at most {rate_hz:g} per second",
    ]
    if difference.steps:
        kind = "predicted" if difference.exact else "estimated"
        shown = (f"{each.step} {each.utilisation:.1%} ({each.broker})" for each in difference.steps)
        lines.append(f"utilisation {kind}, highest at each step: {'; '.join(shown)}")
    lines.append(f"duration    about {max(difference.duration_s, 1):,.0f} s")
    if difference.stayed:
        lines.append(f"stay        {len(difference.stayed):,} clients: {_reasons(difference.stayed)}")
    return "\n".join(lines) + "\n"


def end_text(moved: int, stayed: Mapping[str, str], duration_s: float, brokers: int) -> str:
    """The end of a complete change."""
    lines = [f"done in {duration_s:.1f} s: {brokers:,} brokers, {moved:,} clients moved"]
    if stayed:
        lines.append(f"{len(stayed):,} clients stay where they are: {_reasons(stayed)}")
    return "\n".join(lines) + "\n"


def status_text(observation: Observation) -> str:
    """The state of the overlay at each broker."""
    state = observation.state
    change = f"; change {state.change}" if state.change else ""
    lines = [f"overlay {version_text(state.version)}; publications travel in epoch {state.current}{change}"]
    for id, broker in sorted(observation.brokers.items()):
        member = "" if any(each.id == id for each in state.members) else ", guest"
        unsettled = sum(broker.overlay.unsettled.values())
        lines.append(
            f"{id}: {version_text(broker.overlay.version)}{member}, {len(broker.clients):,} clients, {unsettled:,} unsettled"
        )
    if observation.missing:
        lines.append(f"no answer from {ids_text(observation.missing)}")
    return "\n".join(lines) + "\n"


def _some(verb: str, ids: Sequence[str]) -> str:
    return f", {len(ids):,} {verb} ({ids_text(ids)})" if ids else ""


def _reasons(stayed: Mapping[str, str]) -> str:
    shown = [f"{client} ({reason})" for client, reason in sorted(stayed.items())[:_STAYED_SHOWN]]
    return ", ".join(shown) + (", …" if len(stayed) > _STAYED_SHOWN else "")
