"""
Builds, starts and stops the webhook.

    start   metrics and health -> HTTPS (handshakes fail) -> certificate -> ready
    stop    not ready -> wait until Services notice -> finish requests in flight -> stop the rest

`daemon.loop.daemon` has the rest of its life.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.loop.daemon import Daemon, run_until_signal
from scheduler.daemon.metrics.logs import Logger, configure
from scheduler.daemon.port.delegated_auth import DelegatedAuth
from scheduler.daemon.port.serving_certificate import FileCertificate
from scheduler.daemon.port.status_server import ServingOptions, StatusServer, open_auth
from scheduler.errors import SettingsError
from scheduler.tools.webhook.certificate_rotation import CertificateRotation
from scheduler.tools.webhook.certificate_store import SecretStore
from scheduler.tools.webhook.metrics import WebhookMetrics
from scheduler.tools.webhook.mutating import mutate
from scheduler.tools.webhook.reviews import Scope
from scheduler.tools.webhook.server import Endpoint, Listener
from scheduler.tools.webhook.validating import AntiAffinity, validate, validate_reach
from scheduler.version import product_version

#: How long requests may still arrive after SIGTERM, until proxies know that the pod is not ready.
_NOT_READY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Options:
    """The command line's options. `cert_file` and `key_file` are None if the webhook issues its own certificate."""

    listening: ServingOptions
    webhook_port: int
    refused: AntiAffinity
    merges_fields: bool
    scope: Scope
    namespace: str
    name: str
    host: str
    cert_file: Path | None
    key_file: Path | None
    kubeconfig: str | None
    master: str | None
    verbosity: int
    log_format: str


async def serve(options: Options, environ: Mapping[str, str]) -> int:
    """Serve until SIGTERM or SIGINT; a second signal ends the process at once. Raises SettingsError."""
    log = configure(verbosity=options.verbosity, form=options.log_format)
    metrics = WebhookMetrics(version=product_version())
    endpoint = Endpoint(
        {
            "mutate": options.scope.applied_to(partial(mutate, merges_fields=options.merges_fields)),
            "validate": options.scope.applied_to(partial(validate, refused=options.refused)),
            "validate-reach": options.scope.applied_to(validate_reach),
        },
        metrics=metrics,
        log=log,
    )
    listener = Listener(endpoint.application, metrics)
    if options.cert_file is not None and options.key_file is not None:
        files = FileCertificate(options.cert_file, options.key_file, listener, log=log)
        files.load()
        async with open_auth(
            options.listening, None, environ, log=log, on_request=metrics.on_request
        ) as auth:
            return await run_until_signal(_Webhook(options, listener, files, metrics, log, auth))
    credentials = await load_credentials(
        kubeconfig=options.kubeconfig, master=options.master, environ=environ
    )
    async with (
        open_auth(options.listening, credentials, environ, log=log, on_request=metrics.on_request) as auth,
        KubeClient(credentials, on_request=metrics.on_request) as client,
    ):
        store = SecretStore(client, namespace=options.namespace, name=options.name)
        secret = CertificateRotation(store, [options.host], listener, log=log, clock_s=time.time)
        return await run_until_signal(_Webhook(options, listener, secret, metrics, log, auth))


class _Webhook(Daemon):
    """One running webhook."""

    def __init__(
        self,
        options: Options,
        listener: Listener,
        certificates: CertificateRotation | FileCertificate,
        metrics: WebhookMetrics,
        log: Logger,
        auth: DelegatedAuth | None,
    ) -> None:
        super().__init__(options.listening, metrics, log, auth)
        self._options, self._listener, self._certificates = options, listener, certificates

    def _new_server(self) -> StatusServer:
        ready = {"certificate": lambda: self._listener.is_serving, "shutdown": self._is_running}
        return self._new_port(configz=lambda: json.dumps(asdict(self._options), default=str), ready=ready)

    async def _begin(self) -> None:
        address, port = self._options.listening.address, self._options.webhook_port
        try:
            bound = await self._listener.start(address, port)
        except OSError as error:
            found = f"{address} port {port}: {error.strerror or error}"
            raise SettingsError("--webhook-port", "", found, "an address and port to listen on") from error
        self._log.info(0, "Starting affinity-scheduler webhook", version=product_version(), port=bound)

    async def _work(self) -> None:
        self.start("certificate", self._certificates.run())
        try:
            await self._stopped.wait()
            await asyncio.sleep(_NOT_READY_S)
        finally:
            await self._listener.stop()
