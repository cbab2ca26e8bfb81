"""Closed-loop simulation: paths, jitter, sweeps and results around the packet-level `core`."""
