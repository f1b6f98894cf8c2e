"""Members that say different things of their group wait, and words that no group or part reads keep a pod out."""

from __future__ import annotations

import pytest

from scheduler.engine.model.group_forms import GROUP_FROM
from scheduler.engine.model.group_topology import (
    PART,
    PART_MIN_COUNT,
    PART_REQUIRED_TOPOLOGY,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
)
from scheduler.engine.model.pod_groups import COSCHEDULING_GROUP, GROUP, MIN_COUNT, RELEASE_AFTER
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import PodGone, TimePassed
from tests.engine.core.test_group_levels import BLOCK, RACK, racks
from tests.support import build
from tests.support.driving import Driver, binds, conditions


@pytest.fixture
def cluster(driver: Driver) -> Driver:
    racks(driver, "a", a1=2, a2=2)
    racks(driver, "b", b1=2, b2=2)
    return driver


def member(
    cluster: Driver, name: str, words: dict[str, str], *, n: str = "2", replica_set: str = "", node: str = ""
) -> Pod:
    """Show a pod of one cpu in a group, as annotations say; `replica_set`: its owner, web-1 or web-2."""
    return cluster.pod(
        name,
        annotations={GROUP: "g", MIN_COUNT: n, **words},
        labels={"pod-template-hash": replica_set.partition("-")[2]} if replica_set else {},
        owner=build.owned_by("ReplicaSet", replica_set) if replica_set else None,
        cpu="1",
        node=node or None,
    )


def outcome(cluster: Driver) -> tuple[dict[str, str], set[str]]:
    """Run what waits, and let six seconds pass; return the nodes of bound pods, and the messages of the others."""
    told = cluster.cycles()
    cluster.now_s += 6
    told += cluster.handle(TimePassed())
    return binds(told), set(conditions(told).values())


def text(setting: str, first: str, second: str) -> str:
    return (
        f"pod group default/g: {setting}: p says {first}, q says {second}, expected one value for all members of the"
        " group"
    )


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            {REQUIRED_TOPOLOGY: BLOCK},
            {REQUIRED_TOPOLOGY: RACK},
            text(REQUIRED_TOPOLOGY, f'"{BLOCK}"', f'"{RACK}"'),
        ),
        (
            {REQUIRED_TOPOLOGY: BLOCK},
            {PREFERRED_TOPOLOGY: RACK},
            text(REQUIRED_TOPOLOGY, f'"{BLOCK}"', "nothing"),
        ),
        ({RELEASE_AFTER: "5"}, {RELEASE_AFTER: "6"}, text(RELEASE_AFTER, '"5"', '"6"')),
        (
            {PART: "l", PART_MIN_COUNT: "1"},
            {PART: "l", PART_MIN_COUNT: "2"},
            text(f"{PART_MIN_COUNT} of part l", '"1"', '"2"'),
        ),
        (
            {PART: "l", PART_REQUIRED_TOPOLOGY: BLOCK},
            {PART: "l", PART_REQUIRED_TOPOLOGY: RACK},
            text(f"{PART_REQUIRED_TOPOLOGY} of part l", f'"{BLOCK}"', f'"{RACK}"'),
        ),
    ],
)
def test_members_that_disagree_wait_and_say_on_what(
    cluster: Driver, first: dict[str, str], second: dict[str, str], message: str
) -> None:
    member(cluster, "p", first)
    odd = member(cluster, "q", second)
    assert outcome(cluster) == ({}, {message})
    cluster.handle(PodGone(odd.uid))
    member(cluster, "r", first)
    cluster.pass_time(20)
    assert set(outcome(cluster)[0]) == {"p", "r"}


@pytest.mark.parametrize("minima", [("2", "4"), ("5", "7")], ids=["enough for one", "enough for none"])
def test_members_that_disagree_on_the_minimum_say_so(cluster: Driver, minima: tuple[str, str]) -> None:
    for name, n in zip("pq", minima, strict=True):
        member(cluster, name, {}, n=n)
    nodes, messages = outcome(cluster)
    assert not nodes
    assert messages == {text(MIN_COUNT, f'"{minima[0]}"', f'"{minima[1]}"')}


def test_a_member_that_names_no_levels_follows_the_others(cluster: Driver) -> None:
    member(cluster, "p", {})
    member(cluster, "q", {REQUIRED_TOPOLOGY: RACK, RELEASE_AFTER: "5"})
    nodes, _ = outcome(cluster)
    assert len({host[:2] for host in nodes.values()}) == 1
    assert set(nodes) == {"p", "q"}


def test_two_parts_need_not_agree(cluster: Driver) -> None:
    member(cluster, "p", {PART: "l", PART_REQUIRED_TOPOLOGY: RACK})
    member(cluster, "q", {PART: "m", PART_REQUIRED_TOPOLOGY: BLOCK})
    assert set(outcome(cluster)[0]) == {"p", "q"}


def test_jobs_of_a_jobset_need_not_have_one_minimum(cluster: Driver) -> None:
    """It follows from the sizes of their parts, unless the pods say one."""
    for job, size in (("driver", "1"), ("workers", "2")):
        for index in range(int(size)):
            labels = {
                "jobset.sigs.k8s.io/jobset-name": "train",
                "jobset.sigs.k8s.io/replicatedjob-name": job,
                "jobset.sigs.k8s.io/job-index": "0",
            }
            cluster.pod(
                f"{job}-{index}", labels=labels, annotations={GROUP_FROM: "JobSet", PART_MIN_COUNT: size}
            )
    assert len(outcome(cluster)[0]) == 3


def test_after_a_rollout_new_members_are_placed_by_the_new_template(cluster: Driver) -> None:
    """The old ones on nodes do not bind them."""
    for name, node in (("old-1", "a1-0"), ("old-2", "a1-1")):
        member(cluster, name, {REQUIRED_TOPOLOGY: RACK}, replica_set="web-1", node=node)
    member(cluster, "new-1", {REQUIRED_TOPOLOGY: BLOCK}, replica_set="web-2")
    nodes, _ = outcome(cluster)
    assert nodes["new-1"][:2] == "a2"


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")], ids=["by name too", "against names"])
def test_of_pending_members_of_two_templates_the_newer_count(cluster: Driver, names: tuple[str, str]) -> None:
    """Neither waits for the other; the old one is placed by the new template too."""
    member(cluster, names[0], {REQUIRED_TOPOLOGY: "no/such"}, replica_set="web-1")
    assert not outcome(cluster)[0]
    member(cluster, names[1], {REQUIRED_TOPOLOGY: RACK}, replica_set="web-2")
    nodes, _ = outcome(cluster)
    assert set(nodes) == {"a", "b"}
    assert len({host[:2] for host in nodes.values()}) == 1


def test_members_of_two_deployments_have_to_agree(cluster: Driver) -> None:
    member(cluster, "p", {REQUIRED_TOPOLOGY: BLOCK}, replica_set="web-1")
    member(cluster, "q", {REQUIRED_TOPOLOGY: RACK}, replica_set="other-2")
    assert outcome(cluster) == ({}, {text(REQUIRED_TOPOLOGY, f'"{BLOCK}"', f'"{RACK}"')})


def of_group(word: str) -> str:
    return f"{GROUP} of the pod: found none, expected the name of a group beside {word}"


def of_part(word: str) -> str:
    return f"{PART} of the pod: found none, expected the name of a part beside {word}"


def of(word: str, found: str, expected: str) -> str:
    return f'{word} of the pod: found "{found}", expected {expected}'


LABEL, COUNT = "a valid label value", "1 to 5000"
IN_GROUP = {GROUP: "g", MIN_COUNT: "1"}


@pytest.mark.parametrize("where", ["labels", "annotations"])
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ({MIN_COUNT: "2"}, of_group(MIN_COUNT)),
        ({PART: "l"}, of_group(PART)),
        ({RELEASE_AFTER: "60"}, of_group(RELEASE_AFTER)),
        ({GROUP: ""}, of(GROUP, "", "the name of a group")),
        ({GROUP: "", MIN_COUNT: "1", PART: "l"}, of(GROUP, "", "the name of a group")),
        ({**IN_GROUP, PART_MIN_COUNT: "3"}, of_part(PART_MIN_COUNT)),
        ({**IN_GROUP, PART_REQUIRED_TOPOLOGY: RACK}, of_part(PART_REQUIRED_TOPOLOGY)),
        *(({**IN_GROUP, MIN_COUNT: n}, of(MIN_COUNT, n, COUNT)) for n in ("0", "5001", "-1")),
        ({GROUP: "g"}, f"{MIN_COUNT} of the pod: found none, expected 1 to 5000"),
        ({GROUP: "a\nb", MIN_COUNT: "1"}, of(GROUP, "a\\nb", LABEL)),
        *(({**IN_GROUP, PART: part}, of(PART, part, LABEL)) for part in ("", "a b")),
        *(
            ({**IN_GROUP, PART: "l", PART_MIN_COUNT: n}, of(PART_MIN_COUNT, n, COUNT))
            for n in ("", "0", "0000000010")
        ),
        (
            {**IN_GROUP, PART: "l", PART_REQUIRED_TOPOLOGY: "/"},
            of(PART_REQUIRED_TOPOLOGY, "/", "one key of node labels"),
        ),
        ({**IN_GROUP, REQUIRED_TOPOLOGY: ""}, of(REQUIRED_TOPOLOGY, "", "one key of node labels")),
        ({**IN_GROUP, PREFERRED_TOPOLOGY: ""}, of(PREFERRED_TOPOLOGY, "", "1 to 8 keys of node labels")),
    ],
)
def test_a_word_that_nothing_reads_keeps_the_pod_out(
    cluster: Driver, where: str, words: dict[str, str], problem: str
) -> None:
    cluster.pod("p", **{where: words})
    assert outcome(cluster) == ({}, {problem})


def test_a_time_that_is_no_number_of_seconds_keeps_the_pod_out(cluster: Driver) -> None:
    member(cluster, "p", {RELEASE_AFTER: "1h"}, n="1")
    assert outcome(cluster) == ({}, {of(RELEASE_AFTER, "1h", "1 to 604800")})


@pytest.mark.parametrize(
    ("word", "other"), [(GROUP, "h"), (MIN_COUNT, "2"), (REQUIRED_TOPOLOGY, "b"), (PART, "")]
)
def test_label_and_annotation_have_to_say_the_same(cluster: Driver, word: str, other: str) -> None:
    labels = {**IN_GROUP, REQUIRED_TOPOLOGY: "a", PART: "l"}
    cluster.pod("p", labels=labels, annotations={word: other})
    problem = (
        f'{word} of the pod: found "{labels[word]}" as label and "{other}" as annotation, expected one value'
    )
    assert outcome(cluster) == ({}, {problem})


def test_words_beside_the_group_of_another_kind_are_no_problem(cluster: Driver) -> None:
    """Without its kind the label of coscheduling means nothing, as before."""
    pod = cluster.pod("p", labels={COSCHEDULING_GROUP: "mpi"}, annotations={REQUIRED_TOPOLOGY: RACK})
    assert pod.group is not None
    assert not pod.group.problem
    assert set(outcome(cluster)[0]) == {"p"}
