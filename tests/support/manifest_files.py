"""Reads manifests/ as objects."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from scheduler.sandbox.devcluster.kinds import KINDS, Kind
from tests.support.build import Json

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
BASE = MANIFESTS / "base"
OWN_NAMESPACE = MANIFESTS / "own-namespace"


def documents(path: Path) -> list[Json]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def kustomization(folder: Path) -> Json:
    (found,) = documents(folder / "kustomization.yaml")
    return found


def resources(folder: Path) -> list[Json]:
    """Return the objects in the files that the folder's kustomization lists."""
    files = (folder / name for name in kustomization(folder)["resources"])
    return [document for file in files if file.is_file() for document in documents(file)]


def one(objects: Iterable[Json], kind: str) -> Json:
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


def named(objects: Iterable[Json], kind: str) -> dict[str, Json]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def kind_of(document: Json) -> Kind:
    """Return the kind of the embedded cluster that the document names."""
    named = document["apiVersion"], document["kind"]
    (found,) = (each for each in KINDS if (each.api_version, each.kind) == named)
    return found


def collection_of(document: Json) -> str:
    """Return the path at which the object is created, in `default` if it names no namespace."""
    kind = kind_of(document)
    namespace = document["metadata"].get("namespace", "default")
    return (
        f"{kind.path}/namespaces/{namespace}/{kind.plural}"
        if kind.namespaced
        else f"{kind.path}/{kind.plural}"
    )


def container(deployment: Json) -> Any:
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return found
