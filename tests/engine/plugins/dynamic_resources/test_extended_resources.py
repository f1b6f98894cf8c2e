"""Extended resources that device classes provide: which nodes are alike, and how the claim for them is named."""

from __future__ import annotations

import json
from itertools import product

import pytest

from scheduler.engine.model.nodes import Node, decode_node
from scheduler.engine.plugins.dynamic_resources.extended_resources import (
    extended_request,
    special_claim,
    supply_of,
)
from tests.engine.core.claim_cluster import ClaimCluster
from tests.support import build
from tests.support.device_documents import device_class

_GPU = "example.com/gpu"
_RESOURCES = ("example.com/a", "example.com/b", "example.com/c")


def _node(amounts: tuple[str | None, ...]) -> Node:
    room = {name: amount for name, amount in zip(_RESOURCES, amounts, strict=True) if amount is not None}
    return decode_node(json.dumps(build.node("n", allocatable=room)).encode())


def test_nodes_that_serve_other_resources_have_other_numbers() -> None:
    """A node may have some of a resource, none of it, or not know it; how much it has does not matter."""
    numbers = {each: supply_of(_node(each), _RESOURCES) for each in product(("1", "0", None), repeat=3)}
    assert len(set(numbers.values())) == 27
    assert supply_of(_node(("2", "0", None)), _RESOURCES) == numbers["1", "0", None]
    assert supply_of(None, _RESOURCES) not in numbers.values()


@pytest.mark.parametrize(
    ("name", "prefix"), [("p", "p"), ("p" * 253, "p" * 223), (f"{'p' * 222}.{'q' * 9}", "p" * 222)]
)
def test_the_claim_of_a_pod_with_a_long_name_has_a_valid_name(name: str, prefix: str) -> None:
    """A name has 253 bytes at most, and what is before the suffix ends as a name may end."""
    cluster = ClaimCluster()
    cluster.show(device_class("gpu", _GPU))
    asking = build.pod(name, containers=[build.container(requests={_GPU: "1"})])
    pod = cluster.decoded(asking)
    claim = special_claim(pod, extended_request(pod), cluster.state.devices)
    assert claim is not None
    start, _, digest = claim.created_name.rpartition("-")
    assert (start, len(digest)) == (f"{prefix}-extended-resources", 10)
