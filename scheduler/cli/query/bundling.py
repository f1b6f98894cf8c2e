"""A support bundle: its parts, bounded and without secrets, from the API server and from the scheduler's port."""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import platform
import re
import sys
import tarfile
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from scheduler.cli import settings_flags
from scheduler.cli.query.listing import connect
from scheduler.cli.query.redaction import known_configuration, without_secrets
from scheduler.cli.query.snapshots import take_snapshot, written
from scheduler.cli.ui import DEPLOYMENT, check_kubectl, port_forward
from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import Credentials, load_credentials
from scheduler.daemon.kube.requests import SERVER_VERSION, Request, Verb, escaped, get_pod
from scheduler.daemon.settings.resolved import Settings
from scheduler.errors import ApiError, SettingsError
from scheduler.tools.explain.formats.json_values import mapping_or_empty, object_in
from scheduler.tools.explain.formats.recording_file import select
from scheduler.tools.explain.recordings import BUNDLED_SNAPSHOT
from scheduler.version import product_version

if TYPE_CHECKING:
    from scheduler.engine.model.json_fields import FieldTree

_FOLDER, _, SNAPSHOT = BUNDLED_SNAPSHOT.partition("/")
#: Of one part. The metrics of 5,000 nodes have 1 MB; the snapshot of 150,000 pods has 150 MB.
LIMIT_BYTES: Final = 8 << 20
SNAPSHOT_LIMIT_BYTES: Final = 512 << 20
_TIMEOUT_S: Final = 30.0
#: Of all answers of the scheduler's port together: one that hangs answers none.
_PORT_TIMEOUT_S: Final = 60.0
_N_LOG_LINES: Final = 4_000
_MAX_PODS: Final = 5
_MAX_EVENTS: Final = 500
_EVENTS_READ: Final = 5_000
#: Parts that the scheduler's port answers.
_ENDPOINTS: Final = {
    "configz.json": "/configz",
    "flagz.txt": "/flagz",
    "statusz.txt": "/statusz",
    "readyz.txt": "/readyz?verbose",
    "metrics.txt": "/metrics",
    "now.json": "/api/v1/now",
    "pending.json": "/api/v1/pending",
    "decisions.json": "/api/v1/decisions?limit=500",
}
_NAME: Final = "affinity-scheduler"
_PACKAGE: Final = re.compile(r"[\w.-]+")

_META: Final[FieldTree] = {"name": True, "namespace": True, "creationTimestamp": True, "labels": True}
#: Neither arguments nor environment: /flagz has the flags.
_POD: Final[FieldTree] = {
    "metadata": _META,
    "spec": {"nodeName": True, "containers": {"name": True, "image": True, "resources": True}},
    "status": {"phase": True, "reason": True, "message": True, "conditions": True, "containerStatuses": True},
}
_LEASE: Final[FieldTree] = {
    "metadata": {**_META, "annotations": {"affinity-scheduler.io/bound-until": True}},
    "spec": True,
}
_EVENT: Final[FieldTree] = {
    "metadata": {"namespace": True},
    **dict.fromkeys(("type", "reason", "action", "message", "count", "series"), True),
    **dict.fromkeys(("eventTime", "firstTimestamp", "lastTimestamp", "reportingComponent"), True),
    "involvedObject": {"kind": True, "namespace": True, "name": True},
}


Json = Mapping[str, object]
T = TypeVar("T")


class Bundle:
    """The parts so far, and why others are missing. `secrets` are replaced wherever they occur."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        self._secrets = secrets
        self._files: dict[str, bytes] = {}
        self._lines: list[str] = []

    def add(self, name: str, body: bytes) -> None:
        """Add a text without its secrets, cut at the limit."""
        kept = without_secrets(body[:LIMIT_BYTES].decode(errors="replace"), self._secrets)
        note = f", cut: it has more than {LIMIT_BYTES}" if len(body) > LIMIT_BYTES else ""
        self.add_whole(name, kept.encode(), note)

    def add_whole(self, name: str, body: bytes, note: str = "") -> None:
        """Add a part as it is."""
        self._files[name] = body
        self._lines.append(f"{name}: {len(body)} bytes{note}")

    def miss(self, name: str, reason: str) -> None:
        """Note that a part is missing, here and on standard error."""
        line = without_secrets(f"{name}: missing: {' '.join(reason.split())}", self._secrets)
        self._lines.append(line)
        print(line, file=sys.stderr)

    async def keep(self, name: str, reading: Awaitable[bytes], shape: FieldTree | None = None) -> None:
        """Add what is read, or only the fields of `shape` in that JSON object; note if it cannot be had."""
        if (body := await self.take(name, reading)) is not None:
            self.add(name, body if shape is None else _lines([select(object_in(body), shape)]))

    async def take(self, name: str, reading: Awaitable[T]) -> T | None:
        """Return what is read; None with a note if it cannot be had."""
        try:
            return await reading
        except TimeoutError:
            self.miss(name, "no answer in time")
        except (ApiError, SettingsError, aiohttp.ClientError) as error:
            self.miss(name, str(error) or type(error).__name__)
        return None

    def packed(self) -> bytes:
        """Return the tar file, compressed."""
        manifest = "\n".join(
            (f"A support bundle of affinity-scheduler {product_version()}", *self._lines, "")
        )
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:gz") as tar:
            for name, body in {"MANIFEST.txt": manifest.encode(), **self._files}.items():
                member = tarfile.TarInfo(f"{_FOLDER}/{name}")
                member.size, member.mode = len(body), 0o600
                tar.addfile(member, io.BytesIO(body))
        return stream.getvalue()


def save_bundle(args: argparse.Namespace) -> None:
    """Collect the parts and write them to the file of -o."""
    settings = settings_flags.settings(args)
    bundle = asyncio.run(_collected(args, settings))
    with written(args.output) as file:
        file.write(bundle.packed())


async def _collected(args: argparse.Namespace, settings: Settings) -> Bundle:
    credentials = await load_credentials(
        kubeconfig=args.kubeconfig, master=None, environ=os.environ, context=args.context
    )
    authorization = await credentials.authorization()
    bundle = Bundle(() if authorization is None else (authorization.split()[-1],))
    bundle.add("versions.json", msgspec.json.format(msgspec.json.encode(_versions())))
    snapshot = io.BytesIO()
    taking = take_snapshot(args, settings, snapshot, SNAPSHOT_LIMIT_BYTES, skips_forbidden=True)
    forbidden = await bundle.take(SNAPSHOT, taking)
    if forbidden is not None:
        bundle.add_whole(SNAPSHOT, snapshot.getvalue())
        for kind, reason in forbidden.items():
            bundle.miss(f"{kind} objects of {SNAPSHOT}", reason)
    configuration: Json = {}
    try:
        async with _port(args) as url:
            configuration = await _add_endpoints(bundle, url, credentials)
    except SettingsError as error:
        here = "; of one on this machine name the address of its page: --url http://127.0.0.1:N"
        bundle.miss("what the scheduler's port answers", f"{error}{'' if args.url else here}")
    async with connect(args) as client:
        await _add_objects(bundle, client, args.namespace, configuration)
    return bundle


def _versions() -> dict[str, object]:
    """Return the versions of this command, not of the scheduler, which /statusz has."""
    packages = {}
    with suppress(PackageNotFoundError):
        for found in filter(None, map(_PACKAGE.match, requires(_NAME) or ())):
            with suppress(PackageNotFoundError):
                packages[found[0]] = version(found[0])
    return {
        "command": product_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": dict(sorted(packages.items())),
    }


@asynccontextmanager
async def _port(args: argparse.Namespace) -> AsyncGenerator[str, None]:
    """Yield the address of the scheduler's port. Raises SettingsError."""
    if args.url is not None:
        yield args.url.rstrip("/")
        return
    check_kubectl()
    target = argparse.Namespace(**vars(args))
    if target.scheduler == DEPLOYMENT:
        target.scheduler = await _leader(args) or DEPLOYMENT
    async with port_forward(target) as (_, port):
        yield f"https://127.0.0.1:{port}"


async def _leader(args: argparse.Namespace) -> str | None:
    """Return the pod that holds the Lease, since a standby has decided nothing; None if it is unknown."""
    async with connect(args) as client:
        try:
            lease = await _get(client, _lease_path(args.namespace, _NAME))
            spec = mapping_or_empty(object_in(lease).get("spec"))
            # The name of a pod is its host's, with which the identity of an instance begins.
            pod = str(spec.get("holderIdentity") or "").partition("_")[0]
            if not pod:
                return None
            await client.request(get_pod(args.namespace, pod), timeout_s=_TIMEOUT_S)
        except ApiError:
            return None
    return f"pod/{pod}"


def _lease_path(namespace: str, name: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{escaped(namespace)}/leases/{escaped(name)}"


async def _get(
    client: KubeClient, path: str, query: Mapping[str, str] | None = None, verb: Verb = "get"
) -> bytes:
    request = Request("GET", path, verb, tuple((query or {}).items()))
    return await client.request(request, timeout_s=_TIMEOUT_S)


async def _add_endpoints(bundle: Bundle, url: str, credentials: Credentials) -> Json:
    """
    Add what the scheduler's port answers, and return its KubeSchedulerConfiguration, empty if it is unknown.

    The certificate is not checked, for the reason that `page_proxy` gives. The token goes over HTTPS alone.
    """
    authorization = await credentials.authorization() if url.startswith("https:") else None
    headers = {} if authorization is None else {"Authorization": authorization}
    configuration: Json = {}
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    connector = aiohttp.TCPConnector(ssl=False)
    async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout) as session:
        deadline_s = asyncio.get_running_loop().time() + _PORT_TIMEOUT_S
        for name, path in _ENDPOINTS.items():
            body = await bundle.take(name, _answer(session, url + path, deadline_s))
            if body is not None and name == "configz.json":
                known = known_configuration(object_in(body))
                body = msgspec.json.format(msgspec.json.encode(known))
                configuration = mapping_or_empty(known.get("componentconfig"))
            if body is not None:
                bundle.add(name, body)
    return configuration


async def _answer(session: aiohttp.ClientSession, url: str, deadline_s: float) -> bytes:
    """
    Return the body, one byte more than the limit if it is longer.

    Raises SettingsError for another status; TimeoutError, also at the deadline of the event loop's clock.
    """
    async with asyncio.timeout_at(deadline_s), session.get(url, allow_redirects=False) as answer:
        body = b""
        while len(body) <= LIMIT_BYTES and (piece := await answer.content.read(LIMIT_BYTES + 1 - len(body))):
            body += piece
        # /readyz answers 500 with the checks that fail.
        if answer.status != 200 and "/readyz" not in url:
            text = body[:300].decode(errors="replace")
            raise SettingsError(urlsplit(url).path, "", f"{answer.status} {answer.reason}: {text}", "200 OK")
    return body


async def _add_objects(bundle: Bundle, client: KubeClient, namespace: str, configuration: Json) -> None:
    """Add what the API server has of the scheduler."""
    await bundle.keep("apiserver.json", client.request(SERVER_VERSION, timeout_s=_TIMEOUT_S))
    election = mapping_or_empty(configuration.get("leaderElection"))
    path = _lease_path(
        str(election.get("resourceNamespace") or namespace), str(election.get("resourceName") or _NAME)
    )
    await bundle.keep("lease.json", _get(client, path), _LEASE)
    path, selector = f"/api/v1/namespaces/{escaped(namespace)}/pods", f"app.kubernetes.io/name={_NAME}"
    query = {"labelSelector": selector, "limit": "100"}
    pods = await _listed(bundle, client, "pods.json", path, query)
    if pods == []:
        bundle.miss("pods and log", f"no pod with the label {selector} in {namespace}")
    if pods:
        bundle.add("pods.json", _lines([select(pod, _POD) for pod in pods]))
    for pod in (pods or ())[:_MAX_PODS]:
        await _add_log(bundle, client, path, pod)
    await _add_events(bundle, client, pods or (), configuration)


async def _add_log(bundle: Bundle, client: KubeClient, path: str, pod: Json) -> None:
    """Add the last lines of the scheduler's container, and those of the one before it if that has ended."""
    name = escaped(str(mapping_or_empty(pod.get("metadata")).get("name")))
    containers = _mappings(mapping_or_empty(pod.get("spec")).get("containers"))
    names = [str(each.get("name")) for each in containers]
    query = {
        "container": "scheduler" if "scheduler" in names else next(iter(names), ""),
        "tailLines": str(_N_LOG_LINES),
        "limitBytes": str(LIMIT_BYTES),
    }
    queries = {f"log-{name}.txt": query}
    statuses = _mappings(mapping_or_empty(pod.get("status")).get("containerStatuses"))
    if any(each.get("restartCount") for each in statuses):
        queries[f"log-{name}-previous.txt"] = {**query, "previous": "true"}
    for file, asked in queries.items():
        await bundle.keep(file, _get(client, f"{path}/{name}/log", asked))


async def _add_events(bundle: Bundle, client: KubeClient, pods: Sequence[Json], configuration: Json) -> None:
    """Add the newest events that its profiles reported, and those about its pods."""
    profiles = [str(each.get("schedulerName")) for each in _mappings(configuration.get("profiles"))]
    selectors = [f"reportingComponent={name}" for name in profiles or [_NAME]]
    for pod in pods[:_MAX_PODS]:
        meta = mapping_or_empty(pod.get("metadata"))
        selectors.append(
            f"involvedObject.namespace={meta.get('namespace')},involvedObject.name={meta.get('name')}"
        )
    lists = []
    for selector in selectors:
        query = {"fieldSelector": selector, "limit": str(_EVENTS_READ)}
        lists.append(await _listed(bundle, client, f"events.json ({selector})", "/api/v1/events", query))
    if any(listed is not None for listed in lists):
        events = (select(event, _EVENT) for listed in lists for event in listed or ())
        bundle.add("events.json", _lines(sorted(events, key=_last_seen)[-_MAX_EVENTS:]))


def _last_seen(event: Json) -> str:
    series = mapping_or_empty(event.get("series")).get("lastObservedTime")
    return str(series or event.get("lastTimestamp") or event.get("eventTime") or "")


async def _listed(
    bundle: Bundle, client: KubeClient, name: str, path: str, query: Mapping[str, str]
) -> list[Json] | None:
    """Return the objects of the first page; the bundle notes if there are more."""
    taken = await bundle.take(name, _get(client, path, query, "list"))
    if taken is None:
        return None
    document = object_in(taken)
    items = _mappings(document.get("items"))
    if mapping_or_empty(document.get("metadata")).get("continue"):
        bundle.miss(name, f"all but the first {len(items)} by name, which need not be the newest")
    return items


def _lines(documents: Iterable[Json]) -> bytes:
    """Return the documents as JSON, one a line."""
    return b"".join(msgspec.json.encode(document) + b"\n" for document in documents)


def _mappings(value: object) -> list[Json]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
