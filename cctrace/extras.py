"""Optional packages: the extras of setup.cfg."""

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from cctrace.errors import MissingError

_ABOVE = Path(__file__).resolve().parents[1]  # a checkout, or where wheels are installed


def needed(module: str, extra: str) -> Any:
    """Return a module of an optional package. Raises `MissingError` if it is not installed; says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise MissingError(f"this needs {package}, which is not installed: {how_to_install(extra)}") from error


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra from any working directory: a checkout in place, by its own pip."""
    if not (_ABOVE / "setup.cfg").is_file():
        return f"{pip()} install 'cctrace[{extra}]'"
    if Path.cwd() == _ABOVE:
        return f"{pip()} install -e '.[{extra}]'"
    return f"{pip()} install -e '{_ABOVE}[{extra}]'"


def pip() -> str:
    """Return the command for this environment's pip: its name if the shell finds it, else its path."""
    beside = Path(sys.prefix) / "bin" / "pip"
    if not beside.exists():
        return f"{sys.executable} -m pip"
    if next((path for at in os.get_exec_path() if (path := Path(at) / "pip").is_file()), None) == beside:
        return "pip"
    return str(beside.relative_to(Path.cwd())) if beside.is_relative_to(Path.cwd()) else str(beside)


def is_installed(package: str) -> bool:
    """Whether a package is installed."""
    return importlib.util.find_spec(package) is not None
