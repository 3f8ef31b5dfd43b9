"""The successive states of the overlay in a change, from an observed state and a target (docs/decisions/0023)."""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from overweave.contract.overlay_state import EpochTree, Member, OverlayState, OverlayVersion, Phase
from overweave.language.headers import OverlayEpoch
from overweave.overlay.parts import link_ends
from overweave.reweave.target import Links, Target

#: The phases in which a change is in progress.
IN_PROGRESS = (Phase.PREPARED, Phase.USED, Phase.CLOSED, Phase.REVERTING)


def current_tree(state: OverlayState) -> EpochTree:
    """The tree in which new publications travel."""
    return state.tree(state.current)


def new_tree(state: OverlayState) -> EpochTree:
    """The tree of the latest open epoch."""
    return max(state.trees, key=lambda tree: tree.epoch)


def links_of(tree: EpochTree) -> set[tuple[str, str]]:
    """The links of a tree, each with its ends in one order."""
    return {link_ends(*link) for link in tree.links}


def leaving(state: OverlayState, target: Target) -> tuple[str, ...]:
    """The brokers of the latest tree that are to leave, in one order."""
    return tuple(sorted(set(new_tree(state).brokers) - set(target.brokers)))


def has_tree_of(state: OverlayState, target: Target) -> bool:
    """Whether the overlay is the target's tree, and nothing else is open."""
    tree = current_tree(state)
    return state.is_stable and set(tree.brokers) == set(target.brokers) and links_of(tree) == set(target.links)


def prepared(state: OverlayState, target: Target, urls: Mapping[str, str]) -> OverlayState:
    """The first state of a change: the new epoch is prepared; ``urls`` has those of brokers that are not members yet.

    Brokers that leave are leaves of the new tree. Where the tree is the present one already, there is no new epoch: the state
    only names the change.
    """
    old = current_tree(state)
    version = OverlayVersion(state.version.epoch + 1, Phase.PREPARED)
    leaves = sorted(set(old.brokers) - set(target.brokers))
    links = tuple(sorted({*target.links, *_leaf_links(target, leaves)}))
    brokers = (*target.brokers, *leaves)
    if set(brokers) == set(old.brokers) and set(links) == links_of(old):
        return msgspec.structs.replace(state, version=version._replace(phase=Phase.CLOSED), trees=(old,), change=target.change)
    tree = EpochTree(OverlayEpoch(version.epoch), brokers, links)
    members = _members(state.members, (*old.brokers, *brokers), urls)
    return OverlayState(version, members, (old, tree), state.current, target.change)


def used(state: OverlayState) -> OverlayState:
    """The state in which publications travel in the new epoch."""
    return msgspec.structs.replace(state, version=_in(state, Phase.USED), current=new_tree(state).epoch)


def closed(state: OverlayState) -> OverlayState:
    """The state in which only the new epoch is open."""
    tree = new_tree(state)
    members = _only(state.members, tree.brokers)
    return msgspec.structs.replace(state, version=_in(state, Phase.CLOSED), members=members, trees=(tree,), current=tree.epoch)


def trimmed(state: OverlayState, gone: Collection[str]) -> OverlayState:
    """The state without the leaves that have left.

    The first broker is the root of hierarchical protocols. If it has left, its neighbour is: so it is the first one now, for
    brokers that start with this state.
    """
    tree = current_tree(state)
    kept = tuple(id for id in tree.brokers if id not in gone)
    if tree.brokers[0] in gone:
        kept = tuple(sorted(kept, key=lambda each: each not in tree.neighbours(tree.brokers[0])))
    links = tuple(link for link in tree.links if not set(link) & set(gone))
    rest = EpochTree(tree.epoch, kept, links)
    return msgspec.structs.replace(
        state, version=_in(state, Phase.TRIMMED), members=_only(state.members, kept), trees=(rest,), current=tree.epoch
    )


def reverting(state: OverlayState) -> OverlayState:
    """The state in which publications travel in the old epoch again, and both are open."""
    return msgspec.structs.replace(state, version=_in(state, Phase.REVERTING), current=_old_tree(state).epoch)


def reverted(state: OverlayState) -> OverlayState:
    """The state in which only the old epoch is open."""
    tree = _old_tree(state)
    members = _only(state.members, tree.brokers)
    return msgspec.structs.replace(state, version=_in(state, Phase.REVERTED), members=members, trees=(tree,), current=tree.epoch)


def withdrawn(state: OverlayState) -> OverlayState:
    """The state before a change that is prepared, and in use nowhere: the same for all changes that began at once."""
    return msgspec.structs.replace(reverted(state), change="")


def _old_tree(state: OverlayState) -> EpochTree:
    return min(state.trees, key=lambda tree: tree.epoch)


def _in(state: OverlayState, phase: Phase) -> OverlayVersion:
    return state.version._replace(phase=phase)


def _leaf_links(target: Target, leaves: Iterable[str]) -> Links:
    """A link for each leaf, to the planned broker with most room per leaf that it has."""
    count = dict.fromkeys(target.brokers, 0)
    links = []
    for leaf in leaves:
        # The first of equal ones.
        host = max(target.brokers, key=lambda each: max(target.headroom(each), 0.0) / (1 + count[each]))
        count[host] += 1
        links.append(link_ends(leaf, host))
    return tuple(links)


def _members(known: Iterable[Member], brokers: Iterable[str], urls: Mapping[str, str]) -> tuple[Member, ...]:
    """The members of two trees; new ones get the next numbers."""
    found = {member.id: member for member in known}
    number = max((member.number for member in found.values()), default=0)
    for id in brokers:
        if id not in found:
            number += 1
            found[id] = Member(id, urls.get(id, ""), number)
    wanted = set(brokers)
    return tuple(member for member in found.values() if member.id in wanted)


def _only(members: Iterable[Member], brokers: Collection[str]) -> tuple[Member, ...]:
    return tuple(member for member in members if member.id in brokers)
