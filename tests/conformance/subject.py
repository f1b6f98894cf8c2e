"""What the recorded questions are put to."""

from typing import Protocol

from tests.conformance.traces import Json
from tests.reference.cluster import Cluster


class Subject(Protocol):
    """A cluster's life as a scheduler sees it, and its decisions."""

    def apply(self, obj: Json) -> None:
        """Create the object or replace the one of the same kind, namespace and name."""

    def delete(self, kind: str, namespace: str | None, name: str) -> None:
        """Remove an object, if it is there."""

    def evaluate(self, pod: Json) -> Json:
        """Return the decision on a pod, in the shape of a recorded entry; change nothing."""
        ...


class ReferenceSubject:
    """The plain reference."""

    def __init__(self, config: Json | None) -> None:
        self._cluster = Cluster()
        self._config = config

    def apply(self, obj: Json) -> None:
        """Create or replace."""
        self._cluster.apply(obj)

    def delete(self, kind: str, namespace: str | None, name: str) -> None:
        """Remove."""
        self._cluster.delete(kind, namespace, name)

    def evaluate(self, pod: Json) -> Json:
        """Return the reference's decision under the trace's configuration."""
        return self._cluster.evaluate_and_preempt(pod, self._config)
