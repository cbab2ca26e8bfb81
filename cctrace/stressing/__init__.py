"""The shortest path history on which a congestion control fails: what `cctrace stress` searches for."""
