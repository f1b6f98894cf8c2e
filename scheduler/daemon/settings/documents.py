"""
Reads YAML or JSON as Kubernetes does: field names are text and unique, tags are not allowed.

Scalars are read as sigs.k8s.io/yaml reads them, unlike PyYAML: dates stay text, `1:30` is no number, `1e3` is one.
"""

import json
import re
from typing import Final

import yaml
from yaml.composer import ComposerError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from scheduler.daemon.settings.problems import Problems, shown

#: A configuration has a few hundred values on some ten levels. These limits stop YAML bombs.
MAX_CHARS: Final = 1 << 20
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 100_000

_CORE: Final = "tag:yaml.org,2002:"
_TRUE: Final = frozenset({"yes", "true", "on"})
_SCALARS: Final = {
    "bool": (
        re.compile(r"(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)\Z"),
        "yYnNtTfFoO",
    ),
    "int": (
        re.compile(r"[-+]?(?:0x[0-9a-fA-F]{1,16}|0b[01]{1,64}|0o?[0-7]{1,22}|0|[1-9][0-9]{0,39})\Z"),
        "-+0123456789",
    ),
    "float": (
        re.compile(
            r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
        ),
        "-+0123456789.",
    ),
    "null": (re.compile(r"(?:~|null|Null|NULL|)\Z"), "~nN\0"),
    "merge": (re.compile(r"<<\Z"), "<"),
}


class _Loader(yaml.SafeLoader):
    """Composes nodes of bounded depth; `_Builder` turns them into values."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own attribute; emptied so that only ours remain

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # untyped in the stubs
            raise ComposerError(None, None, f"more than {MAX_DEPTH} levels", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Dumper(yaml.SafeDumper):
    """Writes values so that `_Loader` reads the same values."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - as above

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


for _name, (_pattern, _first) in _SCALARS.items():
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(
            _CORE + _name, _pattern, [first if first != "\0" else "" for first in _first]
        )


def read_document(
    text: str, problems: Problems, *, max_chars: int = MAX_CHARS, max_values: int = MAX_VALUES
) -> object:
    """
    Return the document in `text`: None, bool, int, float, str, list and dict with str keys.

    Unreadable parts are recorded in `problems` and read as None; of a repeated field the first is kept. Never raises
    for any text; takes at most `max_values` steps, whatever aliases it uses.
    """
    if len(text) > max_chars:
        problems.found("", f"{len(text)} characters", f"at most {max_chars}")
        return None
    try:
        node = _Loader(_untabbed(text)).get_single_node()
    except yaml.YAMLError as error:
        problems.found("", _problem_text(error), "one YAML or JSON document")
        return None
    return None if node is None else _Builder(problems, max_values).value(node, problems)


def write_document(value: object) -> str:
    """Return `value` as YAML, fields in their given order; `read_document` reads it back."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=110)


def _untabbed(text: str) -> str:
    # JSON allows tabs as indentation, YAML does not; a raw tab is never part of a JSON value.
    if "\t" not in text or not text.lstrip().startswith("{"):
        return text
    try:
        json.loads(text, parse_int=str)
    except (ValueError, RecursionError):
        return text
    return text.replace("\t", " ")


def _problem_text(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        where = error.problem_mark
        problem = (error.problem or "").removeprefix("found ")
        return f'"{problem}" in line {where.line + 1}, column {where.column + 1}'
    if isinstance(error, yaml.reader.ReaderError):
        return f"a character that YAML does not allow at position {error.position}"
    return str(error)


class _Builder:
    """Turns nodes into values, and records problems at the path of each."""

    def __init__(self, problems: Problems, max_values: int) -> None:
        self._problems = problems
        self._max_values = self._values_left = max_values
        #: ids of the collections being built: an alias to one of them would be endless.
        self._open: set[int] = set()

    def value(self, node: Node, problems: Problems) -> object:
        """Return the value of `node`, None if it is invalid."""
        self._values_left -= 1
        if self._values_left < 0:
            self._problems.found("", f"more than {self._max_values} values", "fewer, aliases written out")
        elif id(node) in self._open:
            problems.found("", "an alias to a value that contains it", "a value")
        elif not _is_plain(node):
            problems.found("", f"the tag {shown(node.tag)}", "plain YAML")
        elif isinstance(node, ScalarNode):
            return self._scalar(node, problems)
        else:
            self._open.add(id(node))
            try:
                if isinstance(node, MappingNode):
                    return self._mapping(node, problems)
                return [self.value(item, problems.at(f"[{index}]")) for index, item in enumerate(node.value)]
            finally:
                self._open.remove(id(node))
        return None

    def _mapping(self, node: MappingNode, problems: Problems) -> dict[str, object]:
        merged: dict[str, object] = {}
        own: dict[str, object] = {}
        line_by_name: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, ScalarNode):
                problems.found("", f"a list or an object as a field name in line {line}", "text")
            elif key.tag == _CORE + "merge":
                merged = self._merge(value, problems) | merged
            elif (name := self._text(key.value, problems)) in line_by_name:
                first = line_by_name[name]
                problems.found(name, f"the field again in line {line} (first in line {first})", "it once")
            else:
                line_by_name[name] = line
                own[name] = self.value(value, problems.at(name))
        return merged | own

    def _merge(self, node: Node, problems: Problems) -> dict[str, object]:
        # The first of several merged mappings wins (YAML merge key specification).
        sources = node.value if isinstance(node, SequenceNode) else [node]
        merged: dict[str, object] = {}
        for source in sources:
            value = self.value(source, problems)
            if isinstance(value, dict):
                for name, inherited in value.items():
                    merged.setdefault(name, inherited)
            elif self._values_left >= 0:
                problems.found("<<", "something else to merge", "an object")
        return merged

    def _scalar(self, node: ScalarNode, problems: Problems) -> object:
        match node.tag.removeprefix(_CORE):
            case "str" | "merge":
                return self._text(node.value, problems)
            case "bool":
                return node.value.lower() in _TRUE
            case "int":
                return _integer(node.value)
            case "float":
                return _float(node.value)
        return None

    def _text(self, text: str, problems: Problems) -> str:
        # JSON escapes characters beyond U+FFFF as a surrogate pair, which YAML does not join.
        if text.isascii():
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            problems.found("", f"half a character in {shown(text)}", "text")
            return ""


def _is_plain(node: Node) -> bool:
    """Return whether the node's tag is one of those that it may have without naming it."""
    if not isinstance(node, ScalarNode):
        return node.tag == _CORE + ("map" if isinstance(node, MappingNode) else "seq")
    kind = node.tag.removeprefix(_CORE)
    return kind in ("str", "merge") or (kind in _SCALARS and bool(_SCALARS[kind][0].match(node.value)))


def _integer(text: str) -> int:
    sign, digits = (-1 if text[0] == "-" else 1), text.lstrip("+-")
    if digits[:2] in ("0x", "0b"):
        return sign * int(digits, 0)
    octal = len(digits) > 1 and digits[0] == "0"
    return sign * int(digits.removeprefix("0o"), 8 if octal else 10)


def _float(text: str) -> float:
    word = text.lower()
    return float(word.replace(".", "") if word.endswith((".inf", ".nan")) else word)
