"""Story 4: KEP-2249. One pod per node across the namespaces of all customers."""

from __future__ import annotations

from collections import Counter
from typing import Final

from scheduler.demo.display import Group
from scheduler.demo.made_objects import ready_node
from scheduler.demo.objects import Pod
from scheduler.demo.stage import Stage, Story

_MANIFEST: Final = "04-customer.yaml"
_LABEL: Final = "example.com/customer"
_NEW_NODES: Final = {"node-0007": "zone-a", "node-0008": "zone-b"}


async def _play(stage: Stage) -> None:
    show = stage.show
    await stage.apply(_MANIFEST)
    await stage.apply(_MANIFEST, ("acme", "globex"))
    await stage.wait_ready(4)
    await stage.apply("04-trial.yaml")
    await stage.wait_ready(6)
    show.step("customers acme and globex run on four nodes; initech, on trial, took the two free ones")
    _expect_alone(stage, await stage.check(), 6)

    await stage.apply(_MANIFEST, ("acme", "hooli"))
    await stage.wait_ready(8)
    pods = await stage.check()
    beside = _neighbours(pods, "hooli")
    stage.expect(beside == {"initech"}, f"hooli beside initech, which is no customer; found {sorted(beside)}")
    show.step("a third customer, hooli, shares nodes with initech, whose namespace is not a customer's")
    await stage.draw(pods, _group)

    await stage.scale("hooli", "engine", 0)
    await stage.wait_ready(6)
    await stage.label_namespace("initech", _LABEL, "true")
    await stage.scale("hooli", "engine", 2)
    reason = await stage.wait_refused("hooli", 2)
    show.step("initech has signed and its namespace is labelled; the next pods of hooli are refused:")
    show.quote(reason)
    _expect_alone(stage, await stage.check(), 6)

    show.step(f"two more nodes join the cluster: {', '.join(_NEW_NODES)}")
    await stage.add_nodes([ready_node(name, zone) for name, zone in _NEW_NODES.items()])
    await stage.wait_ready(8)
    pods = await stage.check()
    _expect_alone(stage, pods, 8)
    show.good("hooli runs on the new nodes: four customers, one pod per node")
    await stage.draw(pods, _group)


def _expect_alone(stage: Stage, pods: list[Pod], total: int) -> None:
    count = Counter(pod.spec.node_name for pod in pods if pod.spec.node_name)
    stage.expect(
        len(count) == total == count.total(),
        f"{total} pods on {total} nodes; found {dict(sorted(count.items()))}",
    )


def _neighbours(pods: list[Pod], namespace: str) -> set[str]:
    """Return the other namespaces with a pod on a node of `namespace`."""
    nodes = {pod.spec.node_name for pod in pods if pod.metadata.namespace == namespace}
    near = {pod.metadata.namespace for pod in pods if pod.spec.node_name in nodes}
    return near - {namespace}


def _group(pod: Pod) -> Group:
    name = pod.metadata.namespace
    return Group(name[0].upper(), name)


STORY: Final = Story(
    "One pod per node across all customers",
    "Each customer has a namespace, labelled as a customer's. Anti-affinity with a namespaceSelector keeps their pods "
    "on nodes of their own, without a list of names; a new label counts at once (KEP-2249).",
    _play,
)
