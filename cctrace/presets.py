"""Fitted or learned parameter sets that ship with cctrace: one JSON object per file of `models/`, with provenance."""

import json
from pathlib import Path
from typing import Any

from cctrace.arguments import check_choice, whole
from cctrace.errors import ArgumentError

_MAX_SECONDS = 10**6  # eleven days
ROOT = Path(__file__).parent / "_data" / "models"


def names() -> list[str]:
    """Return the names of the shipped parameter sets, sorted.

    >>> "bbrx_table1" in names()
    True
    """
    return sorted(file.stem for file in ROOT.glob("*.json"))


def path_names() -> list[str]:
    """Return the names that `cctrace.Path.preset` takes, sorted.

    >>> "5g_car1" in path_names()
    True
    """
    return sorted(load("paths")["paths"])


def path_fields(name: str, seed: int = 1, seconds: int = 120) -> dict[str, Any]:
    """Return the arguments of `cctrace.Path` for a path by name.

    Parameters
    ----------
    name : str
        One of `path_names`.
    seed, seconds : int
        Of a cellular path: the seed of its rates, and for how long they are drawn (then the last one holds).

    Raises
    ------
    ArgumentError
        If there is no such path.

    Returns
    -------
    dict
        `rate` in bit/s or a list of (second, bit/s); `rtt`, `buffer`, `loss` and `jitter` as `cctrace.Path` takes them.

    Examples
    --------
    >>> path_fields("wired_40mbit_40ms")["rtt"]
    '40164us'
    """
    seed, seconds = whole("seed", seed), whole("seconds", seconds, 1, _MAX_SECONDS)
    known = load("paths")["paths"]
    check_choice("path", name, sorted(known))
    entry = known[name]
    fields = {"rtt": f"{entry['rtt_us']}us", "buffer": f"{entry['buffer_bytes']}B", "jitter": entry.get("jitter")}
    fields["loss"] = f"{100 * entry.get('loss', 0.0)}%"
    if entry["kind"] == "fitted":
        rates = [tuple(row) for row in entry["rate_bps"]]
        return fields | {"rate": rates if len(rates) > 1 else float(rates[0][1])}
    return fields | {"rate": _cellular(entry["rate"], seed, seconds)}


def _cellular(drawn: dict[str, float], seed: int, seconds: int) -> list[tuple[int, float]]:
    """Return one rate per second: log-normal, autocorrelated, with outages."""
    import math
    import random

    chance, rho = random.Random(seed), drawn["rho_per_s"]
    z, steps = chance.gauss(0, 1), []
    for second in range(seconds):
        out = second > 0 and chance.random() < drawn["outage_share"]
        rate = math.exp(drawn["log_mean"] + drawn["log_sd"] * z)
        steps.append((second, 0.0 if out else float(round(rate))))
        z = rho * z + math.sqrt(1 - rho * rho) * chance.gauss(0, 1)
    return steps


def jitter_text(name: str) -> str:
    """Return the jitter fitted to a shipped recording, in the syntax of `cctrace.Jitter.parse`.

    Raises `ArgumentError` if there is no such recording.

    >>> import cctrace as cct
    >>> name = load("jitter_presets")["presets"][0]["recording"]
    >>> cct.Jitter.parse(jitter_text(name)).kind
    'gamma'
    """
    known = {entry["recording"]: entry for entry in load("jitter_presets")["presets"]}
    if str(name) not in known:
        raise ArgumentError(f"jitter {name!r}: write it as normal:sd=2ms, or use one of {', '.join(sorted(known))}")
    entry = known[name]
    drawn, order = entry["set"], "" if entry["ordered"] else ",reorder"
    if entry["family"] == "normal":
        return f"normal:sd={drawn['sd_us']}us,per={entry['draws']}{order}"
    shape, scale = drawn["shape"], drawn["scale_us"]
    return f"gamma:sd={shape**0.5 * scale:.1f}us,mean={shape * scale:.1f}us,per={entry['draws']}{order}"


def load(name: str) -> dict[str, Any]:
    """Return one shipped parameter set: the JSON object of its file, ``provenance`` included.

    `name`: one of `names`, else an `ArgumentError`.

    >>> sorted(load("bbrx_table1"))
    ['agent_start', 'bins', 'delta', 'gamma', 'provenance']
    """
    if name not in names():
        raise ArgumentError(f"no parameter set {name!r} ships with cctrace (there are: {', '.join(names()) or 'none'})")
    return json.loads((ROOT / f"{name}.json").read_text(encoding="utf-8"))


def bins(name: str) -> list[dict[str, Any]]:
    """Return the bins of a BBRx table: shipped, by name, or a JSON file as `cctrace learn` writes it.

    Raises `ArgumentError` if there is no such set or file, or it has no list ``bins`` of objects.

    >>> first = bins("bbrx_table1")[0]
    >>> first["min_rtt_ms"], first["beta"]
    ([0, 50], 0.75)
    """
    if name in names():
        found = load(name)
    else:
        try:
            found = json.loads(Path(str(name)).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ArgumentError(
                f"table {name!r}: neither a JSON file nor one of {', '.join(names())} ({error})"
            ) from None
    table = found.get("bins") if isinstance(found, dict) else None
    if not isinstance(table, list) or not all(isinstance(cell, dict) for cell in table):
        raise ArgumentError(f"table {name!r}: has no list `bins` of objects")
    return table
