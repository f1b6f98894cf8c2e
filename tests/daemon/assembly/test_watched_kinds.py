"""The kinds that a configuration has watched."""

from __future__ import annotations

import pytest

from scheduler.daemon.assembly.watched_kinds import kinds_for
from scheduler.daemon.settings.loading import default_settings, load_settings, parse_settings
from scheduler.daemon.settings.out_of_tree_files import load_classes
from scheduler.engine.framework.interface import PluginContext
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, NEWEST, Gate, Version, semantics_of
from scheduler.engine.model.volumes import StorageKind
from scheduler.engine.plugins.registry import IN_TREE
from scheduler.sdk.plugin import NodeByNode
from tests.support.daemon import profiles

NAME = "affinity-scheduler"
CLAIMS_AND_VOLUMES = {"PersistentVolumeClaim", "PersistentVolume", "StorageClass"}


def storage_watched(tmp_path, *disabled):
    file = tmp_path / "config.yaml"
    off = {"multiPoint": {"disabled": [{"name": name} for name in disabled]}}
    file.write_text(profiles({"schedulerName": NAME, "plugins": off}))
    watched = {each.kind for each in kinds_for(load_settings(str(file), DEFAULT_SEMANTICS))}
    return watched & set(StorageKind)


def test_all_kinds_are_watched_by_default():
    newest = default_settings(semantics_of(NEWEST))
    assert {each.kind for each in kinds_for(newest)} == set(KINDS)
    assert {each.kind for each in kinds_for(default_settings())} == set(KINDS) - {"DeviceTaintRule"}
    assert set(StorageKind) <= set(KINDS)


@pytest.mark.parametrize(
    ("version", "served"), [(Version(1, 36), "resource.k8s.io/v1beta2"), (NEWEST, "resource.k8s.io/v1")]
)
def test_device_taint_rules_are_watched_in_the_version_that_the_server_has(version, served):
    semantics = semantics_of(version, {Gate.DRA_DEVICE_TAINT_RULES: True})
    (row,) = (each for each in kinds_for(default_settings(semantics)) if each.kind == "DeviceTaintRule")
    assert row.api_version == served
    assert row.is_optional
    assert row.may_be_forbidden


@pytest.mark.parametrize(
    ("disabled", "left"),
    [
        (("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"), set()),
        (("NodeVolumeLimits", "VolumeBinding", "VolumeZone"), {"PersistentVolumeClaim"}),
        (("NodeVolumeLimits", "VolumeBinding"), CLAIMS_AND_VOLUMES),
        (("NodeVolumeLimits",), CLAIMS_AND_VOLUMES | {"CSINode", "CSIDriver", "CSIStorageCapacity"}),
        (("VolumeBinding",), CLAIMS_AND_VOLUMES | {"CSINode", "CSIDriver", "VolumeAttachment"}),
    ],
)
def test_a_kind_that_no_plugin_reads_is_not_watched(tmp_path, disabled, left):
    assert storage_watched(tmp_path, *disabled) == left


@pytest.mark.parametrize(("enabled", "watched"), [((), set()), (("Mine",), {"PersistentVolumeClaim"})])
def test_the_kinds_that_a_plugin_of_the_users_reads_are_watched(enabled, watched):
    """Where a profile runs it."""

    class Mine(NodeByNode):
        name = "Mine"
        storage_kinds = (StorageKind.CLAIM,)

        def fits(self, pod, node):
            del pod, node
            return True

    off = [
        {"name": name} for name in ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone")
    ]
    plugins = {"multiPoint": {"enabled": [{"name": name} for name in enabled], "disabled": off}}
    text = profiles({"schedulerName": NAME, "plugins": plugins})
    kinds = {each.kind for each in kinds_for(parse_settings(text, "c", plugins=load_classes([Mine])))}
    assert kinds & set(StorageKind) == watched


@pytest.mark.parametrize("plugin", IN_TREE.values(), ids=lambda plugin: plugin.name)
def test_a_plugin_reads_every_kind_that_wakes_its_pods(plugin):
    arguments = plugin.args_type
    made = plugin() if arguments is None else plugin(arguments(), PluginContext())
    events = made.events_to_register() if hasattr(made, "events_to_register") else ()
    kind_of = {KINDS[kind].resource: kind for kind in StorageKind}
    waking = {kind_of[each.resource] for each in events if each.resource in kind_of}
    assert waking <= set(getattr(plugin, "storage_kinds", ()))
