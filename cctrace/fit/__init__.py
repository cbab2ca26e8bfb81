"""Fit models, paths and parameters to recorded and simulated flows, with intervals.

    delays = cct.fit.uncongested_rtt(flow)      the RTTs that the flow would have had without any queue
    path = cct.fit.path(flow)                   a cct.Path, with an estimate of everything in it
    fit = cct.fit.Jitter().fit(delays)          distribution and process of the path's jitter
    cct.fit.Collapse().fit(flow)                the jitter at which BBR would collapse, and the jitter there is

Estimators follow scikit-learn's habits: `fit`, `predict`, `score`, results with a trailing underscore, `summary()`.
Every value is an `Estimate` with a 95 % interval; what the data do not tell is refused by a `FitError` that says what
would be needed. See docs/fitting.md.
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
