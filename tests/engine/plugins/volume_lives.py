"""Random lives of small clusters with volumes: few names, so that everything collides."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from tests.engine.plugins.lives import Applied, Deleted
from tests.support import storage_objects
from tests.support.build import HOSTNAME, ZONE, Json, node, node_term, pod, selector

BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
NODES: Final = ("n0", "n1", "n2", "n3")
_CLAIMS: Final = ("c0", "c1", "c2", "c3")
_VOLUMES: Final = ("v0", "v1", "v2", "v3", "v4")
_CLASSES: Final = ("wait", "static", "now", "odd", "old")
_SIZES: Final = ("1Gi", "2Gi", "5Gi")
_GCE: Final = "kubernetes.io/gce-pd"
_TERMS: Final[tuple[Json, ...]] = (
    node_term(f"{ZONE} in a"),
    node_term(f"{ZONE} in b"),
    node_term(f"{ZONE} in a,b"),
    node_term(f"{HOSTNAME} in n0"),
    node_term(f"{HOSTNAME} in n1"),
    node_term(f"{ZONE} notin a"),
    node_term(f"{ZONE} in a", f"{HOSTNAME} in n0"),
    node_term(f"{BETA_ZONE} in a"),
    node_term(named=["in n0"]),
    node_term(f"{ZONE} in b", named=["in n0"]),
    {},
)
_TOPOLOGIES: Final[tuple[list[Json] | None, ...]] = (
    None,
    None,
    [_TERMS[0]],
    [_TERMS[1]],
    [_TERMS[3]],
    [_TERMS[4]],
    [],
)


def _one(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def _sources() -> st.SearchStrategy[Json | None]:
    gce = {"gcePersistentDisk": {"pdName": "disk"}}
    return _one(
        None,
        None,
        None,
        {"csi": {"driver": "e", "volumeHandle": "same"}},
        gce,
        {"awsElasticBlockStore": {"volumeID": "aws://a/vol-1"}},
        {"nfs": {"server": "s", "path": "/"}},
    )


CLASSES: st.SearchStrategy[Json] = st.one_of(
    st.builds(storage_objects.storage_class, st.just("wait"), _one("d", "e", _GCE)),
    st.builds(
        storage_objects.storage_class,
        st.just("wait"),
        topologies=_one([], [{ZONE: ["a"]}], [{ZONE: ["a"]}, {HOSTNAME: ["n2", "n3"]}], [{}]),
    ),
    st.builds(storage_objects.storage_class, st.just("static"), _one("kubernetes.io/no-provisioner", "")),
    st.builds(storage_objects.storage_class, st.just("now"), mode=st.just("Immediate")),
    st.builds(storage_objects.storage_class, st.just("odd"), mode=_one(None, "WaitForFirstConsumer")),
    st.builds(storage_objects.storage_class, st.just("old"), st.just(_GCE), mode=_one("Immediate")),
)
_MOSTLY_WAITING: Final = _one("wait", "wait", "static", "static", "now", "odd", "old", "absent", None)
WAITING_CLAIMS: st.SearchStrategy[Json] = st.builds(
    storage_objects.claim,
    st.sampled_from(_CLAIMS),
    _MOSTLY_WAITING,
    namespace=_one("default", "default", "default", "blue"),
    request=_one(*_SIZES, *_SIZES, None),
    modes=_one(("ReadWriteOnce",), ("ReadWriteOnce",), ("ReadWriteMany",), ("ReadWriteOncePod",)),
    node=_one(None, None, None, None, "n0", "n1", "gone"),
    selector=_one(None, None, None, selector("tier=fast"), selector()),
    volumeMode=_one(None, None, None, "Block"),
    volumeAttributesClassName=_one(None, None, None, "gold"),
)
BOUND_CLAIMS: st.SearchStrategy[Json] = st.builds(
    storage_objects.claim,
    st.sampled_from(_CLAIMS),
    _MOSTLY_WAITING,
    volume=_one(*_VOLUMES, "missing"),
    bound=_one(True, True, True, False),
    modes=_one(("ReadWriteOnce",), ("ReadWriteOncePod",)),
    phase=_one("Bound", "Bound", "Bound", "Bound", "Lost"),
    terminating=_one(False, False, False, False, True),
)
#: Of the ephemeral volume `x` of the incoming pod, or of another pod of that name.
EPHEMERAL_CLAIMS: st.SearchStrategy[Json] = st.builds(
    storage_objects.claim,
    st.just("incoming-x"),
    _one("wait", "static"),
    owner=_one("default-incoming", "default-incoming", "default-incoming", "other", None),
)
VOLUMES: st.SearchStrategy[Json] = st.builds(
    storage_objects.volume,
    st.sampled_from(_VOLUMES),
    _one("wait", "static", "static", ""),
    capacity=st.sampled_from(_SIZES),
    modes=_one(("ReadWriteOnce", "ReadWriteMany"), ("ReadWriteOnce",)),
    terms=st.one_of(st.sampled_from(_TOPOLOGIES), st.lists(st.sampled_from(_TERMS), min_size=1, max_size=2)),
    claimed_by=_one(None, None, None, *(f"default/{name}" for name in _CLAIMS), "blue/c0"),
    claim_uid=_one(None, "default-c0", "default-c1", "else"),
    labels=st.fixed_dictionaries(
        {},
        optional={
            ZONE: _one("a", "b", "a__b", "a__ "),
            BETA_ZONE: _one("a", "b"),
            "tier": st.just("fast"),
            "topology.kubernetes.io/region": st.just("r"),
        },
    ),
    phase=_one("Available", "Available", "Available", "Bound", "Released"),
    source=_sources(),
    terminating=_one(False, False, False, False, True),
    volumeMode=_one(None, None, None, "Block"),
    volumeAttributesClassName=_one(None, None, None, "gold"),
)
_LIMITS: Final = _one(None, 0, 1, 2, 3)
CSI_NODES: st.SearchStrategy[Json] = st.builds(
    lambda name, migrated, d, e, gce, n: storage_objects.csi_node(
        name,
        migrated=migrated,
        **dict(zip(("d", "e", "pd.csi.storage.gke.io")[:n], (d, e, gce), strict=False)),
    ),
    st.sampled_from((*NODES, "gone")),
    _one((), (_GCE,), (_GCE, "kubernetes.io/aws-ebs")),
    _LIMITS,
    _LIMITS,
    _LIMITS,
    _one(3, 3, 1, 0),
)
OTHERS: st.SearchStrategy[Json] = st.one_of(
    st.builds(
        storage_objects.csi_driver,
        _one("d", "e", "pd.csi.storage.gke.io"),
        tracks_capacity=_one(None, False, True, True),
        required=_one(None, None, False, True),
    ),
    st.builds(
        storage_objects.capacity,
        _one("p0", "p1", "p2"),
        _one("wait", "wait", "odd"),
        _one("1Gi", "3Gi", "10Gi", None),
        topology=_one(
            None, selector(), selector(f"{ZONE}=a"), selector(f"{ZONE} notin a"), selector(HOSTNAME)
        ),
        largest=_one(None, None, "2Gi"),
    ),
    st.builds(
        storage_objects.attachment,
        _one("a0", "a1", "a2"),
        st.sampled_from(_VOLUMES),
        st.sampled_from((*NODES, "gone")),
        attacher=_one("d", "d", "e", ""),
    ),
)
_VOLUME_SOURCES: Final[st.SearchStrategy[Json]] = st.one_of(
    *[st.builds(lambda name: {"persistentVolumeClaim": {"claimName": name}}, st.sampled_from(_CLAIMS))] * 5,
    st.builds(
        lambda name, read_only: {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}},
        _one("disk", "other"),
        st.booleans(),
    ),
    st.just({"awsElasticBlockStore": {"volumeID": "vol-1"}}),
    st.builds(
        lambda monitors: {"rbd": {"image": "i", "monitors": monitors}}, _one(["m"], ["k"], ["k", "m"], [])
    ),
    st.just({"configMap": {"name": "c"}}),
)


@st.composite
def pods(draw: st.DrawFn, *, placed: bool) -> Json:
    """Return a pod with volumes; the one that comes may have an ephemeral one."""
    name = draw(_one("p0", "p1", "p2", "p3", "p4")) if placed else "incoming"
    sources = draw(st.lists(_VOLUME_SOURCES, min_size=0 if placed else 1, max_size=3))
    volumes = [{"name": f"v{index}", **source} for index, source in enumerate(sources)]
    if not placed and draw(_one(*[False] * 9, True)):
        volumes.append({"name": "x", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}})
    space = draw(_one("default", "default", "default", "blue")) if placed else "default"
    return pod(
        name,
        namespace=space,
        uid=f"{space}-{name}",
        node=draw(_one(*NODES, *NODES, "gone", None)) if placed else None,
        terminating=placed and draw(st.integers(0, 4)) == 4,
        phase=draw(_one("Running", "Running", "Succeeded")) if placed else "Pending",
        spec={"volumes": volumes},
    )


CLUSTER_NODES: st.SearchStrategy[Json] = st.builds(
    node,
    st.sampled_from(NODES),
    labels=st.fixed_dictionaries(
        {}, optional={ZONE: _one("a", "b"), BETA_ZONE: _one("a", "b"), "topology.gke.io/zone": _one("a", "b")}
    ),
)
#: What every life begins with: claims that wait find their class, and most find a node.
BASICS: Final[tuple[Applied, ...]] = (
    *(Applied(node(name, labels={ZONE: zone})) for name, zone in zip(NODES, "aabb", strict=True)),
    Applied(storage_objects.storage_class("wait")),
    Applied(storage_objects.storage_class("static", "kubernetes.io/no-provisioner")),
    Applied(storage_objects.storage_class("now", mode="Immediate")),
    Applied(storage_objects.claim("c0", "wait")),
    Applied(storage_objects.claim("c1", "static", request="2Gi")),
    Applied(storage_objects.claim("c2", "static", volume="v0")),
    Applied(storage_objects.claim("c3", "static")),
    Applied(storage_objects.volume("v0", "static", claimed_by="default/c2", phase="Bound")),
    Applied(storage_objects.volume("v1", "static", terms=[_TERMS[0]])),
    Applied(storage_objects.volume("v2", "static", capacity="5Gi", terms=[_TERMS[2]])),
    Applied(storage_objects.volume("v3", "static", capacity="2Gi", terms=[_TERMS[4]])),
)
APPLIED: st.SearchStrategy[Json] = st.one_of(
    *[WAITING_CLAIMS] * 4,
    *[BOUND_CLAIMS] * 4,
    *[VOLUMES] * 6,
    *[pods(placed=True)] * 4,
    EPHEMERAL_CLAIMS,
    CLASSES,
    *[CSI_NODES] * 3,
    *[OTHERS] * 3,
    CLUSTER_NODES,
)
CHANGES: st.SearchStrategy[Applied | Deleted] = st.one_of(
    *[st.builds(Applied, APPLIED)] * 4,
    st.builds(
        Deleted,
        st.just("PersistentVolumeClaim"),
        _one("default", "default", "blue"),
        st.sampled_from(_CLAIMS),
    ),
    st.builds(Deleted, st.just("PersistentVolume"), st.none(), st.sampled_from(_VOLUMES)),
    st.builds(Deleted, st.just("StorageClass"), st.none(), st.sampled_from(_CLASSES)),
    st.builds(Deleted, st.just("CSINode"), st.none(), st.sampled_from(NODES)),
    st.builds(Deleted, st.just("VolumeAttachment"), st.none(), _one("a0", "a1", "a2")),
    st.builds(Deleted, st.just("CSIStorageCapacity"), st.just("kube-system"), _one("p0", "p1", "p2")),
    st.builds(Deleted, st.just("CSIDriver"), st.none(), _one("d", "e", "pd.csi.storage.gke.io")),
    st.builds(Deleted, st.just("Pod"), _one("default", "blue"), _one("p0", "p1", "p2")),
    st.builds(Deleted, st.just("Node"), st.none(), st.sampled_from(NODES)),
)
BEGINNINGS: st.SearchStrategy[list[Applied]] = st.lists(st.builds(Applied, APPLIED), max_size=12).map(
    lambda drawn: [*BASICS, *drawn]
)
