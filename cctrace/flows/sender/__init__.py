"""The sender's TCP re-enacted: scoreboard, RACK, recovery, timers, rate samples, and the hand-over to fq."""
