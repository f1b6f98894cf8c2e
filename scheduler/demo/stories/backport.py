"""Story 8: the example from the README of kep-3633-alt, through our webhook. One pod of each revision per zone."""

from __future__ import annotations

import json
from typing import Final

from scheduler.demo.display import Group
from scheduler.demo.objects import Pod, Requirement
from scheduler.demo.stage import Stage, Story

_NAMESPACE: Final = "backport"
_NAME: Final = "nginx"
_NEW_IMAGE: Final = "registry.k8s.io/pause:3.10"
_HASH: Final = "pod-template-hash"
_ZONE: Final = "topology.kubernetes.io/zone"
_N_PODS: Final = 3
_PODS: Final = Group("N", _NAME)


async def _play(stage: Stage) -> None:
    show = stage.show
    async with stage.webhook():
        await stage.apply("08-backport.yaml")
        await stage.wait_ready(_N_PODS)
        pods = await stage.check()
        await _expect_merged(stage, pods)
        show.step(
            "the webhook has turned the annotation into a field of every pod, with the revision in its selector:"
        )
        show.quote(_merged_text(pods[0]))
        await stage.draw(pods, lambda _: _PODS)

        before = await stage.set_image(_NAMESPACE, _NAME, _NEW_IMAGE)
        await stage.wait_rolled_out(_NAMESPACE, _NAME, _N_PODS, before=before)
        pods = await stage.check()
        await _expect_merged(stage, pods)
        show.good("the update found room although the old revision had a pod in every zone")


async def _expect_merged(stage: Stage, pods: list[Pod]) -> None:
    """Check that every pod's own spec keeps it from pods of its revision in its zone, and that each zone has one."""
    for pod in pods:
        terms = pod.spec.affinity.pod_anti_affinity.required
        own = Requirement(_HASH, "In", [pod.metadata.labels[_HASH]])
        merged = [term.label_selector for term in terms if term.topology_key == _ZONE and term.label_selector]
        stage.expect(
            len(terms) == 1 and [own in one.match_expressions for one in merged] == [True],
            f"one term in {pod.metadata.name}, with {own.key} In {own.values} in its selector; found {terms}",
        )
    zone_by_node = await stage.region_by_node()
    zones = [zone_by_node[pod.spec.node_name] for pod in pods]
    stage.expect(len(set(zones)) == len(zones) == _N_PODS, f"one pod in each zone, found {sorted(zones)}")


def _merged_text(pod: Pod) -> str:
    (term,) = pod.spec.affinity.pod_anti_affinity.required
    selector = term.label_selector
    merged = selector.match_expressions if selector else []
    parts = [f"{one.key} {one.operator} {json.dumps(one.values)}" for one in merged]
    labels = [f"{key}={value}" for key, value in (selector.match_labels if selector else {}).items()]
    return f"podAntiAffinity: {term.topology_key}: {', '.join([*labels, *parts])}"


STORY: Final = Story(
    "The backport's own example, unchanged",
    "kep-3633-alt brought matchLabelKeys to clusters without it, by annotations and a webhook, and has not been "
    "maintained since 2023. Manifests written for it work unchanged with `affinity-scheduler webhook`.",
    _play,
    needs="cryptography",
)
