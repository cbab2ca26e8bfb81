"""The wheel, installed into an empty environment of every Python there is, explains a recording and passes tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import REPOSITORY

VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def interpreter(version):
    """The path of a Python, of the system or of pyenv; None where there is none that runs."""
    kept = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}.*/bin/python"))
    for python in [*map(str, kept), shutil.which(f"python{version}")]:
        if python and subprocess.run([python, "-c", ""], capture_output=True).returncode == 0:
            return python
    return None


@pytest.mark.external
@pytest.mark.parametrize(("version", "lowest"), [*((version, "") for version in VERSIONS), (VERSIONS[0], "1")])
def test_the_wheel_works_without_the_checkout(version, lowest):
    if (python := interpreter(version)) is None:
        pytest.skip(f"no Python {version}")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYTHON": python, "BUILD": sys.executable, "LOWEST": lowest}
    done = subprocess.run([REPOSITORY / ".ci" / "wheel"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Random losses" in done.stdout  # the verdict on the shipped recording
