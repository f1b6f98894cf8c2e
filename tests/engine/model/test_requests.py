"""Effective pod requests in the variant of each use: upstream's cases, and the reference on drawn pods."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.requests import (
    filter_request,
    fit_score_request,
    is_extended,
    is_scalar,
    non_zero_on_node,
    on_node_request,
)
from tests.reference import requests as reference

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


def described(
    *containers: Json,
    init: list[Json] | None = None,
    overhead: Amounts | None = None,
    level: Amounts | None = None,
    **status: object,
) -> Json:
    """Return a pod with these containers and pod-level requests; `status` is copied unchanged."""
    spec: Json = {"containers": containers, "initContainers": init or [], "overhead": overhead or {}}
    if level is not None:
        spec["resources"] = {"requests": level}
    return {"metadata": {"name": "p", "namespace": "ns"}, "spec": spec, "status": status}


def pod(*containers: Json, **more: Any) -> Pod:
    return DECODER.decode(json.dumps(described(*containers, **more)).encode())


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
            pod(
                container("a", cpu="2"),
                container("b", cpu="1"),
                init=[container("i", cpu="2"), container("j", cpu="2")],
            ),
            {"cpu": 3000}, id="containers above init containers"
        ),
        pytest.param(pod(container(cpu="1"), init=[container("i", cpu="4")]), {"cpu": 4000}, id="an init container"),
        pytest.param(
            pod(container(cpu="1"), init=[container("i", cpu="5"), sidecar("s", cpu="1"), sidecar("t", cpu="5")]),
            {"cpu": 7000}, id="sidecars that start after an init container"
        ),
        pytest.param(
            pod(container(cpu="1"), init=[sidecar("s", cpu="3"), container("i", cpu="5"), sidecar("t", cpu="3")]),
            {"cpu": 8000}, id="a sidecar beside an init container"
        ),
        pytest.param(pod(container(cpu="0.5m"), container(cpu="0.5m")), {"cpu": 1}, id="the total is rounded"),
        pytest.param(pod(container(cpu="0.1m")), {"cpu": 1}, id="up"),
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
            pod(
                container(cpu="6"),
                containerStatuses=[held("c", {"cpu": "2"}, {"cpu": "4"})],
                conditions=INFEASIBLE,
            ),
            {"cpu": 4000},
            id="an infeasible resize counts what is allocated",
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
    ("name", "scalar", "extended"),
    [
        pytest.param("cpu", False, False, id="cpu"),
        pytest.param("memory", False, False, id="memory"),
        pytest.param("ephemeral-storage", False, False, id="ephemeral storage"),
        pytest.param("pods", False, False, id="pods"),
        pytest.param("storage", False, False, id="storage"),
        pytest.param("gpu", False, False, id="no prefix"),
        pytest.param("vendor.io/gpu", True, True, id="vendor's"),
        pytest.param("kubernetes.io/gpu", True, False, id="native with a prefix"),
        pytest.param("sub.kubernetes.io/gpu", True, False, id="native subdomain"),
        pytest.param("hugepages-2Mi", True, False, id="hugepages"),
        pytest.param("attachable-volumes-aws-ebs", True, False, id="attachable volumes"),
        pytest.param("requests.vendor.io/gpu", False, False, id="a quota's name"),
        pytest.param("vendor.io/bad name", False, False, id="bad syntax"),
        pytest.param("vendor.io/a/b", False, False, id="two slashes"),
        pytest.param(f"{'v' * 244}/gpu", True, True, id="longest prefix that fits a quota's name"),
        pytest.param(f"{'v' * 245}/gpu", False, False, id="prefix too long for a quota's name"),
    ],
)
def test_resource_names_are_sorted_as_upstream_sorts_them(name, scalar, extended):
    assert (is_scalar(name), is_extended(name)) == (scalar, extended)


amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "vendor.io/gpu", "hugepages-2Mi", "storage"]),
    st.sampled_from(["0", "1", "2.5m", "300m", "7", "1Ki"]),
)
statuses = st.none() | st.tuples(amounts, st.none() | amounts)
containers = st.lists(st.tuples(amounts, st.booleans(), statuses), max_size=4)


def reported(name: str, status: tuple[Amounts, Amounts | None] | None) -> list[Json]:
    return [] if status is None else [held(name, *status)]


@given(
    containers,
    containers,
    amounts,
    st.none() | amounts,
    statuses,
    st.sampled_from(([], INFEASIBLE, DEFERRED)),
)
def test_every_request_is_the_reference_s(apps, inits, overhead, level, level_status, conditions):
    status = {
        "containerStatuses": [each for i, (*_, its) in enumerate(apps) for each in reported(f"c{i}", its)],
        "initContainerStatuses": [
            each for i, (*_, its) in enumerate(inits) for each in reported(f"i{i}", its)
        ],
        "conditions": conditions,
    }
    for its in reported("", level_status):
        status |= {name: its[name] for name in ("resources", "allocatedResources") if name in its}
    document = described(
        *(container(f"c{i}", **asked) for i, (asked, *_) in enumerate(apps)),
        init=[
            (sidecar if stays else container)(f"i{i}", **asked) for i, (asked, stays, _) in enumerate(inits)
        ],
        overhead=overhead,
        level=level,
        **status,
    )
    written = DECODER.decode(json.dumps(document).encode())
    in_filter = reference.pod_requests(document, use_status=False, pod_level=True)
    on_node = reference.pod_requests(document, use_status=True, pod_level=True)
    in_score = reference.pod_requests(
        document, use_status=False, pod_level=False, non_missing=reference.NON_ZERO
    )
    assert filter_request(written) == reference.in_units(in_filter)
    assert on_node_request(written) == reference.in_units(on_node)
    assert fit_score_request(written) == reference.in_units(in_score)
    non_zero = reference.in_units(reference.non_zero_requests(document))
    assert non_zero_on_node(written) == (non_zero.get("cpu", 0), non_zero.get("memory", 0))
