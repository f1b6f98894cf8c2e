"""Archives whose bytes depend on nothing but their content and a time."""

import gzip
import io
import tarfile
from collections.abc import Mapping


def packed(files: Mapping[str, bytes], time_s: int) -> bytes:
    """Return a .tar.gz of files by name, in the order of their names, all of one time, owner and mode."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(files[name]), time_s, 0o644
            archive.addfile(entry, io.BytesIO(files[name]))
    return gzip.compress(tar.getvalue(), mtime=0)
