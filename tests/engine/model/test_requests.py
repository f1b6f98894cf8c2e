"""Effective pod requests: the variant of each use, and properties of the algorithm; more in `tests.support.cases`."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.requests import (
    NON_ZERO_DEFAULTS,
    filter_request,
    fit_score_request,
    is_extended,
    is_recognised,
    is_scalar,
    non_zero_on_node,
    on_node_request,
    pod_requests,
)
from scheduler.engine.syntax.quantity import parse_quantity

Amounts = dict[str, str]
Json = dict[str, object]
MI = 2**20
DECODER = PodDecoder()
INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
DEFERRED = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]


def container(name: str = "c", **requests: str) -> Json:
    """Return a container with `requests`."""
    return {"name": name, "resources": {"requests": requests}} if requests else {"name": name}


def sidecar(name: str = "s", **requests: str) -> Json:
    """Return a sidecar: an init container that keeps running."""
    return {**container(name, **requests), "restartPolicy": "Always"}


def held(name: str, actual: Amounts, allocated: Amounts | None = None) -> Json:
    """Return a container status with the resources that the container holds."""
    status: Json = {"name": name, "resources": {"requests": actual}}
    if allocated is not None:
        status["allocatedResources"] = allocated
    return status


def pod(
    *containers: Json,
    init: list[Json] | None = None,
    overhead: Amounts | None = None,
    level: Amounts | None = None,
    **status: object,
) -> Pod:
    """Return a pod with these containers and pod-level requests; `status` is copied unchanged."""
    spec: Json = {"containers": containers, "initContainers": init or [], "overhead": overhead or {}}
    if level is not None:
        spec["resources"] = {"requests": level}
    return DECODER.decode(
        json.dumps({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec, "status": status}).encode()
    )


@pytest.mark.parametrize(
    ("written", "request_in_units"),
    [
        pytest.param(
            pod(container(cpu="12m"), level={"cpu": "3m"}), {"cpu": 3}, id="pod-level requests replace a larger sum"
        ),
        pytest.param(
            pod(container(cpu="2m"), level={"memory": "2Mi"}),
            {"cpu": 2, "memory": 2 * MI},
            id="pod-level memory beside container cpu",
        ),
        pytest.param(
            pod(container(cpu="1"), init=[container("i", cpu="3")], level={"cpu": "2"}, overhead={"cpu": "500m"}),
            {"cpu": 2500},
            id="overhead comes last",
        ),
        pytest.param(
            pod(container(cpu="0", **{"vendor.io/gpu": "1", "ephemeral-storage": "1Gi", "pods": "3", "storage": "1"})),
            {"cpu": 0, "vendor.io/gpu": 1, "ephemeral-storage": 1024 * MI},
            id="names that are not counted are left out",
        ),
    ],
)  # fmt: skip
def test_the_effective_request_is_upstreams(written, request_in_units):
    assert filter_request(written) == request_in_units
    assert on_node_request(written) == request_in_units


@pytest.mark.parametrize(
    ("written", "on_node"),
    [
        pytest.param(
            pod(container(cpu="2"), containerStatuses=[held("c", {"cpu": "4"})]),
            {"cpu": 4000},
            id="status above spec",
        ),
        pytest.param(
            pod(container(cpu="4"), containerStatuses=[held("c", {"cpu": "2"})], conditions=DEFERRED),
            {"cpu": 4000},
            id="a deferred resize counts the spec",
        ),
        pytest.param(
            pod(
                container(cpu="30m", memory="20M", **{"ephemeral-storage": "10G"}),
                containerStatuses=[
                    held(
                        "c",
                        {"cpu": "10m", "memory": "30M", "ephemeral-storage": "20G"},
                        {"cpu": "20m", "memory": "10M", "ephemeral-storage": "30G"},
                    )
                ],
            ),
            {"cpu": 30, "memory": 30 * 10**6, "ephemeral-storage": 30 * 10**9},
            id="the largest for each resource by itself",
        ),
        pytest.param(
            pod(
                container(cpu="1"),
                init=[sidecar(cpu="1"), container("i", cpu="1")],
                initContainerStatuses=[held("s", {"cpu": "5"}), held("i", {"cpu": "50"})],
            ),
            {"cpu": 6000},
            id="the status of a sidecar counts, of a plain init not",
        ),
        pytest.param(
            pod(
                container(cpu="1"),
                level={"cpu": "2"},
                resources={"requests": {"cpu": "3", "memory": "1Gi"}},
                allocatedResources={"cpu": "4"},
            ),
            {"cpu": 4000},
            id="a pod-level resize counts for the names of the spec",
        ),
        pytest.param(
            pod(
                container(cpu="1"),
                level={"cpu": "9"},
                conditions=INFEASIBLE,
                resources={"requests": {"cpu": "3"}},
                allocatedResources={"cpu": "4"},
                containerStatuses=[held("c", {"cpu": "1"})],
            ),
            {"cpu": 4000},
            id="an infeasible pod-level resize leaves the spec out",
        ),
    ],
)
def test_a_pod_on_a_node_takes_what_it_holds_during_a_resize(written, on_node):
    assert on_node_request(written) == on_node


def test_a_resize_does_not_change_the_filter_and_score_requests():
    resized = pod(container(cpu="4"), containerStatuses=[held("c", {"cpu": "8"})])
    assert filter_request(resized) == {"cpu": 4000}
    assert fit_score_request(resized)["cpu"] == 4000


@pytest.mark.parametrize(
    ("written", "milli_cpu", "memory_mi"),
    [
        pytest.param(pod(container(), level={"cpu": "500m"}), 500, 200, id="pod-level cpu only"),
        pytest.param(
            pod(container(), init=[container("i")], level={"cpu": "500m"}), 500, 200, id="and an init"
        ),
        pytest.param(pod(container(cpu="0", memory="0")), 0, 0, id="an explicit 0 is no missing request"),
        pytest.param(pod(container(cpu="0")), 0, 200, id="only what is missing is assumed"),
        pytest.param(
            pod(container("a", memory="1Mi"), container("b"), level={"cpu": "500m"}),
            500,
            1,
            id="pod-level cpu: memory stated by one container",
        ),
        pytest.param(
            pod(container(cpu="1", memory="1Gi"), containerStatuses=[held("c", {"cpu": "2"})]),
            2000,
            1024,
            id="a resize counts",
        ),
    ],
)
def test_scoring_assumes_requests_that_pods_on_a_node_do_not_state(written, milli_cpu, memory_mi):
    assert non_zero_on_node(written) == (milli_cpu, memory_mi * MI)


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        pytest.param(pod(container()), {"cpu": 100, "memory": 200 * MI}, id="defaults"),
        pytest.param(
            pod(container("a", cpu="1"), container("b")),
            {"cpu": 1100, "memory": 400 * MI},
            id="per container",
        ),
        pytest.param(
            pod(container(), level={"cpu": "8", "memory": "8Gi"}),
            {"cpu": 100, "memory": 200 * MI},
            id="pod-level requests are ignored",
        ),
        pytest.param(
            pod(container(**{"vendor.io/gpu": "2"}), overhead={"cpu": "1"}),
            {"cpu": 1100, "memory": 200 * MI, "vendor.io/gpu": 2},
            id="scalars and overhead count",
        ),
    ],
)
def test_the_fit_score_assumes_what_the_incoming_pod_does_not_state(written, asked):
    assert fit_score_request(written) == asked


@pytest.mark.parametrize(
    ("name", "recognised", "scalar", "extended"),
    [
        pytest.param("cpu", True, False, False, id="cpu"),
        pytest.param("memory", True, False, False, id="memory"),
        pytest.param("ephemeral-storage", True, False, False, id="ephemeral storage"),
        pytest.param("pods", True, False, False, id="pods"),
        pytest.param("storage", False, False, False, id="storage"),
        pytest.param("gpu", False, False, False, id="no prefix"),
        pytest.param("vendor.io/gpu", True, True, True, id="vendor's"),
        pytest.param("kubernetes.io/gpu", True, True, False, id="native with a prefix"),
        pytest.param("sub.kubernetes.io/gpu", True, True, False, id="native subdomain"),
        pytest.param("hugepages-2Mi", True, True, False, id="hugepages"),
        pytest.param("attachable-volumes-aws-ebs", True, True, False, id="attachable volumes"),
        pytest.param("requests.vendor.io/gpu", False, False, False, id="a quota's name"),
        pytest.param("vendor.io/bad name", False, False, False, id="bad syntax"),
        pytest.param("vendor.io/a/b", False, False, False, id="two slashes"),
        pytest.param(f"{'v' * 244}/gpu", True, True, True, id="longest prefix that fits a quota's name"),
        pytest.param(f"{'v' * 245}/gpu", False, False, False, id="prefix too long for a quota's name"),
    ],
)
def test_resource_names_are_sorted_as_upstream_sorts_them(name, recognised, scalar, extended):
    assert (is_recognised(name), is_scalar(name), is_extended(name)) == (recognised, scalar, extended)


amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "vendor.io/gpu"]),
    st.sampled_from(["0", "1", "2.5m", "300m", "7", "1Ki"]),
)
containers = st.lists(st.tuples(amounts, st.booleans()), max_size=4)


def exact(requests: Amounts) -> dict[str, Fraction]:
    return {name: Fraction(parse_quantity(text).nano, 10**9) for name, text in requests.items()}


def literal_request(
    apps: list[dict[str, Fraction]], inits: list[tuple[dict[str, Fraction], bool]], name: str
) -> Fraction:
    """Return the largest need of one resource over a pod's life: during each init container, and running."""
    zero = Fraction(0)
    moments = []
    for index, (asked, stays) in enumerate(inits):
        beside = sum((r.get(name, zero) for r, earlier_stays in inits[:index] if earlier_stays), zero)
        if not stays:
            moments.append(beside + asked.get(name, zero))
    sidecars = sum((r.get(name, zero) for r, stays in inits if stays), zero)
    return max([*moments, sidecars + sum((r.get(name, zero) for r in apps), zero)])


@given(st.lists(amounts, max_size=3), containers, amounts, st.booleans())
def test_the_request_is_the_largest_need_over_the_life_of_the_pod(apps, inits, overhead, with_defaults):
    written = pod(
        *(container(f"c{i}", **asked) for i, asked in enumerate(apps)),
        init=[(sidecar if stays else container)(f"i{i}", **asked) for i, (asked, stays) in enumerate(inits)],
        overhead=overhead,
    )
    assumed = {"cpu": "100m", "memory": "200Mi"} if with_defaults else {}
    total = pod_requests(
        written, use_status=False, pod_level=True, non_missing=NON_ZERO_DEFAULTS if with_defaults else None
    )
    all_asked = [exact({**assumed, **asked}) for asked in apps]
    all_inits = [(exact({**assumed, **asked}), stays) for asked, stays in inits]
    for name in {"cpu", "memory", "vendor.io/gpu"}:
        expected = literal_request(all_asked, all_inits, name) + exact(overhead).get(name, 0)
        assert Fraction(total[name].nano if name in total else 0, 10**9) == expected
    assert total.keys() == {name for r in [*all_asked, *(r for r, _ in all_inits), overhead] for name in r}


@given(st.lists(amounts, max_size=3), containers, amounts)
def test_without_a_resize_a_pod_on_a_node_takes_what_the_filter_asked(apps, inits, level):
    written = pod(
        *(container(f"c{i}", **asked) for i, asked in enumerate(apps)),
        init=[(sidecar if stays else container)(f"i{i}", **asked) for i, (asked, stays) in enumerate(inits)],
        level=level,
    )
    assert on_node_request(written) == filter_request(written)
