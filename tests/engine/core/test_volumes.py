"""Pods with claims in the machine: they wait for their volumes, and are woken by what they wait for."""

import json

from scheduler.engine.model.stimuli import ObjectGone, ObjectSeen, PodSeen
from scheduler.engine.model.volume_decoder import StorageDecoder
from scheduler.engine.model.volumes import StorageKind
from tests.support.build import Json
from tests.support.cases.volume_rows import using
from tests.support.driving import NAME, Driver, bind_of, condition_of
from tests.support.messages import refusals
from tests.support.storage_objects import claim, storage_class, volume

_DECODER = StorageDecoder()


def _see(driver: Driver, obj: Json) -> None:
    driver.handle(ObjectSeen(_DECODER.decode(StorageKind(obj["kind"]), json.dumps(obj).encode())))


def _see_pod(driver: Driver, document: Json) -> None:
    document["spec"]["schedulerName"] = NAME
    driver.handle(PodSeen(driver.decoded(document)))


def test_a_pod_waits_until_its_claim_is_bound() -> None:
    driver = Driver()
    driver.node("a")
    _see(driver, storage_class("s", mode="Immediate"))
    _see(driver, claim("c", "s"))
    _see_pod(driver, using("c"))
    waits_for = condition_of(driver.cycle()).message
    assert refusals(waits_for) == "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    driver.now_s += 60
    _see(driver, claim("other", "s", volume="w"))
    assert not driver.machine.has_work()
    _see(driver, volume("v", "s", claimed_by="default/c", phase="Bound"))
    _see(driver, claim("c", "s", volume="v"))
    assert bind_of(driver.cycle()).node_name == "a"
    driver.audit()


def test_a_claim_that_is_gone_is_not_there() -> None:
    driver = Driver()
    driver.node("a")
    _see(driver, volume("v", claimed_by="default/c"))
    _see(driver, claim("c", volume="v"))
    driver.handle(ObjectGone(StorageKind.CLAIM, "default/c"))
    driver.handle(ObjectGone(StorageKind.CLAIM, "default/c"))
    _see_pod(driver, using("c"))
    reason = condition_of(driver.cycle()).message
    assert refusals(reason) == '0/1 nodes are available: persistentvolumeclaim "c" not found.'
    driver.audit()


def test_a_pod_is_tried_once_its_claim_is_created() -> None:
    driver = Driver()
    driver.node("a")
    _see(driver, volume("v", claimed_by="default/c"))
    _see_pod(driver, using("c"))
    condition_of(driver.cycle())
    driver.now_s += 60
    _see(driver, claim("other"))
    assert not driver.machine.has_work()
    _see(driver, claim("c", volume="v"))
    assert bind_of(driver.cycle()).node_name == "a"
    driver.audit()
