"""
The stage of a story: a user's commands, each shown as typed, the checks of their outcome, and the map.

Checks list pods, nodes and namespaces anew; the watch is for waiting only.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scheduler.engine.syntax.words import counted
from scheduler.sandbox.demo.api import Api, JsonObject
from scheduler.sandbox.demo.display import Display, Scene
from scheduler.sandbox.demo.examples import documents
from scheduler.sandbox.demo.pod_watch import PodWatch, is_counted, is_ready, node_of, pending_reason
from scheduler.sandbox.demo.processes import KUBECONFIG, output_of
from scheduler.sandbox.demo.rule_check import broken_rules, doubly_allocated
from scheduler.sandbox.demo.waiting import StoryFailed, until

_APPS: Final = "apps/v1"
DEVICES: Final = "resource.k8s.io/v1"
ZONE: Final = "topology.kubernetes.io/zone"
_WARNINGS: Final = 3


@dataclass(frozen=True, slots=True)
class Story:
    """One story: its title, its problem, and its play. `play` raises StoryFailed if it comes out otherwise."""

    title: str
    problem: str
    play: Callable[[Stage], Awaitable[None]]
    #: The first minor version of Kubernetes that has what the story shows.
    since_minor: int = 0


@dataclass(slots=True)
class Stage:
    """A story's view of cluster and screen; `clear` makes it that of the next."""

    api: Api
    watch: PodWatch
    show: Display
    #: The folder of the kubeconfig and of the processes' logs.
    logs: Path
    #: The address of the scheduler's port.
    scheduler_url: str
    #: Namespaces in the manifests of this story, in order.
    namespaces: list[str] = field(default_factory=list)
    #: Sentences of rules that did not hold after a story.
    broken: list[str] = field(default_factory=list)
    #: The lines of the next map.
    scenes: list[Scene] = field(default_factory=list)
    #: Changes that give nodes back the labels that they had.
    _relabelling: list[JsonObject] = field(default_factory=list)
    _added_nodes: list[str] = field(default_factory=list)

    # -- what a user does ------------------------------------------------------------------------------------

    async def apply(self, manifest: str, swap: tuple[str, str] | None = None, *, quiet: bool = False) -> None:
        """Apply a manifest; with `swap`, one word in it is replaced by another."""
        path = f"manifests/examples/{manifest}"
        if not quiet:
            sed = f"sed 's/{swap[0]}/{swap[1]}/' {path} | kubectl apply -f -" if swap else ""
            self.show.command(sed or f"kubectl apply -f {path}")
        for document in documents(manifest, dict([swap] if swap else [])):
            if document["kind"] == "Namespace" and document["metadata"]["name"] not in self.namespaces:
                self.namespaces.append(document["metadata"]["name"])
            await self.api.apply(document)

    async def set_image(
        self, namespace: str, name: str, image: str, *, quiet: bool = False
    ) -> Collection[str]:
        """
        Update the image of a deployment's only container, which has the deployment's name.

        Returns: the uids of the pods before the update.
        """
        before = {pod["metadata"]["uid"] for pod in self.watch.pods([namespace])}
        if not quiet:
            self.show.command(f"kubectl -n {namespace} set image deployment/{name} {name}={image}")
        containers = {"containers": [{"name": name, "image": image}]}
        await self._patch_deployment(namespace, name, {"template": {"spec": containers}})
        return before

    async def scale(self, namespace: str, name: str, replicas: int) -> None:
        """Scale a deployment."""
        self.show.command(f"kubectl -n {namespace} scale deployment/{name} --replicas={replicas}")
        await self._patch_deployment(namespace, name, {"replicas": replicas})

    async def label_nodes(
        self, key: str, nodes_by_value: Mapping[str, Collection[str]], *, quiet: bool = False
    ) -> None:
        """Label nodes, until the end of the story."""
        labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in await self.nodes()}
        for value, names in nodes_by_value.items():
            overwrite = "--overwrite " if any(key in labels[name] for name in names) else ""
            if not quiet:
                self.show.command(f"kubectl label {overwrite}nodes {' '.join(names)} {key}={value}")
            for name in names:
                self._relabelling.append(_labelled(name, {key: labels[name].get(key)}))
                await self.api.patch(_labelled(name, {key: value}))

    async def delete_namespaces(self, *names: str) -> None:
        """Delete namespaces with everything in them, and wait until their pods are gone."""
        self.show.command(f"kubectl delete namespace {' '.join(names)}")
        await self._removed(names)
        self.namespaces = [name for name in self.namespaces if name not in names]

    async def add_nodes(self, nodes: list[JsonObject]) -> None:
        """Add nodes to the cluster, until the end of the story."""
        self._added_nodes += [node["metadata"]["name"] for node in nodes]
        async with asyncio.TaskGroup() as tasks:
            for node in nodes:
                tasks.create_task(self.api.apply(node))

    async def explain(self, namespace: str) -> list[str]:
        """Return what the command says about the first pod of the namespace that waits."""
        name = min(pod["metadata"]["name"] for pod in self.watch.pods([namespace]) if not node_of(pod))
        self.show.command(f"affinity-scheduler explain -n {namespace} {name}")
        kubeconfig = str(self.logs / KUBECONFIG)
        return await output_of(["explain", "-n", namespace, name, "--kubeconfig", kubeconfig])

    # -- waiting ---------------------------------------------------------------------------------------------

    async def wait_ready(self, total: int, *, before: Collection[str] = ()) -> None:
        """Wait until the story has exactly `total` pods, all ready, and none of the uids `before`."""
        asked = self.namespaces

        def new() -> int:
            return sum(
                is_ready(pod) and pod["metadata"]["uid"] not in before for pod in self.watch.pods(asked)
            )

        await until(
            lambda: new() == total == len(self.watch.pods(asked)) and not self.watch.leaving(asked),
            lambda: f"{new()} of {total} pods are ready {self._reason()}",
        )

    async def wait_rolled_out(self, namespace: str, name: str) -> None:
        """Wait until the deployment's status shows what its pods do, as `kubectl rollout status` judges."""

        async def is_rolled_out() -> bool:
            found = await self.api.get("Deployment", _APPS, namespace, name)
            status = found["status"]
            counts = {status.get(f"{kind}eplicas", 0) for kind in ("r", "updatedR", "availableR")}
            is_seen = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
            return is_seen and counts == {found["spec"]["replicas"]}

        await until(is_rolled_out, lambda: f"the rollout of {name} is not finished")

    async def wait_refused(self, namespace: str, count: int) -> str:
        """Wait until `count` pods of the namespace are refused; return the reason, the same for all."""

        def reasons() -> list[str]:
            return [reason for pod in self.watch.pods([namespace]) if (reason := pending_reason(pod))]

        await until(
            lambda: len(reasons()) == count and len(set(reasons())) == 1,
            lambda: f"{len(reasons())} of {count} pods stay Pending, for {sorted(set(reasons()))}",
        )
        return reasons()[0]

    async def wait_for_event(self, reason: str, word: str) -> str:
        """Return the note of an event of the story with this reason that contains the word."""
        found: list[str] = []

        async def is_there() -> bool:
            notes = [each["note"] for each in await self._events() if each["reason"] == reason]
            found.extend(note for note in notes if word in note)
            return bool(found)

        await until(is_there, lambda: f"no event {reason} with the word {word!r}")
        return found[0]

    # -- judging ---------------------------------------------------------------------------------------------

    def expect(self, holds: bool, claim: str) -> None:  # noqa: FBT001 - reads as a sentence
        """Raise StoryFailed with the claim unless it holds."""
        if not holds:
            raise StoryFailed(f"expected: {claim}")

    async def pods(self) -> list[JsonObject]:
        """Return the story's pods that are neither finished nor being deleted, as the API server lists them now."""
        pods = await self.api.items("Pod")
        return [pod for pod in pods if pod["metadata"]["namespace"] in self.namespaces and is_counted(pod)]

    async def check(self) -> None:
        """Check every rule of every pod of the cluster; show those that are broken."""
        pods, nodes = await self.api.items("Pod"), await self.api.items("Node")
        found = broken_rules(pods, nodes, await self.api.items("Namespace"))
        found += doubly_allocated(await self.claims())
        self.broken += found
        if found:
            self.show.bad(f"{counted(len(found), 'rule')} broken: {'; '.join(found[:3])}")

    async def claims(self) -> list[JsonObject]:
        """Return all claims of devices."""
        return await self.api.items("ResourceClaim", DEVICES)

    async def nodes(self) -> list[JsonObject]:
        """Return all nodes by name."""
        return sorted(await self.api.items("Node"), key=lambda node: str(node["metadata"]["name"]))

    async def region_by_node(self, key: str = ZONE) -> dict[str, str]:
        """Return the value of a label for every node that has it."""
        labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in await self.nodes()}
        return {name: of_node[key] for name, of_node in labels.items() if key in of_node}

    async def regions(self, key: str = ZONE) -> Counter[str]:
        """Return how many of the story's pods are in each region."""
        region_by_node = await self.region_by_node(key)
        return Counter(region_by_node[node_of(pod)] for pod in await self.pods() if node_of(pod))

    # -- the map ---------------------------------------------------------------------------------------------

    async def scene(
        self, moment: str, letter: Callable[[JsonObject], str], *, key: str = ZONE, within: str = ""
    ) -> None:
        """
        Keep what the cluster looks like now for the map: nodes by the label `key`, with a letter for each pod.

        `within`: the label of smaller regions, which a stroke parts.
        """
        pods_by_node: dict[str, list[str]] = {}
        for pod in await self.pods():
            pods_by_node.setdefault(node_of(pod), []).append(letter(pod))
        drawn: dict[str, str] = {}
        inner: dict[str, str] = {}
        for node in await self.nodes():
            labels = node["metadata"]["labels"]
            if key in labels:
                region, rack = labels[key], labels.get(within, "")
                cell = f"[{''.join(sorted(pods_by_node.get(node['metadata']['name'], ' ')))}]"
                gap = "" if region not in drawn else " " if inner[region] == rack else " | "
                drawn[region], inner[region] = drawn.get(region, "") + gap + cell, rack
        self.scenes.append(Scene(moment, drawn, "".join(sorted(pods_by_node.get("", ())))))

    def draw(self, meaning_by_letter: Mapping[str, str]) -> None:
        """Draw the map of all moments kept so far."""
        self.show.map(self.scenes, meaning_by_letter)
        self.scenes.clear()

    # -- afterwards ------------------------------------------------------------------------------------------

    async def warnings(self) -> list[str]:
        """Return the latest warnings about objects of the story's namespaces, each once."""
        notes = [each["note"] for each in await self._events() if each["type"] == "Warning"]
        return list(dict.fromkeys(reversed(notes)))[:_WARNINGS]

    async def clear(self) -> None:
        """Restore the cluster as the story found it."""
        await self._removed(self.namespaces)
        for change in reversed(self._relabelling):
            await self.api.patch(change)
        for name in self._added_nodes:
            await self.api.delete("Node", name)
        self.namespaces, self._relabelling, self._added_nodes = [], [], []

    async def _removed(self, names: Collection[str]) -> None:
        for name in names:
            await self.api.delete("Namespace", name)
        await until(
            lambda: not self.watch.pods(names) and not self.watch.leaving(names),
            lambda: f"pods of {', '.join(names)} are still there",
        )

    async def _patch_deployment(self, namespace: str, name: str, spec: JsonObject) -> None:
        metadata = {"namespace": namespace, "name": name}
        await self.api.patch({"apiVersion": _APPS, "kind": "Deployment", "metadata": metadata, "spec": spec})

    async def _events(self) -> list[JsonObject]:
        """Return the events about objects of the story's namespaces."""
        events = await self.api.items("Event", "events.k8s.io/v1")
        return [each for each in events if each["metadata"]["namespace"] in self.namespaces]

    def _reason(self) -> str:
        """Return the reason of the first pod without a node, in brackets."""
        reasons = map(pending_reason, self.watch.pods(self.namespaces))
        return next((f"({reason})" for reason in reasons if reason), "")


def ready_node(
    name: str, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None
) -> JsonObject:
    """Return a node as its kubelet would announce it, of the size of the ready-made ones, in zone-a unless labelled."""
    amounts = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "added by the demo"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            # One without a zone is in nobody's: it would take the pods of the stuck rollout that `--serve` leaves.
            "labels": {"kubernetes.io/hostname": name, ZONE: "zone-a", **labels},
            "annotations": dict(annotations or {}),
        },
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def section(lines: list[str], head: str) -> list[str]:
    """Return the lines of an explanation from the one that starts with `head` to the next empty one."""
    start = next((i for i, line in enumerate(lines) if line.startswith(head)), None)
    if start is None:
        raise StoryFailed(f"expected: an explanation with {head.strip()}, found {lines}")
    end = next((i for i in range(start, len(lines)) if not lines[i]), len(lines))
    return lines[start:end]


def _labelled(node: str, labels: Mapping[str, str | None]) -> JsonObject:
    """Return the part of a node that has these labels; one that is None goes."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}}
