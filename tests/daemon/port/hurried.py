"""The scheduler, which looks ten times a second for new certificates in files, and not only once in ten seconds."""

import sys

from scheduler.cli.main import main
from scheduler.daemon.port import serving_certificate

if __name__ == "__main__":
    serving_certificate.FILES_PERIOD_S = 0.1  # type: ignore[misc]
    sys.exit(main())
