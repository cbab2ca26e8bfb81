"""Linux's rules of TCP as plain functions of integers: one copy for reconstruction, replay and simulation.

The three keep their state in different places: the reconstruction in the records of `flows.state`, the simulation
in those of `sim.core.structs`, a replay in the fields of its stack. A rule therefore takes and returns numbers. It
is ordinary integer Python that calls nothing but `min`, `max` and other rules; constants are module-level integers,
names are the kernel's. The same text is called directly and compiled with the reconstruction, the simulation or the
replay (`lang.machine`).
"""
