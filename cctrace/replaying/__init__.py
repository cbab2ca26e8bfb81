"""Run a controller over a stream of calls: recorded, simulated or a golden vector."""
