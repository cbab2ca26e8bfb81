"""Congestion controls, one file each, and the registry that names them.

Everywhere a controller is named, ``name:param=value,…`` gives parameters too: ``obbr:mu=0.5``. Your own classes are
passed as they are, or, on the command line, as ``FILE.py:CLASS`` (`cctrace.cc.own`).
"""

import importlib
from functools import lru_cache

from cctrace.arguments import short_repr
from cctrace.cc import own
from cctrace.cc.base import Controller, check_methods, checked_params
from cctrace.errors import ArgumentError, suggestion

# name: "module:Class", imported when asked for.
REGISTRY: dict[str, str] = {
    "bbr2016": "cctrace.cc.bbr2016:BBR2016",
    "bbr2019": "cctrace.cc.bbr2019:BBR2019",
    "bbr2022": "cctrace.cc.bbr2022:BBR2022",
    "bbr2": "cctrace.cc.bbr2:BBR2",
    "bbr2plus": "cctrace.cc.bbr2plus:BBR2Plus",
    "bbr2plus_paper": "cctrace.cc.bbr2plus_paper:BBR2PlusPaper",
    "bbr2019_comp": "cctrace.cc.compensation:BBR2019Comp",
    "bbr2_comp": "cctrace.cc.compensation:BBR2Comp",
    "bbr3": "cctrace.cc.bbr3:BBR3",
    "bbr_draft": "cctrace.cc.bbr_draft:BBRDraft",
    "bbr_draft_quic": "cctrace.cc.bbr_draft_quic:BBRDraftQuic",
    "quic_bbr": "cctrace.cc.quic_bbr:QuicBBR",
    "obbr": "cctrace.cc.obbr:OBBR",
    "bbr_s": "cctrace.cc.bbr_s:BBRS",
    "b3r": "cctrace.cc.b3r:B3R",
    "quic_bbr2": "cctrace.cc.quic_bbr2:QuicBBR2",
    "quic_cubic": "cctrace.cc.quic_cubic:QuicCubic",
    "quic_reno": "cctrace.cc.quic_reno:QuicReno",
    "obbr_paper": "cctrace.cc.obbr_paper:OBBRPaper",
    "bbr_s_paper": "cctrace.cc.bbr_s_paper:BBRSPaper",
    "b3r_paper": "cctrace.cc.b3r_paper:B3RPaper",
    "quic_obbr_paper": "cctrace.cc.quic_obbr_paper:QuicOBBRPaper",
    "quic_bbr_s_paper": "cctrace.cc.quic_bbr_s_paper:QuicBBRSPaper",
    "quic_b3r_paper": "cctrace.cc.quic_b3r_paper:QuicB3RPaper",
    "orca": "cctrace.cc.orca:Orca",
    "bbr2016_cbe": "cctrace.cc.oracles:BBR2016Cbe",
    "bbr2016_cmrt": "cctrace.cc.oracles:BBR2016Cmrt",
    "bbr2019_cbe": "cctrace.cc.oracles:BBR2019Cbe",
    "bbr2019_cmrt": "cctrace.cc.oracles:BBR2019Cmrt",
    "bbr2_cbe": "cctrace.cc.oracles:BBR2Cbe",
    "bbr2_cmrt": "cctrace.cc.oracles:BBR2Cmrt",
    "bbr3_cbe": "cctrace.cc.oracles:BBR3Cbe",
    "bbr3_cmrt": "cctrace.cc.oracles:BBR3Cmrt",
    "bbrx": "cctrace.cc.bbrx:BBRx",
    "reno": "cctrace.cc.reno:Reno",
    "cubic": "cctrace.cc.cubic:Cubic",
    "cubic6": "cctrace.cc.cubic6:Cubic6",
    "cubic_paced": "cctrace.cc.cubic_paced:CubicPaced",
    "dctcp": "cctrace.cc.dctcp:DCTCP",
    "prague": "cctrace.cc.prague:Prague",
    "prague2020": "cctrace.cc.prague2020:Prague2020",
}

# The name that a kernel gives a congestion control (of BBR, the generation that its counters give: every generation is
# called "bbr" by some kernel) and the controllers that make the decisions of its modules, the newest first.
_OF_KERNELS = {
    "bbr": ("bbr2022", "bbr2019", "bbr2016"),
    "bbr2": ("bbr2", "bbr2plus"),
    "bbr3": ("bbr3",),
    "cubic": ("cubic6",),
    "reno": ("reno",),
    "dctcp": ("dctcp",),
    "prague": ("prague", "prague2020"),
}
KERNEL_NAMES = {name: variants[0] for name, variants in _OF_KERNELS.items()}  # as released since Linux 6.1
BBR_GENERATIONS = {1: "bbr", 2: "bbr2", 3: "bbr3"}  # by the version in struct tcp_bbr_info
_KERNEL_NAME_OF = {variant: name for name, variants in _OF_KERNELS.items() for variant in variants}
# Common name -> registered name; case does not matter. A name that is itself registered (cubic) means that one.
_SPOKEN = {
    "bbr": "bbr2022",
    "bbr1": "bbr2022",
    "bbrv1": "bbr2022",
    "bbrv2": "bbr2",
    "bbr2+": "bbr2plus",
    "bbrv2+": "bbr2plus",
    "bbrv3": "bbr3",
    "newreno": "reno",
}


def canonical(spec: str) -> str:
    """Return a specification with the registered name of its controller.

    `spec`: a name in any case, the kernel's ``bbr`` (that of Linux 6.1 and later), ``bbrv3`` and the like; with
    parameters or without. Raises `ArgumentError` if the name is unknown; the nearest are suggested.

    >>> canonical("bbr"), canonical("Cubic"), canonical("OBBR:mu=0.5")
    ('bbr2022', 'cubic', 'obbr:mu=0.5')
    """
    name, colon, settings = own.parts(spec)
    if own.file_of(name):
        own.known(name)
        return spec
    found = name.strip().lower()
    found = found if found in REGISTRY else _SPOKEN.get(found, found)
    if found not in REGISTRY:
        meant = suggestion(found, [*REGISTRY, *_SPOKEN], most=3)
        raise ArgumentError(f"no controller is called {name!r}{meant} (known: {', '.join(sorted(REGISTRY))})")
    return f"{found}{colon}{settings}"


def controller(spec: str | type[Controller]) -> tuple[type[Controller], dict[str, float]]:
    """Return the class and the given parameters that a specification names.

    Parameters
    ----------
    spec : str or type
        A name (see `canonical`), ``name:param=value,…``, a class that `own.load` has loaded (``FILE.py:CLASS``), or a
        subclass of `Controller`.

    Returns
    -------
    (type, dict)
        The class, and only those parameters that the specification sets.

    Raises
    ------
    ArgumentError
        If the name is unknown (the nearest is suggested), a parameter is unknown, not a number or out of range, or a
        class lacks a method that the stack has to call.

    Examples
    --------
    >>> controller("obbr:mu=0.5")
    (<class 'cctrace.cc.obbr.OBBR'>, {'mu': 0.5})
    """
    if isinstance(spec, type) and issubclass(spec, Controller):
        check_methods(spec)
        return spec, {}
    if not isinstance(spec, str):
        raise ArgumentError(
            f"a controller is a name or a subclass of LinuxController or QuicController, not {short_repr(spec)}"
        )
    name, _, settings = own.parts(canonical(spec))
    if own.file_of(name):
        cls = own.known(name)
    else:
        module, _, attribute = REGISTRY[name].partition(":")
        cls = getattr(importlib.import_module(module), attribute)
    numbers = []
    for part in filter(None, settings.split(",")):
        key, _, text = part.partition("=")
        if key.strip() in cls.named_settings:
            cls = cls.named_settings[key.strip()](cls, text.strip())
        else:
            numbers.append(part)
    given = [_setting(spec, part) for part in numbers]
    params = dict(given)
    if len(params) < len(given):
        raise ArgumentError(f"controller {spec!r} sets a parameter twice")
    checked_params(cls, params)
    return cls, params


def kernel_name(variant: str) -> str:
    """Return the kernel's name for the congestion control that a variant is a release of; else the variant's own name.

    >>> kernel_name("bbr2019"), kernel_name("cubic6"), kernel_name("vegas")
    ('bbr', 'cubic', 'vegas')
    """
    return _KERNEL_NAME_OF.get(variant, variant)


@lru_cache(maxsize=256)
def is_model_based(name: str | None) -> bool:
    """Return whether a controller builds a model of the path, as BBR does (`Controller.model_based`).

    `name`: see `controller`, or the name that a kernel gives a module that is not registered here: those that begin
    with ``bbr`` (``bbrplus``) are derived from BBR. None, an unknown controller: False.

    >>> [is_model_based(name) for name in ("bbr", "obbr:mu=0.5", "bbrplus", "cubic", "vegas", None)]
    [True, True, True, False, False, False]
    """
    if name is None:
        return False
    try:
        return controller(own.parts(name)[0])[0].model_based  # alone: settings of a class in a file may name files
    except ArgumentError:
        return name.startswith("bbr")


def called(spec: str | type) -> str:
    """Return what a controller is called in tables: the specification, or the name of a class.

    >>> called("obbr:mu=0.5"), called(Controller)
    ('obbr:mu=0.5', 'Controller')
    """
    return spec.__name__ if isinstance(spec, type) else spec


def _setting(spec: str, part: str) -> tuple[str, float]:
    name, equals, text = part.partition("=")
    if not equals:
        raise ArgumentError(f"controller {spec!r}: {part!r} is not PARAM=VALUE")
    for number in (int, float):
        try:
            return name.strip(), number(text)
        except ValueError:
            continue
    raise ArgumentError(f"controller {spec!r}: {text!r} is not a number")
