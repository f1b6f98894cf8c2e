"""A pod with an annotation that nothing reads gets one event, and is placed without the rule."""

from __future__ import annotations

from typing import Any

from scheduler.engine.model.instructions import EmitEvent, Instruction
from scheduler.engine.model.stimuli import PodSeen
from tests.support import build
from tests.support.driving import NAME, Driver, bind_of, each_of


def events(told: list[Instruction]) -> list[tuple[str, str]]:
    return [(one.type, one.note) for one in each_of(told, EmitEvent) if one.reason == "UnreadAnnotation"]


def test_it_is_told_once_for_each_set_of_names() -> None:
    driver = Driver()
    driver.node("a")

    def shown(name: str, annotation: str, scheduler: str = NAME, **fields: Any) -> list[tuple[str, str]]:
        marks = {f"affinity-scheduler.io/{annotation}": "{}"}
        document = build.pod(name, annotations=marks, spec={"schedulerName": scheduler}, **fields)
        return events(driver.handle(PodSeen(driver.decoded(document))))

    note = (
        "annotation affinity-scheduler.io/afinity has no effect: nothing reads it;"
        ' did you mean "affinity-scheduler.io/affinity"?'
    )
    assert shown("p", "afinity") == [("Warning", note)]
    assert shown("p", "afinity", labels={"a": "b"}) == []
    assert [name for _, name in shown("p", "x")] == [
        "annotation affinity-scheduler.io/x has no effect: nothing reads it"
    ]
    assert bind_of(driver.cycle()).node_name == "a"
    assert shown("other", "x", scheduler="another") == []
    assert shown("running", "x", node="a") == []
    driver.audit()
