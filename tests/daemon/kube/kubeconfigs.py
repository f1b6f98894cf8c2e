"""Kubeconfig files for tests."""

import base64
import copy
import json
from typing import Any

import yaml

from scheduler.daemon.kube.credentials import load_credentials

GOOD = {
    "current-context": "dev",
    "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:8080"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
}


def written(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def changed(**parts):
    """Return a good file with the cluster, user or context entry replaced, or a top-level field."""
    content: dict[str, Any] = copy.deepcopy(GOOD)
    for name, value in parts.items():
        if name in {"cluster", "user", "context"}:
            content[f"{name}s"][0][name] = value
        else:
            content[name.replace("_", "-")] = value
    return content


async def loaded(path, *, environ=None, **options):
    """Return the credentials of the file."""
    return await load_credentials(kubeconfig=str(path), master=None, environ=environ or {}, **options)


def encoded(content):
    return base64.b64encode(content).decode()


def id_token(name, **claims):
    """Return an unsigned JWT; `exp` is when it expires, in seconds since 1970."""

    def part(content):
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'sub': name, **claims})}.signature"
