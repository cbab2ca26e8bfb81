"""Closed forms: minRTT collapse, shares of a buffer, loss-based laws, BBRx's law. One function per equation.

* `collapse` Kumar's model as printed; `dependence` and `closedloop` the samples that a flow really takes in its
  loop
* `share` oBBR's Q_r, Ware, Mishra; `lossbased` Mathis, PFTK, CUBIC; `pilaw` BBRx; `metrics` the measures
* `predict` the dictionaries that `cctrace predict` prints

Where each model holds, and how far off it is elsewhere: docs/models.md.
"""

import importlib
from typing import TYPE_CHECKING, Any

from cctrace.analytic.collapse import Collapse
from cctrace.analytic.distributions import Empirical, TruncatedNormal
from cctrace.analytic.domain import Domain

if TYPE_CHECKING:
    from cctrace.analytic import bandwidth, closedloop, dependence, lossbased, metrics, pilaw, share

__all__ = ["Collapse", "Domain", "Empirical", "TruncatedNormal"]
__all__ += ["bandwidth", "closedloop", "dependence", "lossbased", "metrics", "pilaw", "share"]  # loaded when used


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
