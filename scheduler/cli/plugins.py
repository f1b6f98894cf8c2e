"""
`affinity-scheduler plugins`: list the plugins that a configuration can name.

`affinity-scheduler plugins new NAME`: write a rule of your own, its test, a configuration and pods to try it on.
"""

from __future__ import annotations

import argparse
import json
import keyword
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from scheduler.cli import settings_flags
from scheduler.cli.flag_kinds import add_output, add_switch
from scheduler.errors import SettingsError

_TEMPLATES: Final = Path(__file__).parent / "plugin_templates"
#: Template and file; `{stem}` is the name in snake case.
_WRITTEN: Final = (
    ("{form}/rule.py.txt", "{stem}.py"),
    ("{form}/checks.py.txt", "test_{stem}.py"),
    ("configuration.yaml", "{stem}.yaml"),
    ("pods.yaml", "{stem}_pods.yaml"),
)
_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9]{1,61}")
_EXAMPLE: Final = "a class name such as TeamPerRack"
_HEADINGS: Final = ("NAME", "VERSION", "FROM", "POINTS", "WEIGHT", "ARGUMENTS")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument(
        "action", choices=("list", "new"), nargs="?", default="list", help="default: %(default)s"
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help=f"of the new plugin: {_EXAMPLE}")
    form = (
        "new: a rule that is asked about one node at a time, which is shorter and slower than over all nodes"
    )
    add_switch(parser, "--node-by-node", form)
    settings_flags.add_plugins(parser)
    add_output(parser, ("table", "json", "yaml"), "form of the list")


def run(args: argparse.Namespace) -> int:
    """List or write, and return 0. Raises SettingsError for bad input."""
    if args.action == "new":
        return _write_new(args.name, "node_by_node" if args.node_by_node else "all_nodes")
    if args.node_by_node:
        raise SettingsError("--node-by-node", "", "plugins list", "plugins new NAME --node-by-node")
    if args.name is not None:
        raise SettingsError("arguments", "", args.name, "nothing after list")
    from scheduler.daemon.settings.out_of_tree_files import load_plugins
    from scheduler.daemon.settings.problems import InvalidSettingsError
    from scheduler.daemon.settings.writing import plugin_rows
    from scheduler.tools.explain.formats.table import table_lines
    from scheduler.tools.explain.report import print_answer

    loaded = load_plugins(args.plugins)
    rows = plugin_rows(loaded.by_name.values())
    cells = [[row["name"], row["version"], row["from"], *_wide(row)] for row in rows]
    print_answer(rows, args.output, lambda _: table_lines(_HEADINGS, cells))
    if loaded.problems:
        raise InvalidSettingsError("--plugins", loaded.problems)
    return 0


def _wide(row: Mapping[str, Any]) -> list[str]:
    arguments = ", ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
        for name, value in row["arguments"].items()
    )
    return [", ".join(row["points"]), str(row["weight"] or ""), arguments]


def _write_new(name: str | None, form: str) -> int:
    """Write the files of a new plugin of this form into the current folder. None of them may exist."""
    if name is None or not _NAME.fullmatch(name):
        raise SettingsError("plugins new", "NAME", "nothing" if name is None else repr(name), _EXAMPLE)
    from importlib.metadata import packages_distributions

    from scheduler.daemon.settings.plugin_table import IN_TREE_BY_NAME

    if name in IN_TREE_BY_NAME:
        raise SettingsError("plugins new", "NAME", name, "a name that no plugin of kube-scheduler has")
    stem = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    taken = {"affinity_scheduler", "scheduler", *sys.stdlib_module_names, *packages_distributions()}
    if keyword.iskeyword(stem) or stem in taken:
        # The test imports the file by its name.
        raise SettingsError(
            "plugins new", "NAME", name, f"another name: {stem}.py cannot be imported, as {stem} is taken"
        )
    texts: dict[Path, str] = {}
    for template, file in _WRITTEN:
        text = (_TEMPLATES / template.format(form=form)).read_text()
        texts[Path(file.format(stem=stem))] = text.replace("{{name}}", name).replace("{{stem}}", stem)
    for path in texts:
        if path.exists():
            raise SettingsError(str(path), "", "a file", "no file of that name in this folder")
    try:
        for path, text in texts.items():
            path.write_text(text)
    except OSError as error:
        raise SettingsError(str(path), "", error.strerror or str(error), "a folder to write to") from error
    start = f"affinity-scheduler run --plugins {stem}.py --config {stem}.yaml"
    print(f"wrote {', '.join(map(str, texts))}; now:\n  pytest test_{stem}.py\n  {start}", file=sys.stderr)
    return 0
