"""
Decodes and validates extenders as upstream does, then refuses them: they are not supported.

Source: apis/config/validation/validation.go, validateExtenders (kubernetes 1.36).
"""

from dataclasses import dataclass

from scheduler.daemon.settings.decoding import ObjectReader
from scheduler.daemon.settings.problems import Problems, shown
from scheduler.engine.syntax.names import label_key_faults

_VERBS = ("filterVerb", "preemptVerb", "prioritizeVerb", "bindVerb")


@dataclass(frozen=True, slots=True)
class _Extender:
    path: str
    url_prefix: str
    binds: bool


def refuse_extenders(reader: ObjectReader) -> None:
    """Record every problem of the extenders, and that there are extenders at all."""
    managed: set[str] = set()
    extenders = [_read_extender(item, managed) for item in reader.objects("extenders")]
    n_binding = sum(extender.binds for extender in extenders)
    if n_binding > 1:
        reader.problems.invalid(
            reader.at("extenders"),
            f"found {n_binding} extenders implementing bind",
            "only one extender can implement bind",
        )
    for extender in extenders:
        found = f"an extender at {shown(extender.url_prefix)}"
        reader.problems.found(extender.path, found, "none (extenders are not supported yet)")


def _read_extender(reader: ObjectReader, managed: set[str]) -> _Extender:
    with reader:
        url_prefix = reader.text("urlPrefix") or ""
        verbs = {name: reader.text(name) or "" for name in _VERBS}
        weight = reader.integer("weight", bits=64) or 0
        for name in ("enableHTTPS", "nodeCacheCapable", "ignorable"):
            reader.boolean(name)
        reader.duration_s("httpTimeout")
        _read_tls(reader.child("tlsConfig"))
        if verbs["prioritizeVerb"] and weight <= 0:
            reader.problems.invalid(reader.at("weight"), weight, "must have a positive weight applied to it")
        for item in reader.objects("managedResources"):
            _check_managed(item, managed)
    return _Extender(reader.path, url_prefix, bool(verbs["bindVerb"]))


def _read_tls(reader: ObjectReader) -> None:
    with reader:
        reader.boolean("insecure")
        for name in ("serverName", "certFile", "keyFile", "caFile", "certData", "keyData", "caData"):
            reader.text(name)


def _check_managed(reader: ObjectReader, managed: set[str]) -> None:
    with reader:
        name = reader.text("name") or ""
        reader.boolean("ignoredByScheduler")
    path, problems = reader.at("name"), reader.problems
    _check_extended_resource(path, name, problems)
    if name in managed:
        problems.invalid(path, name, "duplicate extender managed resource name")
    managed.add(name)


def _check_extended_resource(path: str, name: str, problems: Problems) -> None:
    if faults := label_key_faults(name):
        problems.invalid(path, name, "; ".join(faults))
        return
    # Source: pkg/apis/core/v1/helper/helpers.go, IsExtendedResourceName (kubernetes 1.36).
    is_native = "/" not in name or "kubernetes.io/" in name
    if is_native or name.startswith("requests.") or label_key_faults(f"requests.{name}"):
        problems.invalid(path, name, "is an invalid extended resource name")
