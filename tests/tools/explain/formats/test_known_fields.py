"""Fields that a kind does not have are named, and none that it has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from syrupy.assertion import SnapshotAssertion

from scheduler.engine.framework.kinds import KINDS as WATCHED
from scheduler.engine.model.json_fields import FieldTree
from scheduler.tools.explain.formats.known_fields import (
    NEWER_FIELDS,
    fields_of,
    fields_of_kind,
    unknown_fields,
)
from scheduler.tools.explain.formats.manifests import KINDS

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {anything: goes}, annotations: {any.thing/goes: here}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {disk: ssd}
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 2, matchLabelKeys: [a]}
      containers:
      - name: c
        image: nginx
        args: [a]
        env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]
        readinessProbe: {httpGet: {path: /, port: 80}}
        securityContext: {capabilities: {drop: [ALL]}}
        volumeMounts: [{name: v, mountPath: /v}]
        resources: {requests: {cpu: 1, nvidia.com/gpu: 1, hugepages-2Mi: 4Mi}, claims: [{name: g}]}
      resourceClaims: [{name: g, resourceClaimTemplateName: gpu}]
      schedulingGroup: {podGroupName: g}
      volumes: [{name: v, emptyDir: {}}, {name: c, projected: {sources: [{configMap: {name: m}}]}}]
"""


def test_every_field_of_the_api_is_known() -> None:
    assert list(unknown_fields(yaml.safe_load(DEPLOYMENT))) == []


def found_in(document: Any) -> str:
    """Return the one field that is named, and what is said of it."""
    ((path, text),) = unknown_fields(document)
    return f"{path}: {text}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("replicas", "replicaz"),
        ("labelSelector", "labelSelecter"),
        ("cpu: 1", "cpus: 1"),
        ("nodeSelector", "zzz"),
        ("kind: Deployment", "kind: Deployment\nstrategy: {}"),
    ],
)
def test_a_misspelt_field_is_named_with_the_one_that_is_like_it(
    old: str, new: str, snapshot: SnapshotAssertion
) -> None:
    found = found_in(yaml.safe_load(DEPLOYMENT.replace(old, new, 1)))
    assert found.partition(":")[0].rpartition(".")[2] in new
    assert ("did you mean" in found) == (new != "zzz" and "\n" not in new)
    assert found == snapshot


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ("tolerations: [{operator: Exist}]", "Exist"),
        ("tolerations: [{effect: NoScheduel}]", "NoScheduel"),
        ("topologySpreadConstraints: [{whenUnsatisfiable: DoNotSchedul}]", "DoNotSchedul"),
        ("topologySpreadConstraints: [{nodeTaintsPolicy: honour}]", "honour"),
        ("topologySpreadConstraints: [{nodeAffinityPolicy: ''}]", ""),
        (
            "topologySpreadConstraints: [{labelSelector: {matchExpressions: [{key: a, operator: Gt}]}}]",
            "Gt",
        ),
        (
            "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{preference:"
            " {matchExpressions: [{key: a, operator: inn}]}}]}}",
            "inn",
        ),
        ("preemptionPolicy: Nevr", "Nevr"),
        ("restartPolicy: always", "always"),
        ("containers: [{resources: {requests: {cpu: 2}, limits: {cpu: 1500m}}}]", "2"),
    ],
)
def test_a_value_that_the_api_server_refuses_is_named(
    spec: str, value: str, snapshot: SnapshotAssertion
) -> None:
    found = found_in(yaml.safe_load(f"{{apiVersion: v1, kind: Pod, spec: {{{spec}}}}}"))
    assert f": found {value!r}" in found
    assert found == snapshot


def test_values_that_the_api_server_takes_are_not_named() -> None:
    """An empty effect is all of them, and Lt and Gt compare numbers; amounts are compared, not texts."""
    spec = """
      tolerations: [{operator: Exists, effect: ''}, {operator: '', key: a}, {operator: Lt, key: b, value: '3'}]
      restartPolicy: ''
      preemptionPolicy: null
      initContainers: [{name: c, restartPolicy: Always}]
      containers: [{name: d, resources: {requests: {cpu: 0.5, memory: 1Gi}, limits: {cpu: 500m, memory: 1024Mi}}}]
    """
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": yaml.safe_load(spec)}
    assert list(unknown_fields(pod)) == []


def test_of_a_kind_with_newer_versions_only_what_looks_misspelt_is_named() -> None:
    workers = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    spec = {"replicaz": 1, "somethingNewer": 1, "leaderWorkerTemplate": {"workerTemplate": {"spek": {}}}}
    assert [path for path, _ in unknown_fields({**workers, "spec": spec})] == [
        "spec.replicaz",
        "spec.leaderWorkerTemplate.workerTemplate.spek",
    ]


def test_what_users_do_not_write_is_not_checked() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"managedFields": [{"fieldsV1": {"f:a": {}}}]}}
    assert list(unknown_fields({**pod, "status": {"newerThanTheModels": 1}})) == []


#: Fields of affinity that are read of an annotation, and stand in the same struct; an API server prunes them in a spec.
OF_ANNOTATIONS = {"maxPodsPerDomain", "domainWeights", "requiredDuringSchedulingRequiredDuringExecution"}


def _missing(tree: FieldTree, fields: Mapping[str, str], path: str) -> Iterator[str]:
    for name, inner in tree.items():
        if fields and name not in fields:
            yield f"{path}.{name}"
        elif isinstance(inner, Mapping) and fields:
            of_type = fields[name].removeprefix("list[").rstrip("]").removeprefix("dict(str, ").rstrip(")")
            yield from _missing(inner, fields_of(of_type), f"{path}.{name}")


@pytest.mark.parametrize("kind", WATCHED)
def test_every_field_that_is_read_is_known(kind: str) -> None:
    """So none is refused that counts: a field that the models lack is in the tables beside them."""
    row = WATCHED[kind]
    fields = fields_of_kind(row.api_version, row.name)
    assert fields is not None
    found = _missing(row.fields, {**fields, "status": ""}, "")
    missing = [path for path in found if path.rpartition(".")[2] not in OF_ANNOTATIONS]
    # One table of fields is for the PodGroups of Kubernetes and for those of scheduler-plugins.
    assert missing == [] or row.name == "PodGroup"
    assert set(missing) <= {
        ".spec.minMember",
        ".spec.schedulingPolicy",
        ".spec.schedulingConstraints",
        ".spec.disruptionMode",
        ".spec.priority",
    }


@pytest.mark.parametrize(("kind", "api_version"), KINDS.items())
def test_every_kind_that_creates_pods_is_checked(kind: str, api_version: str) -> None:
    assert list(unknown_fields({"apiVersion": api_version, "kind": kind, "specc": {}})) == [
        ("specc", "unknown field; did you mean spec?")
    ]


def test_newer_fields_are_those_that_the_models_lack() -> None:
    """When a release of the models has one, its entry goes."""
    import kubernetes_asyncio.client

    for model, fields in NEWER_FIELDS.items():
        known = getattr(kubernetes_asyncio.client, model).attribute_map.values()
        assert fields and fields.keys().isdisjoint(known)
        assert fields.keys() <= fields_of(model).keys()


def test_the_models_are_read_without_their_import() -> None:
    code = (
        "import sys\n"
        "from scheduler.tools.explain.formats.known_fields import fields_of\n"
        "assert 'containers' in fields_of('V1PodSpec')\n"
        "sys.exit('kubernetes_asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
