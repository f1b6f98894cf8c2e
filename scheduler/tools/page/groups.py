"""The groups with pending members: how many members each needs and has, and why it waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.engine.core.group_members import n_needed
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.explain.formats.explanation import Document, JsonStruct
from scheduler.tools.page.pending import message_of

#: Groups in an answer.
MAX_GROUPS: Final = 200


class WaitingGroup(JsonStruct, frozen=True, kw_only=True):
    """
    A group with pending members. `member`: the first of them. `n_needed`: members that have to find places at once.

    `topology_key`: the label whose value all members share, '' for none. `oldest`: when the first of them was created.
    """

    namespace: str
    name: str
    member: str
    n_pending: int
    n_placed: int
    n_needed: int
    topology_key: str
    oldest: str
    message: str


class Groups(Document, frozen=True, kw_only=True):
    """The waiting groups, the oldest first. `n_more`: left out."""

    kind: str = "Groups"
    groups: tuple[WaitingGroup, ...]
    n_more: int


def waiting_groups(state: ClusterState, messages: Mapping[str, str]) -> Pieces[Groups]:
    """Yield after each group, and return the groups. `messages`: of the last attempts, by UID. O(pending members)."""
    shown: list[WaitingGroup] = []
    for key in list(state.groups.keys()):
        if (group := _group(key, state, messages)) is not None:
            shown.append(group)
        yield
    shown.sort(key=lambda group: (group.oldest, group.namespace, group.name))
    return Groups(groups=tuple(shown[:MAX_GROUPS]), n_more=max(0, len(shown) - MAX_GROUPS))


def _group(key: GroupKey, state: ClusterState, messages: Mapping[str, str]) -> WaitingGroup | None:
    """Return the group; None if all of its members have places by now."""
    members = [pod for pod in state.groups.pending(key) if pod.uid not in state.placed]
    if not members:
        return None
    known = state.groups.get(key)
    return WaitingGroup(
        namespace=key.namespace,
        name=key.name,
        member=min(pod.name for pod in members),
        n_pending=len(members),
        n_placed=state.groups.n_placed(key),
        n_needed=n_needed(state.groups, key),
        topology_key=known.topology.required[-1] if known is not None and known.topology.required else "",
        oldest=min(pod.created for pod in members),
        message=next(filter(None, (message_of(pod, messages) for pod in members)), ""),
    )
