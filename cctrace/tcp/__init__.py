"""Linux's rules of TCP as plain functions of integers: one copy for reconstruction, replay and simulation.

Who keeps which state where differs: the reconstruction has the records of `flows.state`, the simulation those of
`sim.core.structs`, a replay the fields of its stack. So a rule takes numbers and returns numbers. It is ordinary Python
of whole numbers that calls nothing but `min`, `max` and other rules; constants are module-level integers, names are the
kernel's. So one text runs in every way that the project knows: called as it is, and compiled with the reconstruction,
the simulation or the replay (`lang.machine`).
"""
