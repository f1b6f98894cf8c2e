"""
Finds out-of-tree plugins: in files that `--plugins` names, and in installed packages (entry points). Imports them.

Every mistake is one line with the file, the line number and the plugin. Known does not mean switched on: a
configuration does that.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from scheduler.daemon.settings.plugin_table import IN_TREE_BY_NAME
from scheduler.daemon.settings.problems import Problems, shown
from scheduler.engine.framework.interface import PluginContext
from scheduler.engine.framework.out_of_tree import (
    CONTRACT_VERSION,
    INSTALLED,
    METHOD_BY_POINT,
    GuardedPlugin,
    OutOfTreePlugin,
)
from scheduler.engine.framework.out_of_tree_results import described
from scheduler.engine.model.volumes import StorageKind

#: Packages with plugins name each of them, or a module of them, in this group.
ENTRY_POINT_GROUP: Final = "affinity_scheduler.plugins"

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,62}")
#: The fields of a configuration for the points at which out_of_tree run.
_POINTS: Final = {"preFilter": "filter", "preScore": "score"} | {point: point for point in METHOD_BY_POINT}
#: The parameters of each method of a plugin.
_PARAMETERS: Final = {
    "prefilter": ("context", "view"),
    "prescore": ("context", "view", "feasible"),
    "admits": ("pod",),
    "fits": ("pod", "node"),
    "score": ("pod", "node"),
    "events_to_register": (),
    "explain": ("context",),
}
_REFUSING: Final = ("filter", "preEnqueue")


@dataclass(frozen=True, slots=True)
class LoadedPlugins:
    """The out_of_tree that were found, by name, and a line for each mistake."""

    by_name: Mapping[str, OutOfTreePlugin] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


NO_PLUGINS: Final = LoadedPlugins()


def load_plugins(paths: Sequence[str], *, installed: bool = True) -> LoadedPlugins:
    """
    Return the plugins in these files and folders, and with `installed` those of packages.

    Of a folder, every `*.py` is read but tests, `conftest.py` and files that begin with an underscore. A file may
    import others of its folder, as a script may. Never raises.
    """
    finder = _Finder()
    files = {file.resolve(): file for path in paths for file in finder.files(path)}
    for resolved, file in files.items():
        finder.add_file(resolved, str(file))
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP) if installed else (), key=lambda one: one.name):
        finder.add_entry(entry)
    return finder.loaded()


def load_classes(classes: Iterable[type[Any]]) -> LoadedPlugins:
    """Return the plugins of these classes, as if a file had them. Never raises."""
    finder = _Finder()
    for one in classes:
        finder.add(one, one.__module__, "")
    return finder.loaded()


class _Finder:
    """Collects plugins by name, and a line for each mistake."""

    def __init__(self) -> None:
        self._found: dict[str, OutOfTreePlugin] = {}
        self._problems: list[str] = []

    def loaded(self) -> LoadedPlugins:
        return LoadedPlugins(self._found, tuple(self._problems))

    def files(self, path: str) -> list[Path]:
        where, found = Path(path), "no such file"
        try:
            if where.is_file():
                return [where]
            is_folder = where.is_dir()
        except OSError as error:  # a name that is too long, or no right to its folder
            found, is_folder = error.strerror or str(error), False
        if not is_folder:
            self._report(path, "", f"found {found}, expected a Python file or a folder of them")
            return []
        files = [
            one for one in sorted(where.glob("*.py")) if not one.name.startswith(("_", "test_", "conftest."))
        ]
        if not files:
            self._report(path, "", "found no Python file, expected at least one with a plugin")
        return files

    def add_file(self, file: Path, source: str) -> None:
        # After all others, so that no file of the folder takes the place of a package.
        if str(file.parent) not in sys.path:
            sys.path.append(str(file.parent))
        name = f"affinity_scheduler_plugins.{file}"
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            self._report(source, "", "found another name, expected one that ends in .py")
            return
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of the user's may raise anything
            self._report(source, _line_of(error, str(file)), _text(error))
            return
        self._add_module(module, source, str(getattr(module, "__version__", "")))

    def add_entry(self, entry: EntryPoint) -> None:
        package, version = (entry.dist.name, entry.dist.version) if entry.dist is not None else ("", "")
        source = INSTALLED + package
        try:
            loaded = entry.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            self._report(source, "", f"entry point {entry.name}: {_text(error)}")
            return
        if isinstance(loaded, ModuleType):
            self._add_module(loaded, source, version)
        elif isinstance(loaded, type):
            self.add(loaded, source, version)
        else:
            text = f"entry point {entry.name}: found {entry.value}, expected a class or a module"
            self._report(source, "", text)

    def _add_module(self, module: ModuleType, source: str, version: str) -> None:
        """Add the plugins that the module defines: its public classes with a plugin's methods."""
        plugins = [
            one
            for key, one in vars(module).items()
            if isinstance(one, type) and one.__module__ == module.__name__ and not key.startswith("_")
            if any(callable(getattr(one, method, None)) for method in METHOD_BY_POINT.values())
        ]
        if not plugins:
            methods = ", ".join(METHOD_BY_POINT.values())
            self._report(
                source,
                "",
                f"found no plugin, expected a class with a name and one of the methods {methods}; "
                "begin the name of a file without plugins with an underscore",
            )
        for one in plugins:
            self.add(one, source, version)

    def add(self, one: type[Any], source: str, version: str) -> None:
        """Add the plugin of a class, unless it has a fault."""
        line, faults = _class_line(one), list(_faults(one))
        name = getattr(one, "name", one.__name__)
        for fault in faults:
            self._report(source, line, f"plugin {name}: {fault}")
        if faults:
            return
        if name in self._found:
            self._report(source, line, f"the name {name} is taken by {self._found[name].source}")
            return
        points = _points(one)
        weight = getattr(one, "default_weight", 1) if "score" in points else 0
        version = str(getattr(one, "version", version))
        self._found[name] = OutOfTreePlugin(name, one, source, version, points, weight)

    def _report(self, source: str, line: str, text: str) -> None:
        where = Problems(source)
        where.add(line, text)
        self._problems.extend(where.lines)


def _faults(one: type[Any]) -> Iterator[str]:
    name = getattr(one, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        found = shown(name) if isinstance(name, str) else "none"
        yield f"found name {found}, expected a word such as TeamPerRack, or a class name that begins with an underscore"
    elif name in IN_TREE_BY_NAME:
        yield f"the name {name} is taken by a plugin of kube-scheduler"
    needed = getattr(one, "contract_version", CONTRACT_VERSION)
    if needed != CONTRACT_VERSION:
        yield f"needs version {needed!r} of the plugin contract, this scheduler has version {CONTRACT_VERSION}"
        return
    if not _is_tuple(one, "extension_points", str):
        yield f"found extension_points {one.extension_points!r}, expected a tuple such as ('filter', 'score')"
        return
    yield from _faults_of_points(one)
    if not _is_tuple(one, "node_annotations", str):
        yield f"found node_annotations {one.node_annotations!r}, expected a tuple of keys"
    if not _is_tuple(one, "storage_kinds", StorageKind):
        yield f"found storage_kinds {one.storage_kinds!r}, expected a tuple such as (StorageKind.CLAIM,)"
    kind = getattr(one, "args_type", None)
    if kind is not None and not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        yield "args_type is no msgspec.Struct; derive it from scheduler.sdk.plugin.Args"
        return
    if kind is None or not any(field.required for field in msgspec.structs.fields(kind)):
        yield from fault_when_made(one, kind)


def _faults_of_points(one: type[Any]) -> Iterator[str]:
    for point in getattr(one, "extension_points", ()):
        if point not in _POINTS:
            expected = ", ".join(METHOD_BY_POINT)
            yield f"unknown extension point {shown(point)}, expected one of {expected}"
        elif not callable(getattr(one, METHOD_BY_POINT[_POINTS[point]], None)):
            yield f"extension point {point} needs the method {METHOD_BY_POINT[_POINTS[point]]}"
    points = _points(one)
    if not points:
        yield "extends no point; a rule that looks at nodes one by one overrides fits or score"
    if set(points) & set(_REFUSING) and not callable(getattr(one, "events_to_register", None)):
        yield "may refuse a pod and lacks events_to_register, which says what may lift the refusal"
    yield from _faults_of_methods(one)
    weight = getattr(one, "default_weight", 1)
    if not isinstance(weight, int) or not 1 <= weight <= 2**31 - 1:
        yield f"found default_weight {weight!r}, expected a whole number from 1"


def _faults_of_methods(one: type[Any]) -> Iterator[str]:
    """Yield the methods that cannot be called with what they are called with."""
    for method, parameters in _PARAMETERS.items():
        function = inspect.getattr_static(one, method, None)
        if not inspect.isfunction(function):
            continue
        try:
            inspect.signature(function).bind("self", *parameters)
        except TypeError:
            yield f"{method}{inspect.signature(function)} is called with ({', '.join(parameters)})"


def _is_tuple(one: type[Any], attribute: str, kind: type[Any]) -> bool:
    """Return whether the attribute is missing, or a collection of these."""
    found = getattr(one, attribute, ())
    return isinstance(found, tuple | list | frozenset | set) and all(isinstance(item, kind) for item in found)


def fault_when_made(one: type[Any], args: Callable[[], object] | None) -> Iterator[str]:
    """Yield why the arguments, None for a plugin that takes none, do not make the plugin with its events."""
    try:
        GuardedPlugin("", one() if args is None else one(args(), PluginContext()), "")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
        yield f"cannot be made: {described(error, one)}"


def _points(one: type[Any]) -> tuple[str, ...]:
    """Return the points that the class names, or those whose methods it has."""
    named = getattr(one, "extension_points", None)
    if named is not None:
        return tuple(dict.fromkeys(named))
    return tuple(point for point, method in METHOD_BY_POINT.items() if callable(getattr(one, method, None)))


def _class_line(one: type[Any]) -> str:
    try:
        return f"line {inspect.getsourcelines(one)[1]}"
    except (OSError, TypeError):
        return ""


def _line_of(error: BaseException, file: str) -> str:
    """Return the line of the file where the error came from."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"line {lines[-1]}" if lines else ""


def _text(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}"
