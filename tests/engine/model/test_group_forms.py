"""Groups, parts and levels as pods of LeaderWorkerSet, JobSet and Kueue carry them."""

from __future__ import annotations

from scheduler.engine.model.group_forms import GROUP_FROM
from scheduler.engine.model.group_topology import PART, PART_MIN_COUNT, REQUIRED_TOPOLOGY, Part, Topology
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT, GroupReference, group_reference

LWS = {
    "leaderworkerset.sigs.k8s.io/name": "vllm",
    "leaderworkerset.sigs.k8s.io/group-index": "1",
    "leaderworkerset.sigs.k8s.io/worker-index": "0",
}
SIZE = {"leaderworkerset.sigs.k8s.io/size": "4"}
JOB_SET = {
    "jobset.sigs.k8s.io/jobset-name": "train",
    "jobset.sigs.k8s.io/replicatedjob-name": "workers",
    "jobset.sigs.k8s.io/job-index": "2",
}


def _read(labels: dict[str, str], annotations: dict[str, str]) -> GroupReference | None:
    return group_reference("default", "", labels, annotations)


def _asked(labels: dict[str, str], annotations: dict[str, str]) -> GroupReference:
    read = _read(labels, annotations)
    assert read is not None
    assert not read.problem
    return read


def test_pods_of_workloads_are_in_no_group_unless_they_ask() -> None:
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    kueue = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    assert _read(LWS, {**SIZE, **kueue}) is None
    assert _read(JOB_SET, exclusive) is None


def test_a_leader_with_its_workers_is_a_part() -> None:
    read = _asked(LWS, {GROUP_FROM: "LeaderWorkerSet", **SIZE})
    assert (read.key.text, read.min_count, read.part) == ("default/vllm", 4, Part("1", 4))
    # All replicas or none, by choice.
    assert _asked(LWS, {GROUP_FROM: "LeaderWorkerSet", MIN_COUNT: "8", **SIZE}).min_count == 8


def test_a_job_of_a_jobset_is_a_part() -> None:
    read = _asked(JOB_SET, {GROUP_FROM: "JobSet", PART_MIN_COUNT: "3"})
    assert (read.key.text, read.min_count, read.part) == ("default/train", 3, Part("workers-2", 3))


def test_with_exclusive_topology_a_leader_does_not_wait_for_its_followers() -> None:
    """Their controllers create the followers once the leader has a node."""
    leader = _asked(JOB_SET, {GROUP_FROM: "JobSet", "alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"})
    assert (leader.min_count, leader.part) == (1, Part("workers-2", 1, Topology(("rack",))))
    leader = _asked(
        LWS, {GROUP_FROM: "LeaderWorkerSet", **SIZE, "leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}
    )
    assert (leader.min_count, leader.part) == (1, Part("1", 1, Topology(("rack",))))


def test_levels_of_kueue_count_in_a_group_that_names_none() -> None:
    group = {GROUP: "g", MIN_COUNT: "2"}
    kueue = {"kueue.x-k8s.io/podset-required-topology": "block"}
    preferred = {"kueue.x-k8s.io/podset-preferred-topology": "rack"}
    assert _asked(group, kueue).topology == Topology(("block",))
    assert _asked(group, preferred).topology == Topology((), ("rack",))
    assert _asked(group, {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}).topology == Topology()
    assert _asked(group, {**kueue, REQUIRED_TOPOLOGY: "hall"}).topology == Topology(("hall",))
    sliced = {"kueue.x-k8s.io/podset-slice-required-topology": "rack", GROUP_FROM: "JobSet"}
    assert _asked(JOB_SET, sliced).part == Part("workers-2", 1, Topology(("rack",)))


def test_levels_of_kueue_are_of_each_replica_of_a_leaderworkerset() -> None:
    for name, topology in (("required", Topology(("rack",))), ("preferred", Topology((), ("rack",)))):
        kueue = {f"kueue.x-k8s.io/podset-{name}-topology": "rack"}
        read = _asked(LWS, {GROUP_FROM: "LeaderWorkerSet", **SIZE, **kueue})
        assert (read.topology, read.part) == (Topology(), Part("1", 4, topology))


def test_a_slice_of_kueue_is_a_part_of_its_size() -> None:
    """By the index in its job; a part that the pod names itself, and a size that is no number, make no slices."""
    kueue = {"kueue.x-k8s.io/podset-slice-required-topology": "rack", "kueue.x-k8s.io/podset-slice-size": "4"}
    index = {"batch.kubernetes.io/job-completion-index": "9"}
    levels = Topology(("rack",))
    read = _asked({**JOB_SET, **index}, {GROUP_FROM: "JobSet", **kueue})
    assert (read.min_count, read.part) == (1, Part("workers-2-2", 4, levels))
    own = {GROUP: "g", MIN_COUNT: "12"}
    assert _asked(index, {**own, **kueue}).part == Part("2", 4, levels)
    assert _asked(index, {**own, **kueue, PART: "p"}).part == Part("p", 1, levels)
    for size in ("0", "four", ""):
        assert _asked(index, {**own, **kueue, "kueue.x-k8s.io/podset-slice-size": size}).part is None


def test_an_unknown_workload_is_a_problem() -> None:
    read = _read({}, {GROUP_FROM: "Job"})
    assert read is not None
    assert read.problem == f'{GROUP_FROM} of the pod: found "Job", expected LeaderWorkerSet or JobSet'


def test_a_pod_that_asks_for_a_group_of_its_workload_without_one_is_a_problem() -> None:
    for source, labels in (("JobSet", LWS), ("LeaderWorkerSet", JOB_SET)):
        read = _read(labels, {GROUP_FROM: source})
        assert read is not None
        assert (
            read.problem
            == f'{GROUP_FROM} of the pod: found "{source}", expected a label with the name of one'
        )
    assert _asked({GROUP: "g", MIN_COUNT: "2"}, {GROUP_FROM: "JobSet"}).key.name == "g"
