"""Builders of device classes, slices and claims as JSON."""

from tests.support.build import Json

DRIVER = "gpu.example.com"


def device_class(name: str = "gpu", extended_resource: str = "") -> Json:
    spec: Json = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    if extended_resource:
        spec["extendedResourceName"] = extended_resource
    return {"kind": "DeviceClass", "metadata": {"name": name, "uid": f"class-{name}"}, "spec": spec}


def device_slice(node: str, n_devices: int, **of_device: object) -> Json:
    devices = [{"name": f"gpu-{number}", **of_device} for number in range(n_devices)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": devices}
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": f"slice-{node}", "uid": f"slice-{node}"},
        "spec": spec,
    }


def resource_claim(name: str, count: int = 1, **status: object) -> Json:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"claim-{name}"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        **({"status": status} if status else {}),
    }


def selecting_claim(name: str, expression: str, namespace: str = "default") -> Json:
    """Return a claim of one device for which the CEL expression is true."""
    claim = resource_claim(name)
    claim["metadata"]["namespace"] = namespace
    claim["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": expression}}]
    return claim


def using_claims(*names: str) -> Json:
    """Return what a pod's spec says of the claims that it uses."""
    return {"resourceClaims": [{"name": name, "resourceClaimName": name} for name in names]}
