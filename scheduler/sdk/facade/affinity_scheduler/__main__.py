"""`python -m affinity_scheduler`: the same as the command `affinity-scheduler`."""

import sys

from scheduler.cli.main import main

sys.exit(main())
