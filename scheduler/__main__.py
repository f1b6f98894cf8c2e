"""`python -m scheduler` is `affinity-scheduler`."""

import sys

from scheduler.cli.main import main

sys.exit(main())
