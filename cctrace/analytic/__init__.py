"""Closed forms: minRTT collapse, shares of a buffer, loss-based laws, BBRx's law. One function per equation.

* `collapse` Kumar's model as printed; `dependence` and `closedloop` the samples that a flow really takes in its
  loop
* `share` oBBR's Q_r, Ware, Mishra; `lossbased` Mathis, PFTK, CUBIC; `pilaw` BBRx; `metrics` the measures
* `predict` the dictionaries that `cctrace predict` prints

Where each model holds, and how far off it is elsewhere: docs/models.md.
"""

from cctrace.analytic.collapse import Collapse
from cctrace.analytic.distributions import Empirical, TruncatedNormal
from cctrace.analytic.domain import Domain

__all__ = ["Collapse", "Domain", "Empirical", "TruncatedNormal"]
