"""Edge cases of the scores by resources and images: rules of nodes, §5 and §13-§15."""

from collections.abc import Mapping, Sequence
from typing import Final

from tests.support.build import Json, configuration, container, node, pod
from tests.support.cases.fit_filter_rows import EXT_A, FIT, asks, init, user
from tests.support.cases.row import Row

BALANCED: Final = "NodeResourcesBalancedAllocation"
IMAGES: Final = "ImageLocality"


def _strategy(kind: str, weights: Mapping[str, int], shape: Sequence[tuple[int, int]] = ()) -> Json:
    strategy: Json = {"type": kind, "resources": [{"name": n, "weight": w} for n, w in weights.items()]}
    if shape:
        points = [{"utilization": utilization, "score": score} for utilization, score in shape]
        strategy["requestedToCapacityRatio"] = {"shape": points}
    return configuration({FIT: {"scoringStrategy": strategy}})


EVEN: Final = {"cpu": 1, "memory": 1}
DOWN: Final = ((0, 10), (100, 0))


def _full(
    id_: str,
    score: int,
    *,
    used: Mapping[str, str],
    asked: Mapping[str, str],
    room: Mapping[str, str],
    config: Json | None = None,
) -> Row:
    objects = [node("n", allocatable={"pods": "110", **room}), user(used)]
    return Row(id_, FIT, objects, asks(asked), config=config, scores={"n": score})


ROOMY: Final = {"cpu": "4000m", "memory": "10000"}
PART: Final = {"cpu": "1000m", "memory": "2000"}
MORE: Final = {"cpu": "2000m", "memory": "3000"}
#: A node for 250m and 1000Mi, and requestless pods of 100m and 200Mi each.
SMALL: Final = {"cpu": "250m", "memory": "1000Mi"}

FIT_SCORE_ROWS: Final = [
    _full("13 least: 3000/4000 and 5000/10000", 37, used=PART, asked=MORE, room=ROOMY),
    _full(
        "13 most: 3000/4000 and 5000/10000",
        62,
        used=PART,
        asked=MORE,
        room=ROOMY,
        config=_strategy("MostAllocated", EVEN),
    ),
    *(
        Row(
            f"13 most: a requestless pod beside {n} others",
            FIT,
            [node("n", allocatable=SMALL), *(user(None, name=f"u{i}") for i in range(n))],
            pod(),
            config=_strategy("MostAllocated", EVEN),
            scores={"n": score},
        )
        for n, score in ((2, 80), (0, 30))
    ),
    _full(
        "13 ratio: 75% and 50%, falling",
        38,
        used=PART,
        asked=MORE,
        room=ROOMY,
        config=_strategy("RequestedToCapacityRatio", EVEN, DOWN),
    ),
    Row(
        "13 ratio: a resource scored 0 drops out",
        FIT,
        # Used beyond the node, asked for nothing, so that the filter lets the pod in.
        [node("n", allocatable=ROOMY), user({"cpu": "5000m", "memory": "9000"})],
        asks({"cpu": "0", "memory": "0"}),
        config=_strategy("RequestedToCapacityRatio", EVEN, DOWN),
        scores={"n": 10},
    ),
    *(
        Row(
            f"13 ratio: {asked} of {room} of a vendor's resource",
            FIT,
            [node("n", allocatable={EXT_A: room})],
            asks({EXT_A: asked}),
            config=_strategy("RequestedToCapacityRatio", {EXT_A: 1}, ((0, 0), (100, 1))),
            scores={"n": score},
        )
        for asked, room, score in (("2", "8", 2), ("2", "4", 5), ("4", "4", 10))
    ),
    Row(
        "13 a configured resource that the pod does not ask for",
        FIT,
        [node("n", allocatable={**ROOMY, EXT_A: "4"}), user({**PART, EXT_A: "4"})],
        asks(MORE),
        config=_strategy("LeastAllocated", {**EVEN, EXT_A: 5}),
        scores={"n": 37},
    ),
    Row(
        "13 pod-level requests are not seen by scoring",
        FIT,
        [node("n", allocatable={"cpu": "1", "memory": "2000Mi"})],
        asks({}, resources={"requests": {"cpu": "900m", "memory": "1800Mi"}}),
        scores={"n": 90},
    ),
    Row(
        "5 NonZero with pod-level cpu only: cpu as stated, memory assumed per container",
        FIT,
        [
            node("n", allocatable={"cpu": "1000m", "memory": "1000Mi"}),
            pod(
                "user",
                node="n",
                spec={"resources": {"requests": {"cpu": "500m"}}, "initContainers": [init("i", None)]},
            ),
        ],
        asks({"cpu": "0", "memory": "0"}),
        scores={"n": (50 + 80) // 2},
    ),
    Row(
        "5 NonZero with pod-level cpu, memory named by one of two containers: none assumed for the other",
        FIT,
        [
            node("n", allocatable={"cpu": "1000m", "memory": "1000Mi"}),
            pod(
                "user",
                node="n",
                containers=[container("c", requests={"memory": "100Mi"}), container("d")],
                spec={"resources": {"requests": {"cpu": "500m"}}},
            ),
        ],
        asks({"cpu": "0", "memory": "0"}),
        scores={"n": (50 + 90) // 2},
    ),
]


def _balance(
    id_: str,
    score: int,
    *,
    used: Mapping[str, str],
    asked: Mapping[str, str],
    room: Mapping[str, str],
    **more: Json,
) -> Row:
    objects = [node("n", allocatable=room), user(used)]
    return Row(id_, BALANCED, objects, asks(asked), config=more.get("config"), scores={"n": score})


HUNDRED: Final = {"cpu": "100", "memory": "100"}
WITH_GPU: Final = configuration(
    {BALANCED: {"resources": [{"name": n, "weight": 1} for n in ("cpu", "memory", EXT_A)]}}
)


def _use(cpu: int, memory: int) -> dict[str, str]:
    return {"cpu": str(cpu), "memory": str(memory)}


BALANCED_ROWS: Final = [
    *(
        _balance(
            f"14 {before} % -> {after} %",
            score,
            used=_use(*before),
            asked=_use(after[0] - before[0], after[1] - before[1]),
            room=HUNDRED,
        )
        for before, after, score in (
            ((0, 0), (75, 50), 68),
            ((0, 0), (50, 50), 75),
            ((30, 0), (60, 25), 73),
            ((30, 25), (60, 50), 74),
            ((30, 10), (60, 20), 70),
            ((100, 0), (100, 100), 100),
            ((0, 0), (0, 100), 50),
        )
    ),
    _balance(
        "14 a third resource asked for: 85.7, 12.5, 37.5 % -> 85.7, 12.5, 50 %",
        75,
        used={"cpu": "3000m", "memory": "5000", EXT_A: "3"},
        asked={"cpu": "0", "memory": "0", EXT_A: "1"},
        room={"cpu": "3500m", "memory": "40000", EXT_A: "8"},
        config=WITH_GPU,
    ),
    _balance(
        "14 a third resource configured, not asked for",
        68,
        used={**_use(0, 0), EXT_A: "8"},
        asked=_use(75, 50),
        room={**HUNDRED, EXT_A: "8"},
        config=WITH_GPU,
    ),
    _balance(
        "14 a resource of which the node has none is left out",
        75,
        used={"cpu": "50"},
        asked={"cpu": "25"},
        room={"cpu": "100", "memory": "0"},
    ),
    _balance(
        "14 a third resource of which the node has one: 0, 0, 0 % -> 50, 50, 100 %",
        63,
        used=_use(0, 0),
        asked={**_use(50, 50), EXT_A: "1"},
        room={**HUNDRED, EXT_A: "1"},
        config=WITH_GPU,
    ),
    Row("14 a pod that asks for nothing", BALANCED, [node("n")], pod(), scores="skipped"),
]

MB: Final = 1024 * 1024


def _image_row(
    id_: str,
    scores: Mapping[str, int],
    images: Mapping[str, Mapping[str, int]],
    *containers: str,
    **spec: object,
) -> Row:
    """Return a row; `images` has by node the MB of each image there."""
    nodes = [
        node(name, images={image: size * MB for image, size in held.items()}) for name, held in images.items()
    ]
    incoming = pod(
        containers=[container(f"c{i}", image=image) for i, image in enumerate(containers)], spec=dict(spec)
    )
    return Row(id_, IMAGES, nodes, incoming, scores=scores)


IMAGE_ROWS: Final = [
    _image_row("15 40 + 300", {"a": 7, "b": 0}, {"a": {"x:1": 40, "y:1": 300}, "b": {}}, "x:1", "y:1"),
    _image_row("15 40 is below the least", {"a": 0, "b": 0}, {"a": {"x:1": 40}, "b": {}}, "x:1", "y:1"),
    _image_row("15 4000 on one of two", {"a": 100, "b": 0}, {"a": {"x:1": 4000}, "b": {}}, "x:1", "y:1"),
    _image_row(
        "15 an image volume counts, but not as a container",
        {"a": 12, "b": 0},
        {"a": {"v:1": 300}, "b": {}},
        "x:1",
        volumes=[{"name": "v", "image": {"reference": "v:1"}}],
    ),
    _image_row(
        "15 the image of an init container",
        {"a": 6, "b": 0},
        {"a": {"i:1": 300}, "b": {}},
        "x:1",
        initContainers=[container("i", image="i:1")],
    ),
    _image_row(
        "15 no tag means latest, a port is no tag",
        {"a": 23, "b": 0},
        {"a": {"repo:5000/x:latest": 500}, "b": {"repo:5000/x": 500}},
        "repo:5000/x",
    ),
    _image_row("15 a digest stays", {"a": 23, "b": 0}, {"a": {"x@sha256:0": 500}, "b": {}}, "x@sha256:0"),
    _image_row(
        "15 no registry is added", {"a": 0, "b": 0}, {"a": {"docker.io/library/x:1": 500}, "b": {}}, "x:1"
    ),
]

ROWS: Final = [*FIT_SCORE_ROWS, *BALANCED_ROWS, *IMAGE_ROWS]
