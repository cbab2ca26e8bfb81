"""Fitted or learned parameter sets that ship with cctrace: one JSON object per file of `models/`, with provenance."""

import json
from pathlib import Path

from cctrace.errors import ArgumentError

ROOT = Path(__file__).parent / "_data" / "models"


def names():
    """Return the names of the shipped parameter sets, sorted."""
    return sorted(file.stem for file in ROOT.glob("*.json"))


def load(name):
    """Return one shipped parameter set.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    dict
        The JSON object of the file, ``provenance`` included.

    Raises
    ------
    ArgumentError
        If there is no such parameter set.
    """
    if name not in names():
        raise ArgumentError(f"no parameter set {name!r} ships with cctrace (there are: {', '.join(names()) or 'none'})")
    return json.loads((ROOT / f"{name}.json").read_text(encoding="utf-8"))
