"""A Secret and webhook configurations in memory, shared by replicas, and a clock that tests set."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from scheduler.daemon.port.certificates import TrustedKeyPair
from scheduler.daemon.port.tls import KeyPair
from scheduler.errors import ApiError, Conflict, Forbidden
from scheduler.tools.webhook.certificate_store import SecretStore, StoredCertificate


@dataclass
class Clock:
    now_s: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Shared(SecretStore):
    """The store that all replicas share. `published`: the authorities that the API server trusted, newest last."""

    trusted: TrustedKeyPair = field(default_factory=lambda: TrustedKeyPair(b"", KeyPair(b"", b"")))
    version: int = 1
    n_writes: int = 0
    published: list[bytes] = field(default_factory=list)
    #: The answer to every write, such as 403 without the right.
    refusal: ApiError | None = None
    is_publishing_refused: bool = False
    #: Another writer's write, just before the next one.
    faster: TrustedKeyPair | None = None

    async def read(self) -> StoredCertificate:
        stored = StoredCertificate(str(self.version), self.trusted)
        await asyncio.sleep(0)  # others read before this replica writes
        return stored

    async def write(self, version: str, trusted: TrustedKeyPair) -> None:
        if self.refusal is not None:
            raise self.refusal
        if self.faster is not None:
            self.trusted, self.faster, self.version = self.faster, None, self.version + 1
        if version != str(self.version):
            raise Conflict(409, "Conflict", "the object has been modified")
        self.trusted, self.version, self.n_writes = trusted, self.version + 1, self.n_writes + 1

    async def publish(self, authorities: bytes) -> int:
        if self.is_publishing_refused:
            raise Forbidden(403, "Forbidden", "cannot patch configurations")
        if self.published[-1:] != [authorities]:
            self.published.append(authorities)
        return 2


@dataclass
class Served:
    """Records the served pairs, newest last."""

    pairs: list[KeyPair] = field(default_factory=list)

    def serve(self, pair: KeyPair) -> None:
        self.pairs.append(pair)
