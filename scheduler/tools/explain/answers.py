"""Explains a pod of a loaded cluster, or one that would be created in it, with the notes that belong to the answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from scheduler.daemon.assembly.profiles import build_profiles
from scheduler.engine.core.decision_annotation import DecisionRecord, is_of_bind, read_record
from scheduler.engine.model.annotations import DECISION_ANNOTATION
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.wire import MalformedObjectError
from scheduler.engine.model.wording import waits_for_volume_text
from scheduler.engine.syntax.words import counted, first_names
from scheduler.errors import SettingsError
from scheduler.tools.explain.explainer import ExplainRequest, explain
from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.explain.formats.json_values import mapping_or_empty, object_in
from scheduler.tools.explain.formats.manifests import Manifest
from scheduler.tools.explain.serving import service_of
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster, profile_for
from scheduler.tools.explain.workloads import OwningWorkload, alike

#: In the condition of a pod whose claim lost its selected node: the provisioner gave up (see VolumeBinding's PreBind).
_PROVISIONING_FAILED: Final = "provisioning failed for PVC"


def explain_pod(
    cluster: LoadedCluster,
    pod: Pod,
    recorded: DecisionRecord | None,
    avoided_nodes: Collection[str] = (),
    together: Sequence[Pod] = (),
    *,
    adds_replicas: bool = False,
    try_changes: bool = True,
) -> Explanation:
    """
    Return the explanation of a pod that is in the cluster or would be created in it.

    No suggestion leads to one of `avoided_nodes`, or takes a pod away that the cluster does not have on its node.
    `together`: pods that would be created with it; they stand for the members of its group that are pending in the
    cluster. The other arguments: see `ExplainRequest`.
    """
    profile, notes = profile_for(pod, cluster.settings)
    if recorded is not None and not is_of_bind(recorded, pod.node_name):
        recorded = None
        notes += (f"annotation {DECISION_ANNOTATION}: not written at the bind of this pod, and not shown",)
    pending = cluster.pending_pods()
    if together:
        key_of = cluster.state.groups.key_of
        pending = [*(other for other in pending if key_of(other) != key_of(pod)), *together]
    node_by_uid = {other.uid: other.node_name for other in cluster.pods.values()}
    request = ExplainRequest(
        pod=pod,
        state=cluster.state,
        new_profile=lambda view: build_profiles(cluster.settings, view)[profile.scheduler_name],
        pending_pods=pending,
        recorded=recorded,
        notes=(*notes, *cluster.assumptions, *cluster.kubelet_refusal_notes(pod), *cluster.malformed_notes()),
        avoided_nodes=avoided_nodes,
        kept_pods=frozenset(
            uid
            for uid, placed in cluster.state.placed.items()
            if node_by_uid.get(uid) != placed.pod.node_name  # in a simulation alone
        ),
        adds_replicas=adds_replicas,
        semantics=cluster.settings.semantics,
        try_changes=try_changes,
        now_s=cluster.now_s,
        on_step=lambda step: cluster.on_step(f"{pod.key}: {step}"),
    )
    uncounted = {other.uid for other in cluster.not_counted([pod.scheduler_name])}
    try:
        with cluster.state.without_nominations(uncounted):
            answer = explain(request)
    finally:
        cluster.on_step("")
    if profile.scheduler_name == pod.scheduler_name and answer.state == "schedulable":
        answer.notes = (*_contradicting_notes(cluster, pod), *answer.notes)
    return answer


def explain_named_pod(
    cluster: LoadedCluster, namespace: str, name: str, stored: bytes | None
) -> Explanation | None:
    """
    Return the explanation of a pod, None if there is none. Raises SettingsError.

    `stored`: its JSON at the API server, where it may have appeared after the cluster was read.
    """
    pod = cluster.pods.get((namespace, name)) or cluster.finished.get((namespace, name))
    if pod is None and stored is not None:
        try:
            pod = PodDecoder(cluster.settings.semantics).decode(stored)
        except MalformedObjectError as error:
            where = f"pod {namespace}/{name}"
            raise SettingsError(where, "", f"a malformed {error}", "a valid pod") from error
    metadata = mapping_or_empty(object_in(stored or b"").get("metadata"))
    text = mapping_or_empty(metadata.get("annotations")).get(DECISION_ANNOTATION)
    recorded = read_record(text) if isinstance(text, str) else None
    return None if pod is None else explain_waiting(cluster, pod, recorded)


def explain_workload(cluster: LoadedCluster, workload: OwningWorkload) -> list[Explanation]:
    """Return one explanation of all pending pods that are alike; if none is pending, of one of the others, if any."""
    pods = [pod for pod in (*cluster.pods.values(), *cluster.finished.values()) if workload.has(pod)]
    pending = [pod for pod in pods if not (pod.node_name or pod.terminating or pod.is_terminal)]
    of_workload, found = f"{workload.kind} {workload.name}", []
    for first, *others in alike(pending):
        answer = explain_waiting(cluster, first)
        what = f"{counted(len(others), 'more pod')} of {of_workload}"
        _add_alike(answer, what, [pod.name for pod in others])
        found.append(answer)
    if pods and not found:
        found.append(explain_waiting(cluster, pods[0]))
        note = f"no pod of {of_workload} is pending; it has {counted(len(pods), 'pod')}"
        found[0].notes = (note, *found[0].notes)
    return found


def explain_manifests(cluster: LoadedCluster, manifests: Sequence[Manifest]) -> list[Explanation]:
    """
    Return the explanation of the first pod that each manifest would create. Raises SettingsError.

    One explanation is about all members of a group, and about all workloads that a set makes from one template.
    """
    alike: list[list[Manifest]] = []
    by_source: dict[object, list[Manifest]] = {}
    for manifest in manifests:
        sources: list[object] = [(manifest.made_from, manifest.made_at)]
        if manifest.group is not None:
            sources.insert(0, manifest.group)
        found = next((by_source[source] for source in sources if source in by_source), None)
        if found is None:
            alike.append(found := [])
        found.append(manifest)
        by_source.update(dict.fromkeys(sources, found))
    answers = []
    for first, *others in alike:
        of_group = [
            each for each in (first, *others) if first.group is not None and each.group == first.group
        ]
        members = [pod for each in of_group for pod in cluster.create_pods(each, each.n_replicas)]
        pod = members[0] if members else cluster.create_pod(first, 0)
        answers.append(explain_waiting(cluster, pod, together=members))
        what = counted(len(others), "more workload")
        _add_alike(answers[-1], what, [f"{other.kind} {other.name}" for other in others])
    return answers


def _add_alike(answer: Explanation, what: str, names: Sequence[str]) -> None:
    """Add a note of what else the explanation is about, if it is about anything else."""
    if names:
        answer.notes = (f"the same holds for {what}: {first_names(names)}", *answer.notes)


def explain_waiting(
    cluster: LoadedCluster,
    pod: Pod,
    recorded: DecisionRecord | None = None,
    *,
    together: Sequence[Pod] = (),
) -> Explanation:
    """Return what `explain_pod` says, and whether a scheduler serves the pod if it is neither bound nor finished."""
    answer = explain_pod(cluster, pod, recorded, together=together)
    if cluster.leases is not None and answer.state not in ("bound", "finished"):
        answer.unserved, notes = service_of(pod, cluster.settings, cluster.leases, cluster.pods.values())
        answer.notes = (*notes, *answer.notes)
    return answer


def has_no_volume(pod: Pod) -> bool:
    """Return whether the pod was last put back since no volume was made for it: it is tried again."""
    condition = pod.scheduled_condition
    return condition is not None and condition.status == "False" and _PROVISIONING_FAILED in condition.message


def waiting_notes(cluster: LoadedCluster, pod: Pod) -> list[str]:
    """Return which of the pod's claims wait for a volume on the node that the scheduler has chosen for the pod."""
    names = (volume.claim_name(pod.name) for volume in pod.spec.claim_volumes)
    claims = (cluster.state.volumes.claim(f"{pod.namespace}/{name}") for name in names)
    return [
        waits_for_volume_text(claim.name, claim.selected_node)
        for claim in claims
        if claim is not None and not claim.is_bound and claim.selected_node == pod.nominated_node_name != ""
    ]


def _contradicting_notes(cluster: LoadedCluster, pod: Pod) -> tuple[str, ...]:
    """Return a note on a pod that fits if its scheduler last found no node for it, or waits for a volume there."""
    if waiting_notes(cluster, pod):
        return (f"the scheduler has chosen node {pod.nominated_node_name} for it",)
    condition = pod.scheduled_condition
    if condition is None or condition.status != "False":
        return ()
    message = condition.message.rstrip(".")
    if has_no_volume(pod):
        return (f"provisioning failed, and the scheduler tries again; it last said of it: {message}",)
    return (
        f"the scheduler last said of it: {message}. If nothing has changed since, the scheduler has a configuration or "
        "plugins that this command was not given with --config and --plugins",
    )
