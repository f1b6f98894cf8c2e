"""Edge cases of effective requests and of NodeResourcesFit's filter: rules of nodes, §4-§6 and §13."""

from collections.abc import Mapping, Sequence
from typing import Final

from tests.support.build import Json, configuration, container, node, pod
from tests.support.cases.row import UR, Row, U

FIT: Final = "NodeResourcesFit"

EXT_A: Final = "example.com/a"
EXT_B: Final = "example.com/b"
HUGE: Final = "hugepages-2Mi"

#: The node of the rules' table.
ROOM: Final = {"cpu": "10m", "memory": "20", "pods": "32", EXT_A: "5", "ephemeral-storage": "20", HUGE: "5"}


def asks(*containers: Mapping[str, str], inits: Sequence[Json] = (), **spec: object) -> Json:
    """Return a pod of one container for each of the given requests."""
    made = [container(f"c{i}", requests=requests) for i, requests in enumerate(containers)]
    return pod(containers=made, spec={"initContainers": list(inits), **spec} if inits else dict(spec))


def init(name: str, requests: Mapping[str, str] | None) -> Json:
    """Return an init container."""
    return container(name, requests=requests)


def _sidecar(name: str, requests: Mapping[str, str] | None) -> Json:
    return container(name, requests=requests, restart_policy="Always")


def user(requests: Mapping[str, str] | None, name: str = "user") -> Json:
    """Return a pod that runs on node `n`."""
    return pod(name, node="n", containers=[container(requests=requests)])


def _fit(
    id_: str,
    incoming: Json,
    *reasons: str,
    code: str = U,
    used: Mapping[str, str] | None = None,
    room: Mapping[str, str] = ROOM,
    config: Json | None = None,
) -> Row:
    objects = [node("n", allocatable=room), *([user(used)] if used else [])]
    return Row(id_, FIT, objects, incoming, config, refused={"n": (code, *reasons)} if reasons else {})


CPU: Final = "Insufficient cpu"
MEMORY: Final = "Insufficient memory"
NO_A: Final = f"Insufficient {EXT_A}"
NO_HUGE: Final = f"Insufficient {HUGE}"


def _ignoring(**args: list[str]) -> Json:
    return configuration({FIT: dict(args)})


FILTER_ROWS: Final = [
    _fit("13 no requests, node full", asks({}), used={"cpu": "10m", "memory": "20"}),
    _fit("13 exactly full", asks({"cpu": "5m", "memory": "1"}), used={"cpu": "5m", "memory": "19"}),
    _fit("13 more than the node ever has", asks({EXT_A: "10"}), NO_A, code=UR),
    _fit("13 a scalar resource used up", asks({EXT_A: "1"}), NO_A, used={EXT_A: "5"}),
    _fit("13 two containers, 3 + 3 of 5", asks({EXT_A: "3"}, {EXT_A: "3"}), NO_A, code=UR),
    _fit("13 a resource the node does not know", asks({EXT_B: "1"}), f"Insufficient {EXT_B}", code=UR),
    _fit("13 the same, ignored", asks({EXT_B: "1"}), config=_ignoring(ignoredResources=[EXT_B])),
    _fit(
        "13 the same, its group ignored",
        asks({EXT_B: "1"}),
        config=_ignoring(ignoredResourceGroups=["example.com"]),
    ),
    _fit(
        "13 a group is all that is before the slash",
        asks({EXT_B: "1"}),
        f"Insufficient {EXT_B}",
        code=UR,
        config=_ignoring(ignoredResourceGroups=["example", "com"]),
    ),
    _fit(
        "13 a kubernetes.io name cannot be ignored",
        asks({"kubernetes.io/x": "1"}),
        "Insufficient kubernetes.io/x",
        code=UR,
        config=_ignoring(ignoredResourceGroups=["kubernetes.io"]),
    ),
    _fit("13 none asked of an over-committed resource", asks({EXT_A: "0"}), used={EXT_A: "6"}),
    _fit(
        "13 hugepages of the pod, 10 of 5", asks({}, resources={"requests": {HUGE: "10"}}), NO_HUGE, code=UR
    ),
    _fit("13 hugepages of the pod, 5 of 5", asks({}, resources={"requests": {HUGE: "5"}})),
    _fit("13 a pod too many", asks({}), "Too many pods", used={"cpu": "1m"}, room={**ROOM, "pods": "1"}),
    _fit("6 a node that allows no pods", asks({}), "Too many pods", room={**ROOM, "pods": "0"}),
    _fit(
        "13 too many pods alone is never beyond help", asks({}), "Too many pods", room={**ROOM, "pods": "0"}
    ),
]


def _request(id_: str, incoming: Json, cpu: str) -> list[Row]:
    """Return two rows: a pod whose effective cpu request is `cpu`, in milli-units, fits that and not one less."""
    milli = int(cpu.removesuffix("m"))
    return [
        _fit(f"{id_}, fits {cpu}", incoming, room={"cpu": cpu}),
        _fit(f"{id_}, not {milli - 1}m", incoming, CPU, code=UR, room={"cpu": f"{milli - 1}m"}),
    ]


def _cpu(amount: str) -> dict[str, str]:
    return {"cpu": amount}


REQUEST_ROWS: Final = [
    *_request(
        "5 containers 2 + 1, init 2 and 2",
        asks(_cpu("2"), _cpu("1"), inits=[init("i", _cpu("2")), init("j", _cpu("2"))]),
        "3000m",
    ),
    *_request("5 container 1, init 4", asks(_cpu("1"), inits=[init("i", _cpu("4"))]), "4000m"),
    *_request(
        "5 init 5, sidecars 1, 2, 3, container 1",
        asks(
            _cpu("1"),
            inits=[init("i", _cpu("5")), *(_sidecar(f"s{n}", _cpu(str(n))) for n in (1, 2, 3))],
        ),
        "7000m",
    ),
    *_request(
        "5 init 5, sidecars 1, 2, init 5, sidecar 3, container 1",
        asks(
            _cpu("1"),
            inits=[
                init("i", _cpu("5")),
                _sidecar("s1", _cpu("1")),
                _sidecar("s2", _cpu("2")),
                init("j", _cpu("5")),
                _sidecar("s3", _cpu("3")),
            ],
        ),
        "8000m",
    ),
    *_request(
        "5 sidecar 10, init 200, container 100",
        asks(_cpu("100m"), inits=[_sidecar("s", _cpu("10m")), init("i", _cpu("200m"))]),
        "210m",
    ),
    *_request(
        "5 pod-level 18m over containers of 12m",
        asks(_cpu("7m"), _cpu("5m"), resources={"requests": _cpu("18m")}),
        "18m",
    ),
    *_request(
        "5 pod-level storage is ignored", asks(_cpu("2m"), resources={"requests": {"storage": "9"}}), "2m"
    ),
    *_request("5 overhead alone", asks(overhead=_cpu("1")), "1000m"),
    *_request("4 two containers of half a milli-cpu", asks(_cpu("0.5m"), _cpu("0.5m")), "1m"),
    *_request("4 a container of a tenth of a milli-cpu", asks(_cpu("0.1m")), "1m"),
]


def _resizing(*, spec: str, allocated: str, actual: str, infeasible: bool) -> Json:
    """Return a pod on node `n` with a resize under way, in cpu."""
    made = user(_cpu(spec))
    found = {"name": "c", "resources": {"requests": _cpu(actual)}, "allocatedResources": _cpu(allocated)}
    made["status"] |= {"phase": "Running", "containerStatuses": [found]}
    if infeasible:
        made["status"]["conditions"] = [
            {"type": "PodResizePending", "reason": "Infeasible", "status": "True"}
        ]
    return made


def _started(*, init_spec: str, init_actual: str) -> Json:
    """Return a pod on node `n` whose only request is its init container's, which held another amount."""
    made = user(None)
    made["spec"]["initContainers"] = [init("i", _cpu(init_spec))]
    made["status"] |= {"initContainerStatuses": [{"name": "i", "resources": {"requests": _cpu(init_actual)}}]}
    return made


RESIZE_ROWS: Final = [
    Row(
        f"5 {id_}: {held} of 10 held, {10 - held + free} asked",
        FIT,
        [node("n", allocatable={"cpu": "10"}), holder],
        asks(_cpu(str(10 - held + free))),
        refused={"n": (U, CPU)} if free else {},
    )
    for id_, held, holder in (
        ("spec 4, status 2", 4, _resizing(spec="4", allocated="2", actual="2", infeasible=False)),
        ("spec 4, status 2, infeasible", 2, _resizing(spec="4", allocated="2", actual="2", infeasible=True)),
        (
            "spec 6, allocated 4, actual 2, infeasible",
            4,
            _resizing(spec="6", allocated="4", actual="2", infeasible=True),
        ),
    )
    for free in (0, 1)
] + [
    Row(
        "5 the status of an init container that has ended is ignored",
        FIT,
        [node("n", allocatable={"cpu": "10"}), _started(init_spec="2", init_actual="8")],
        asks(_cpu("8")),
        refused={},
    )
]

ROWS: Final = [*FILTER_ROWS, *REQUEST_ROWS, *RESIZE_ROWS]
