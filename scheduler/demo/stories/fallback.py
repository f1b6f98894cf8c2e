"""Story 11: a required rule that becomes a preference for a pod that it alone keeps pending, and holds again later."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from scheduler.demo.display import Group
from scheduler.demo.made_objects import ready_node
from scheduler.demo.objects import Pod
from scheduler.demo.stage import Stage, Story

_NAMESPACE: Final = "quorum"
_N_ZONES: Final = 3
_MARK: Final = "affinity-scheduler.io/relaxed"
_RULE: Final = "podAntiAffinity by topology.kubernetes.io/zone"
_QUORUM: Final = Group("Q", "a replica, alone in its zone")
_RELAXED: Final = Group("R", "the replica whose rule was relaxed")
_NEW_NODE: Final = "node-0007"
#: Without the waits that a real cluster should have.
_REBALANCING: Final = ("--rebalance", "--rebalance-hold", "1s", "--rebalance-cool-down", "0s")
#: The wait in the example, and the shorter one of the story.
_AFTER: Final = ('"afterSeconds": 15', '"afterSeconds": 3')


async def _play(stage: Stage) -> None:
    show = stage.show
    await stage.apply("11-fallback.yaml", _AFTER)
    reason = await stage.wait_refused(_NAMESPACE, 1)
    show.step("four replicas, one per zone, and three zones:")
    show.quote(reason)
    await stage.wait_ready(_N_ZONES + 1)
    (note,) = await stage.wait_for_events("RuleRelaxed", _RULE)
    show.step("after 3 s:")
    show.quote(note)
    pods = await stage.placed()
    relaxed = [pod for pod in pods if _is_relaxed(pod)]
    stage.expect(len(relaxed) == 1, f"one replica with a mark, found {len(relaxed)}")
    (mark,) = msgspec.json.decode(relaxed[0].metadata.annotations[_MARK])
    stage.expect(mark["rule"] == _RULE, f"the mark names the rule, found {mark}")
    zones = await stage.region_by_node()
    hard = Counter(zones[pod.spec.node_name] for pod in pods if not _is_relaxed(pod))
    stage.expect(len(hard) == _N_ZONES, f"the other three in a zone each, found {dict(hard)}")
    show.good("the fourth runs beside another one; the three before it have a zone each")
    await stage.draw(pods, _group)

    await stage.add_nodes([ready_node(_NEW_NODE, "zone-d")])
    show.step(f"a fourth zone joins, with {_NEW_NODE}; the enforcer may move pods to better nodes")
    async with stage.enforcing(*_REBALANCING):
        (note,) = await stage.wait_for_events("Rebalanced", _RULE)
        show.quote(note)
        await stage.wait_ready(_N_ZONES + 1)
    pods = await stage.check()
    zones = await stage.region_by_node()
    count = Counter(zones[pod.spec.node_name] for pod in pods)
    stage.expect(len(count) == _N_ZONES + 1, f"a zone for each replica, found {dict(count)}")
    stage.expect(not any(map(_is_relaxed, pods)), "no replica with a mark")
    show.good("every replica has a zone of its own")
    await stage.draw(pods, _group)


def _group(pod: Pod) -> Group:
    return _RELAXED if _is_relaxed(pod) else _QUORUM


def _is_relaxed(pod: Pod) -> bool:
    return _MARK in pod.metadata.annotations


STORY: Final = Story(
    "Hard first, soft when it has to be",
    "A required rule keeps the last replica pending for ever where a zone is missing; a preferred one is not kept even "
    "where it could be. With the annotation affinity-scheduler.io/fallback a rule is required for a time, and "
    "preferred if it alone has kept its pod pending for so long.",
    _play,
)
