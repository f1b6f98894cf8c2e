"""A whole embedded cluster: store, API server, controllers and kubelet stand-in, started and stopped together."""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import yaml
from aiohttp import web

from scheduler.sandbox.devcluster.bootstrap import add_storage, populate
from scheduler.sandbox.devcluster.controllers.loop import log_failure, run_controllers
from scheduler.sandbox.devcluster.gpu_driver import add_gpus
from scheduler.sandbox.devcluster.http.faults import Faults
from scheduler.sandbox.devcluster.http.server import MAX_BODY_BYTES, ApiServer
from scheduler.sandbox.devcluster.http.watches import BOOKMARK_INTERVAL_S
from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.storage.store import HISTORY_CAPACITY, ObjectStore
from scheduler.sandbox.devcluster.versions import DEFAULT_MINOR

_HOST: Final = "127.0.0.1"
_SHUTDOWN_S: Final = 2.0
#: Connections that may wait to be accepted.
_BACKLOG: Final = 128


class DevCluster:
    """
    An API server on the loopback interface with everything in memory.

    Use as an async context manager, or call `start` and `stop`. Objects can be read and written in-process through
    `store`, from the same event loop; webhooks then see no pod.
    """

    def __init__(
        self,
        *,
        nodes: int = 0,
        zones: int = 1,
        port: int = 0,
        token: str | None = None,
        bookmark_interval_s: float = BOOKMARK_INTERVAL_S,
        history_capacity: int = HISTORY_CAPACITY,
        controllers: bool = False,
        node_labels: Mapping[str, Sequence[str]] | None = None,
        node_resources: Mapping[str, Sequence[str]] | None = None,
        gpus_per_node: int = 0,
        gpus_per_fabric: int = 0,
        minor: int = DEFAULT_MINOR,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Create a cluster with its nodes and namespaces; `start` lets it listen.

        The nodes are spread over the zones; `port` 0 takes a free one. `token` is the administrator's: None accepts
        requests without one, "" creates a random one. `history_capacity`: past changes of each kind from which watches
        can resume. `controllers`: run the controllers and the kubelet stand-in, with a default storage class.
        `node_labels` and `node_resources` are further ones of the nodes, each with the values that they get in turn.
        `gpus_per_fabric`: number of GPUs that a fabric joins; 0 for no fabrics. `minor`: the version of Kubernetes,
        which decides what is served and stored. `now_s`: the monotonic clock by which controllers wait.
        """
        self.store: Final = ObjectStore(capacity=history_capacity, minor=minor)
        self.faults: Final = Faults()
        self.token: Final = secrets.token_urlsafe(32) if token == "" else token
        self._server = ApiServer(
            self.store, self.faults, token=self.token, bookmark_interval_s=bookmark_interval_s
        )
        self.arrivals: Final = self._server.arrivals
        self.decision_listeners: Final = self._server.authorizer.decision_listeners
        self._port = port
        self._has_controllers = controllers
        self._now_s = now_s
        self._runner: web.ServerRunner | None = None
        self._listener: asyncio.Server | None = None
        self._controllers: asyncio.Task[None] | None = None
        populate(self.store, nodes=nodes, zones=zones, labels=node_labels, resources=node_resources)
        if controllers:
            add_storage(self.store)
        if gpus_per_node:
            add_gpus(self.store, per_node=gpus_per_node, per_fabric=gpus_per_fabric)

    async def start(self) -> None:
        """Start to listen. Raises: OSError if the port is taken."""
        loop = asyncio.get_running_loop()
        requests = partial(web.BaseRequest, loop=loop, client_max_size=MAX_BODY_BYTES)
        # With handler_cancellation a handler ends with its client's connection, so no idle watch outlives its reader.
        server = web.Server(
            self._server.serve, request_factory=requests, handler_cancellation=True, access_log=None
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)
        await self._runner.setup()
        try:
            self._listener = await loop.create_server(server, _HOST, self._port, backlog=_BACKLOG)
        except OSError:
            await self._runner.cleanup()
            self._runner = None
            raise
        self._port = self._listener.sockets[0].getsockname()[1]
        if self._has_controllers:
            running = run_controllers(self.store, self._now_s)
            self._controllers = asyncio.create_task(running, name="devcluster-controllers")
            self._controllers.add_done_callback(log_failure)

    async def stop(self) -> None:
        """Stop listening and end open watches."""
        if self._controllers is not None:
            self._controllers.cancel()
            await asyncio.gather(self._controllers, return_exceptions=True)
            self._controllers = None
        if self._runner is not None:
            await self._stop_listening()
            self._server.end_watches()
            await self._runner.cleanup()
            self._runner = None

    async def _stop_listening(self) -> None:
        if self._listener is None:
            return
        # asyncio accepts a connection in one iteration of the event loop and creates it in the next. If the server
        # is closed between them, Python 3.11 fails an assertion and leaves the connection open.
        for each in self._listener.sockets:
            asyncio.get_running_loop().remove_reader(each.fileno())
        await asyncio.sleep(0)
        self._listener.close()
        self._listener = None

    async def __aenter__(self) -> "DevCluster":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        """Return the port it listens on; before `start`, the requested one."""
        return self._port

    @property
    def url(self) -> str:
        """Return the server's address, without a trailing slash."""
        return f"http://{_HOST}:{self._port}"

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that authenticate a request as the administrator's."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def token_of(self, namespace: str, account: str) -> str:
        """Return a token of a ServiceAccount, valid for an hour. Raises: StatusError 404."""
        issued = self._server.authorizer.authenticator.issue(namespace, account, {})
        return str(issued["status"]["token"])

    def kubeconfig(self) -> JsonObject:
        """Return a kubeconfig whose only context is this cluster."""
        user: JsonObject = {"token": self.token} if self.token else {}
        context = {"cluster": "devcluster", "user": "devcluster", "namespace": "default"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "devcluster", "cluster": {"server": self.url}}],
            "users": [{"name": "devcluster", "user": user}],
            "contexts": [{"name": "devcluster", "context": context}],
            "current-context": "devcluster",
        }

    def write_kubeconfig(self, path: Path, *, overwrite: bool = True) -> None:
        """Write the kubeconfig to `path`, readable by its owner alone. Raises: OSError."""
        path.touch(mode=0o600, exist_ok=overwrite)
        path.chmod(0o600)
        path.write_text(yaml.safe_dump(self.kubeconfig(), sort_keys=False))
