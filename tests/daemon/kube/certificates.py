"""A certificate authority made with the openssl command, for tests that need TLS."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Pair:
    cert: Path
    key: Path


class Authority:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pair = Pair(folder / "ca.crt", folder / "ca.key")
        self._openssl("req", "-x509", "-days", "2", "-subj", "/CN=test-ca", *self._new_key(self.pair))

    def issue(self, name: str, *, subject: str, host: str = "IP:127.0.0.1") -> Pair:
        pair, request = (
            Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key"),
            self.folder / f"{name}.csr",
        )
        self._openssl("req", "-subj", subject, *self._new_key(Pair(request, pair.key)))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={host}\n")
        signing = ("-CA", self.pair.cert, "-CAkey", self.pair.key, "-CAcreateserial", "-days", "2")
        self._openssl("x509", "-req", "-in", request, "-out", pair.cert, "-extfile", extensions, *signing)
        return pair

    def _new_key(self, pair: Pair) -> tuple[object, ...]:
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        return (*curve, "-keyout", pair.key, "-out", pair.cert)

    def _openssl(self, *arguments: object) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def authority_in(folder: Path) -> Authority:
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is not installed")
    return Authority(folder)
