"""Fit models, paths and parameters to recorded and simulated flows, with intervals.

    delays = cct.fit.uncongested_rtt(flow)      the RTTs that the flow would have had without a queue
    path = cct.fit.path(flow)                   a cct.Path, with an estimate of each of its properties
    fit = cct.fit.Jitter().fit(delays)          distribution and process of the path's jitter
    cct.fit.Collapse().fit(flow)                the jitter at which BBR would collapse, and the path's jitter

Estimators follow scikit-learn: `fit`, `predict`, `score`, results with a trailing underscore, `summary()`. Every
value is an `Estimate` with a 95 % interval. If the data do not determine a value, a `FitError` says what would be
needed. See docs/fitting.md.
"""

from cctrace.errors import FitError
from cctrace.estimates import Estimate
from cctrace.fit.collapse import Collapse
from cctrace.fit.delays import uncongested_rtt
from cctrace.fit.fitted_path import FittedPath, path
from cctrace.fit.hierarchical import Hierarchical
from cctrace.fit.jitter import Jitter
from cctrace.fit.parameters import Parameters
from cctrace.fit.share import Share
from cctrace.path.delays import Delays

__all__ = [
    "Collapse",
    "Delays",
    "Estimate",
    "FitError",
    "FittedPath",
    "Hierarchical",
    "Jitter",
    "Parameters",
    "Share",
    "path",
    "uncongested_rtt",
]
