"""If `reads_labels` is False for a change, the hint says the same of all pods of a spec; `needs` leaves no pod out."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Final

import pytest

from scheduler.daemon.assembly.profiles import build_profiles
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.framework.events import ClusterEventWithHint, Hint, Resource
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from tests.engine.plugins.waking import is_asked
from tests.support.build import HOSTNAME, ZONE, affinity, container, pod, selector, spread, term

_DECODER: Final = PodDecoder()
_A, _B = selector("app=a"), selector("app=b")
_PENDING: Final = {
    "plain": {},
    "near itself": {"affinity": affinity(required=[term(ZONE, _A)])},
    "away from others": {"affinity": affinity(anti_required=[term(HOSTNAME, _B)])},
    "near any": {"affinity": affinity(required=[term(ZONE, selector("app"))])},
    "away from any": {"affinity": affinity(anti_required=[term(ZONE, selector("!app"))])},
    "spread": {"spread": [spread(ZONE, _A)]},
    "spread by a key of its own": {"spread": [{**spread(ZONE, _A), "matchLabelKeys": ["version"]}]},
    "large": {"containers": [container(requests={"cpu": "64"})]},
}
_LABELS: Final[tuple[dict[str, str], ...]] = ({"app": "a"}, {"app": "b"}, {"app": "a", "version": "1"}, {})


def _decoded(name: str, **settings: object) -> Pod:
    return _DECODER.decode(json.dumps(pod(name, **settings)).encode())  # type: ignore[arg-type]  # its keywords


def _events() -> list[ClusterEventWithHint]:
    profiles = build_profiles(default_settings(), ClusterView(ClusterState()))
    return [
        registered
        for profile in profiles.values()
        for plugin in profile.rejecting_plugins()
        for registered in plugin.events_to_register()
        if registered.hint is not None and registered.resource is Resource.POD
    ]


def _changes() -> list[tuple[Pod | None, Pod | None]]:
    running = [
        _decoded(f"running-{number}", labels=labels, node="n", **settings)
        for number, (labels, settings) in enumerate(
            product(_LABELS, ({}, {"affinity": affinity(anti_required=[term(ZONE, _A)])}))
        )
    ]
    relabelled = [
        (old, replace(old, labels=labels, resource_version="2")) for old in running for labels in _LABELS
    ]
    return [*((None, one) for one in running), *((one, None) for one in running), *relabelled]


@pytest.mark.parametrize("settings", _PENDING.values(), ids=_PENDING)
def test_what_is_said_of_labels_holds(settings: dict[str, object]) -> None:
    first = _decoded("waiting", **settings)
    alike = [replace(first, uid=f"uid-{number}", labels=labels) for number, labels in enumerate(_LABELS)]
    n_shared = 0
    for registered, (old, new) in product(_events(), _changes()):
        assert registered.hint is not None
        if not any(registered.reads_labels(one, old, new) for one in alike):
            n_shared += 1
            assert len({registered.hint(one, old, new) for one in alike}) == 1, (registered, old, new)
        assert len({registered.reads_labels(one, old, new) for one in alike}) == 1
    assert n_shared > 50


@pytest.mark.parametrize("settings", _PENDING.values(), ids=_PENDING)
def test_a_pod_that_is_helped_is_asked_about(settings: dict[str, object]) -> None:
    waiting = _decoded("waiting", **settings)
    n_left_out = 0
    for registered, (old, new) in product(_events(), _changes()):
        assert registered.hint is not None
        asked = is_asked(registered, waiting, old, new)
        assert asked or registered.hint(waiting, old, new) is Hint.SKIP, (registered, old, new)
        n_left_out += not asked
    assert n_left_out > 10


def test_a_pod_that_is_bound_asks_no_pod_that_waits_for_another() -> None:
    """Its status changes, and the API server adds the labels of its zone; it may keep thousands of others away."""
    waiting = _decoded("waiting", affinity=affinity(anti_required=[term(HOSTNAME, _B)]))
    running = _decoded(
        "running", labels={"app": "c"}, node="n", affinity=affinity(anti_required=[term(ZONE, _A)])
    )
    changes = (
        replace(running, phase="Running"),
        replace(running, labels={**running.labels, ZONE: "z"}),
    )
    narrowed = [registered for registered in _events() if registered.needs is not None]
    assert narrowed
    for registered in narrowed:
        assert not any(is_asked(registered, waiting, running, changed) for changed in changes)
