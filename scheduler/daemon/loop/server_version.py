"""Asks the API server for its version, which a command emulates unless a flag names another."""

from __future__ import annotations

from typing import Final

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.requests import SERVER_VERSION
from scheduler.daemon.kube.responses import decode_version
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.settings.feature_gates import nearest_known
from scheduler.engine.model.semantics import NEWEST, OLDEST, Version
from scheduler.errors import ApiError, ServerFault, Throttled, Unreachable

_TIMEOUT_S: Final = 15.0


async def server_version(client: KubeClient, log: Logger) -> Version | None:
    """
    Return the version of the API server, the default one if it refuses to say; None if it does not answer yet.

    A version that cannot be emulated, or that it does not say, is logged.
    """
    try:
        version = decode_version(await client.request(SERVER_VERSION, timeout_s=_TIMEOUT_S))
    except (Unreachable, ServerFault, Throttled):
        return None
    except ApiError as error:
        default = nearest_known(None)
        log.error("The API server does not say its version", emulated=str(default), err=str(error))  # noqa: TRY400
        return default
    emulated = nearest_known(version)
    if version != emulated:
        log.error(
            "The version of the API server is not known here",
            server=str(version),
            emulated=str(emulated),
            known=f"{OLDEST} to {NEWEST}",
        )
    return version
