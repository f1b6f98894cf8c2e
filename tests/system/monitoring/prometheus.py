"""A real Prometheus with our rules, which scrapes every second."""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.support.manifest_files import MANIFESTS, documents
from tests.support.ports import free_port
from tests.support.waiting import until
from tests.system.monitoring.queries import RULES

#: Values of Grafana's variables; the interval is several scrapes long.
VARIABLES = {"$__rate_interval": "10s", "$job": "affinity-scheduler", "$instance": ".*"}


@dataclass(frozen=True)
class Target:
    """
    A job with an instance on this machine, and maybe others at `more_ports`.

    It is HTTPS, as the ServiceMonitor says, where there is a token.
    """

    job: str
    port: int
    token: str = ""
    more_ports: tuple[int, ...] = ()


class Prometheus:
    """A running server and its HTTP API."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}"

    async def is_ready(self) -> bool:
        """Return True once it is ready."""
        try:
            async with self._session.get(f"{self._url}/-/ready") as answer:
                return answer.status == 200
        except aiohttp.ClientConnectionError:
            return False

    async def get(self, path: str, **parameters: str) -> Any:
        """Return the data of a successful response."""
        async with self._session.get(f"{self._url}/api/v1/{path}", params=parameters) as answer:
            body = await answer.json()
        assert body["status"] == "success", body
        return body["data"]

    async def numbers(self, expression: str) -> list[float]:
        """Return the current values of an expression, one per series, without NaN."""
        return [value for value in await self.all_numbers(expression) if not math.isnan(value)]

    async def all_numbers(self, expression: str, at_s: float | None = None) -> list[float]:
        """Return the values of an expression at a second since 1970, or now, one per series."""
        when = {} if at_s is None else {"time": str(at_s)}
        found = (await self.get("query", query=_with_variables(expression), **when))["result"]
        return [float(series["value"][1]) for series in found]

    async def over_time(self, expression: str, begin_s: float, end_s: float) -> list[Any]:
        """Return the series of an expression, each with its `metric` and a value each second."""
        times = {"start": str(begin_s), "end": str(end_s), "step": "1"}
        found: list[Any] = (await self.get("query_range", query=_with_variables(expression), **times))[
            "result"
        ]
        return found

    async def began_s(self) -> float:
        """Return the time of the first scrape, in seconds since 1970."""
        (first,) = await self.numbers("min(min_over_time(timestamp(up)[5m:1s]))")
        return first


def _with_variables(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


@asynccontextmanager
async def prometheus(
    folder: Path, targets: Sequence[Target], rules: Any = RULES["spec"], *, period: str = "1s"
) -> AsyncIterator[Prometheus]:
    """Run a Prometheus that scrapes the targets and evaluates the rules once in each period."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("prometheus is not installed (Debian's package prometheus has it)")
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    own = free_port()
    configuration = {
        "global": {"scrape_interval": period, "scrape_timeout": period, "evaluation_interval": period},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [_scraped(target, folder) for target in targets],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            binary,
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{own}",
            stdout=log,
            stderr=log,
        )
    try:
        async with aiohttp.ClientSession() as session:
            started = Prometheus(session, own)
            await until(started.is_ready, lambda ready: ready or process.returncode is not None)
            assert process.returncode is None, (folder / "prometheus.log").read_text()
            yield started
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _scraped(target: Target, folder: Path) -> dict[str, Any]:
    """Return the part of Prometheus' configuration for a target."""
    addresses = [f"127.0.0.1:{port}" for port in (target.port, *target.more_ports)]
    made: dict[str, Any] = {"job_name": target.job, "static_configs": [{"targets": addresses}]}
    if not target.token:
        return made
    (endpoint,) = documents(MANIFESTS / "monitoring" / "service-monitor.yaml")[0]["spec"]["endpoints"]
    token = folder / endpoint["authorization"]["credentials"]["key"]
    token.write_text(target.token)
    return made | {
        "scheme": endpoint["scheme"],
        "metrics_path": endpoint["path"],
        "authorization": {"credentials_file": str(token)},
        "tls_config": {"insecure_skip_verify": endpoint["tlsConfig"]["insecureSkipVerify"]},
    }
