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
from tests.support.api_client import Answer, Api
from tests.support.apiserver import Address

#: The form of what `kubectl get` prints.
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_SERVERS = ["devcluster", pytest.param("real", marks=pytest.mark.real)]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=_SERVERS)
async def server(request) -> AsyncIterator[Api]:
    """Yield a client of the server under test, one for each module."""
    if request.param == "real":
        address: Address = request.getfixturevalue("real_server")
        context = ssl.create_default_context(cafile=str(address.ca_file))
        async with Api(address.url, {"Authorization": f"Bearer {address.token}"}, ssl=context) as client:
            yield client
        return
    minor = request.config.option.minor or DEFAULT_MINOR
    async with (
        DevCluster(bookmark_interval_s=0.2, minor=minor) as cluster,
        Api(cluster.url, cluster.headers) as client,
    ):
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def api(server: Api) -> Api:
    """Return the client with a namespace of its own for each test."""
    await server.enter_namespace()
    return server


def named_causes(answer: Answer) -> str:
    """Return the causes of an invalid object, sorted, as `Required spec.attacher, Invalid spec.source`."""
    answer.refused(422, "Invalid")
    causes = {f"{reason.removeprefix('FieldValue')} {field}" for reason, field in answer.causes()}
    return ", ".join(sorted(causes))
