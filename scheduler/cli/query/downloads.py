"""Downloads manifests for `-f URL`."""

from __future__ import annotations

import errno
import os
from typing import Final

from scheduler.daemon.kube.proxies import proxy_of
from scheduler.errors import SettingsError

#: For everything: name, connection, redirections, body.
_LIMIT_S: Final = 60
_EXPECTED: Final = "a manifest"


def download(url: str, limit_bytes: int) -> bytes:
    """Return what is at the URL, by the proxy that the environment names. Raises SettingsError."""
    import asyncio  # it and aiohttp only for a URL: they take 0.2 s

    return asyncio.run(_get(url, limit_bytes))


async def _get(url: str, limit_bytes: int) -> bytes:
    import aiohttp

    body = bytearray()
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_LIMIT_S)) as session,
            session.get(url, proxy=proxy_of(url, os.environ)) as response,
        ):
            if not response.ok:
                raise SettingsError(url, "", f"status {response.status} {response.reason}", _EXPECTED)
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > limit_bytes:
                    raise SettingsError(url, "", f"more than {limit_bytes} bytes", "fewer")
    except aiohttp.ClientConnectorDNSError as error:
        raise SettingsError(url, "", f"no address is known of the host {error.host}", "") from error
    except aiohttp.ClientConnectorError as error:
        is_refused = error.errno == errno.ECONNREFUSED
        found = f"nothing listens on {error.host}:{error.port}" if is_refused else str(error)
        raise SettingsError(url, "", found, "") from error
    except TimeoutError as error:
        raise SettingsError(url, "", f"no answer in {_LIMIT_S} s", _EXPECTED) from error
    except (aiohttp.ClientError, ValueError) as error:
        raise SettingsError(url, "", str(error) or type(error).__name__, _EXPECTED) from error
    return bytes(body)
