"""Coverage-guided fuzzing of every reader with atheris (pip install atheris): whatever the bytes, a result or an error.

    python -m benchmarks.fuzz [CORPUS_DIR] [-max_total_time=600]      # libFuzzer's options

The compiled decoders run interpreted, so that coverage sees them and every index is checked. The first byte of an input
chooses the format; the rest is the file. Seeds are those of tests/test_io_fuzz.py.
"""

import os
import sys
import tempfile

os.environ["CCTRACE_MACHINE"] = "interpreted"
sys.path[:0] = [os.path.join(os.path.dirname(__file__), ".."), os.path.join(os.path.dirname(__file__), "..", "tests")]

import atheris  # noqa: E402 (after the environment is set)

with atheris.instrument_imports(include=["cctrace.io"]):
    from test_io_fuzz import SEEDS, survives

    from cctrace.io import FORMATS

CHOICES = [None, *FORMATS]


def one_input(data):
    """Read an input as the format that its first byte chooses (0: as sniffed)."""
    if len(data) > 1:
        survives(data[1:], format=CHOICES[data[0] % len(CHOICES)], decapsulate="all")


def main():
    folder = tempfile.mkdtemp(prefix="cctrace-fuzz-")
    for i, seed in enumerate(SEEDS):
        with open(os.path.join(folder, str(i)), "wb") as file:
            file.write(b"\0" + seed)
    atheris.Setup([*sys.argv, folder], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
