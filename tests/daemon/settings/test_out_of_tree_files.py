"""Plugins in files and packages: what is found, and every mistake in one line."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.daemon.assembly.profiles import build_profiles
from scheduler.daemon.settings.loading import load_settings, parse_settings
from scheduler.daemon.settings.out_of_tree_files import load_plugins
from scheduler.daemon.settings.problems import InvalidSettingsError
from scheduler.daemon.settings.writing import resolved_yaml
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.errors import SettingsError

HEAD = "from scheduler.sdk.plugin import *\n"
EVENTS = "    def events_to_register(self): return ()\n"
FILTER = "    def prefilter(self, context, view): return SKIP\n" + EVENTS


def _written(folder: Path, text: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


#: Files without a plugin.
BROKEN_FILES = {
    "no Python": "def f(:",
    "an import that fails": "\nimport missing_package",
    "it exits": "raise SystemExit(3)",
    "no plugin": "x = 1",
}

#: What is wrong with a plugin: a line that replaces one of its name and `FILTER`.
BROKEN_PLUGINS = {
    "the name of an in-tree plugin": "name = 'NodeName'",
    "no name": "del name",
    "a contract version that is no number": "contract_version = '1'",
    "another contract version": "contract_version = 2",
    "extension points as a text": "extension_points = 'filter'",
    "extension points as a number": "extension_points = 5",
    "an unknown extension point": "extension_points = ('bind',)",
    "no method for an extension point": "extension_points = ('score',)",
    "storage kinds as texts": "storage_kinds = ('Claim',)",
    "other parameters": "def prefilter(self, context): return SKIP",
    "it exits": "def __init__(self): exit(3)",
    "it fails": "def __init__(self): self.x",
    "an event of texts": "def events_to_register(self): return [ClusterEventWithHint('Node', 'Add')]",
    "a hint that is no function": (
        "def events_to_register(self): return [ClusterEventWithHint(Resource.NODE, Action.ADD, 5)]"
    ),
    "events as texts": "def events_to_register(self): return ['NodeAdd']",
    "no events": "del prefilter, events_to_register\n    def admits(self, pod): return True",
    "arguments of another type": "args_type = dict",
    "no weight": "default_weight = 0",
    "a label as a number": "only_pods_with_label = 5",
    "annotations as a text": "node_annotations = 'price'",
}


def _problems(files: list[str], folder: Path) -> list[str]:
    problems = load_plugins(files, installed=False).problems
    return [problem.replace(str(folder), "FOLDER") for problem in problems]


@pytest.mark.parametrize("text", BROKEN_FILES.values(), ids=BROKEN_FILES)
def test_a_file_without_a_plugin_is_one_line_with_its_own_line_number(
    text: str, tmp_path: Path, snapshot: SnapshotAssertion
):
    (line,) = _problems([_written(tmp_path, text)], tmp_path)
    assert line == snapshot


@pytest.mark.parametrize("wrong", BROKEN_PLUGINS.values(), ids=BROKEN_PLUGINS)
def test_a_mistake_is_one_line_with_the_line_of_the_plugin(
    wrong: str, tmp_path: Path, snapshot: SnapshotAssertion
):
    file = _written(tmp_path, f"{HEAD}class A:\n    name = 'A'\n{FILTER}    {wrong}")
    (line,) = _problems([file], tmp_path)
    assert line.startswith("FOLDER/mine.py: line 2: plugin ")
    assert line == snapshot


def test_a_rule_that_overrides_neither_fits_nor_score_is_a_mistake(
    tmp_path: Path, snapshot: SnapshotAssertion
):
    (line,) = _problems([_written(tmp_path, f"{HEAD}class A(NodeByNode):\n    name = 'A'")], tmp_path)
    assert line == snapshot


def test_the_second_plugin_of_a_name_is_a_mistake(tmp_path: Path):
    """Also in files of one name in two folders."""
    first, second = (f"class {name}:\n    name = 'A'\n{FILTER}" for name in "PQ")
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    good = _written(tmp_path / "one", f"{HEAD}{first}{second}")
    bad = _written(tmp_path / "two", f"{HEAD}\n\n{second}")
    assert load_plugins([good, bad], installed=False).problems == (
        f"{good}: line 6: the name A is taken by {good}",
        f"{bad}: line 4: the name A is taken by {good}",
    )


def test_a_folder_has_all_its_files_but_tests(tmp_path: Path):
    for number, name in enumerate(("a.py", "b.py", "_c.py", "test_a.py", "conftest.py")):
        _written(tmp_path, f"{HEAD}class P{number}:\n    name = 'P{number}'\n{FILTER}", name)
    loaded = load_plugins([str(tmp_path), str(tmp_path / "a.py")], installed=False)
    assert (list(loaded.by_name), loaded.problems) == (["P0", "P1"], ())


def test_a_file_may_import_others_of_its_folder(tmp_path: Path):
    """As it may in its test, where pytest does the same."""
    _written(tmp_path, "LIMIT = 3", "_limits_of_mine.py")
    file = _written(tmp_path, f"from _limits_of_mine import LIMIT\n{HEAD}class P:\n    name = 'P'\n{FILTER}")
    assert load_plugins([file], installed=False).problems == ()


def test_a_file_that_is_broken_does_not_hide_the_others_of_its_folder(tmp_path: Path):
    _written(tmp_path, "import nothing_here", "a.py")
    _written(tmp_path, f"{HEAD}class P:\n    name = 'P'\n{FILTER}", "b.py")
    loaded = load_plugins([str(tmp_path)], installed=False)
    assert (list(loaded.by_name), len(loaded.problems)) == (["P"], 1)


def test_what_is_neither_a_file_nor_a_folder_is_a_mistake(tmp_path: Path):
    nowhere, empty, long = str(tmp_path / "nowhere"), str(tmp_path), "x" * 300
    assert load_plugins([nowhere, empty, long], installed=False).problems == (
        f"{nowhere}: found no such file, expected a Python file or a folder of them",
        f"{empty}: found no Python file, expected at least one with a plugin",
        f"{long}: found File name too long, expected a Python file or a folder of them",
    )


def test_an_installed_package_names_plugins_and_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An entry point is a class or a module; one that does not import is a mistake with the package's name."""
    _written(
        tmp_path,
        f"{HEAD}class P:\n    name = 'P'\n{FILTER}class Q:\n    name = 'Q'\n{FILTER}",
        "acme_rules.py",
    )
    info = tmp_path / "acme_rules-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rules\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[affinity_scheduler.plugins]\nP = acme_rules:P\nbroken = acme_nothing\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    loaded = load_plugins([])
    assert [(one.name, one.version, one.source) for one in loaded.by_name.values()] == [
        ("P", "1.2", "package acme-rules")
    ]
    assert loaded.problems == (
        "package acme-rules: entry point broken: ModuleNotFoundError: No module named 'acme_nothing'",
    )


RULE = dedent(
    """
    from scheduler.sdk.plugin import Args, NodeByNode

    class RuleArgs(Args):
        most: int
        topology_key: str = "zone"
        teams: list[str] = []

        def __post_init__(self):
            if self.most < 0:
                raise ValueError("most is negative")
            if self.most == 99:
                raise KeyError("too many")
            if self.most == 98:
                raise SystemExit(3)

    class Rule(NodeByNode):
        name = "Rule"
        args_type = RuleArgs
        default_weight = 7

        def __init__(self, args, context):
            self.args = args if args.most != 77 else args.odd

        def fits(self, pod, node):
            return True

        def score(self, pod, node):
            return 0
    """
)


def _config(args: str | None = "{most: 2}", enabled: str = "{name: Rule}") -> str:
    config = "" if args is None else f"pluginConfig: [{{name: Rule, args: {args}}}]"
    return dedent(
        f"""
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: KubeSchedulerConfiguration
        profiles:
          - schedulerName: mine
            plugins: {{multiPoint: {{enabled: [{enabled}]}}}}
            {config}
        """
    )


@pytest.mark.parametrize(
    ("args", "n_problems"),
    [
        ("{most: two, topologykey: x, teams: [1]}", 3),
        ("{}", 1),
        ("{most: -1}", 1),
        ("{most: 99}", 1),
        ("{most: 98}", 1),
        ("{most: 77}", 1),
        (None, 1),
    ],
)
def test_every_wrong_argument_is_told(
    args: str | None, n_problems: int, tmp_path: Path, snapshot: SnapshotAssertion
):
    loaded = load_plugins([_written(tmp_path, RULE)], installed=False)
    with pytest.raises(InvalidSettingsError) as caught:
        parse_settings(_config(args), "c", plugins=loaded)
    assert len(caught.value.lines) == n_problems
    assert caught.value.lines == snapshot


@pytest.mark.parametrize(("enabled", "weight"), [("{name: Rule}", 7), ("{name: Rule, weight: 3}", 3)])
def test_a_configuration_switches_a_plugin_on(enabled: str, weight: int, tmp_path: Path):
    """After the built-in plugins; with its own weight unless the file sets one."""
    loaded = load_plugins([_written(tmp_path, RULE)], installed=False)
    settings = parse_settings(_config(enabled=enabled), "c", plugins=loaded)
    (profile,) = settings.profiles
    assert profile.plugins_by_point["filter"][-1] == profile.plugins_by_point["score"][-1] == "Rule"
    assert profile.weight_by_plugin["Rule"] == weight
    assert settings.out_of_tree.keys() == {"Rule"}
    assert parse_settings(resolved_yaml(settings), "again", plugins=loaded) == settings


def test_a_plugin_that_no_configuration_names_is_off(tmp_path: Path):
    loaded = load_plugins([_written(tmp_path, RULE)], installed=False)
    settings = parse_settings(_config(None, enabled=""), "c", plugins=loaded)
    assert settings.out_of_tree == {}
    assert settings.notes == (f"{tmp_path / 'mine.py'}: no profile switches plugin Rule on",)
    assert "Rule" not in settings.profiles[0].plugins_by_point["filter"]


def test_mistakes_of_plugins_and_configuration_are_told_together(tmp_path: Path, snapshot: SnapshotAssertion):
    broken, config = _written(tmp_path, "import nothing_here"), _written(tmp_path, _config(), "config.yaml")
    with pytest.raises(SettingsError) as caught:
        load_settings(config, plugins=load_plugins([broken], installed=False))
    lines = str(caught.value).replace(str(tmp_path), "FOLDER").splitlines()
    assert [line.partition(":")[0] for line in lines] == ["FOLDER/mine.py", *["FOLDER/config.yaml"] * 2]
    assert lines == snapshot


def test_a_plugin_that_the_scheduler_cannot_make_after_all_is_one_line(
    tmp_path: Path, snapshot: SnapshotAssertion
):
    """The configuration made it; a second time it fails."""
    text = RULE.replace(
        "self.args = args if", "Rule.made = getattr(Rule, 'made', 0) + 1; 1 // (2 - Rule.made) if"
    )
    file = _written(tmp_path, text)
    settings = parse_settings(_config("{most: 0}"), "c", plugins=load_plugins([file], installed=False))
    with pytest.raises(SettingsError) as caught:
        build_profiles(settings, ClusterView(ClusterState()))
    assert str(caught.value).replace(str(tmp_path), "FOLDER") == snapshot
