"""Where bytes come from: what the reading thread may touch, and when."""

import gc
import os
import threading
import time
import warnings

import pytest

import cctrace as cct
from cctrace.cli import main
from cctrace.errors import CctraceError, FormatError
from cctrace.io.captures.chunks import Chunks
from cctrace.io.source import Source
from cctrace.lang import threads
from cctrace.lang.threads import ahead_of


class Slow:
    """A file whose reads wait until they are let go."""

    def __init__(self):
        self.head, self.started, self.go, self.closed_during = b"x" * 4096, threading.Event(), threading.Event(), False
        self.inside = False

    def read(self, size):
        head, self.head = self.head, b""
        return head

    def readinto(self, view):
        self.inside = True
        self.started.set()
        self.go.wait(60)
        self.inside = False
        return 0

    def close(self):
        self.closed_during = self.inside


def test_a_file_is_not_closed_while_it_is_read_ahead():
    """Its descriptor would pass to the next file that is opened, whose bytes the read would swallow."""
    file = Slow()
    source = Source(file, "slow")
    chunks = Chunks(source)
    threading.Thread(target=chunks.more, args=(4097,)).start()
    assert file.started.wait(60)
    closing = threading.Thread(target=source.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    file.go.set()
    closing.join(10)
    assert not closing.is_alive()
    assert not file.closed_during
    file.started.clear()
    assert source.read(10) == b""
    assert not file.started.is_set()
    assert chunks.more()  # what was read before the close is there


def test_what_is_made_ahead_is_made_no_further_than_asked(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    made = []
    ahead = ahead_of((made.append(k) or k for k in range(100)), 2)
    assert next(ahead) == 0
    deadline = time.monotonic() + 60
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    assert made == [0, 1, 2, 3]  # one was taken, two wait, one is ready
    ahead.close()
    time.sleep(0.02)
    assert made == [0, 1, 2, 3]


def test_an_error_is_raised_where_it_is_asked_for():
    def broken():
        yield 1
        raise ValueError("of the maker")

    ahead = ahead_of(broken(), 2)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="of the maker"):
        next(ahead)


@pytest.mark.parametrize("odd", [{"format": "x"}, {"decapsulate": "x"}, {"limit": 10}])
def test_a_file_that_is_not_read_is_closed(odd):
    file = cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(CctraceError):
            cct.read(file, **odd)
        gc.collect()
    assert not [one for one in caught if one.category is ResourceWarning]


def test_a_named_pipe_is_refused_and_one_that_is_open_is_read(tmp_path, capsys):
    """To open a named pipe would wait for its writer."""
    pipe = tmp_path / "pipe.pcap"
    os.mkfifo(pipe)
    assert main(["flows", str(pipe)]) == 2
    assert f"pipe.pcap is a named pipe: give a file, or read the pipe as standard input: - < {pipe}" in " ".join(
        capsys.readouterr().err.split()
    )
    reader, writer = os.pipe()
    os.write(writer, b"no capture")
    os.close(writer)
    assert main(["flows", f"/dev/fd/{reader}"]) == 2
    os.close(reader)
    assert "pipe" not in capsys.readouterr().err


@pytest.mark.parametrize(("url", "said"), [("s9://x/y", "Protocol not known"), ("memory://nothing", "nothing|Error")])
def test_a_url_that_cannot_be_opened_is_named_with_the_reason(url, said):
    pytest.importorskip("fsspec")
    with pytest.raises(FormatError, match=rf"^{url}: .*({said})"):
        cct.read(url)


def test_a_name_that_no_file_can_have_is_refused():
    with pytest.raises(FormatError, match=r"'\\ud800.pcap': no file can have this name"):
        cct.read("\ud800.pcap")
