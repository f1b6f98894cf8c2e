"""
The stage of a story: a user's commands, each shown as typed, and the checks of their outcome.

Checks list pods, nodes and namespaces anew; the watch is for waiting only.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final

from scheduler.demo.api import ApiSession, RequestError, collection_of
from scheduler.demo.display import Display, Group, Row
from scheduler.demo.examples import documents, folder
from scheduler.demo.made_objects import ZONE, capacity, storage_driver
from scheduler.demo.objects import Deployment, Event, JsonObject, Namespace, Node, Pod, ResourceClaim
from scheduler.demo.pod_watch import PODS, PodWatch, StoryFailed
from scheduler.demo.rule_check import broken_rules, doubly_allocated
from scheduler.syntax.plurals import counted

_NODES: Final = "/api/v1/nodes"
_NAMESPACES: Final = "/api/v1/namespaces"
_EVENTS: Final = "/apis/events.k8s.io/v1/events"
CLAIMS: Final = "/apis/resource.k8s.io/v1/resourceclaims"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
_WARNINGS: Final = 3
#: The longest wait for anything that takes a second on an idle machine.
PATIENCE_S: Final = 45.0
_POLL_S: Final = 0.05

#: Returns the group with which a table draws a pod.
Grouping = Callable[[Pod], Group]


@dataclass(frozen=True, slots=True)
class Story:
    """One story: its title, its problem, and its play. `play` raises StoryFailed if it comes out otherwise."""

    title: str
    about: str
    play: Callable[[Stage], Awaitable[None]]
    #: A package that is not installed everywhere.
    needs: str = ""
    #: The first minor version of Kubernetes that has what the story shows.
    since_minor: int = 0


@dataclass(slots=True)
class Stage:
    """One story's view of cluster and screen."""

    api: ApiSession
    watch: PodWatch
    show: Display
    #: Reads the scheduler's /metrics.
    metrics: Callable[[], Awaitable[str]]
    #: Runs the enforcer as a process of its own, until the block ends.
    enforcer: Callable[..., AbstractAsyncContextManager[None]]
    #: Runs the webhook in the same way and yields its address; the API server asks it about new pods.
    webhooks: Callable[[], AbstractAsyncContextManager[str]]
    #: Runs a command of this program on the cluster, and returns its lines.
    program: Callable[[Sequence[str]], Awaitable[list[str]]]
    #: Records the cluster until the block ends, and yields the file.
    recorder: Callable[[], AbstractAsyncContextManager[str]]
    #: Namespaces in the manifests of this story, in order.
    namespaces: list[str] = field(default_factory=list)
    #: Node -> labels that this story set.
    _labelled: dict[str, set[str]] = field(default_factory=dict)
    #: Node -> labels that it had before this story overwrote them.
    _overwritten: dict[str, dict[str, str]] = field(default_factory=dict)
    _added_nodes: list[str] = field(default_factory=list)
    _cordoned: list[str] = field(default_factory=list)
    #: Paths of the objects that stand for a storage driver.
    _storage: dict[str, None] = field(default_factory=dict)
    #: Sentences of rules that did not hold when the story checked.
    broken: list[str] = field(default_factory=list)

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

    async def set_image(self, namespace: str, name: str, image: str) -> frozenset[str]:
        """
        Update the image of a deployment's only container, which has the deployment's name.

        Returns: the uids of the pods before the update.
        """
        before = frozenset(pod.metadata.uid for pod in self.watch.pods([namespace]))
        self.show.command(f"kubectl -n {namespace} set image deployment/{name} {name}={image}")
        containers = {"containers": [{"name": name, "image": image}]}
        await self.api.patch(_deployment(namespace, name), {"spec": {"template": {"spec": containers}}})
        return before

    async def scale(self, namespace: str, name: str, replicas: int) -> None:
        """Scale a deployment."""
        self.show.command(f"kubectl -n {namespace} scale deployment/{name} --replicas={replicas}")
        await self.api.patch(_deployment(namespace, name), {"spec": {"replicas": replicas}})

    async def label_nodes(self, names: Collection[str], key: str, value: str) -> None:
        """Label nodes."""
        self.show.command(f"kubectl label nodes {' '.join(names)} {key}={value}")
        for name in names:
            await self.api.patch(f"{_NODES}/{name}", {"metadata": {"labels": {key: value}}})
            self._labelled.setdefault(name, set()).add(key)

    async def label_shares(self, key: str, region: str, count: int) -> None:
        """Label all nodes, by name, in `count` shares of one size: region-1, region-2, ..."""
        names = sorted(node.metadata.name for node in await self.nodes())
        size = len(names) // count
        for i in range(count):
            await self.label_nodes(names[i * size : (i + 1) * size], key, f"{region}-{i + 1}")

    async def relabel_node(self, name: str, key: str, value: str) -> None:
        """Change a label of a node."""
        self.show.command(f"kubectl label --overwrite nodes {name} {key}={value}")
        (node,) = (node for node in await self.nodes() if node.metadata.name == name)
        self._overwritten.setdefault(name, {}).setdefault(key, node.metadata.labels[key])
        await self.api.patch(f"{_NODES}/{name}", {"metadata": {"labels": {key: value}}})

    @contextlib.asynccontextmanager
    async def enforcing(self, *flags: str) -> AsyncGenerator[None, None]:
        """Run the enforcer, with flags, until the block ends."""
        self.show.command(" ".join(("affinity-scheduler enforce", *flags, "&")))
        async with self.enforcer(*flags):
            yield

    @contextlib.asynccontextmanager
    async def webhook(self) -> AsyncGenerator[None, None]:
        """Run the webhook, which the API server asks about every new pod, until the block ends."""
        self.show.command("affinity-scheduler webhook --host 127.0.0.1 &")
        async with self.webhooks() as url:
            self.show.step(
                f"the API server asks {url} about every new pod; the webhook made its own certificate"
            )
            yield

    async def label_namespace(self, name: str, key: str, value: str) -> None:
        """Label a namespace."""
        self.show.command(f"kubectl label namespace {name} {key}={value}")
        await self.api.patch(f"{_NAMESPACES}/{name}", {"metadata": {"labels": {key: value}}})

    async def delete_namespace(self, name: str) -> None:
        """Delete a namespace with everything in it, and wait until its pods are gone."""
        self.show.command(f"kubectl delete namespace {name}")
        await self._removed_namespaces([name])
        self.namespaces.remove(name)

    async def add_nodes(self, nodes: list[JsonObject]) -> None:
        """Add nodes to the cluster."""
        self._added_nodes += [node["metadata"]["name"] for node in nodes]
        await self.api.create_all(nodes)

    async def cordon(self, name: str) -> None:
        """Let no further pod on the node."""
        self.show.command(f"kubectl cordon {name}")
        self._cordoned.append(name)
        await self.api.patch(f"{_NODES}/{name}", {"spec": {"unschedulable": True}})

    async def delete_pod(self, namespace: str, name: str) -> None:
        """Delete a pod."""
        self.show.command(f"kubectl -n {namespace} delete pod {name}")
        await self.api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}")

    async def explain(self, namespace: str, name: str) -> list[str]:
        """Return what the command says about a pod."""
        return await self.run("explain", "-n", namespace, name)

    async def run(self, *arguments: str) -> list[str]:
        """Return the lines of a command of this program."""
        self.show.command(" ".join(("affinity-scheduler", *map(_shown, arguments))))
        return await self.program(arguments)

    @contextlib.asynccontextmanager
    async def recording(self) -> AsyncGenerator[str, None]:
        """Record what happens in the cluster until the block ends, and yield the file."""
        self.show.command("affinity-scheduler record -o day.jsonl.gz --plugins ... --config ... &")
        async with self.recorder() as file:
            yield file

    async def set_capacities(self, room_by_zone: Mapping[str, str]) -> None:
        """Say, as the driver of the default class would, how much room for volumes each zone has."""
        for document in (storage_driver(), *(capacity(*one) for one in room_by_zone.items())):
            self._storage[f"{collection_of(document)}/{document['metadata']['name']}"] = None
            await self.api.apply(document)

    # -- waiting ---------------------------------------------------------------------------------------------

    async def wait_ready(self, total: int, *, within_s: float = PATIENCE_S) -> None:
        """Wait until the story's namespaces have exactly `total` pods, all ready."""

        def ready() -> int:
            return sum(pod.is_ready for pod in self.watch.pods(self.namespaces))

        def is_so() -> bool:
            return ready() == total == len(self.watch.pods(self.namespaces))

        await self.watch.until(
            is_so,
            within_s=within_s,
            failing=lambda: f"{ready()} of {total} pods are ready {self._reason()}",
            on_look=lambda: self.show.progress(ready(), total, "pods ready"),
        )

    async def wait_rolled_out(
        self, namespace: str, name: str, total: int, *, before: Collection[str]
    ) -> None:
        """Wait until the deployment has `total` pods, all newer than the uids `before`, and the old ones are gone."""

        def new() -> int:
            pods = self.watch.pods([namespace])
            return sum(pod.is_ready for pod in pods if pod.metadata.uid not in before)

        def is_so() -> bool:
            is_alone = len(self.watch.pods([namespace])) == total and not self.watch.leaving([namespace])
            return new() == total and is_alone

        await self.watch.until(
            is_so,
            within_s=PATIENCE_S,
            failing=lambda: f"{new()} of {total} pods of the new revision are ready {self._reason()}",
            on_look=lambda: self.show.progress(new(), total, "pods of the new revision ready"),
        )
        await self._settled(_deployment(namespace, name))

    async def _settled(self, path: str) -> None:
        """Wait until the deployment's status shows what its pods do."""
        ends_s = time.monotonic() + PATIENCE_S
        while not (deployment := await self.api.get(path, Deployment)).is_rolled_out:
            self.expect(time.monotonic() < ends_s, f"a finished rollout, found {deployment.status}")
            await asyncio.sleep(_POLL_S)

    async def wait_refused(self, namespace: str, count: int) -> str:
        """Wait until `count` pods of the namespace are refused; return the reason, the same for all."""

        def reasons() -> list[str]:
            return [reason for pod in self.watch.pods([namespace]) if (reason := pod.pending_reason)]

        await self.watch.until(
            lambda: len(reasons()) == count and len(set(reasons())) == 1,
            within_s=PATIENCE_S,
            failing=lambda: f"{len(reasons())} of {count} pods stay Pending, for {sorted(set(reasons()))}",
        )
        return reasons()[0]

    async def wait_for_events(self, reason: str, word: str) -> list[str]:
        """Return the notes of the story's events of this reason that contain the word; wait for the first."""
        ends_s = time.monotonic() + PATIENCE_S
        while True:
            events = await self.api.items(_EVENTS, Event)
            ours = (one for one in events if one.metadata.namespace in self.namespaces)
            found = [one.note for one in ours if one.reason == reason and word in one.note]
            if found:
                return found
            self.expect(time.monotonic() < ends_s, f"an event {reason} with the word {word!r}")
            await asyncio.sleep(_POLL_S)

    # -- judging ---------------------------------------------------------------------------------------------

    def expect(self, holds: bool, claim: str) -> None:  # noqa: FBT001 - reads as a sentence
        """Raise StoryFailed with the claim unless it holds."""
        if not holds:
            raise StoryFailed(f"expected: {claim}")

    async def placed(self) -> list[Pod]:
        """Return the story's pods that are neither finished nor being deleted, as the API server lists them now."""
        pods = await self.api.items(PODS, Pod)
        return [pod for pod in pods if pod.metadata.namespace in self.namespaces and pod.is_counted]

    async def check(self) -> list[Pod]:
        """Check every rule of every pod of the cluster, and return the story's pods as `placed` does."""
        pods = await self.api.items(PODS, Pod)
        nodes = await self.api.items(_NODES, Node)
        found = broken_rules(pods, nodes, await self.api.items(_NAMESPACES, Namespace))
        found += doubly_allocated(await self._claims())
        self.broken += found
        n_placed = sum(bool(pod.spec.node_name) for pod in pods)
        if found:
            self.show.bad(f"{counted(len(found), 'rule')} broken: {'; '.join(found[:3])}")
        else:
            self.show.good(f"checked all {n_placed} placed pods: no rule is broken")
        return [pod for pod in pods if pod.metadata.namespace in self.namespaces and pod.is_counted]

    async def _claims(self) -> list[ResourceClaim]:
        """Return all claims of devices; none where the version of Kubernetes has no such kind."""
        try:
            return await self.api.items(CLAIMS, ResourceClaim)
        except RequestError as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise
            return []

    async def nodes(self) -> list[Node]:
        """Return all nodes by zone and name."""
        nodes = await self.api.items(_NODES, Node)
        return sorted(nodes, key=lambda node: (node.zone, node.metadata.name))

    async def region_by_node(self, key: str = ZONE) -> dict[str, str]:
        """Return every node's value of a label, '' if it has none."""
        return {node.metadata.name: node.metadata.labels.get(key, "") for node in await self.nodes()}

    async def expect_at_most(self, most: int, pods: Collection[Pod], region: str, key: str) -> None:
        """Raise StoryFailed if a region, which the nodes' label `key` names, has more of the pods."""
        region_by_node = await self.region_by_node(key)
        count = Counter(region_by_node[pod.spec.node_name] for pod in pods)
        self.expect(max(count.values()) <= most, f"at most {most} pods in a {region}, found {dict(count)}")

    async def draw(
        self,
        pods: Collection[Pod],
        grouping: Grouping,
        *,
        region: str = "zone",
        key: str = ZONE,
        only: Collection[str] | None = None,
    ) -> None:
        """Draw a table of the nodes (those in `only`, or all) by the label `key`, with the pods on them."""
        groups: dict[str, list[Group]] = {}
        for pod in pods:
            groups.setdefault(pod.spec.node_name, []).append(grouping(pod))
        rows = [
            Row(
                node.metadata.labels.get(key, "none"),
                node.metadata.name,
                tuple(sorted(groups.get(node.metadata.name, ()), key=lambda one: one.letter)),
            )
            for node in await self.nodes()
            if only is None or node.metadata.name in only
        ]
        rows.sort(key=lambda row: (row.region, row.name))
        self.show.table(region, rows, sorted(groups.get("", ()), key=lambda one: one.letter))

    async def warnings(self) -> list[str]:
        """Return the latest warnings about objects of the story's namespaces, each once."""
        events = await self.api.items(_EVENTS, Event)
        notes = [
            one.note for one in events if one.type == "Warning" and one.metadata.namespace in self.namespaces
        ]
        return list(dict.fromkeys(reversed(notes)))[:_WARNINGS]

    # -- afterwards ------------------------------------------------------------------------------------------

    async def clear(self) -> None:
        """Restore the cluster as the story found it."""
        await self._removed_namespaces(self.namespaces)
        for name, keys in self._labelled.items():
            change: Mapping[str, JsonObject] = {"metadata": {"labels": dict.fromkeys(keys)}}
            await self.api.patch(f"{_NODES}/{name}", dict(change))
        for name, labels in self._overwritten.items():
            await self.api.patch(f"{_NODES}/{name}", {"metadata": {"labels": labels}})
        for name in self._cordoned:
            await self.api.patch(f"{_NODES}/{name}", {"spec": {"unschedulable": None}})
        for path in self._storage:
            await self.api.delete(path)
        for name in self._added_nodes:
            await self.api.delete(f"{_NODES}/{name}")

    async def _removed_namespaces(self, names: Collection[str]) -> None:
        for name in names:
            await self.api.delete(f"{_NAMESPACES}/{name}")
        await self.watch.until(
            lambda: not self.watch.pods(names) and not self.watch.leaving(names),
            within_s=PATIENCE_S,
            failing=lambda: f"pods of {', '.join(names)} are still there",
        )

    def _reason(self) -> str:
        """Return the reason of the first pod without a node, in brackets."""
        reasons = (pod.pending_reason for pod in self.watch.pods(self.namespaces))
        return next((f"({reason})" for reason in reasons if reason), "")


def _deployment(namespace: str, name: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"


def _shown(argument: str) -> str:
    """Return the argument without the folders that only this run of the demo has."""
    path = Path(argument)
    if not path.is_absolute():
        return argument
    examples = folder()
    return f"manifests/examples/{path.relative_to(examples)}" if path.is_relative_to(examples) else path.name
