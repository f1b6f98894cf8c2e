"""The commands explain, simulate and snapshot on the embedded cluster."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import Credentials, Endpoint
from scheduler.daemon.kube.login import Identity
from scheduler.daemon.kube.requests import bind
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import NAMESPACE, POD
from tests.cli.conftest import Called, embedded, hold_lease
from tests.support import build
from tests.support.messages import refusals
from tests.support.snapshots import objects_by_kind, read_objects
from tests.support.workloads import workload

SECRET = "s3cr3t"
ALONE = build.affinity(anti_required=[build.term(build.ZONE, build.selector("app=web"))])
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 5
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      schedulerName: affinity-scheduler
      containers: [{name: c, image: pause}]
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - topologyKey: topology.kubernetes.io/zone
            labelSelector: {matchLabels: {app: web}}
            matchLabelKeys: [pod-template-hash]
"""


def web(name: str, node: str | None = None) -> build.Json:
    pod = build.pod(name, labels={"app": "web"}, affinity=ALONE, spec={"schedulerName": "affinity-scheduler"})
    pod["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": SECRET}]
    pod["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": SECRET}}]
    if node:
        pod["spec"]["nodeName"] = node
    return pod


@asynccontextmanager
async def served(tmp_path: Path) -> AsyncIterator[DevCluster]:
    """Yield six nodes in three zones. Each zone has a web pod, and a fourth one is pending. A scheduler runs."""
    async with embedded(tmp_path, nodes=6, zones=3) as cluster:
        hold_lease(cluster)
        cluster.store.create(POD, "default", web("web-0", "node-0001"))
        cluster.store.create(POD, "default", web("web-1", "node-0002"))
        cluster.store.create(POD, "default", web("web-2", "node-0003"))
        cluster.store.create(POD, "default", web("web-3"))
        yield cluster


async def test_a_pending_pod_is_explained_with_the_pod_that_blocks_each_zone(
    tmp_path: Path, called: Called
) -> None:
    async with served(tmp_path) as cluster:
        version = cluster.store.revision(POD, "default", "web-3").obj["metadata"]["resourceVersion"]
        code, out, err = await called("explain", "web-3")
        assert version == cluster.store.revision(POD, "default", "web-3").obj["metadata"]["resourceVersion"]
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[0] == "Pod default/web-3 cannot be scheduled (profile affinity-scheduler)"
    assert refusals(lines[1]) == "  0/6 nodes are available: 6 node(s) didn't match pod anti-affinity rules."
    assert re.search(r"^ +2 +InterPodAffinity .*zone=zone-a +node-0001, node-0004$", out, re.MULTILINE)
    assert "blocking: default/web-0 on node-0001 (zone-a)" in out
    assert "1. pod default/web-0 leaves node node-0001  -> node-000" in out
    assert "\x1b" not in out
    assert all(line == line.rstrip() for line in lines)


async def test_every_output_format_says_the_same(tmp_path: Path, called: Called) -> None:
    """Table, wide and json, for a name or pod/NAME, on the cluster and on a snapshot."""
    async with served(tmp_path):
        snapshot = str(tmp_path / "snapshot.json")
        assert (await called("snapshot", "-o", snapshot))[0] == 0
        base = ("explain", "pod/web-3", "-o", "json")
        live = await called(*base)
    kept = await called(*base, "--on", snapshot)
    assert (live[0], json.loads(live[1])["suggestions"]) == (1, json.loads(kept[1])["suggestions"])
    assert json.loads(live[1]) == json.loads(kept[1])
    wide = await called("explain", "web-3", "-o", "wide", "--on", snapshot)
    assert wide[0] == 1
    for row in json.loads(live[1])["rules"][0]["domains"]:
        assert row["domain"] in wide[1]


async def test_a_bound_pod_shows_its_scores_and_the_record_of_its_decision(
    tmp_path: Path, called: Called
) -> None:
    """The scheduler writes the record into an annotation of the binding."""
    record = {
        "v": 1, "evaluated": 6, "feasible": 4, "rejected": {"node(s) didn't match pod anti-affinity rules": 2},
        "top": [{"node": "node-0004", "total": 398, "scores": {"TaintToleration": 300, "NodeResourcesFit": 98}}],
    }  # fmt: skip
    async with served(tmp_path) as cluster:
        pod = web("other")
        pod["metadata"]["labels"] = {"app": "other"}
        del pod["spec"]["affinity"]
        created = cluster.store.create(POD, "default", pod)
        await bind_pod(cluster, created, "node-0004", json.dumps(record))
        code, out, _ = await called("explain", "other")
        forged = cluster.store.create(
            POD, "default", {**pod, "metadata": {**pod["metadata"], "name": "forged"}}
        )
        await bind_pod(cluster, forged, "node-0001", json.dumps(record))
        _, refused, _ = await called("explain", "forged")
    assert "not written at the bind of this pod, and not shown" in refused
    assert "WHEN IT WAS BOUND" not in refused
    assert code == 0
    assert "WHEN IT WAS BOUND (as affinity-scheduler.io/decision says: unverified)" in out
    assert "Pod default/other is bound" in out
    assert "runs on node-0004, one of 6 nodes where it fits now" in out
    assert "  4 of 6 nodes fitted\n  refused: 2 node(s) didn't match pod anti-affinity rules\n" in out
    assert out.count("total") == 2


async def bind_pod(cluster: DevCluster, pod: build.Json, node: str, annotation: str) -> None:
    """Bind the stored pod as a scheduler does."""
    meta = pod["metadata"]
    request = bind(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        node_name=node,
        annotations={"affinity-scheduler.io/decision": annotation},
    )
    async with KubeClient(Credentials(Endpoint(cluster.url), Identity())) as client:
        await client.request(request, timeout_s=5)


async def test_a_pod_of_another_scheduler_is_explained_with_a_note(tmp_path: Path, called: Called) -> None:
    async with served(tmp_path) as cluster:
        hold_lease(cluster, name="kube-scheduler")
        cluster.store.create(NAMESPACE, "", build.namespace("team"))
        pod = build.pod("theirs", namespace="team")
        cluster.store.create(POD, "team", pod)
        code, out, _ = await called("explain", "-n", "team", "theirs")
    assert code == 0
    assert "note: its schedulerName is default-scheduler, which is no profile of this scheduler" in out
    assert "can be scheduled" in out


async def test_manifests_are_explained_before_they_exist(tmp_path: Path, called: Called) -> None:
    """A new revision's pods are kept out only by the old ones' own terms, since matchLabelKeys separates revisions."""
    manifest = tmp_path / "web.yaml"
    manifest.write_text(DEPLOYMENT + "---\n" + json.dumps(web("bare")))
    async with served(tmp_path):
        code, out, _ = await called("explain", "-f", str(manifest), "-o", "json")
    deployed, bare = json.loads(out)
    assert code == 1
    assert (deployed["pod"], deployed["state"]) == ("web-0", "unschedulable")
    assert {rule["kind"] for rule in deployed["rules"]} == {"existingAntiAffinity"}
    assert (bare["pod"], bare["state"]) == ("bare", "unschedulable")


async def test_simulate_places_replicas_until_the_next_does_not_fit(tmp_path: Path, called: Called) -> None:
    manifest = tmp_path / "web.yaml"
    manifest.write_text(DEPLOYMENT)
    async with embedded(tmp_path, nodes=6, zones=3):
        base = ("simulate", "-f", str(manifest))
        code, out, _ = await called(*base)
        fits = await called(*base, "--replicas", "3")
        answered = await called(*base, "-o", "json")
    assert code == 1
    assert out.startswith("Deployment default/web: 3 of 5 replicas fit\n")
    for zone in ("zone-a", "zone-b", "zone-c"):
        assert re.search(rf"^  {zone} +2 +1$", out, re.MULTILINE)
    assert "WHY THE NEXT REPLICA DOES NOT FIT" in out
    assert "Pod default/web-3 cannot be scheduled" in out
    assert (fits[0], "3 of 3 replicas fit" in fits[1]) == (0, True)
    (simulation,) = json.loads(answered[1])
    assert (simulation["placed"], simulation["next"]["state"]) == (3, "unschedulable")


@pytest.mark.parametrize("command", ["explain", "simulate"])
async def test_a_folder_is_read_as_kubectl_reads_it(command: str, tmp_path: Path, called: Called) -> None:
    """A Service without a namespace counts: by its selector the default constraints spread the pods of a bare Pod."""
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "1-pod.yaml").write_text(json.dumps(build.pod("bare", labels={"app": "a"}, namespace="team")))
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"selector": {"app": "a"}},
    }
    foreign = {**service, "apiVersion": "serving.knative.dev/v1", "spec": 3}
    (folder / "2-service.yml").write_text("\n---\n".join(map(json.dumps, (service, foreign))))
    (folder / "README.md").write_text("no manifest")
    # Definitions and dashboards are larger than any other manifest, and not parsed.
    (folder / "crd.yaml").write_text(f"kind: CustomResourceDefinition\nspec: [{'y' * (1 << 20)}")
    (folder / "dashboards.yaml").write_text(f"items: [{'y' * (5 << 20)}\nkind: ConfigMapList\n")
    async with embedded(tmp_path, nodes=6, zones=3) as cluster:
        hold_lease(cluster, name="kube-scheduler")
        base = (command, "-f", str(folder), "-n", "team")
        code, out, err = await called(*base, "-o", "json")
    left_out = "Service of serving.knative.dev/v1, CustomResourceDefinition, ConfigMapList"
    assert (code, err) == (0, f"read Pod, Service; left out {left_out}\n")
    (answer,) = json.loads(out)
    if command == "explain":
        assert all("PodTopologySpread" in node["scores"] for node in answer["scores"])


async def test_simulate_of_several_manifests_ends_with_their_sum(tmp_path: Path, called: Called) -> None:
    for name, cpu in (("small", "1"), ("large", "100")):
        pod = build.pod(name, cpu=cpu)
        (tmp_path / f"{name}.json").write_text(json.dumps(pod))
    async with embedded(tmp_path, nodes=1, zones=1) as cluster:
        base = ("simulate", "-f")
        code, out, _ = await called(*base, str(tmp_path))
        one = await called(*base, str(tmp_path / "small.json"))
        cluster.store.create(POD, "default", build.pod("small", node="node-0001"))
        again = await called(*base, str(tmp_path))
    assert (code, out.splitlines()[-1]) == (1, "All 2 manifests: 1 of 2 replicas fit")
    assert out.splitlines()[-6:-2] == [
        "ALL MANIFESTS",
        "  WORKLOAD           RUN  NEW  FIT  WHY NOT MORE",
        "  Pod default/large    0    1    0  Insufficient cpu",
        "  Pod default/small    0    1    1",
    ]
    assert "  Pod default/small    1    1    1" in again[1].splitlines()
    assert "manifests" not in one[1]


async def test_simulate_has_a_pod_of_a_daemon_set_for_each_node(tmp_path: Path, called: Called) -> None:
    """A node without room does not stop the nodes after it; `--replicas` makes no sense."""
    document = workload("DaemonSet", "agent", build.pod(cpu="3", labels={"app": "a"}))
    manifest = tmp_path / "agent.json"
    manifest.write_text(json.dumps(document))
    async with embedded(tmp_path, nodes=6, zones=3) as cluster:
        full = build.pod("full", node="node-0002", cpu="3")
        cluster.store.create(POD, "default", full)
        base = ("simulate", "-f", str(manifest))
        code, out, _ = await called(*base)
        refused = await called(*base, "--replicas", "2")
    assert code == 1
    assert out.startswith("DaemonSet default/agent: 5 of 6 replicas fit\n")
    assert (
        "0/6 nodes are available: 1 Insufficient cpu, 5 node(s) didn't satisfy plugin(s) [NodeAffinity]."
        in out
    )
    assert (refused[0], refused[2].count("\n")) == (2, 1)
    assert "--replicas: found DaemonSet agent, expected a workload with a number of replicas" in refused[2]


async def test_a_snapshot_has_no_secrets_and_only_its_owner_may_read_it(
    tmp_path: Path, called: Called
) -> None:
    async with served(tmp_path) as cluster:
        stored = json.dumps(cluster.store.revision(POD, "default", "web-0").obj)
        code, out, err = await called("snapshot", "-o", str(tmp_path / "s.json"))
    assert SECRET in stored
    text = (tmp_path / "s.json").read_text()
    assert (code, out) == (0, "")
    assert err.endswith("bytes\n")
    assert SECRET not in text
    assert {len(objects_by_kind(text)[kind]) for kind in ("Node", "Pod")} == {6, 4}
    assert stat.S_IMODE((tmp_path / "s.json").stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


async def test_a_snapshot_is_written_to_a_pipe_and_through_a_link(tmp_path: Path, called: Called) -> None:
    """Neither is replaced by a file, or the pipe's reader would wait for ever."""
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    link.symlink_to(target)
    target.touch()
    async with served(tmp_path):
        reading = asyncio.create_task(asyncio.to_thread(pipe.read_bytes))
        for path in (pipe, link):
            code, *_ = await called("snapshot", "-o", str(path))
            assert code == 0
        async with asyncio.timeout(10):
            piped = await reading
    assert (pipe.is_fifo(), link.is_symlink()) == (True, True)
    assert len(objects_by_kind(piped)["Node"]) == len(read_objects(target)["Node"]) == 6


async def test_a_missing_pod_is_one_line_with_namespace_and_name(tmp_path: Path, called: Called) -> None:
    """The namespace is the context's unless -n names another."""
    async with served(tmp_path):
        found = await called("explain", "nobody")
        document = yaml.safe_load((tmp_path / "kubeconfig").read_text())
        document["contexts"][0]["context"]["namespace"] = "team"
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document))
        of_context = await called("explain", "nobody")
        named = await called("explain", "-n", "other", "nobody")
    assert found == (2, "", "there is no pod nobody in namespace default\n")
    assert of_context == (2, "", "there is no pod nobody in namespace team\n")
    assert named == (2, "", "there is no pod nobody in namespace other\n")


async def test_context_selects_cluster_user_and_namespace(tmp_path: Path, called: Called) -> None:
    async with served(tmp_path):
        document = yaml.safe_load((tmp_path / "kubeconfig").read_text())
        (entry,) = document["contexts"]
        document["contexts"].append({"name": "other", "context": {**entry["context"], "namespace": "team"}})
        document["current-context"] = "nowhere"
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document))
        of_other = await called("explain", "nobody", "--context", "other")
        saved = await called("snapshot", "-o", str(tmp_path / "s.json"), "--context", "other")
        wrong = await called("explain", "nobody", "--context", "third")
    assert of_other == (2, "", "there is no pod nobody in namespace team\n")
    assert saved[0] == 0
    assert wrong[:2] == (2, "")
    assert wrong[2].startswith("--context: found 'third', expected one of ")


async def test_a_server_that_refuses_is_one_line(tmp_path: Path, called: Called) -> None:
    async with embedded(tmp_path, token="right"):
        text = (tmp_path / "kubeconfig").read_text()
        (tmp_path / "kubeconfig").write_text(text.replace("right", "wrong"))
        code, out, err = await called("explain", "p")
    assert (code, out) == (2, "")
    assert err.startswith("API server: ")
    assert len(err.splitlines()) == 1
