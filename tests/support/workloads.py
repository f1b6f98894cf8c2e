"""Manifests of workloads as users write them, from the JSON of one of their pods."""

from __future__ import annotations

from typing import Any

from tests.support.build import Json


def workload(kind: str, name: str, pod: Json, n_replicas: int | None = None, **spec: Any) -> Json:
    """Return what makes pods like this one, and selects its labels."""
    metadata = {
        field: pod["metadata"][field] for field in ("labels", "annotations") if field in pod["metadata"]
    }
    made: Json = {"template": {"metadata": metadata, "spec": pod["spec"]}}
    if kind == "Job":
        made |= {} if n_replicas is None else {"parallelism": n_replicas, "completions": n_replicas}
    else:
        made |= {"selector": {"matchLabels": metadata.get("labels", {})}}
        made |= {} if n_replicas is None else {"replicas": n_replicas}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**made, **spec},
    }
