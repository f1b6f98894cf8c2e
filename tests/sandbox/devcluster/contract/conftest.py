"""
The contract suite's servers: the embedded cluster always, a real API server where there is one.

`pytest tests/sandbox/devcluster/contract --minor 34`: the embedded cluster is of that version, 1.34. Kinds and
fields that it does not have fail there.
"""

import ssl
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.versions import DEFAULT_MINOR
from tests.support.api_client import Api
from tests.support.apiserver import Address

_SERVERS = ["devcluster", pytest.param("real", marks=pytest.mark.real)]


@pytest_asyncio.fixture(params=_SERVERS)
async def api(request) -> AsyncIterator[Api]:
    """Yield a client of the server under test, with a namespace of its own."""
    if request.param == "real":
        address: Address = request.getfixturevalue("real_server")
        context = ssl.create_default_context(cafile=str(address.ca_file))
        async with Api(address.url, {"Authorization": f"Bearer {address.token}"}, ssl=context) as client:
            await client.enter_namespace()
            yield client
        return
    minor = request.config.option.minor or DEFAULT_MINOR
    async with (
        DevCluster(bookmark_interval_s=0.2, minor=minor) as cluster,
        Api(cluster.url, cluster.headers) as client,
    ):
        await client.enter_namespace()
        yield client
