"""cctrace: explain, replay and predict TCP congestion control from captures and kernel counters.

The names below are the public interface; each is imported when it is first used, so that `import cctrace` is immediate.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:  # type checkers and editors do not run __getattr__; a test holds this to _PUBLIC
    from cctrace import analytic, corpus, datasets, fit, learn, papers, plot, presets, streaming, units
    from cctrace.analysis.analyze import analyze
    from cctrace.cc import controller
    from cctrace.cc.base import LinuxController, QuicController
    from cctrace.checking.check import check
    from cctrace.counterfactual.whatif import whatif
    from cctrace.diagnosis.diagnose import diagnose
    from cctrace.flows.capture import Capture, read
    from cctrace.identification.identify import identify
    from cctrace.plot import plot_flow
    from cctrace.replaying.run import replay
    from cctrace.report.widget import widget
    from cctrace.sim.jitter import Jitter
    from cctrace.sim.path import Path
    from cctrace.sim.sender import Sender
    from cctrace.sim.simulate import simulate
    from cctrace.sim.sweep import sweep
    from cctrace.stressing.stress import stress

# Public name: the module that defines it, or that it is.
_PUBLIC = {
    "Capture": "cctrace.flows.capture",
    "Jitter": "cctrace.sim.jitter",
    "LinuxController": "cctrace.cc.base",
    "Path": "cctrace.sim.path",
    "QuicController": "cctrace.cc.base",
    "Sender": "cctrace.sim.sender",
    "analytic": "cctrace.analytic",
    "analyze": "cctrace.analysis.analyze",
    "check": "cctrace.checking.check",
    "controller": "cctrace.cc",
    "corpus": "cctrace.corpus",
    "datasets": "cctrace.datasets",
    "diagnose": "cctrace.diagnosis.diagnose",
    "fit": "cctrace.fit",
    "identify": "cctrace.identification.identify",
    "papers": "cctrace.papers",
    "plot": "cctrace.plot",
    "learn": "cctrace.learn",
    "plot_flow": "cctrace.plot",
    "presets": "cctrace.presets",
    "read": "cctrace.flows.capture",
    "replay": "cctrace.replaying.run",
    "simulate": "cctrace.sim.simulate",
    "streaming": "cctrace.streaming",
    "stress": "cctrace.stressing.stress",
    "sweep": "cctrace.sim.sweep",
    "units": "cctrace.units",
    "whatif": "cctrace.counterfactual.whatif",
    "widget": "cctrace.report.widget",
}
# Written out for type checkers, which take other names for private.
__all__ = ["Capture", "Jitter", "LinuxController", "Path", "QuicController", "Sender", "__version__", "analytic",
           "analyze", "check", "controller", "corpus", "datasets", "diagnose", "fit", "identify", "learn",
           "papers", "plot", "plot_flow", "presets", "read", "replay", "simulate", "streaming", "stress", "sweep",
           "units", "whatif", "widget"]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'cctrace' has no attribute {name!r}")
    module = importlib.import_module(_PUBLIC[name])
    value = module if module.__name__ == f"cctrace.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
