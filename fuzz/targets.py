"""What is fuzzed: every reader, whichever format the bytes claim; and an analysis with its report.

python -m fuzz.targets read|analyze [options of libFuzzer] [folders]
python -m fuzz.targets --write-seeds FOLDER
"""

import contextlib
import io
import sys
import tempfile
import warnings
from pathlib import Path

from cctrace.errors import CctraceError, PartFailed
from cctrace.io import FORMATS, read_file

NAMED = ("bblog", "tcp-info-struct")  # formats that are read where their name is given


def read(data):
    """Read bytes as what they look like, and as one of the formats, which their length names."""
    name = [None, *FORMATS][len(data) % (len(FORMATS) + 1)]
    for format in {None, name}:
        with contextlib.suppress(CctraceError):
            read_file(io.BytesIO(data), format=format, decapsulate="all").frame()


def analyze(data):
    """Analyse bytes as a file, and write its report; no part of it may fail for a reason of its own."""
    from cctrace.analysis.analyze import analyze as run
    from cctrace.report.overview import write_report

    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(CctraceError):
        file = Path(folder) / "input"
        file.write_bytes(data)
        write_report(run([file]), Path(folder) / "out")


TARGETS = {"read": read, "analyze": analyze}


def one(target, data):
    """Run a target over an input; what is no `CctraceError` is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", PartFailed)
        TARGETS[target](data)


def write_seeds(folder):
    """Write the seeds of all formats as files."""
    from seeds import SEEDS

    for name, seeds in SEEDS.items():
        for number, data in enumerate(seeds):
            (Path(folder) / f"{name}-{number}").write_bytes(data)


def main():
    """Fuzz the target that is named first."""
    if sys.argv[1] == "--write-seeds":
        write_seeds(sys.argv[2])
        return
    import atheris

    target = sys.argv.pop(1)
    with atheris.instrument_imports(
        include=[
            "cctrace.io",
            "cctrace.flows",
            "cctrace.path",
            "cctrace.diagnosis",
            "cctrace.identification",
            "cctrace.analysis",
            "cctrace.report",
        ]
    ):
        for module in FORMATS.values():
            __import__(f"cctrace.io.{module}")
    atheris.Setup(sys.argv, lambda data: one(target, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
