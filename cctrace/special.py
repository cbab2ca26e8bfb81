"""The special functions of scipy, in an eighth of the time that `import scipy.special` takes.

Nine tenths of that import prepare for arrays of other libraries: numpy's f2py and testing are imported, and docstrings
parsed. The functions themselves are in one extension module, which is loaded without the rest. It is the one that
scipy.special has, too, and is not loaded again where that is imported later.

    from cctrace.special import special
    special.ndtr(0.0)
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def _functions() -> ModuleType:
    """Return the extension module; `scipy.special` where that is imported already, or has none that loads alone."""
    if "scipy.special" not in sys.modules:
        import scipy

        alone = ModuleType("scipy.special")
        alone.__path__ = [str(Path(scipy.__file__).with_name("special"))]
        sys.modules["scipy.special"] = alone
        try:
            return importlib.import_module("scipy.special._ufuncs")
        except ImportError:  # another version, which is built otherwise
            pass
        finally:
            del sys.modules["scipy.special"]
    return importlib.import_module("scipy.special")


special: Any = _functions()
