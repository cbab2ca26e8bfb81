"""What no capture contains, inferred from the sends: draws, ticks, pacing, fq, writes, limits of the socket."""
