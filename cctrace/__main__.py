"""`python -m cctrace` is the command `cctrace`."""

import os
import sys

# -m puts the working directory first in the path: a numpy.py beside somebody's captures would be imported. It stays
# where cctrace itself was found there (a checkout).
if not sys.flags.safe_path and sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(__file__)):
    del sys.path[0]

from cctrace.cli import run

run()
