"""Pods: what the server writes, what may change, how they end; bindings and evictions."""

import pytest

from tests.support.api_client import Answer, Api

pytestmark = pytest.mark.asyncio(loop_scope="module")

_CONTAINER = {"name": "c", "image": "i"}
_UPDATABLE = (
    "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def _binding(name: str, node: str = "n1", **metadata: object) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


async def _make_node(api: Api, name: str, **labels: str) -> None:
    (await api.post("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})).ok  # noqa: B018


# -- creation ------------------------------------------------------------------------------------------------


async def test_a_pod_gets_the_defaults_that_schedulers_read_and_a_status_of_its_own(api: Api):
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}
    body = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{**_CONTAINER, "resources": resources}], "schedulerName": ""},
        "status": {"phase": "Running"},
    }
    stored = (await api.post(api.pods(), body)).ok
    spec = stored["spec"]
    assert {
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }.items() <= spec.items()
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}
    assert [(one["key"], one["tolerationSeconds"]) for one in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    ]
    assert stored["status"]["phase"] == "Pending"
    assert stored["metadata"]["generation"] == 1


async def test_a_gated_pod_says_so_in_its_conditions(api: Api):
    stored = await api.create_pod("p", schedulingGates=[{"name": "example.com/wait"}])
    (condition,) = stored["status"]["conditions"]
    assert condition["lastTransitionTime"]
    del condition["lastTransitionTime"]
    assert condition == {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }


async def test_priority_comes_from_the_class(api: Api):
    name = f"class-{api.namespace}"
    body = {"metadata": {"name": name}, "value": 1000, "preemptionPolicy": "Never"}
    (await api.post("/apis/scheduling.k8s.io/v1/priorityclasses", body)).ok  # noqa: B018
    spec = (await api.create_pod("p", priorityClassName=name))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")
    (await api.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")).ok  # noqa: B018


_ABOVE_LIMIT = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        ({}, 422, "spec.containers: Required value"),
        ({"containers": [{"name": "Bad", "image": "i"}]}, 422, 'spec.containers[0].name: Invalid value: "Bad": '),
        ({"containers": [_CONTAINER, _CONTAINER]}, 422, 'spec.containers[1].name: Duplicate value: "c"'),
        ({"nodeName": "n", "schedulingGates": [{"name": "g.io/g"}]}, 422, "spec.nodeName: Forbidden: "),
        ({"containers": [{**_CONTAINER, "resources": _ABOVE_LIMIT}]}, 422,
         'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit'),
        ({"restartPolicy": "Sometimes"}, 422, 'spec.restartPolicy: Unsupported value: "Sometimes": '),
        ({"priorityClassName": "none"}, 403, "no PriorityClass with name none was found"),
        ({"priority": 7}, 403,
         "the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 0 "
         "from the given PriorityClass name"),
    ],
)  # fmt: skip
async def test_a_pod_that_breaks_a_rule_is_refused_for_that_alone(api: Api, spec, code, message):
    body = {"metadata": {"name": "p"}, "spec": {"containers": [_CONTAINER], **spec} if spec else {}}
    answer = await api.post(api.pods(), body)
    verdict = {422: 'Pod "p" is invalid: ', 403: 'pods "p" is forbidden: '}[code]
    assert answer.refused(code, {422: "Invalid", 403: "Forbidden"}[code]).startswith(verdict + message)
    assert code == 403 or len(answer.causes()) == 1


async def test_a_quantity_that_is_none_is_a_bad_request(api: Api):
    container = {**_CONTAINER, "resources": {"requests": {"cpu": "lots"}}}
    answer = await api.post(api.pods(), {"metadata": {"name": "p"}, "spec": {"containers": [container]}})
    assert "quantities must match the regular expression" in answer.refused(400, "BadRequest")


async def test_match_label_keys_are_merged_into_selectors(api: Api):
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["tenant"],
        "mismatchLabelKeys": ["pod-template-hash", "absent"],
    }
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
        "matchLabelKeys": ["pod-template-hash"],
    }
    stored = await api.create_pod(
        "p",
        labels={"app": "web", "tenant": "t1", "pod-template-hash": "abc"},
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        topologySpreadConstraints=[constraint],
    )
    (merged,) = stored["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert merged["labelSelector"] == {
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "tenant", "operator": "In", "values": ["t1"]},
            {"key": "pod-template-hash", "operator": "NotIn", "values": ["abc"]},
        ],
    }
    assert stored["spec"]["topologySpreadConstraints"][0]["labelSelector"] == {
        "matchExpressions": [{"key": "pod-template-hash", "operator": "In", "values": ["abc"]}]
    }


async def test_a_pod_created_on_a_node_carries_the_nodes_topology(api: Api):
    node = f"node-{api.namespace}"
    await _make_node(api, node, **{"topology/x": "no", "topology.kubernetes.io/zone": "z1"})
    labels = (await api.create_pod("p", node=node))["metadata"]["labels"]
    assert labels == {"topology.kubernetes.io/zone": "z1"}
    (await api.delete(f"/api/v1/nodes/{node}")).ok  # noqa: B018


# -- changes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"schedulerName": "other"}, id="scheduler"),
        pytest.param({"nodeName": "n1"}, id="node"),
        pytest.param({"priority": 5}, id="priority"),
    ],
)
async def test_most_of_a_pods_spec_never_changes(api: Api, patch):
    await api.create_pod("p")
    answer = await api.patch(api.pods("p"), {"spec": patch})
    message = answer.refused(422, "Invalid")
    assert message.startswith(f'Pod "p" is invalid: {_UPDATABLE}\n')
    assert answer.causes() == [("FieldValueForbidden", "spec")]


async def test_an_image_and_more_tolerations_may_change(api: Api):
    stored = await api.create_pod("p")
    stored["spec"]["containers"][0]["image"] = "registry.test/pause:2"
    stored["spec"]["tolerations"].append({"key": "a", "operator": "Exists"})
    changed = (await api.put(api.pods("p"), stored)).ok
    assert changed["spec"]["containers"][0]["image"] == "registry.test/pause:2"
    assert len(changed["spec"]["tolerations"]) == 3
    assert changed["metadata"]["generation"] == 2


async def test_gates_are_removed_but_not_added(api: Api):
    await api.create_pod("p", schedulingGates=[{"name": "g.io/a"}, {"name": "g.io/b"}])
    one_less = await api.patch(api.pods("p"), {"spec": {"schedulingGates": [{"name": "g.io/b"}]}})
    assert one_less.ok["spec"]["schedulingGates"] == [{"name": "g.io/b"}]
    more = await api.patch(
        api.pods("p"), {"spec": {"schedulingGates": [{"name": "g.io/b"}, {"name": "g.io/c"}]}}
    )
    assert more.refused(422, "Invalid") == (
        'Pod "p" is invalid: spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new '
        "scheduling gate 'g.io/c'"
    )
    none = (await api.patch(api.pods("p"), {"spec": {"schedulingGates": None}})).ok
    assert "schedulingGates" not in none["spec"]


async def test_a_gated_pods_node_selector_may_be_narrowed(api: Api):
    await api.create_pod("p", schedulingGates=[{"name": "g.io/a"}], nodeSelector={"a": "1"})
    wider = await api.patch(api.pods("p"), {"spec": {"nodeSelector": {"b": "2"}}})
    assert wider.ok["spec"]["nodeSelector"] == {"a": "1", "b": "2"}
    changed = await api.patch(api.pods("p"), {"spec": {"nodeSelector": {"a": "2"}}})
    assert "only additions to spec.nodeSelector are allowed" in changed.refused(422, "Invalid")


# -- binding -------------------------------------------------------------------------------------------------


async def test_a_binding_assigns_the_pod_and_says_so(api: Api):
    """In place of the condition that it was unschedulable. Zone and region of the node become labels."""
    node, zone, region = (
        f"node-{api.namespace}",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    )
    await _make_node(api, node, **{zone: "z1", region: "r1"})
    stored = await api.create_pod("p", labels={"app": "a"})
    old = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
    status = {"nominatedNodeName": "n9", "conditions": [old]}
    (await api.patch(f"{api.pods('p')}/status", {"status": status})).ok  # noqa: B018
    annotations = {"example.com/why": "test"}
    body = _binding("p", node, uid=stored["metadata"]["uid"], annotations=annotations, labels={"more": "yes"})
    answer = await api.post(f"{api.pods('p')}/binding", body)
    success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    assert (answer.code, answer.body) == (201, success)
    bound = (await api.get(api.pods("p"))).ok
    assert (bound["spec"]["nodeName"], "nominatedNodeName" in bound["status"]) == (node, False)
    assert bound["metadata"]["annotations"] == annotations
    assert bound["metadata"]["labels"] == {"app": "a", "more": "yes", zone: "z1", region: "r1"}
    (condition,) = bound["status"]["conditions"]
    assert condition.pop("lastTransitionTime")
    assert condition == {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    assert bound["metadata"]["generation"] == stored["metadata"]["generation"]
    (await api.delete(f"/api/v1/nodes/{node}")).ok  # noqa: B018


@pytest.mark.parametrize(
    ("pod", "binding", "code", "reason", "message"),
    [
        ({"node": "n1"}, {}, 409, "Conflict", 'pod p is already assigned to node "n1"'),
        ({"schedulingGates": [{"name": "g.io/a"}]}, {}, 409, "Conflict", "pod p has non-empty .spec.schedulingGates"),
        ({}, {"uid": "other"}, 409, "Conflict", "UID in precondition: other, UID in object meta: "),
        ({}, {"name": "q"}, 400, "BadRequest", "name in URL does not match name in Binding object"),
        ({}, {"target": {"kind": "Node"}}, 500, None, "target.name: Required value"),
    ],
)  # fmt: skip
async def test_a_binding_that_makes_no_sense_is_refused(api: Api, pod, binding, code, reason, message):
    await api.create_pod("p", **pod)
    body = _binding(binding.get("name", "p"), uid=binding.get("uid", ""))
    answer = await api.post(
        f"{api.pods('p')}/binding", {**body, "target": binding.get("target", body["target"])}
    )
    assert message in answer.refused(code, reason)
    if reason == "Conflict":
        kind = "pods" if binding else "pods/binding"
        assert answer.body["details"] == {"name": "p", "kind": kind}


async def test_a_terminating_pod_is_not_bound(api: Api):
    body = {
        "metadata": {"name": "p", "finalizers": ["example.com/hold"]},
        "spec": {"containers": [_CONTAINER]},
    }
    (await api.post(api.pods(), body)).ok  # noqa: B018
    (await api.delete(api.pods("p"))).ok  # noqa: B018
    message = (await api.post(f"{api.pods('p')}/binding", _binding("p"))).refused(409, "Conflict")
    assert message == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is being deleted, cannot be assigned to a host'
    )
    (await api.patch(api.pods("p"), {"metadata": {"finalizers": None}})).ok  # noqa: B018


# -- the end -------------------------------------------------------------------------------------------------


async def test_an_unbound_pod_goes_at_once(api: Api):
    await api.create_pod("p")
    gone = (await api.delete(api.pods("p"))).ok
    assert gone["kind"] == "Pod"
    assert gone["metadata"]["deletionGracePeriodSeconds"] == 0
    (await api.get(api.pods("p"))).refused(404, "NotFound")


async def test_a_bound_pod_terminates_until_it_is_deleted_without_grace(api: Api):
    """A second deletion shortens the grace but never lengthens it."""
    await api.create_pod("p", node="n1", terminationGracePeriodSeconds=20)
    for seconds, left in {"": 20, "60": 20, "5": 5}.items():
        query = {"gracePeriodSeconds": seconds} if seconds else {}
        marked = (await api.delete(api.pods("p"), **query)).ok["metadata"]
        assert (marked["deletionGracePeriodSeconds"], "deletionTimestamp" in marked) == (left, True)
        assert seconds or marked["generation"] == 2
    assert (await api.get(api.pods("p"))).code == 200
    (await api.delete(api.pods("p"), gracePeriodSeconds="0")).ok  # noqa: B018
    (await api.get(api.pods("p"))).refused(404, "NotFound")


async def test_a_finished_pod_goes_at_once(api: Api):
    await api.create_pod("p", node="n1")
    (await api.patch(f"{api.pods('p')}/status", {"status": {"phase": "Succeeded"}})).ok  # noqa: B018
    (await api.delete(api.pods("p"))).ok  # noqa: B018
    (await api.get(api.pods("p"))).refused(404, "NotFound")


async def _running_pod(api: Api, name: str) -> None:
    await api.create_pod(name, node="n1", labels={"app": "a"})
    ready = [{"type": "Ready", "status": "True"}]
    (await api.patch(f"{api.pods(name)}/status", {"status": {"phase": "Running", "conditions": ready}})).ok  # noqa: B018


async def _budget(api: Api, name: str, **status: int) -> None:
    """Give the budget this status; create it if there is none."""
    path = api.in_namespace("poddisruptionbudgets", group="apis/policy/v1")
    body = {
        "metadata": {"name": name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
    }
    await api.post(path, body)
    counted = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, **status}
    stored = await api.get(f"{path}/{name}")
    (await api.put(f"{path}/{name}/status", {**stored.ok, "status": {"observedGeneration": 1, **counted}})).ok  # noqa: B018


async def _evicted(api: Api, name: str) -> Answer:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return await api.post(f"{api.pods(name)}/eviction", body)


async def test_an_eviction_deletes_the_pod_and_uses_up_its_budget(api: Api):
    for name in ("p", "q"):
        await _running_pod(api, name)
    await _budget(api, "guard")
    answer = await _evicted(api, "p")
    message = answer.refused(429, "TooManyRequests")
    assert message == "Cannot evict pod as it would violate the pod's disruption budget."
    told = "The disruption budget guard needs 1 healthy pods and has 1 currently"
    assert answer.body["details"]["causes"] == [{"reason": "DisruptionBudget", "message": told}]
    assert "deletionTimestamp" not in (await api.get(api.pods("p"))).ok["metadata"]
    await _budget(api, "guard", disruptionsAllowed=1, currentHealthy=2)
    assert (await _evicted(api, "p")).code == 201
    stored = (await api.get(api.pods("p"))).ok
    assert stored["metadata"]["deletionTimestamp"]
    by_type = {one["type"]: one for one in stored["status"]["conditions"]}
    assert by_type["DisruptionTarget"]["reason"] == "EvictionByEvictionAPI"
    budget = (await api.get(api.in_namespace("poddisruptionbudgets", "guard", group="apis/policy/v1"))).ok
    status = budget["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["p"])
    (cause,) = (await _evicted(api, "q")).body["details"]["causes"]
    assert cause["message"] == "The disruption budget guard does not allow evicting pods currently"
    await _budget(api, "two")
    answer = await _evicted(api, "q")
    several = (
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    )
    assert (answer.code, answer.body["message"]) == (500, several)
