"""kubernetes-asyncio, the tests' client of API servers where neither a call's cost nor what is on the wire matters."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kubernetes_asyncio.client import ApiClient, Configuration

_ANY_SUCCESS = dict.fromkeys(range(200, 300), "object")


def client_of(url: str, token: str = "", ca_file: Path | None = None) -> ApiClient:
    """Return a client, to be entered as a context."""
    made = Configuration(host=url, ssl_ca_cert=str(ca_file) if ca_file else None)
    made.api_key = {"BearerToken": f"Bearer {token}"} if token else {}
    return ApiClient(made)


def requested(
    url: str, method: str, path: str, body: Any = None, content_type: str = "application/json"
) -> Any:
    """Return the object in the answer, for a test that is not async. Raises: ApiException for a refusal."""

    async def request() -> Any:
        async with client_of(url) as client:
            headers = {"Accept": "application/json", "Content-Type": content_type}
            answer, *_ = await client.call_api(
                path, method, header_params=headers, body=body, response_types_map=_ANY_SUCCESS
            )
            return answer

    # In a thread of its own, since a synchronous browser runs a loop in the test's.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, request()).result()
