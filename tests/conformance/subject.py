"""What the recorded questions are put to."""

from collections.abc import Callable, Mapping
from typing import Protocol

from scheduler.sandbox.devcluster.admission.shapes import check_shape
from scheduler.sandbox.devcluster.kinds import POD
from tests.conformance.product import ProductSubject
from tests.conformance.traces import Json
from tests.reference.cluster import Cluster
from tests.support.recorded_admission import admission_answer


class Subject(Protocol):
    """A cluster's life as a scheduler sees it, and its decisions."""

    def apply(self, obj: Json) -> None:
        """Create the object or replace the one of the same kind, namespace and name."""

    def delete(self, kind: str, namespace: str | None, name: str) -> None:
        """Remove an object, if it is there."""

    def evaluate(self, pod: Json) -> Json:
        """Return the decision on a pod, in the shape of a recorded entry; change nothing."""
        ...


#: Makes the subject of one trace, given its KubeSchedulerConfiguration (None: the defaults).
SubjectFactory = Callable[[Json | None], Subject]


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


class FreshSubject:
    """A subject that is built anew, from the objects alive, before every decision."""

    def __init__(self, factory: SubjectFactory, config: Json | None) -> None:
        self._factory = factory
        self._config = config
        self._objects: dict[tuple[str, str | None, str], Json] = {}

    def apply(self, obj: Json) -> None:
        """Create or replace."""
        meta = obj["metadata"]
        self._objects[obj["kind"], meta.get("namespace"), meta["name"]] = obj

    def delete(self, kind: str, namespace: str | None, name: str) -> None:
        """Remove."""
        self._objects.pop((kind, namespace or None, name), None)

    def evaluate(self, pod: Json) -> Json:
        """Return the decision of a new subject, to which only the objects alive were applied."""
        subject = self._factory(self._config)
        for obj in self._objects.values():
            subject.apply(obj)
        return subject.evaluate(pod)


#: By the name that `--subject` takes.
SUBJECTS: Mapping[str, SubjectFactory] = {"product": ProductSubject, "reference": ReferenceSubject}


def admit(pod: Json) -> Json:
    """
    Return the embedded cluster's answer to the creation of a pod, in the shape of a recorded one.

    Raises: StatusError for what is no pod.
    """
    check_shape(POD, pod)
    return admission_answer(pod)
