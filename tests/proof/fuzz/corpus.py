"""The inputs from which fuzzing starts: parts of the examples of manifests, and of the configuration beside them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

_ROOT: Final = Path(__file__).parents[3]
_KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: c, user: u, namespace: n}}]
clusters: [{name: c, cluster: {server: 'https://10.0.0.1:6443', certificate-authority-data: QQ==}}]
users:
- name: u
  user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: x, args: [y], env: [{name: N, value: v}]}}
- {name: t, user: {token: secret, client-certificate: /a, client-key: /b}}
"""
_CEL: Final = (
    'device.driver == "d" && device.attributes["d"].n >= 3',
    'device.attributes["d"].a.matches("^te.*t$") || ["a", "b"].exists(x, x == device.driver)',
    'device.capacity["d"].memory.compareTo(quantity("40Gi")) >= 0',
    '"a-b".split("-").map(x, x.size()).all(n, n == 1) ? true : semver("1.2.3").isGreaterThan(semver("1.0.0"))',
)
_WATCHED: Final = [
    {"kind": "Pod", "metadata": {"name": f"p{n}", "uid": f"u{n}", "resourceVersion": str(n)}}
    for n in (2, 3, 4)
]
_QUANTITIES: Final = ("100m", "1.5Gi", "1e3", "-2", "0.5", "12E", "3Ki", "1E-9")


def seeds_of(target: str) -> list[bytes]:
    """Return the target's first inputs."""
    return [text if isinstance(text, bytes) else text.encode() for text in _seeds(target)]


def _seeds(target: str) -> Iterator[str | bytes]:
    match target:
        case "kubeconfig":
            yield _KUBECONFIG
        case "configuration" | "pod" | "review":
            # Of properties; the bytes are what hypothesis draws from.
            yield from (random.Random(seed).randbytes(2000) for seed in range(8))
        case "annotations":
            for annotations in _under(list(_documents()), "annotations"):
                yield from (value for value in annotations.values() if value[:1] in "{[")
        case "manifest":
            for path in _examples():
                yield path.read_text()
        case "selector":
            yield from map(json.dumps, _under(list(_documents()), "labelSelector"))
            yield from map(json.dumps, _under(list(_documents()), "selector"))
        case "quantity":
            yield from _QUANTITIES
        case "cel":
            yield from _CEL
            yield from (str(text) for text in _under(list(_documents()), "expression"))
        case "watch":
            lines = [json.dumps({"type": "ADDED", "object": pod}) for pod in _WATCHED]
            bookmark = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "9"}}}
            error = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
            yield "\n".join([*lines, json.dumps(bookmark), ""])
            yield "\n".join([lines[0], json.dumps(error), lines[1], ""])
        case "question":
            weights = {"InterPodAffinity": 3}
            more = {
                "replicas": 2,
                "cordon": ["n"],
                "without": [{"key": "k", "value": "v"}],
                "weights": weights,
            }
            yield json.dumps({"manifest": _examples()[0].read_text(), **more})
            yield json.dumps({"like": {"namespace": "default", "name": "p"}})


def _examples() -> list[Path]:
    return sorted((_ROOT / "manifests" / "examples").glob("*.yaml"))


def _documents() -> Iterator[Any]:
    for path in _examples():
        yield from (document for document in yaml.safe_load_all(path.read_text()) if document)


def _under(value: Any, name: str) -> Iterator[Any]:
    """Yield what is under the name, at any depth."""
    if isinstance(value, dict):
        if name in value:
            yield value[name]
        for inner in value.values():
            yield from _under(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _under(inner, name)
