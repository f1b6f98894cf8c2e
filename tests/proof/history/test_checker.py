"""Each statement of the README, kept and broken by a planted history."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.proof.chaos.happenings import AddNamespace, AddNode, AddPod, Script
from tests.proof.chaos.instance import OURS
from tests.proof.chaos.kinds import Shape
from tests.proof.chaos.run import replay
from tests.proof.history.checker import check

Json = dict[str, Any]
_OURS = "ours"


def written(at_s: float, kind: str, obj: Json, event_type: str = "MODIFIED") -> Json:
    return {"at_s": at_s, "type": event_type, "kind": kind, "by": "x", "object": {**obj, "kind": kind}}


def named(name: str, uid: str = "", **more: Any) -> Json:
    return {"metadata": {"name": name, "namespace": "default", "uid": uid or name, **more}}


def pod(name: str = "p", node: str = "", cpu: str = "1", **spec: Any) -> Json:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return {
        **named(name),
        "spec": {"schedulerName": _OURS, "nodeName": node, "containers": containers, **spec},
    }


def node(cpu: str = "2", labels: Json | None = None, taints: list[Json] | None = None, **spec: Any) -> Json:
    meta = {"name": "n", "labels": labels or {}}
    allocatable = {"cpu": cpu, "pods": "2"}
    return {
        "metadata": meta,
        "spec": {"taints": taints or [], **spec},
        "status": {"allocatable": allocatable},
    }


def volume(claim: str) -> Json:
    return {**named("v"), "spec": {"claimRef": {"uid": claim}} if claim else {}}


def claim(name: str, volume_name: str) -> Json:
    return {**named(name), "spec": {"volumeName": volume_name}}


def devices(name: str, *taken: str, reserved: bool = False, **result: Any) -> Json:
    results = [{"driver": "d", "pool": "p", "device": each, **result} for each in taken]
    status = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"uid": "p"}] if reserved else [],
    }
    return {**named(name), "status": status if taken else {}}


def lease(holder: str) -> Json:
    return {**named("lease"), "spec": {"holderIdentity": holder}}


def sent(at_s: float, by: str) -> Json:
    return {"at_s": at_s, "type": "SENT", "by": by, "path": "/p/binding"}


def broken(*events: Json) -> list[str]:
    return check(json.dumps(event) for event in events)


def test_a_pod_is_bound_once() -> None:
    first = [written(1, "Pod", pod()), written(2, "Pod", pod(node="a")), written(3, "Pod", pod(node="a"))]
    assert broken(*first) == []
    (text,) = broken(*first, written(4, "Pod", pod(node="b")))
    assert text == "at 4.000: default/p was bound twice: to a, and to b"
    (text,) = broken(*first, written(4, "Pod", pod()))
    assert text.endswith("to a, and to none")
    again = {**pod(node="b"), **named("p", "another")}
    assert broken(*first, written(4, "Pod", pod(node="a"), "DELETED"), written(5, "Pod", again)) == []


def test_a_volume_is_promised_once() -> None:
    first = [written(1, "PersistentVolume", volume("")), written(2, "PersistentVolume", volume("c"))]
    assert (
        broken(
            *first, written(3, "PersistentVolume", volume("")), written(4, "PersistentVolume", volume("d"))
        )
        == []
    )
    (text,) = broken(*first, written(3, "PersistentVolume", volume("d")))
    assert text == "at 3.000: volume default/v of claim c was promised to d"


def test_a_claim_keeps_its_volume_and_has_it_alone() -> None:
    kind = "PersistentVolumeClaim"
    first = [written(1, kind, claim("c", "")), written(2, kind, claim("c", "v"))]
    assert (
        broken(*first, written(3, kind, claim("c", "v"), "DELETED"), written(4, kind, claim("d", "v"))) == []
    )
    (text,) = broken(*first, written(3, kind, claim("d", "v")))
    assert text == "at 3.000: volume v was promised to claim default/d too"
    (text,) = broken(*first, written(3, kind, claim("c", "w")))
    assert text == "at 3.000: claim default/c left its volume v for w"


def test_a_device_is_promised_once() -> None:
    kind = "ResourceClaim"
    first = [written(1, kind, devices("c", "x", "y"))]
    assert broken(*first, written(2, kind, devices("c")), written(3, kind, devices("d", "y"))) == []
    assert (
        broken(*first, written(2, kind, devices("c", "x"), "DELETED"), written(3, kind, devices("d", "x")))
        == []
    )
    (text,) = broken(*first, written(2, kind, devices("d", "y")))
    assert text == "at 2.000: device d/p/y was promised to claim default/d too"
    for shared in ({"adminAccess": True}, {"shareID": "s"}, {"consumedCapacity": {"m": "1"}}):
        assert broken(*first, written(2, kind, devices("d", "y", **shared))) == []


@pytest.mark.parametrize(
    "uses",
    [
        {"spec": {"resourceClaims": [{"name": "own", "resourceClaimName": "d"}]}},
        {
            "spec": {"resourceClaims": [{"name": "own", "resourceClaimTemplateName": "t"}]},
            "status": {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "d"}]},
        },
        {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "d"}}},
    ],
)
def test_a_device_that_was_promised_twice_is_used_by_the_first(uses: Json) -> None:
    """The API server does not refuse the second allocation, so its pod must not be bound while the first stays."""
    begin = {"at_s": 0, "type": "BEGIN", "schedulers": [_OURS], "within_s": 9, "may_collide": True}
    claims = [written(1, "ResourceClaim", devices(name, "x", reserved=True)) for name in "cd"]
    waiting = {**pod(**uses.get("spec", {})), "status": uses.get("status", {})}
    bound = {**waiting, "spec": {**waiting["spec"], "nodeName": "a"}}
    there = [
        begin,
        *claims,
        written(1, "ResourceClaim", claims[1]["object"]),
        written(2, "Pod", waiting, "ADDED"),
    ]
    (text,) = broken(*there, written(3, "Pod", bound))
    assert (
        text
        == "at 3.000: default/p was bound to device d/p/x of claim default/d, which claim default/c had before"
    )
    gone = written(2, "ResourceClaim", claims[0]["object"], "DELETED")
    assert broken(*there, gone, written(3, "Pod", bound)) == []
    theirs = {**bound, "spec": {**bound["spec"], "schedulerName": "theirs"}}
    assert broken(*there, written(3, "Pod", theirs)) == []


def test_the_devices_of_a_reserved_claim_stay() -> None:
    kind = "ResourceClaim"
    first = [written(1, kind, devices("c", "x", reserved=True))]
    assert broken(*first, written(2, kind, devices("c", "x"))) == []
    (text,) = broken(*first, written(2, kind, devices("c", "y")))
    assert text == "at 2.000: the devices of claim default/c changed while it was reserved"
    # Taken back with the reservation, for a pod that waits; not for one that runs.
    assert broken(written(1, "Pod", pod()), *first, written(2, kind, devices("c"))) == []
    (text,) = broken(written(1, "Pod", pod(node="a")), *first, written(2, kind, devices("c")))
    assert text == "at 2.000: the devices of claim default/c changed while it was reserved"


def test_a_deposed_leader_sends_no_bind() -> None:
    first = [written(1, "Lease", lease("a")), sent(2, "a"), written(3, "Lease", lease(""))]
    assert (
        broken(*first, sent(4, "a"), written(5, "Lease", lease("b")), sent(6, "b"), sent(6, "stranger")) == []
    )
    (text,) = broken(*first, written(5, "Lease", lease("b")), sent(6, "a"))
    assert text == "at 6.000: a sent /p/binding after b had taken its Lease"


def story(the_node: Json, *pods: Json, calm: bool = True) -> list[str]:
    return broken(
        {"at_s": 0, "type": "BEGIN", "schedulers": [_OURS], "within_s": 9},
        *([{"at_s": 1, "type": "CALM"}] if calm else []),
        *(written(2, "Pod", each, "ADDED") for each in pods),
        written(3, "Node", the_node, "ADDED"),
        {"at_s": 13, "type": "END"},
    )


def test_a_pod_that_fits_is_bound_in_time() -> None:
    (text,) = story(node(), pod())
    assert text == "at 13.000: default/p fits since 3.000, longer than 9 s, and is not bound"
    assert story(node(), pod(), calm=False) == []
    assert story(node(cpu="2"), pod("q", "n"), pod()) == [text]


_ANTI = {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {}, "topologyKey": "zone"}]}
_PORT = [{"name": "c", "ports": [{"hostPort": 80}]}]


@pytest.mark.parametrize(
    ("the_node", "others", "the_pod"),
    [
        pytest.param(node(cpu="1500m"), [pod("q", "n")], pod(), id="no room"),
        pytest.param(node(cpu="8"), [pod("q", "n"), pod("r", "n")], pod(), id="two pods at most"),
        pytest.param(node(unschedulable=True), [], pod(), id="cordoned"),
        pytest.param(node(taints=[{"key": "k", "effect": "NoSchedule"}]), [], pod(), id="tainted"),
        pytest.param(node(), [], pod(nodeSelector={"disk": "ssd"}), id="another label"),
        pytest.param(node(), [], pod(schedulingGates=[{"name": "g"}]), id="gated"),
        pytest.param(node(), [], pod(schedulerName="another"), id="another scheduler's"),
        pytest.param(node(), [pod("q", "n", containers=_PORT)], pod(containers=_PORT), id="port taken"),
        pytest.param(node(), [pod("q", "m", affinity={"podAntiAffinity": _ANTI})], pod(), id="kept away"),
        pytest.param(node(), [{**pod("q"), "status": {"nominatedNodeName": "n"}}], pod(cpu="1500m"), id="nominated"),
        pytest.param(node(), [{**pod("q", "n"), "status": {"phase": "Failed"}}], pod(), id="refused"),
    ],
)  # fmt: skip
def test_a_pod_that_may_not_fit_may_wait(the_node: Json, others: list[Json], the_pod: Json) -> None:
    assert [text for text in story(the_node, *others, the_pod) if "default/p" in text] == []


def test_tolerated_taints_and_labels_count() -> None:
    tainted = node(labels={"disk": "ssd"}, taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    tolerant = pod(nodeSelector={"disk": "ssd"}, tolerations=[{"key": "k", "value": "v"}])
    assert len(story(tainted, tolerant)) == 1


def test_the_wait_ends_with_the_bind_and_with_the_room() -> None:
    begin = [{"at_s": 0, "type": "BEGIN", "schedulers": [_OURS], "within_s": 9}, {"at_s": 1, "type": "CALM"}]
    waits = [*begin, written(1, "Node", node(), "ADDED"), written(2, "Pod", pod(), "ADDED")]
    end = {"at_s": 20, "type": "END"}
    assert broken(*waits, written(10, "Pod", pod(node="n")), end) == []
    full, room = written(10, "Node", node(cpu="0")), written(12, "Node", node())
    assert broken(*waits, full, room, end) == []
    assert len(broken(*waits, full, room, {"at_s": 22, "type": "END"})) == 1


def test_the_checker_knows_nothing_of_the_product() -> None:
    script = "import sys, tests.proof.history.checker; print(*(m for m in sys.modules if m.startswith('scheduler')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_history_of_a_run_of_chaos_would_show_breaks() -> None:
    """A second bind breaks it, and binds that are left out leave pods that wait for too long."""
    script: Script = [
        (0.0, AddNamespace("red", "x")),
        (0.0, AddNode("n1", "4", "a")),
        (20.0, AddPod("red/p", "plain", OURS)),
    ]
    outcome = replay(5, Shape.ELECTED, script)
    assert not outcome.wrongs, outcome.story()
    assert outcome.journal is not None
    events = [json.loads(line) for line in outcome.journal.history_lines()]
    assert {"Pod", "Node", "Lease"} <= {event.get("kind") for event in events}
    assert any(event["type"] == "SENT" for event in events)
    pods = [event for event in events if event.get("kind") == "Pod"]
    bound = next(event for event in pods if event["object"]["spec"].get("nodeName"))
    again = json.loads(json.dumps(bound))
    again["object"]["spec"]["nodeName"] = "elsewhere"
    (text,) = broken(*events[: events.index(bound) + 1], again)
    assert "was bound twice" in text
    for event in pods:
        event["object"]["spec"].pop("nodeName", None)
    assert any("longer than 90 s" in text for text in broken(*events))
