"""Machine code kept on disk: used again, made anew when anything changed, never trusted when damaged."""

import os
import subprocess
import sys

import numpy as np
import pytest

from cctrace import datasets, native


def python(code, folder, **environment):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)} | environment
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    return done.stdout.split()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache that holds one compiled function."""
    folder = tmp_path_factory.mktemp("native")
    assert python(CALL, folder) == ["True", "3"]
    return folder


CALL = """
import sys
import numpy as np
from cctrace.io.layout import CONN_FIELDS
from cctrace.native import Native
connections = np.arange(3 * CONN_FIELDS).reshape(3, CONN_FIELDS)
(count,) = Native("cctrace.io.decode", "rehash")(connections, 3, np.full(16, -1))
print("numba" in sys.modules, count)
"""


def test_the_second_process_does_without_numba(cache):
    assert python(CALL, cache) == ["False", "3"]


def test_listing_flows_imports_neither_numba_nor_pandas():
    file = str(datasets.path("tso_bbr_300m_veth", "sender.pcap.zst"))
    code = f"import sys; from cctrace.cli import main; main(['flows', '--json', {file!r}]); print(*sys.modules)"
    for _ in range(2):  # the first may have to compile
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {"numba", "pandas", "scipy"} & set(done.stdout.splitlines()[-1].split())


def test_numba_calls_the_function_where_bounds_are_to_be_checked(cache):
    assert python(CALL, cache, NUMBA_BOUNDSCHECK="1") == ["True", "3"]


@pytest.mark.parametrize(
    "damage", [lambda code: code[:-1], lambda code: code[:-9] + b"damage..."[:9], lambda code: b""]
)
def test_damaged_code_is_compiled_anew(cache, damage):
    (file,) = cache.glob("*.o")
    sound = file.read_bytes()
    file.write_bytes(damage(sound))
    assert python(CALL, cache) == ["True", "3"]
    assert file.read_bytes() == sound


def test_code_of_another_source_or_processor_is_not_used(cache):
    (file,) = cache.glob("*.o")
    sound = file.read_bytes()
    file.write_bytes(sound.replace(b'"target": "', b'"target": "older '))
    assert python(CALL, cache) == ["True", "3"]
    assert file.read_bytes() == sound


def test_the_checksum_covers_what_a_module_imports(monkeypatch, tmp_path):
    before = native._checksum("cctrace.io.records")
    assert before == native._checksum("cctrace.io.records")
    paths = {"cctrace.io.link": tmp_path / "link.py"}
    paths["cctrace.io.link"].write_text((native._ROOT / "io" / "link.py").read_text() + "\n")
    path = native._path
    monkeypatch.setattr(native, "_path", lambda module: paths.get(module) or path(module))
    assert native._checksum("cctrace.io.records") != before


def test_a_folder_that_cannot_be_written_costs_time_not_results(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr("os.access", lambda folder, mode: "user" in str(folder))
    assert native._cache_folder(native._path("cctrace.io.decode")) == tmp_path / "user" / "cctrace"
    monkeypatch.setattr("os.access", lambda folder, mode: False)
    assert native._cache_folder(native._path("cctrace.io.decode")) is None


def test_arrays_with_gaps_are_refused():
    rehash = native.Native("cctrace.io.decode", "rehash")
    with pytest.raises(TypeError, match="C-contiguous"):
        rehash(np.zeros((4, 8), np.int64)[:, ::2], 0, np.zeros(4, np.int64))
