"""cctrace: explain, replay and predict TCP congestion control from captures and kernel counters."""

__version__ = "0.1.0.dev0"
