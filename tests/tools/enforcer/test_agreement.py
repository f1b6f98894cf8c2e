"""Scheduler and enforcer agree: the enforcer finds no broken rule after a placement that the scheduler allows."""

from __future__ import annotations

import json

from hypothesis import event, given, settings
from hypothesis import strategies as st

from scheduler.daemon.assembly.profiles import exempt_namespaces
from scheduler.daemon.settings.loading import parse_settings
from scheduler.engine.model.nodes import decode_namespace, decode_node
from scheduler.engine.model.stimuli import NodeSeen, ObjectSeen, PodSeen
from scheduler.tools.enforcer.machine import Enforcer
from scheduler.tools.enforcer.violations import Violation, selects
from tests.conformance.product import ProductSubject
from tests.engine.plugins.lives import NODES, SPACES, pods
from tests.support.build import Json, configuration
from tests.support.enforcer_driver import FREE

CONFIGURATIONS = (
    configuration(),
    configuration({"InterPodAffinity": {"exemptNamespaces": ["blue"]}}),
)


def roomy(node: Json) -> Json:
    """Return the node without taints and with plenty of room."""
    spec = {name: value for name, value in node["spec"].items() if name not in ("taints", "unschedulable")}
    status = {**node["status"], "allocatable": {"cpu": "99", "memory": "99Gi", "pods": "99"}}
    return {**node, "spec": spec, "status": status}


@settings(max_examples=30, deadline=None)
@given(
    config=st.sampled_from(CONFIGURATIONS),
    nodes=st.lists(NODES.map(roomy), min_size=2, max_size=5, unique_by=lambda node: node["metadata"]["name"]),
    spaces=st.lists(SPACES, max_size=3, unique_by=lambda space: space["metadata"]["name"]),
    incoming=st.lists(pods(placed=False), min_size=2, max_size=7),
    data=st.data(),
)
def test_rules_hold_after_every_placement_that_the_scheduler_allows(
    config: Json, nodes: list[Json], spaces: list[Json], incoming: list[Json], data: st.DataObject
) -> None:
    """
    Pods are placed one after another, each on any feasible node; nothing else happens.

    One exception: the first pod of its kind has no match in its domain once others, which do not
    require to be near it, run in another domain. After an eviction it would be placed near them.
    """
    subject = ProductSubject(config)
    enforcer = Enforcer(
        FREE,
        is_movable=lambda _: True,
        acts=True,
        exempt_namespaces=exempt_namespaces(parse_settings(json.dumps(config), "config")),
    )
    for space in spaces:
        subject.apply(space)
        enforcer.apply(ObjectSeen(decode_namespace(json.dumps(space).encode())))
    for node in nodes:
        subject.apply(node)
        enforcer.apply(NodeSeen(decode_node(json.dumps(node).encode())))
    n_placed = 0
    for number, pod in enumerate(incoming):
        pod["spec"] = {
            name: each for name, each in pod["spec"].items() if name in ("affinity", "schedulerName")
        }
        pod["spec"]["containers"] = [{"name": "c"}]
        pod["metadata"] |= {"name": f"p{number}", "uid": f"u{number}"}
        feasible = subject.evaluate(pod).get("feasible") or []
        if not feasible:
            continue
        n_placed += 1
        placed = {**pod, "spec": {**pod["spec"], "nodeName": data.draw(st.sampled_from(feasible))}}
        placed["status"] = {"phase": "Running"}
        subject.apply(placed)
        enforcer.apply(PodSeen(subject.cluster.pod(placed)))
        enforcer.check(1000.0 + number)
        found = [each for each in enforcer.status.violations if not _may_be_first(each, enforcer)]
        assert [(each.uid, each.rule) for each in found] == []
    event(f"{n_placed} placed")


def _may_be_first(violation: Violation, enforcer: Enforcer) -> bool:
    label_set = enforcer.state.placed[violation.uid].label_set
    return violation.is_affinity and selects(enforcer.state, violation.rule, label_set)
