"""What is said of a pod, as the lines of a snapshot; what of it is counted; and whether its suggestions help."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.tools.explain.formats.explanation import Explanation
from tests.support.build import Json
from tests.support.json_cluster import Cluster, as_json, changes


def case(id_: str, nodes: list[Json], pod: Json, kinds: str = "", **more: Any) -> Any:
    """Return the case of a cluster, a pod that fits nowhere, and the kinds of changes that help."""
    return pytest.param(Cluster(nodes, **more), pod, kinds, id=id_)


def check(cluster: Cluster, pod: Json, kinds: str, snapshot: SnapshotAssertion) -> None:
    """Compare what is said of the pod; each node is counted, and each suggestion is made on the API objects."""
    answer = cluster.explain(pod)
    assert answer.state == "unschedulable"
    assert sum(group.n_nodes for group in answer.groups) == len(cluster.nodes)
    assert kinds_of(answer) == kinds
    helped(cluster, pod, answer)
    assert told(answer) == snapshot


def told(answer: Explanation) -> str:
    """Return the groups of nodes, the rules, the suggestions and the notes, a line each."""
    groups = []
    for group in answer.groups:
        flags = {"for good": not group.removable, "nowhere": group.nowhere, "misspelt": group.misspelt}
        said = ", ".join(flag for flag, holds in flags.items() if holds)
        groups.append(f"{group.n_nodes} by {group.plugin} ({said}): {group.where or group.reason}")
    remedies = [f"-> {each.node}: {'; '.join(each.texts)}" for each in answer.suggestions]
    refused = []
    if (member := answer.member) is not None:
        refused = [
            f"member {member.pod} in {member.domain or 'any domain'}, {member.placed.n_total} have places"
        ]
    return "\n".join([*refused, *groups, *(rule.text for rule in answer.rules), *remedies, *answer.notes])


def kinds_of(answer: Explanation) -> str:
    """Return the kinds of changes, those of the first suggestion first."""
    return " ".join(dict.fromkeys(chain.from_iterable(changes(answer))))


def helped(cluster: Cluster, pod: Json, answer: Explanation) -> None:
    """Make the changes of each suggestion on the API objects, and see that the pod fits."""
    for suggestion in as_json(answer)["suggestions"]:
        after, changed = cluster.changed(suggestion["changes"], pod)
        assert after.explain(changed, try_changes=False).state == "schedulable", suggestion["texts"]


def texts(answer: Explanation) -> list[Sequence[str]]:
    return [suggestion.texts for suggestion in answer.suggestions]
