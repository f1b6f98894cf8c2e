"""A real API server validates strictly what the chart renders."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.apiserver import Address
from tests.support.build import Json
from tests.support.cluster import kubeconfig_of
from tests.support.kubectl import Kubectl
from tests.support.manifest_files import MANIFESTS

helm = pytest.importorskip(
    "helm_python", reason="helm-python-sdk is not installed: no wheel for this platform"
)

pytestmark = pytest.mark.real

#: Kinds that this server does not have.
OTHERS = ("cert-manager.io/", "monitoring.coreos.com/")
PEER: Json = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
EVERYTHING: Json = {
    "enforcer": {"enabled": True},
    "networkPolicy": {"enabled": True, "metricsFrom": [PEER]},
    "serviceMonitor": {"enabled": True},
}


@pytest.fixture
def kubectl(real_server: Address, tmp_path: Path) -> Kubectl:
    return Kubectl(kubeconfig_of(real_server, tmp_path / "kubeconfig"))


@pytest.mark.parametrize(
    ("namespace", "values"),
    [
        pytest.param("kube-system", {}, id="defaults"),
        pytest.param("default", EVERYTHING, id="everything, in another namespace"),
        pytest.param("kube-system", {"webhook": {"mergeFields": True}}, id="merging fields"),
        pytest.param(
            "kube-system", {"webhook": {"matchConditions": False, "mutating": False}}, id="only validating"
        ),
        pytest.param("kube-system", {"webhook": {"certManager": {"enabled": True}}}, id="cert-manager"),
    ],
)
def test_strict_validation_accepts_every_object(kubectl: Kubectl, namespace: str, values: Json) -> None:
    """It refuses unknown fields and conditions that do not compile."""
    with helm.Chart.load(MANIFESTS / "chart") as chart:
        files = chart.render(values, name="affinity-scheduler", namespace=namespace)
    texts = [text for path, text in files.items() if path.endswith(".yaml")]
    objects = [each for text in texts for each in yaml.safe_load_all(text) if each]
    known = [each for each in objects if not each["apiVersion"].startswith(OTHERS)]
    said = kubectl(
        "create", "--dry-run=server", "--validate=strict", "-f", "-", given=yaml.safe_dump_all(known)
    )
    assert len(said.splitlines()) == len(known)
