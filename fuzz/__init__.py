"""Coverage-guided fuzzing of everything that reads files: `make fuzz MINUTES=10`, or `python -m fuzz --help`."""
