"""Objects, pages and watch lines as an API server sends them."""

import json


def pod(name, rv, *, uid=None, namespace="default", **more):
    """Return a pod with identity and version only."""
    metadata = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "resourceVersion": str(rv)}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata | more}


def broken(name, rv, **more):
    """Return a pod that `decode` refuses: a label of the wrong type."""
    return pod(name, rv, labels={"app": 7}, **more)


def page(*items, rv=10, token=""):
    return json.dumps(
        {"kind": "PodList", "metadata": {"resourceVersion": str(rv), "continue": token}, "items": items}
    ).encode()


def line(kind, item):
    return json.dumps({"type": kind, "object": item}).encode()


def bookmark(rv, *, ends=False):
    annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if ends else {}
    return line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(rv)} | annotations})


def status(code, reason, message="no", **details):
    return {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


def body(code, reason, message="no", **details):
    return json.dumps(status(code, reason, message, **details)).encode()
