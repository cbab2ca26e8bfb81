"""What is measured, on which data, and what it found; each module is a command, `python -m benchmarks.NAME`."""
