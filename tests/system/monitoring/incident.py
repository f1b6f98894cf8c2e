"""One cluster for one alert: its fault, a Prometheus with quick rules, and an operator who tries the runbook."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import tarfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from scheduler.sandbox.devcluster.kinds import POD, Kind
from tests.support import accounts, build, daemon, enforcer_process, webhook_process
from tests.support.api_client import Api
from tests.support.cluster import NAME, kubeconfig_text
from tests.support.daemon import Daemon, profiles
from tests.support.enforcer_process import Shop
from tests.support.forking import Forked, forked
from tests.support.manifest_files import BASE, ROOT, one, resources
from tests.support.port_forwarding import port_forwarding
from tests.support.ports import free_port
from tests.support.waiting import until
from tests.system.monitoring.prometheus import Prometheus, Target, prometheus
from tests.system.monitoring.runbooks import PREFIX, command_with

#: What is done to a cluster, and awaited.
Act = Callable[["Incident"], Awaitable[None]]

SYSTEM = "kube-system"
_EVERYTHING = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: operator}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}
- {nonResourceURLs: ["*"], verbs: ["*"]}
"""
#: Of the page's data: what it shows first.
_PAGE = ("/api/v1/now", "/api/v1/decisions")
_PERIOD = "500ms"
#: After so long without firing an alert has ended: a rate that lacked a sample for a moment is back by then.
_ENDED = "2s"
_COMMAND_S = 60.0


def quick(rule: Mapping[str, Any], range_s: float) -> dict[str, Any]:
    """Return a rule with other times: `for` half a second, ranges and offsets `range_s`. Thresholds stay."""
    milliseconds = f"{range_s * 1000:.0f}ms"
    expression = re.sub(r"\[\w+\]", f"[{milliseconds}]", rule["expr"])
    expression = re.sub(r"\boffset \w+", f"offset {milliseconds}", expression)
    return {**rule, "expr": expression, **({"for": _PERIOD} if "for" in rule else {})}


@dataclass
class Incident:
    """A cluster, the ports of the programs in it, and what was started in it so far, which ends with it."""

    cluster: DevCluster
    folder: Path
    stack: AsyncExitStack
    #: Of two schedulers, the enforcer and the webhook.
    ports: tuple[int, ...] = field(default_factory=lambda: tuple(free_port() for _ in range(4)))
    prometheus: Prometheus = field(init=False)
    #: The program that was started last.
    daemon: Daemon = field(init=False)
    #: A token of Prometheus' account.
    reader: str = ""
    #: The operator's kubeconfig.
    kubeconfig: Path = field(init=False)
    shop: Shop = field(init=False)
    _disturbances: list[asyncio.Task[None]] = field(default_factory=list)

    # The programs.

    async def start(
        self,
        *flags: str,
        instance: int = 0,
        waits: bool = True,
        kubeconfig: Path | None = None,
        module: Sequence[str] = ("scheduler",),
    ) -> Daemon:
        """Start a scheduler, without an election unless a flag asks for it. `module` is as in `daemon.started`."""
        chosen = self.kubeconfig_of("scheduler") if kubeconfig is None else kubeconfig
        arguments = ("--bind-address", "0.0.0.0", "--leader-elect", "false", *flags)
        starting = daemon.started(chosen, *arguments, port=self.ports[instance], module=module)
        return await self._follow(await self.stack.enter_async_context(starting), waits=waits)

    async def enforce(self, *flags: str) -> None:
        """Start an enforcer."""
        starting = enforcer_process.started(self.kubeconfig_of("enforcer"), *flags, port=self.ports[2])
        await self._follow(await self.stack.enter_async_context(starting))

    async def admit(self, *flags: str) -> None:
        """Start a webhook, which may not become ready."""
        arguments = ("--kubeconfig", str(self.kubeconfig_of("webhook")), *flags)
        starting = webhook_process.started(*arguments, port=self.ports[3])
        started, _ = await self.stack.enter_async_context(starting)
        await self._follow(started, waits=False)

    async def _follow(self, started: Daemon, *, waits: bool = True) -> Daemon:
        self.daemon = started
        started.token = self.reader
        if waits:
            await until(started.is_ready, what="readiness")
        return started

    def log(self) -> str:
        """Return the log of the program that was started last, which may have ended."""
        return self.daemon.log()

    def kubeconfig_of(self, component: str) -> Path:
        """Return a kubeconfig of a program's account. Refused requests are meant, so no record keeps them."""
        path = self.folder / f"{component}.kubeconfig"
        if not path.exists():
            token = accounts.install(self.cluster, component, accounts.Record())
            path.write_text(kubeconfig_text(self.cluster.url, token=token))
        return path

    def configuration(self, **settings: Any) -> Path:
        """Write a configuration of one profile with these settings."""
        path = self.folder / "configuration.json"
        path.write_text(json.dumps(json.loads(profiles({"schedulerName": NAME})) | settings))
        return path

    def keep(self, act: Callable[[int], None], period_s: float = 0.3) -> None:
        """Call `act` with 0, 1, 2 and so on until `calm`, or until the incident ends."""

        async def repeat() -> None:
            for number in count():
                act(number)
                await asyncio.sleep(period_s)

        self.disturb(repeat())

    def disturb(self, disturbance: Coroutine[Any, Any, None]) -> None:
        """Run it until `calm`, or until the incident ends."""
        self._disturbances.append(asyncio.create_task(disturbance))

    async def calm(self) -> None:
        """End what `keep` and `disturb` have begun. Raises what it raised."""
        while self._disturbances:
            task = self._disturbances.pop()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    # The cluster's users and machines.

    def respond(self, code: int, **of: Any) -> None:
        """Let the API server answer such requests with a failure from now on."""
        self.cluster.faults.add(Fault(Effect.RESPOND, code=code, times=1_000_000, **of))

    def add_pod(self, name: str, **settings: Any) -> None:
        """Create a pod for the scheduler."""
        pod = build.pod(name, spec={"schedulerName": NAME}, **settings)
        del pod["metadata"]["uid"]
        self.cluster.store.create(POD, "default", pod)

    def add_pod_of(self, component: str, namespace: str) -> None:
        """Create a pod of the enforcer or of the webhook, whose log kubectl finds."""
        pod = build.pod(component, namespace=namespace, labels={"app.kubernetes.io/name": component})
        del pod["metadata"]["uid"]
        pod["spec"]["nodeName"] = "node-0001"
        self.cluster.store.create(POD, namespace, pod)

    def label(self, kind: Kind, namespace: str, name: str, **labels: str) -> None:
        """Write labels of an object."""
        stored = self.cluster.store.get(kind, namespace, name)
        kept = {**(stored["metadata"].get("labels") or {}), **labels}
        self.cluster.store.rewrite(kind, {**stored, "metadata": {**stored["metadata"], "labels": kept}})

    def write_status(self, **container: Any) -> None:
        """Write the status of the scheduler's container, as a kubelet would."""
        pod = self.cluster.store.get(POD, SYSTEM, f"{NAME}-0")
        state = {"name": "scheduler", "image": "i", "imageID": "", "ready": True, "restartCount": 0}
        status = {**pod["status"], "phase": "Running", "containerStatuses": [{**state, **container}]}
        self.cluster.store.rewrite(POD, {**pod, "status": status})

    # The operator.

    def write_kustomization(self, *resources: str) -> None:
        """Write what manifests/README.md lets a user write, with folders of the manifests."""
        folders = [os.path.relpath(ROOT / each, self.folder.resolve()) for each in resources]
        head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
        path = self.folder / "kustomization.yaml"
        path.write_text(json.dumps({**head, "resources": folders}))

    async def is_firing(self, alert: str, labels: Mapping[str, str]) -> bool:
        """Return whether an alert of this name with these labels fires."""
        wanted = {"alertname": f"{PREFIX}{alert}", **labels}
        return any(
            each["state"] == "firing" and wanted.items() <= each["labels"].items()
            for each in (await self.prometheus.get("alerts"))["alerts"]
        )

    async def has_ended(self, alert: str, labels: Mapping[str, str]) -> bool:
        """Return whether no such alert has fired for some evaluations, while something is still scraped."""
        wanted = {"alertname": f"{PREFIX}{alert}", "alertstate": "firing", **labels}
        selector = ",".join(f'{label}="{value}"' for label, value in wanted.items())
        lately = await self.prometheus.numbers(f"count_over_time(ALERTS{{{selector}}}[{_ENDED}])")
        return not lately and bool(await self.prometheus.numbers("up == 1"))

    async def tried(self, alert: str, part: str, **names: str) -> str:
        """Run the runbook's only command that contains `part`, with these words replaced, and return what it shows."""
        words = [names.get(word, word) for word in command_with(alert, part)]
        if words[:2] == ["kubectl", "affinity"]:
            words = [NAME, *words[2:]]
        if words[0] == "kubectl":
            command = await asyncio.create_subprocess_exec(
                *words, "--kubeconfig", str(self.kubeconfig), stdout=PIPE, stderr=PIPE, cwd=self.folder
            )
            return await _output(command)
        path = self.folder / "bundle.tar.gz"
        arguments = [str(path) if word == "FILE" else word for word in words[1:]]
        if words[1] == "ui":
            arguments.append("--no-browser")
        program = await forked("scheduler", *arguments, "--kubeconfig", str(self.kubeconfig))
        if words[1] == "ui":
            return await _page(program)
        shown = await _output(program)
        return _texts(path) if words[1] == "bundle" else shown


@asynccontextmanager
async def incident(folder: Path, rule: Mapping[str, Any]) -> AsyncIterator[Incident]:
    """Yield a cluster with one node and the scheduler's Deployment, of which Prometheus evaluates one rule."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(DevCluster(nodes=1, bookmark_interval_s=0.5))
        made = Incident(cluster, folder, stack)
        _deploy(made)
        made.kubeconfig = await _operator(made)
        api = await stack.enter_async_context(Api(cluster.url, {}))
        made.shop = Shop(api, made.kubeconfig, "default")
        made.reader = accounts.new_account(cluster, "prometheus", accounts.METRICS_READER)
        first, second, enforcer, webhook = made.ports
        targets = [
            Target(NAME, first, made.reader, (second,)),
            Target(f"{NAME}-enforcer", enforcer),
            Target(f"{NAME}-webhook", webhook),
        ]
        rules = {"groups": [{"name": "tried", "rules": [rule]}]}
        made.prometheus = await stack.enter_async_context(prometheus(folder, targets, rules, period=_PERIOD))
        try:
            yield made
        finally:
            await made.calm()  # before the programs that it disturbs end


def _deploy(incident: Incident) -> None:
    """Create the scheduler's Deployment and its pod, which kubectl finds."""
    deployment = one(resources(BASE), "Deployment")
    deployment["metadata"]["namespace"] = SYSTEM
    accounts.create(incident.cluster, deployment)
    template = deployment["spec"]["template"]
    pod = {"metadata": {**template["metadata"], "name": f"{NAME}-0"}, "spec": template["spec"]}
    incident.cluster.store.create(POD, SYSTEM, {**pod, "spec": {**pod["spec"], "nodeName": "node-0001"}})
    incident.write_status()


async def _operator(incident: Incident) -> Path:
    """Return the kubeconfig of an account with all rights, at a front that has logs, ports and other users' names."""
    role, path = incident.folder / "operator.yaml", incident.folder / "operator.kubeconfig"
    role.write_text(_EVERYTHING)
    token = accounts.new_account(incident.cluster, "operator", role)
    incident.kubeconfig_of("scheduler")
    scheduler = accounts.COMPONENTS["scheduler"]
    tokens = {scheduler.user: incident.cluster.token_of(scheduler.namespace, scheduler.account)}
    front = await incident.stack.enter_async_context(
        port_forwarding(incident.cluster.url, incident.ports[0], incident.log, tokens)
    )
    path.write_text(kubeconfig_text(front, token=token))
    return path


@asynccontextmanager
async def _attended(process: Process | Forked) -> AsyncIterator[None]:
    """Kill the process if it still runs at the end, or after a minute."""
    try:
        async with asyncio.timeout(_COMMAND_S):
            yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _output(process: Process | Forked) -> str:
    """Return what a command prints; some end with a code of their own, such as `auth can-i` for no."""
    async with _attended(process):
        return b"".join(await process.communicate()).decode()


async def _page(process: Forked) -> str:
    """Return the data of the page that the command `ui` serves, and end it."""
    async with _attended(process):
        line = (await process.stdout.readline()).decode()
        address = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert address, line
        shown = []
        async with aiohttp.ClientSession(address[0]) as session:
            for path in _PAGE:
                async with session.get(path) as answer:
                    shown.append(await answer.text())
        process.send_signal(signal.SIGTERM)
        await process.wait()
    return "\n".join(shown)


def _texts(path: Path) -> str:
    """Return the texts of a bundle, each below its name."""
    with tarfile.open(path) as tar:
        streams = [(member.name, tar.extractfile(member)) for member in tar]
        return "\n".join(f"{name}\n{stream.read().decode()}" for name, stream in streams if stream)
