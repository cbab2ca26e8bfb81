"""Closed forms: minRTT collapse, shares of a buffer, loss-based laws, BBRx's law. One equation, one function.

* `collapse` Kumar's model as printed; `dependence` and `closedloop` what its samples really are in a flow's loop
* `share` oBBR's Q_r, Ware, Mishra; `lossbased` Mathis, PFTK, CUBIC; `pilaw` BBRx; `metrics` the yardsticks
* `predict` the dictionaries that `cctrace predict` prints

Which model holds where, and how far off it is elsewhere: docs/models.md.
"""

from cctrace.analytic.collapse import Collapse
from cctrace.analytic.distributions import Empirical, TruncatedNormal
from cctrace.analytic.domain import Domain

__all__ = ["Collapse", "Domain", "Empirical", "TruncatedNormal"]
