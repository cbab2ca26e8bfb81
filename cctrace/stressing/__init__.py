"""Search for the shortest path history on which a congestion control fails, for `cctrace stress`."""
