"""Pods with equal specs share one object, however long the spec is, and what terms have in common is one object too."""

from __future__ import annotations

import json

from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import usable
from tests.support import build


def decoded(decoder: PodDecoder, name: str, *, last: str, n_terms: int = 50) -> Pod:
    """Return a pod with terms of which the last is about the app `last`."""
    apps = [*(f"app-{number}" for number in range(n_terms - 1)), last]
    terms = [build.term(build.ZONE, build.selector(f"app={app}", "tier=web")) for app in apps]
    return decoder.decode(json.dumps(build.pod(name, affinity=build.affinity(anti_required=terms))).encode())


def test_long_specs_are_one_object_if_they_are_equal_alone() -> None:
    decoder = PodDecoder()
    first, same = decoded(decoder, "p", last="a"), decoded(decoder, "q", last="a")
    other = decoded(decoder, "r", last="b")
    assert first.spec is same.spec
    assert other.spec != first.spec


def test_terms_share_what_they_have_in_common() -> None:
    pod = decoded(PodDecoder(), "p", last="a")
    first, second, *_ = usable(pod.spec.affinity.required_anti)
    assert first.namespaces is second.namespaces
    assert first.topology_key is second.topology_key
    assert first.selector.requirements[0] != second.selector.requirements[0]
    assert first.selector.requirements[1] is second.selector.requirements[1]
