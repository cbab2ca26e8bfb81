"""Where bytes come from: what the reading thread may touch, and when."""

import threading

from cctrace.io.chunks import Chunks
from cctrace.io.source import Source


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
