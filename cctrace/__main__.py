"""`python -m cctrace` is the command `cctrace`."""

import sys

from cctrace.cli import main

sys.exit(main())
