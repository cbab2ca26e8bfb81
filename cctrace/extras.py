"""Packages that are not installed with cctrace unless asked for: the extras of setup.cfg."""

import importlib
import importlib.util

from cctrace.errors import MissingError


def needed(module, extra):
    """Return a module of a package that comes with an extra.

    Raises
    ------
    MissingError
        If it is not installed; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise MissingError(f"this needs {package}, which is not installed: pip install 'cctrace[{extra}]'") from error


def is_installed(package):
    """Whether a package is installed."""
    return importlib.util.find_spec(package) is not None
