"""The example manifests are what a user would apply to a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.errors import SettingsError
from scheduler.sandbox.demo.examples import documents, folder
from tests.support.manifest_files import kind_of

NAMES = sorted(path.name for path in folder().glob("[0-9]*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_every_object_can_be_created_and_every_pod_asks_for_this_scheduler(name: str) -> None:
    """A manifest brings its namespace and says how to use it."""
    namespace, *others = documents(name)
    assert all(map(kind_of, (namespace, *others)))
    (workload,) = (one for one in others if one["kind"] in ("Deployment", "StatefulSet"))
    spec = workload["spec"]["template"]["spec"]
    # The second profile is that of plugins/configuration.yaml.
    assert spec["schedulerName"] in ("affinity-scheduler", "own-rules")
    assert all(one["image"].startswith("registry.k8s.io/pause:") for one in spec["containers"])
    assert workload["metadata"]["namespace"] == namespace["metadata"]["name"]
    assert f"kubectl apply -f {name}" in (folder() / name).read_text()


@pytest.mark.parametrize(
    ("without", "with_keys"),
    [
        ("01-blue-green-stuck.yaml", "01-blue-green.yaml"),
        ("02-rolling-update-uneven.yaml", "02-rolling-update.yaml"),
    ],
)
def test_the_pairs_differ_in_match_label_keys_alone(without: str, with_keys: str) -> None:
    bare, fixed = (repr(documents(name)[1]["spec"]) for name in (without, with_keys))
    assert bare == fixed.replace(", 'matchLabelKeys': ['pod-template-hash']", "")
    assert (bare.count("matchLabelKeys"), fixed.count("matchLabelKeys")) == (0, 1)


def test_a_missing_manifest_is_one_line_that_names_it() -> None:
    with pytest.raises(SettingsError, match=r"nothing\.yaml: found No such file or directory") as caught:
        documents("nothing.yaml")
    assert "\n" not in str(caught.value)


def test_the_wheel_takes_the_manifests_along() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"]["manifests/examples"] == "scheduler/sandbox/demo/manifests"
