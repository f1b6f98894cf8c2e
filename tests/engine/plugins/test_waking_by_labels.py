"""
A node's new labels wake the pods that inter-pod affinity rejected, if their rules name a changed key, and no others.

The reference finds the rules by comparing names, and a decision in full says whether the change helped.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler.engine.core.decide import ScheduleResult, decide
from scheduler.engine.model.pods import Pod
from scheduler.engine.queueing.queued_pod import SubQueue
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.existing_terms import MAX_ASKED
from tests.support.build import Json, affinity, selector, term
from tests.support.driving import NAME, Driver

KEYS: Final = ("zone", "rack", "row")
APPS: Final = ("web", "db")


class Rule(NamedTuple):
    """One required term. With `most`, it keeps out pods from this number in a domain on."""

    key: str
    app: str
    most: int | None = None


class Drawn(NamedTuple):
    """A pod with the app as its label."""

    app: str
    near: Sequence[Rule]
    apart: Sequence[Rule]

    def described(self) -> Json:
        """Return what the pod's description has of labels, affinity and annotations."""
        near, apart = (
            [term(rule.key, selector(f"app={rule.app}")) for rule in rules if rule.most is None]
            for rules in self[1:]
        )
        limited = [
            {**term(rule.key, selector(f"app={rule.app}")), "maxPodsPerDomain": rule.most}
            for rule in self.apart
            if rule.most is not None
        ]
        asked = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": limited}}
        return {
            "labels": {"app": self.app},
            "affinity": affinity(required=near, anti_required=apart),
            "annotations": {"affinity-scheduler.io/affinity": json.dumps(asked)} if limited else {},
        }


NODE_LABELS: Final = st.dictionaries(st.sampled_from(KEYS), st.sampled_from("12"))
RULE: Final = st.builds(Rule, st.sampled_from(KEYS), st.sampled_from(APPS))
LIMIT: Final = st.builds(Rule, st.sampled_from(KEYS), st.sampled_from(APPS), st.just(2))
PODS: Final = st.builds(
    Drawn, st.sampled_from(APPS), st.lists(RULE, max_size=2), st.lists(RULE | LIMIT, max_size=2)
)


def _driver(labels: Sequence[Mapping[str, str]], running: Sequence[Drawn]) -> Driver:
    driver = Driver()
    for number, each in enumerate(labels):
        driver.node(f"n{number}", labels=dict(each))
    for number, drawn in enumerate(running):
        node_name = f"n{number % len(labels)}"
        driver.pod(f"r{number}", node=node_name, **drawn.described())
    return driver


def _is_asleep(driver: Driver, pod: Pod) -> bool:
    waiting = driver.queue.get(pod.uid)
    return waiting is not None and waiting.sub_queue is SubQueue.UNSCHEDULABLE


def _fits(driver: Driver, pod: Pod) -> bool:
    profile = driver.profiles[NAME]
    result = decide(pod, ClusterView(driver.state), profile, random.Random(0))
    return isinstance(result, ScheduleResult)


def _left(rule: Rule) -> dict[str, Any]:
    """A node leaves the domain in which a rule of running pods keeps out another one."""
    return {
        "labels": [{rule.key: "1"}],
        "running": [Drawn(rule.app, (), [rule])] * (rule.most or 1),
        "waiting": [Drawn(rule.app, (), ())],
        "changed": 0,
        "new_labels": {},
    }


@settings(max_examples=120, deadline=None)
@example(**_left(Rule("zone", "web")))
@example(**_left(Rule("zone", "web", 2)))
@given(
    labels=st.lists(NODE_LABELS, min_size=1, max_size=3),
    running=st.lists(PODS, max_size=4),
    waiting=st.lists(PODS, min_size=1, max_size=3),
    changed=st.integers(0, 2),
    new_labels=NODE_LABELS,
)
def test_new_labels_wake_whom_they_may_help(
    labels: list[dict[str, str]],
    running: list[Drawn],
    waiting: list[Drawn],
    changed: int,
    new_labels: dict[str, str],
) -> None:
    driver = _driver(labels, running)
    pods = {driver.pod(f"p{number}", **drawn.described()): drawn for number, drawn in enumerate(waiting)}
    for _ in waiting:
        driver.cycle()
    asleep = {pod: drawn for pod, drawn in pods.items() if _is_asleep(driver, pod)}
    placed = [drawn for pod, drawn in pods.items() if driver.queue.get(pod.uid) is None]
    number = changed % len(labels)
    # A pod that was placed meanwhile wakes others once a watch shows it, not with the labels.
    unfit = {pod.uid for pod in asleep if not _fits(driver, pod)}
    driver.node(f"n{number}", labels=new_labels)
    old = labels[number]
    differing = {key for key in KEYS if old.get(key) != new_labels.get(key)}
    for pod, drawn in asleep.items():
        own = {rule.key for rule in (*drawn.near, *drawn.apart)}
        against = {rule.key for each in (*running, *placed) for rule in each.apart if rule.app == drawn.app}
        is_woken = not _is_asleep(driver, pod)
        if pod.uid in unfit and _fits(driver, pod):
            assert is_woken
        if is_woken:
            assert differing & (own | against)
    driver.audit()


def test_too_many_terms_wake_in_doubt() -> None:
    """One tenant's terms cost every change of a node a bounded time."""
    far = [Rule("zone", "web")]
    crowd = [
        affinity(anti_required=[term("rack", selector(f"z{number} notin x"))])
        for number in range(MAX_ASKED + 1)
    ]
    driver = _driver([{"zone": "1", "row": "1"}], [Drawn("db", (), far)])
    pod = driver.pod("p", labels={"app": "web"})
    driver.cycle()
    driver.node("n0", labels={"zone": "1", "row": "2"})
    assert _is_asleep(driver, pod)
    for number, each in enumerate(crowd):
        driver.pod(f"c{number}", node="n0", labels={"app": "crowd"}, affinity=each)
    driver.node("n0", labels={"zone": "1", "row": "3"})
    assert not _is_asleep(driver, pod)
