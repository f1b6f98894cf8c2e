"""
What is fuzzed: each target takes any bytes, and raises only for a defect of the product. Where a property test says
what a target would, it is the target: hypothesis reads the bytes as an example of it.

Refusals are expected, and judged: one printable line that names its field or place, and what was found there.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from scheduler.daemon.assembly.profiles import new_state
from scheduler.daemon.kube.client import _LineBuffer
from scheduler.daemon.kube.kubeconfig import resolve_context
from scheduler.daemon.kube.list_watch import ListWatch
from scheduler.daemon.kube.requests import WatchPath
from scheduler.daemon.settings.loading import default_settings
from scheduler.daemon.settings.problems import InvalidSettingsError
from scheduler.engine.cel import CompiledSelector as CelSelector
from scheduler.engine.cel import compile_selector, device_variable
from scheduler.engine.model.annotations import AFFINITY, parse_affinity_annotation
from scheduler.engine.model.fallback import FALLBACK, parse_fallbacks
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS
from scheduler.engine.model.terms import Problem
from scheduler.engine.syntax.affinity_rules import selector_errors
from scheduler.engine.syntax.field_errors import aggregate
from scheduler.engine.syntax.quantity import QuantityError, parse_quantity
from scheduler.engine.syntax.quantity_format import parse_formatted
from scheduler.engine.syntax.selectors import SelectorError, parse_selector
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.manifest_documents import numbered_documents, sorted_documents
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from scheduler.tools.page.what_if import WhatIfRequest
from tests.daemon.settings.test_mutated_files import test_a_file_with_odd_values_is_read_or_refused
from tests.engine.model.test_mutated_objects import test_a_mutated_pod_is_decided_or_reported
from tests.support.api_bodies import page
from tests.tools.webhook.test_properties import test_any_mutated_review_is_answered

_SOURCE: Final = "input"
_SETTINGS: Final = default_settings()
_MAX_REPLICAS: Final = 3
_DEVICE: Final = device_variable("d", {"a": "text", "n": 3, "b": True}, {}, may_be_shared=False)
#: The watch's lines come in chunks of so many bytes.
_CHUNKS: Final = (3, 50, 1000)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _is_line(text: str) -> None:
    """Check that a refusal is one printable line of a bounded length."""
    assert text.strip(), "an empty refusal"
    assert text.isprintable(), f"a refusal with control characters: {text!r}"
    assert len(text) < 10_000, f"a refusal of {len(text)} characters"


def _is_refusal(error: SettingsError) -> None:
    """Check that each line of the refusal begins with where the problem is."""
    lines = error.lines if isinstance(error, InvalidSettingsError) else (str(error),)
    assert lines
    for line in lines:
        _is_line(line)
        assert ": " in line, line


def kubeconfig(data: bytes) -> None:
    """Read a kubeconfig file."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            resolve_context([Path(file.name)])
        except SettingsError as error:
            _is_refusal(error)


def annotations(data: bytes) -> None:
    """Read the annotations that declare rules."""
    text = _text(data)
    for found, name in (
        (parse_affinity_annotation("default", {"app": "web"}, {AFFINITY: text}), AFFINITY),
        (parse_fallbacks({FALLBACK: text}), FALLBACK),
    ):
        if isinstance(found, Problem):
            _is_line(found.cause)
            assert found.cause.startswith(f"annotation {name}: $"), found.cause


def manifest(data: bytes) -> None:
    """Read manifests and make their first pods."""
    _manifest(_text(data))


def _manifest(text: str) -> None:
    try:
        found = sorted_documents(
            numbered_documents(text, _SOURCE), _SOURCE, namespace="default", semantics=DEFAULT_SEMANTICS
        )
    except SettingsError as error:
        _is_refusal(error)
        return
    cluster = LoadedCluster(_SETTINGS, new_state(_SETTINGS))
    for each in found.manifests:
        if not each.is_daemon_set:
            try:
                cluster.create_pods(each, min(each.n_replicas, _MAX_REPLICAS))
            except SettingsError as error:
                _is_refusal(error)


class _Expression(msgspec.Struct):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class _LabelSelector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Expression, ...] | None = None


def selector(data: bytes) -> None:
    """Read a label selector; what the webhook allows parses."""
    try:
        raw = msgspec.json.decode(data, type=_LabelSelector)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    errors = list(selector_errors(msgspec.to_builtins(raw), "$"))
    expressions = [(each.key, each.operator, each.values) for each in raw.match_expressions or ()]
    try:
        parse_selector(raw.match_labels, expressions).matches({"app": "web"})
    except SelectorError as error:
        assert errors, f"the webhook allows it, and the scheduler refuses it: {error}"
        _is_line(str(error))
    if errors:
        assert aggregate(errors).startswith(("$", "[$"))


def quantity(data: bytes) -> None:
    """Read a quantity; its two readers agree on what is one."""
    text = _text(data)
    try:
        parse_quantity(text)
    except QuantityError as error:
        _is_line(str(error))
        refused = True
    else:
        refused = False
    try:
        parse_formatted(text)
    except QuantityError:
        assert refused, text
    else:
        assert not refused, text


def cel(data: bytes) -> None:
    """Compile an expression that selects devices, and evaluate it."""
    compiled = compile_selector(_text(data))
    if isinstance(compiled, CelSelector):
        compiled.evaluate(_DEVICE)
    else:
        assert compiled.text


def watch(data: bytes) -> None:
    """Read a watch stream that comes in broken chunks; each way to break it gives the same changes."""
    actions = []
    for size in _CHUNKS:
        buffer = _LineBuffer()
        machine = ListWatch(WatchPath("/p"), msgspec.json.decode, jitter=lambda: 0.5)
        machine.on_due()
        machine.on_page(page(rv=1))
        lines = [line for at in range(0, len(data), size) for line in buffer.add(data[at : at + size])]
        actions.append(repr([*machine.on_lines(lines), *machine.on_stream_end(1.0)]))
    assert len(set(actions)) == 1, actions


def question(data: bytes) -> None:
    """Read the JSON of the page's what-if question, and the manifest in it."""
    try:
        asked = msgspec.json.decode(data, type=WhatIfRequest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        assert str(error)
        return
    if asked.manifest.strip():
        _manifest(asked.manifest)


def _property(test: object) -> Callable[[bytes], object]:
    """Return what reads bytes as an example of the property."""
    read: Callable[[bytes], object] = test.hypothesis.fuzz_one_input  # type: ignore[attr-defined]
    return read


#: Hypothesis returns None for bytes that are no example.
PROPERTIES: Final[dict[str, Callable[[bytes], object]]] = {
    "configuration": _property(test_a_file_with_odd_values_is_read_or_refused),
    "pod": _property(test_a_mutated_pod_is_decided_or_reported),
    "review": _property(test_any_mutated_review_is_answered),
}
TARGETS: Final[dict[str, Callable[[bytes], object]]] = {
    **PROPERTIES,
    **{
        target.__name__: target
        for target in (kubeconfig, annotations, manifest, selector, quantity, cel, watch, question)
    },
}
