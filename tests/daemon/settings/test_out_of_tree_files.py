"""Plugins in files and packages: what is found, and every mistake in one line."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

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


#: Files, and what is wrong with them; the lines of a plugin begin with its line.
BROKEN_FILES = {
    "def f(:": "line 1: SyntaxError: invalid syntax",
    "\nimport missing_package": "line 2: ModuleNotFoundError: No module named 'missing_package'",
    "raise SystemExit(3)": "line 1: SystemExit: 3",
    "x = 1": "found no plugin, expected a class with a name and one of the methods prefilter, prescore, admits; "
    "begin the name of a file without plugins with an underscore",
}

#: Bodies of `class A`, and what is wrong with it.
BROKEN_PLUGINS = {
    "    name = 'NodeName'\n"
    + FILTER: "plugin NodeName: the name NodeName is taken by a plugin of kube-scheduler",
    FILTER: "plugin A: found name none, expected a word such as TeamPerRack, or a class name that begins with an "
    "underscore",
    "    name = 'A'\n    contract_version = '1'\n" + FILTER: (
        "plugin A: needs version '1' of the plugin contract, this scheduler has version 1"
    ),
    "    name = 'A'\n    extension_points = 'filter'\n" + FILTER: (
        "plugin A: found extension_points 'filter', expected a tuple such as ('filter', 'score')"
    ),
    "    name = 'A'\n    extension_points = 5\n" + FILTER: (
        "plugin A: found extension_points 5, expected a tuple such as ('filter', 'score')"
    ),
    "    name = 'A'\n    storage_kinds = ('Claim',)\n" + FILTER: (
        "plugin A: found storage_kinds ('Claim',), expected a tuple such as (StorageKind.CLAIM,)"
    ),
    "    name = 'A'\n    def prefilter(self, context): return SKIP\n" + EVENTS: (
        "plugin A: prefilter(self, context) is called with (context, view)"
    ),
    "    name = 'A'\n    def __init__(self): exit(3)\n" + FILTER: (
        "plugin A: cannot be made: SystemExit: 3 (mine.py, line 4)"
    ),
    FILTER.replace("()", "[ClusterEventWithHint('Node', 'Add')]") + "    name = 'A'": (
        "plugin A: cannot be made: TypeError: found an event of 'Node' and 'Add', expected Resource.NODE, Action.ADD"
    ),
    FILTER.replace("()", "[ClusterEventWithHint(Resource.NODE, Action.ADD, 5)]") + "    name = 'A'": (
        "plugin A: cannot be made: TypeError: found the hint 5, expected a function"
    ),
    "    name = 'A'\n    contract_version = 2\n" + FILTER: (
        "plugin A: needs version 2 of the plugin contract, this scheduler has version 1"
    ),
    "    name = 'A'\n    extension_points = ('bind',)\n" + FILTER: (
        'plugin A: unknown extension point "bind", expected one of filter, score, preEnqueue'
    ),
    "    name = 'A'\n    extension_points = ('score',)\n" + FILTER: (
        "plugin A: extension point score needs the method prescore"
    ),
    "    name = 'A'\n    def admits(self, pod): return True": (
        "plugin A: may refuse a pod and lacks events_to_register, which says what may lift the refusal"
    ),
    "    name = 'A'\n    args_type = dict\n" + FILTER: (
        "plugin A: args_type is no msgspec.Struct; derive it from scheduler.sdk.plugin.Args"
    ),
    "    name = 'A'\n    default_weight = 0\n" + FILTER: (
        "plugin A: found default_weight 0, expected a whole number from 1"
    ),
    "    name = 'A'\n    def __init__(self): self.x\n" + FILTER: (
        "plugin A: cannot be made: AttributeError: 'A' object has no attribute 'x' (mine.py, line 4)"
    ),
    FILTER.replace("()", "['NodeAdd']") + "    name = 'A'": (
        "plugin A: cannot be made: TypeError: events_to_register returned str, expected ClusterEventWithHint"
    ),
    "    name = 'A'\n    only_pods_with_label = 5\n" + FILTER: (
        "plugin A: cannot be made: TypeError: only_pods_with_label is 5, expected a label key"
    ),
    "    name = 'A'\n    node_annotations = 'price'\n" + FILTER: (
        "plugin A: found node_annotations 'price', expected a tuple of keys"
    ),
}


@pytest.mark.parametrize(("text", "problem"), BROKEN_FILES.items())
def test_a_file_without_a_plugin_is_one_line_with_its_own_line_number(
    text: str, problem: str, tmp_path: Path
):
    file = _written(tmp_path, text)
    assert load_plugins([file], installed=False).problems == (f"{file}: {problem}",)


@pytest.mark.parametrize(("body", "problem"), BROKEN_PLUGINS.items())
def test_a_mistake_is_one_line_with_the_line_of_the_plugin(body: str, problem: str, tmp_path: Path):
    file = _written(tmp_path, f"{HEAD}class A:\n{body}")
    assert load_plugins([file], installed=False).problems == (f"{file}: line 2: {problem}",)


def test_a_rule_that_overrides_neither_fits_nor_score_is_a_mistake(tmp_path: Path):
    file = _written(tmp_path, f"{HEAD}class A(NodeByNode):\n    name = 'A'")
    expected = "extends no point; a rule that looks at nodes one by one overrides fits or score"
    assert load_plugins([file], installed=False).problems == (f"{file}: line 2: plugin A: {expected}",)


def test_the_second_plugin_of_a_name_is_a_mistake(tmp_path: Path):
    body = f"    name = 'A'\n{FILTER}"
    file = _written(tmp_path, f"{HEAD}class A:\n{body}class B:\n{body}")
    assert load_plugins([file], installed=False).problems == (
        f"{file}: line 6: the name A is taken by {file}",
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


def test_files_of_one_name_in_two_folders_are_two_files(tmp_path: Path):
    """Also where a message names the lines of a mistake."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    good = _written(tmp_path / "one", f"{HEAD}class P:\n    name = 'P'\n{FILTER}")
    bad = _written(tmp_path / "two", f"{HEAD}\n\nclass Q:\n    name = 'P'\n{FILTER}")
    assert load_plugins([good, bad], installed=False).problems == (
        f"{bad}: line 4: the name P is taken by {good}",
    )


def test_a_file_that_is_broken_does_not_hide_the_others_of_its_folder(tmp_path: Path):
    _written(tmp_path, "import nothing_here", "a.py")
    _written(tmp_path, f"{HEAD}class P:\n    name = 'P'\n{FILTER}", "b.py")
    loaded = load_plugins([str(tmp_path)], installed=False)
    assert (list(loaded.by_name), len(loaded.problems)) == (["P"], 1)


def test_what_is_neither_a_file_nor_a_folder_is_a_mistake(tmp_path: Path):
    nowhere, empty = str(tmp_path / "nowhere"), str(tmp_path)
    assert load_plugins([nowhere, empty], installed=False).problems == (
        f"{nowhere}: found no such file, expected a Python file or a folder of them",
        f"{empty}: found no Python file, expected at least one with a plugin",
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
    ("args", "problems"),
    [
        ("{most: two, topologykey: x, teams: [1]}", [
            'profiles[0].pluginConfig[0].args.most: found "two", expected an integer',
            "profiles[0].pluginConfig[0].args.topologykey: found an unknown field, "
            'expected one of apiVersion, kind, most, teams, topologyKey; did you mean "topologyKey"?',
            "profiles[0].pluginConfig[0].args.teams[0]: found 1, expected a string",
        ]),
        ("{}", ["profiles[0].pluginConfig[0].args.most: Required value: it has no default"]),
        ("{most: -1}", ["profiles[0].pluginConfig[0].args: most is negative"]),
        ("{most: 99}", ["profiles[0].pluginConfig[0].args: KeyError: 'too many' (mine.py, line 13)"]),
        ("{most: 98}", ["profiles[0].pluginConfig[0].args: SystemExit: 3 (mine.py, line 15)"]),
        ("{most: 77}", [
            "profiles[0].pluginConfig[0].args: plugin Rule cannot be made: AttributeError: "
            "'RuleArgs' object has no attribute 'odd' (mine.py, line 23)"
        ]),
        (None, ["profiles[0].pluginConfig: Required value: plugin Rule has no default for most"]),
    ],
)  # fmt: skip
def test_every_wrong_argument_is_told(args: str | None, problems: list[str], tmp_path: Path):
    loaded = load_plugins([_written(tmp_path, RULE)], installed=False)
    with pytest.raises(InvalidSettingsError) as caught:
        parse_settings(_config(args), "c", plugins=loaded)
    assert list(caught.value.lines) == [f"c: {problem}" for problem in problems]


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


def test_mistakes_of_plugins_and_configuration_are_told_together(tmp_path: Path):
    broken, config = _written(tmp_path, "import nothing_here"), _written(tmp_path, _config(), "config.yaml")
    with pytest.raises(SettingsError) as caught:
        load_settings(config, plugins=load_plugins([broken], installed=False))
    assert str(caught.value).splitlines() == [
        f"{broken}: line 1: ModuleNotFoundError: No module named 'nothing_here'",
        f'{config}: profiles[0].plugins.multiPoint.enabled[0].name: plugin "Rule" does not exist',
        f'{config}: profiles[0].pluginConfig[0].name: plugin "Rule" does not exist',
    ]


def test_a_plugin_that_the_scheduler_cannot_make_after_all_is_one_line(tmp_path: Path):
    """The configuration made it; a second time it fails."""
    text = RULE.replace(
        "self.args = args if", "Rule.made = getattr(Rule, 'made', 0) + 1; 1 // (2 - Rule.made) if"
    )
    file = _written(tmp_path, text)
    settings = parse_settings(_config("{most: 0}"), "c", plugins=load_plugins([file], installed=False))
    with pytest.raises(SettingsError) as caught:
        build_profiles(settings, ClusterView(ClusterState()))
    found = "ZeroDivisionError: integer division or modulo by zero (mine.py, line 23)"
    assert str(caught.value) == f"{file}: Rule: found {found}, expected a plugin that its arguments make"
