"""Per plugin: an event that may help wakes a rejected pod, and a similar one that cannot help does not."""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
import pytest

from scheduler.engine.framework.events import Resource
from scheduler.engine.model.devices import CLASS_RESOURCE_PREFIX
from scheduler.engine.model.pod_wire import WireNodeAffinity
from scheduler.engine.plugins.node_affinity import NodeAffinityArgs
from scheduler.engine.plugins.node_resources.resource_allocation import NodeResourcesFitArgs
from scheduler.engine.plugins.pod_topology_spread.constraints import (
    DefaultConstraint,
    PodTopologySpreadArgs,
)
from tests.engine.plugins.waking import wakes
from tests.support.build import (
    ZONE,
    Json,
    affinity,
    container,
    namespace,
    node,
    node_affinity,
    node_term,
    pod,
    selector,
    service,
    spread,
    term,
    toleration,
)
from tests.support.cases.volume_rows import disk, using, with_volumes
from tests.support.device_documents import device_class
from tests.support.plugins import plugin_named
from tests.support.storage_objects import (
    attachment,
    capacity,
    claim,
    csi_driver,
    csi_node,
    storage_class,
    volume,
)

CORDON_KEY = "node.kubernetes.io/unschedulable"
TAINTED, PLAIN = node("a", taints=["k=v:NoSchedule"]), node("a")
WEB = selector("app=web")


class Change(NamedTuple):
    """A change from `old` to `new`; `pending` replaces the table's pod."""

    id: str
    old: Json | None
    new: Json | None
    wakes: bool
    pending: Json | None = None


def _needs(**requests: str) -> Json:
    named = {name.replace("_", "-"): amount for name, amount in requests.items()}
    return pod(containers=[container(requests=named)])


def _sized(name: str = "e", *, on: str | None = "a", **requests: str) -> Json:
    return pod(name, node=on, containers=[container(requests=requests)])


def _with_ports(name: str, *ports: str, on: str | None = None) -> Json:
    return pod(name, node=on, containers=[container(host_ports=ports)])


def _nominated(waiting: Json) -> Json:
    return {**waiting, "status": {"nominatedNodeName": "a"}}


NODE_UNSCHEDULABLE: Final = [
    Change("8 a node that is not cordoned comes", None, PLAIN, True),
    Change("8 a cordoned node comes", None, node("a", unschedulable=True), False),
    Change("8 a cordon is lifted", node("a", unschedulable=True), PLAIN, True),
    Change(
        "8 a cordoned node changes its taints only",
        node("a", unschedulable=True),
        node("a", unschedulable=True, taints=["k=v:NoSchedule"]),
        False,
    ),
    Change("8 an open node changes its taints only", TAINTED, PLAIN, False),
    Change("8 the pod tolerates cordons", pod(), pod(tolerations=[toleration(CORDON_KEY)]), True),
    Change("8 the pod tolerates something else", pod(), pod(tolerations=[toleration("k")]), False),
    Change(
        "8 another pod tolerates cordons",
        pod("q"),
        pod("q", tolerations=[toleration(CORDON_KEY)]),
        False,
    ),
]


NODE_NAME: Final = [
    Change("9 a node comes", None, PLAIN, True),
    Change("4 a node that was filtered out loses its taint", TAINTED, PLAIN, True),
    Change("9 a node changes labels", PLAIN, node("a", labels={"x": "y"}), False),
]


TAINT_TOLERATION: Final = [
    Change("10 an untainted node comes", None, PLAIN, True),
    Change("10 a tainted node comes", None, TAINTED, False),
    Change("10 a softly tainted node comes", None, node("a", taints=["k:PreferNoSchedule"]), True),
    Change(
        "10 a node whose taint is tolerated comes",
        None,
        TAINTED,
        True,
        pending=pod(tolerations=[toleration("k")]),
    ),
    Change("10 the taint goes", TAINTED, PLAIN, True),
    Change(
        "10 one of two taints goes",
        node("a", taints=["k:NoSchedule", "l:NoExecute"]),
        TAINTED,
        False,
    ),
    Change("10 a soft taint goes", node("a", taints=["k:PreferNoSchedule"]), PLAIN, False),
    Change("10 the pod is given any toleration", pod(), pod(tolerations=[toleration("x")]), True),
    Change("10 another pod is", pod("q"), pod("q", tolerations=[toleration("k")]), False),
]


WEB_NODE = node("a", labels={"app": "web"})
ADDED: Mapping[str, object] = {
    "NodeAffinity": NodeAffinityArgs(
        msgspec.convert(node_affinity(required=[node_term("pool in x")]), WireNodeAffinity)
    )
}


def _asking(name: str, *requirements: str) -> Json:
    return pod(name, affinity=affinity(node_required=[node_term(*requirements)] if requirements else None))


NO_NODE: Final = pod(affinity=affinity(node_required=[node_term()]))
NODE_AFFINITY: Final = [
    Change("11 a node that matches comes", None, WEB_NODE, True),
    Change("11 a node that does not comes", None, PLAIN, False),
    Change("11 a node starts to match", PLAIN, WEB_NODE, True),
    Change(
        "11 a node that matches is relabelled",
        WEB_NODE,
        node("a", labels={"app": "web", "x": "y"}),
        False,
    ),
    Change("11 a node stops to match", WEB_NODE, PLAIN, False),
    Change("11 a node comes, and the pod's term is empty", None, WEB_NODE, False, NO_NODE),
    Change("11 the pod asks for less", _asking("p", "app in web"), _asking("p"), True),
    Change("11 another pod asks for less", _asking("q", "app in web"), _asking("q"), False),
    Change("11 the pod is relabelled", pod("p"), pod("p", labels={"x": "y"}), False),
]


ADDED_NODE_AFFINITY: Final = [
    Change("11 a node that the profile lets in comes", None, node("a", labels={"pool": "x"}), True),
    Change("11 a node that it keeps out comes", None, node("a", labels={"pool": "y"}), False),
    Change("11 an update lets the node in", PLAIN, node("a", labels={"pool": "x"}), True),
]


NODE_PORTS: Final = [
    Change("12 a pod frees the port", _with_ports("e", "80", on="a"), None, True),
    Change("12 a pod frees it on one address", _with_ports("e", "127.0.0.1:80", on="a"), None, True),
    Change("12 a pod frees another port", _with_ports("e", "81", on="a"), None, False),
    Change("12 a pod frees another protocol", _with_ports("e", "80/UDP", on="a"), None, False),
    Change("12 a pod without ports goes", _with_ports("e", on="a"), None, False),
    Change("12 a pod that ran nowhere goes", _with_ports("e", "80"), None, False),
    Change(
        "12 a pod nominated to a node goes",
        _nominated(_with_ports("e", "80")),
        None,
        True,
    ),
    Change("12 a node comes", None, PLAIN, True),
]


GPU = "example.com/gpu"


NODE_RESOURCES_FIT: Final = [
    Change("13 a pod goes from a node, however small", _sized(), None, True),
    Change("13 a pod that ran nowhere goes", _sized(on=None, cpu="9"), None, False),
    Change("13 a pod shrinks in what is asked", _sized(cpu="2"), _sized(cpu="1"), True),
    Change("13 a pod gives up the last of what is asked", _sized(cpu="1m"), _sized(), True),
    Change("13 a pod shrinks in something else", _sized(memory="2"), _sized(memory="1"), False),
    Change("13 a pod that runs nowhere shrinks", _sized(on=None, cpu="2"), _sized(on=None, cpu="1"), False),
    Change("13 the pod itself shrinks", _needs(cpu="9", memory="2"), _needs(cpu="9"), True),
    Change("13 a node with room comes", None, node("a"), True),
    Change("13 a node that is too small comes", None, node("a", allocatable={"cpu": "7"}), False),
    Change("13 a node without room for pods comes", None, node("a", allocatable={"pods": "0"}), False),
    Change("13 a node gets more cpu", node("a"), node("a", allocatable={"cpu": "33"}), True),
    Change(
        "13 but still too little",
        node("a", allocatable={"cpu": "6"}),
        node("a", allocatable={"cpu": "7"}),
        False,
    ),
    Change("13 a node gets more memory only", node("a"), node("a", allocatable={"memory": "65Gi"}), False),
    Change("13 a node gets room for more pods", node("a"), node("a", allocatable={"pods": "111"}), True),
    Change("13 a node gets less", node("a", allocatable={"cpu": "33"}), node("a"), False),
]


def _gated(name: str, *gates: str) -> Json:
    return pod(name, spec={"schedulingGates": [{"name": gate} for gate in gates]})


SCHEDULING_GATES: Final = [
    Change("7 its last gate goes", _gated("p", "x"), _gated("p"), True),
    Change("7 one of its gates goes", _gated("p", "x", "y"), _gated("p", "x"), False),
    Change("7 another pod's last gate goes", _gated("q", "x"), _gated("q"), False),
]


def _declaring(*features: str) -> Json:
    made = node("a")
    made["status"]["declaredFeatures"] = list(features)
    return made


def _on_host_network(name: str, *, host_users: bool | None) -> Json:
    return pod(name, spec={"hostNetwork": True, "hostUsers": host_users})


NODE_DECLARED_FEATURES: Final = [
    Change("16 a node comes", None, PLAIN, True),
    Change("16 a node declares more", PLAIN, _declaring("X"), True),
    Change("16 a node changes labels", PLAIN, WEB_NODE, False),
    Change(
        "16 the pod needs less",
        _on_host_network("p", host_users=False),
        _on_host_network("p", host_users=None),
        True,
    ),
    Change("16 the pod changes labels", pod("p"), pod("p", labels={"x": "y"}), False),
    Change(
        "16 another pod needs less",
        _on_host_network("q", host_users=False),
        _on_host_network("q", host_users=None),
        False,
    ),
]


NEAR_WEB = pod(affinity=affinity(required=[term(ZONE, WEB)]))
FAR_FROM_WEB = pod(labels={"app": "web"}, affinity=affinity(anti_required=[term(ZONE, WEB)]))


def _web(name: str = "e", *, on: str | None = "a", app: str = "web", far_from: str = "") -> Json:
    rule = affinity(anti_required=[term(ZONE, selector(f"app={far_from}"))]) if far_from else None
    return pod(name, node=on, labels={"app": app}, affinity=rule)


def _zoned(zone: str | None) -> Json:
    return node("a", labels={ZONE: zone} if zone else {})


def _grouped(name: str = "e", *, on: str | None = None) -> Json:
    """Return a pod with affinity to its own labels."""
    like = affinity(required=[term(ZONE, selector("app=group"))])
    return pod(name, node=on, labels={"app": "group"}, affinity=like)


FAR_FROM_TWO = pod(affinity=affinity(anti_required=[term(ZONE, WEB), term(ZONE, selector("app=db"))]))
NOT_IN_TEAM_A = term(ZONE, WEB, namespace_selector=selector("team notin a"))
FAR = json.dumps({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(ZONE, WEB)]}})


def _annotated(text: str) -> Json:
    made = pod("e", node="a")
    made["metadata"]["annotations"] = {"affinity-scheduler.io/affinity": text} if text else {}
    return made


OTHER_LABEL, _LABELLED = node("a", labels={"x": "y"}), node("a", labels={ZONE: "z", "x": "y"})
_TEAM_A, _BLUE = (namespace(name, labels={"team": "a"}) for name in ("default", "blue"))

GANG_SCHEDULING: Final = [
    Change("a node comes, into a domain that the group may take", None, _zoned("z"), True),
    Change("a node moves into one", _zoned("y"), _zoned("z"), True),
    Change("a node gets more room", PLAIN, node("a", allocatable={"cpu": "33"}), False),
]


INTER_POD_AFFINITY: Final = [
    Change("1.9 a pod to be near to comes", None, _web(), True),
    Change("1.9 it is not on a node yet", None, _web(on=None), False),
    Change("1.9 it is nominated to one", None, _nominated(_web(on=None)), True),
    Change("1.9 another pod comes", None, _web(app="db"), False),
    Change("1.9 a pod becomes one to be near to", _web(app="db"), _web(), True),
    Change(
        "1.9 a pod is bound, and becomes one by a label of its node", _web(on=None, app="db"), _web(), True
    ),
    Change("1.9 a pod is no longer one", _web(), _web(app="db"), False),
    Change("1.9 a pod to be near to goes", _web(), None, False),
    Change("1.9 a pod to be far from goes", _web(), None, True, pending=FAR_FROM_WEB),
    Change("1.9 a pod to be far from is relabelled", _web(), _web(app="db"), True, pending=FAR_FROM_WEB),
    Change("1.9 a pod to be far from comes", None, _web(), False, pending=FAR_FROM_WEB),
    Change(
        "70 a pod that shuns this one goes",
        _web(app="db", far_from="web"),
        None,
        True,
        pending=pod(labels={"app": "web"}),
    ),
    Change(
        "1.9 a pod that shuns others goes",
        _web(app="db", far_from="db"),
        None,
        False,
        pending=pod(labels={"app": "web"}),
    ),
    Change("1.9 affinity: a node with the key comes", None, _zoned("z"), True),
    Change("1.9 affinity: a node without it comes", None, _zoned(None), False),
    # What new labels of a node do help is drawn in test_waking_by_labels.
    Change("1.9 affinity: a node gains another label", _zoned("z"), _LABELLED, False),
    Change("1.9 affinity: another label of a node changes", OTHER_LABEL, node("a", labels={"x": "z"}), False),
    Change("1.9 affinity: a node without the key loses a label", OTHER_LABEL, _zoned(None), False),
    Change("1.9 anti: a node gains the key", OTHER_LABEL, _LABELLED, False, FAR_FROM_WEB),
    Change("1.9 anti: a node loses another label", _LABELLED, _zoned("z"), False, FAR_FROM_WEB),
    Change("1.9 no terms at all: a node is relabelled", _zoned("y"), _zoned("z"), False, pod()),
    Change("1.9 anti: any node comes", None, _zoned(None), True, pending=FAR_FROM_WEB),
    Change("1.9 a node goes, and its pods with it", _zoned("z"), None, True),
    Change("1.9 no terms of its own: any node comes", None, _zoned(None), True, pending=pod()),
    Change("1.9 the last of its own group goes", _grouped(on="a"), None, True, pending=_grouped("p")),
    Change("1.9 the last of its own group leaves", _grouped(on="a"), _web(), True, pending=_grouped("p")),
    Change("1.9 one of two pods to be far from goes", _web(app="db"), None, True, pending=FAR_FROM_TWO),
    Change(
        "21 quirk: a namespace selector without positive requirements covers every namespace",
        _web(),
        None,
        True,
        pending=pod(affinity=affinity(anti_required=[NOT_IN_TEAM_A]), namespace="blue"),
    ),
    Change("1.9 its own namespace is relabelled", namespace("default"), _TEAM_A, True, pending=pod()),
    Change("1.9 another namespace is relabelled", namespace("blue"), _BLUE, False),
    Change(
        "1.9 a namespace is relabelled, and a term selects namespaces by labels",
        namespace("blue"),
        _BLUE,
        True,
        pending=pod(affinity=affinity(anti_required=[NOT_IN_TEAM_A])),
    ),
    Change("1.9 the pod itself is relabelled", pod(), pod(labels={"x": "y"}), True),
    Change("1.9 the pod itself tolerates", pod(), pod(tolerations=[toleration("k")]), False),
    Change(
        "1.9 a pod to be near to starts running", _web(), {**_web(), "status": {"phase": "Running"}}, False
    ),
    Change(
        "1.9 a pod drops a rule by annotation",
        _annotated(FAR),
        _annotated(""),
        True,
        pending=pod(labels={"app": "web"}),
    ),
]


EVEN = pod(labels={"app": "web"}, spread=[spread(ZONE, selector("app"))])
EVEN_BY_TWO = pod(spread=[spread(ZONE, WEB), spread("rack", WEB)])


def _tolerating(taints_policy: str | None, *tolerations: Json) -> Json:
    constraint = spread(ZONE, WEB, taints_policy=taints_policy)
    return pod(spread=[constraint], tolerations=tolerations)


def _terminating(obj: Json) -> Json:
    return {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


BY_VERSION = spread(ZONE, selector(), match_label_keys=["v"])


POD_TOPOLOGY_SPREAD: Final = [
    Change("2.10 a selected pod comes", None, _web(), True),
    Change("2.10 a selected pod goes", _web(), None, True),
    Change("2.10 it was on no node", _web(on=None), None, False),
    Change("2.10 it was nominated to one", _nominated(_web(on=None)), None, True),
    Change("2.10 a pod that is not selected goes", pod("e", node="a"), None, False),
    Change(
        "2.10 one of another namespace goes",
        {**_web(), "metadata": {**_web()["metadata"], "namespace": "x"}},
        None,
        False,
    ),
    Change("2.10 a pod is no longer selected", _web(), pod("e", node="a"), True),
    Change("71 a label changes but still matches", _web(), _web(app="db"), False),
    Change(
        "2.10 the pod tolerates, and taints matter",
        _tolerating("Honor"),
        _tolerating("Honor", toleration("k")),
        True,
        pending=_tolerating("Honor"),
    ),
    Change(
        "2.10 the pod tolerates, and taints do not",
        _tolerating(None),
        _tolerating(None, toleration("k")),
        False,
        pending=_tolerating(None),
    ),
    Change("2.10 a node with the key comes", None, _zoned("z"), True),
    Change("72 a node with one of two keys comes", None, _zoned("z"), False, pending=EVEN_BY_TWO),
    Change("2.10 a node with the key goes", _zoned("z"), None, True),
    Change("2.10 a node without it goes", _zoned(None), None, False),
    Change("2.10 a node gets the key", _zoned(None), _zoned("z"), True),
    Change("2.10 a node moves", _zoned("y"), _zoned("z"), True),
    Change("2.10 a node's other labels change", _zoned("z"), node("a", labels={ZONE: "z", "x": "y"}), False),
    Change(
        "2.10 a node's other labels change, and decide whether it makes a domain",
        node("a", labels={ZONE: "z", "disk": "ssd"}),
        _zoned("z"),
        True,
        pending=pod(spread=[spread(ZONE, WEB)], node_selector={"disk": "ssd"}),
    ),
    Change(
        "2.10 a node's labels that the pod does not name change",
        node("a", labels={ZONE: "z", "disk": "ssd"}),
        node("a", labels={ZONE: "z", "disk": "ssd", "x": "y"}),
        False,
        pending=pod(spread=[spread(ZONE, WEB)], node_selector={"disk": "ssd"}),
    ),
    Change("2.10 a selected pod starts to terminate", _web(), _terminating(_web()), True),
    Change("2.10 a selected pod starts running", _web(), {**_web(), "status": {"phase": "Running"}}, False),
    Change(
        "2.10 the pod loses a label whose value it was spread by",
        pod(labels={"v": "1"}, spread=[BY_VERSION]),
        pod(spread=[BY_VERSION]),
        True,
        pending=pod(spread=[BY_VERSION]),
    ),
    Change(
        "2.10 a node's taints change",
        _zoned("z"),
        node("a", labels={ZONE: "z"}, taints=["k:NoSchedule"]),
        True,
    ),
]

_DISK: Final = disk("gcePersistentDisk", pdName="d")


VOLUME_RESTRICTIONS: Final = [
    Change("2 a pod that holds the disk goes", with_volumes(_DISK, name="e", on="a"), None, True),
    Change(
        "2 a pod that holds another disk goes",
        with_volumes(disk("gcePersistentDisk", pdName="x"), name="e", on="a"),
        None,
        False,
    ),
    Change("2 a pod without a disk goes", pod("e", node="a"), None, False),
    Change(
        "2 a pod of another namespace goes",
        {**with_volumes(_DISK, on="a"), "metadata": {"name": "e", "namespace": "blue", "uid": "e"}},
        None,
        False,
    ),
    Change("2 a pod with the claim goes", using("c", name="e", on="a"), None, True, using("c")),
    Change("2 a pod with another claim goes", using("d", name="e", on="a"), None, False, using("c")),
    Change("2 the pod's claim comes", None, claim("c"), True, using("c")),
    Change("2 another claim comes", None, claim("d"), False, using("c")),
    Change("2 that claim comes to another namespace", None, claim("c", namespace="b"), False, using("c")),
    Change("2 a node comes", None, PLAIN, True),
    Change("2 a node goes, with a pod that may have the claim", PLAIN, None, True),
    Change("2 a node is relabelled", PLAIN, node("a", labels={"x": "y"}), False),
]

NODE_VOLUME_LIMITS: Final = [
    Change("3 a CSINode comes", None, csi_node("a"), True),
    Change("3 a limit grows", csi_node("a", d=1), csi_node("a", d=2), True),
    Change("3 a limit shrinks", csi_node("a", d=2), csi_node("a", d=1), False),
    Change("3 a limit comes where none was", csi_node("a"), csi_node("a", d=1), True),
    Change("3 a driver without a limit is installed", csi_node("a"), csi_node("a", d=None), True),
    Change("3 a driver has no limit any more", csi_node("a", d=1), csi_node("a", d=None), True),
    Change("3 a driver with a limit goes", csi_node("a", d=1), csi_node("a"), False),
    Change("3 nodes need a driver no more", csi_driver("d", required=True), csi_driver("d"), True),
    Change("3 nodes need it from now on", csi_driver("d"), csi_driver("d", required=True), False),
    Change(
        "3 they need it as before",
        csi_driver("d", required=True),
        csi_driver("d", required=True, tracks_capacity=True),
        False,
    ),
    Change("3 a pod with a claim goes", using("x", name="e", on="a"), None, True),
    Change("3 a pod without volumes goes", pod("e", node="a"), None, False),
    Change("3 a pod with a claim goes that was nowhere", using("x", name="e"), None, False),
    Change("3 the pod's claim comes", None, claim("c"), True),
    Change("3 another claim comes", None, claim("d"), False),
    Change("3 a volume is detached", attachment("x", "v", "a"), None, True),
    Change("3 a volume is detached", attachment("x", "v", "a"), None, False, with_volumes(_DISK)),
    Change(
        "3 a volume of the disk's driver is detached",
        attachment("x", "v", "a", attacher="pd.csi.storage.gke.io"),
        None,
        True,
        with_volumes(_DISK),
    ),
]


VOLUME_ZONE: Final = [
    Change("4 a class that waits comes", None, storage_class("w"), True),
    Change("4 a class that does not wait comes", None, storage_class("w", mode="Immediate"), False),
    Change("4 the pod's claim changes", claim("c"), claim("c", volume="v"), True),
    Change("4 another claim changes", claim("d"), claim("d", volume="v"), False),
    Change("4 a volume comes", None, volume("v"), True),
    Change("4 a volume's zone changes", volume("v"), volume("v", labels={ZONE: "a"}), True),
    Change("4 a volume's phase changes", volume("v"), volume("v", phase="Bound"), False),
    Change("4 a node is relabelled", PLAIN, node("a", labels={ZONE: "a"}), True),
]


VOLUME_BINDING: Final = [
    Change("5.8 a class comes", None, storage_class("w", mode="Immediate"), True),
    Change(
        "5.8 a class allows other zones",
        storage_class("w"),
        storage_class("w", topologies=[{ZONE: ["a"]}]),
        True,
    ),
    Change("5.8 a class changes otherwise", storage_class("w"), storage_class("w", "e"), False),
    Change("5.8 the pod's claim changes", claim("c"), claim("c", volume="v"), True),
    Change("5.8 another claim changes", claim("d"), claim("d", volume="v"), False),
    Change(
        "5.8 the claim of its ephemeral volume comes",
        None,
        claim("p-v0", owner="uid-p"),
        True,
        with_volumes({"ephemeral": {}}),
    ),
    Change("5.8 a volume changes", volume("v"), volume("v", phase="Released"), True),
    Change("5.8 a node comes", None, PLAIN, True),
    Change("5.8 a CSINode comes", None, csi_node("a"), True),
    Change("5.8 a plugin is migrated", csi_node("a"), csi_node("a", migrated=["x"]), True),
    Change("5.8 a limit grows", csi_node("a"), csi_node("a", d=1), False),
    Change(
        "5.8 the driver of a claim publishes capacities no more",
        csi_driver("d", tracks_capacity=True),
        csi_driver("d"),
        False,
    ),
    Change(
        "5.8 the driver of an inline volume does",
        csi_driver("d", tracks_capacity=True),
        csi_driver("d"),
        True,
        with_volumes({"csi": {"driver": "d"}}),
    ),
    Change(
        "5.8 it publishes them as before",
        csi_driver("d", tracks_capacity=True),
        csi_driver("d", required=True, tracks_capacity=True),
        False,
        with_volumes({"csi": {"driver": "d"}}),
    ),
    Change("5.8 a pool comes", None, capacity("p", "w"), True),
    Change("5.8 a pool grows", capacity("p", "w", "1Gi"), capacity("p", "w", "2Gi"), True),
    Change("5.8 a pool shrinks", capacity("p", "w", "2Gi"), capacity("p", "w", "1Gi"), False),
    Change("5.8 a pool is measured", capacity("p", "w", None), capacity("p", "w", "1Gi"), True),
]

_IMPLICIT: Final = _needs(**{f"{CLASS_RESOURCE_PREFIX}gpu": "1"})
#: Source: fit.go, isSchedulableAfterDeviceClassEvent (kubernetes 1.36).
EXTENDED_RESOURCES: Final = [
    Change("a node comes to have one", PLAIN, node("a", allocatable={GPU: "1"}), True),
    Change("a class that provides it comes", None, device_class("gpu", GPU), True),
    Change("a class that provides another one comes", None, device_class("gpu", "example.com/nic"), False),
    Change("a class that provides none comes", None, device_class("gpu"), False),
    Change("a class of the requested name comes", None, device_class("gpu"), True, _IMPLICIT),
    Change("a class of another name comes", None, device_class("nic"), False, _IMPLICIT),
    Change("a class provides it now", device_class("gpu"), device_class("gpu", GPU), True),
    Change("a class provides it as before", device_class("gpu", GPU), device_class("gpu", GPU), False),
    Change("a class provides it no more", device_class("gpu", GPU), device_class("gpu"), False),
    Change(
        "a class of the requested name provides another one",
        device_class("gpu"),
        device_class("gpu", GPU),
        False,
        _IMPLICIT,
    ),
]

#: By plugin: the pod that it rejected, and what happens then.
TABLES: Final = [
    ("NodeUnschedulable", pod(), NODE_UNSCHEDULABLE),
    ("NodeName", pod(), NODE_NAME),
    ("TaintToleration", pod(), TAINT_TOLERATION),
    ("NodeAffinity", pod(affinity=affinity(node_required=[node_term("app in web")])), NODE_AFFINITY),
    ("NodePorts", _with_ports("p", "80"), NODE_PORTS),
    ("NodeResourcesFit", _needs(cpu="8"), NODE_RESOURCES_FIT),
    ("NodeResourcesFit", _needs(**{GPU: "1"}), EXTENDED_RESOURCES),
    ("VolumeRestrictions", with_volumes(_DISK), VOLUME_RESTRICTIONS),
    ("NodeVolumeLimits", using("c"), NODE_VOLUME_LIMITS),
    ("VolumeZone", using("c"), VOLUME_ZONE),
    ("VolumeBinding", using("c"), VOLUME_BINDING),
    ("SchedulingGates", pod(), SCHEDULING_GATES),
    ("NodeDeclaredFeatures", pod(), NODE_DECLARED_FEATURES),
    ("GangScheduling", pod(), GANG_SCHEDULING),
    ("InterPodAffinity", NEAR_WEB, INTER_POD_AFFINITY),
    ("PodTopologySpread", EVEN, POD_TOPOLOGY_SPREAD),
]


@pytest.mark.parametrize(
    ("plugin", "pending", "change"),
    [
        pytest.param(plugin, change.pending or pending, change, id=f"{plugin} {change.id}")
        for plugin, pending, changes in TABLES
        for change in changes
    ],
)
def test_a_rejected_pod_is_woken_by_what_may_help(plugin: str, pending: Json, change: Change):
    assert wakes(plugin, pending, change.old, change.new) is change.wakes


@pytest.mark.parametrize("change", ADDED_NODE_AFFINITY, ids=lambda change: change.id)
def test_what_the_profile_asks_of_nodes_counts_for_waking(change: Change):
    assert wakes("NodeAffinity", pod(), change.old, change.new, ADDED) is change.wakes


def test_a_node_without_an_ignored_resource_wakes_the_pod():
    pending = pod(containers=[container(requests={GPU: "1"})])
    args = {"NodeResourcesFit": NodeResourcesFitArgs(ignored_resources=(GPU,))}
    assert wakes("NodeResourcesFit", pending, None, PLAIN, args)
    assert not wakes("NodeResourcesFit", pending, None, PLAIN)


_SERVICE, _ELSEWHERE = (service("s", {"app": "web"}, namespace=name) for name in ("default", "blue"))
#: Of a hard default constraint.
WORKLOADS: Final = [
    Change("a service of its namespace comes", None, _SERVICE, True),
    Change("a service of its namespace changes", service("s", None), _SERVICE, True),
    Change("a service of its namespace goes", _SERVICE, None, True),
    Change("a service of another namespace comes", None, _ELSEWHERE, False),
    Change("a service of another namespace goes", _ELSEWHERE, None, False),
    Change("a service comes, and the pod has its own constraint", None, _SERVICE, False, EVEN),
]


@pytest.mark.parametrize("change", WORKLOADS, ids=lambda change: change.id)
def test_a_workload_wakes_a_pod_whose_default_selector_it_may_change(change: Change):
    hard = DefaultConstraint(max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule")
    args = {"PodTopologySpread": PodTopologySpreadArgs("List", (hard,))}
    pending = change.pending or pod(labels={"app": "web"})
    assert wakes("PodTopologySpread", pending, change.old, change.new, args) is change.wakes


@pytest.mark.parametrize("action", ["DoNotSchedule", "ScheduleAnyway"])
def test_workloads_wake_pods_that_a_hard_default_constraint_rejects(action: str) -> None:
    """Workloads say of which pods a default constraint counts; a soft one rejects none."""
    constraint = DefaultConstraint(max_skew=1, topology_key=ZONE, when_unsatisfiable=action)
    args = PodTopologySpreadArgs("List", (constraint,))
    woken_by = {each.resource for each in plugin_named("PodTopologySpread", args).events_to_register()} - {
        Resource.POD,
        Resource.NODE,
    }
    workloads = {
        Resource.SERVICE, Resource.REPLICATION_CONTROLLER, Resource.REPLICA_SET, Resource.STATEFUL_SET
    }  # fmt: skip
    assert woken_by == (workloads if action == "DoNotSchedule" else set())
