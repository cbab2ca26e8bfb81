"""How long compiling takes: ``python -m benchmarks.compile``.

For everything that an installation compiles (`cctrace.prepare`): CPU seconds to make the code (to LLVM's text, and
LLVM's own part) in a cache that is empty, and the size of the code. Then the CPU seconds of the same work in a new
process that finds all of it in the cache.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time


def measure():
    """Use everything and print what was made."""
    from cctrace import prepare
    from cctrace.lang import cache, objects

    obtain, emit, spent = cache.obtain, objects.object_code, {}

    def timed_emit(text):
        begin = time.process_time()
        code = emit(text)
        spent["llvm"] = time.process_time() - begin
        return code

    def timed(title, key, build):
        def made():
            begin = time.process_time()
            description, code = build()
            whole = time.process_time() - begin
            print(f"{title:16}{whole - spent['llvm']:10.2f}{spent['llvm']:10.2f}{len(code) / 1e3:10.1f}", flush=True)
            return description, code

        return obtain(title, key, made)

    cache.obtain, objects.object_code = timed, timed_emit
    import llvmlite.binding  # noqa: F401 (whose import is no part of compiling)

    begin = time.process_time()
    for task in prepare.tasks(parts=1):
        task()
    print(f"all of it: {time.process_time() - begin:.1f} s of CPU time")


def main():
    """Measure twice with one cache: empty, and full."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--here", action="store_true", help="measure once, in this process and with its cache")
    if parser.parse_args().here:
        measure()
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"CCTRACE_CACHE": folder, "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
        for name in ("an empty cache", "all found in the cache"):
            print(f"{name}\n{'':16}{'lower s':>10}{'LLVM s':>10}{'kB':>10}", flush=True)
            subprocess.run([sys.executable, "-W", "ignore", __file__, "--here"], env=environment, check=True)


if __name__ == "__main__":
    main()
