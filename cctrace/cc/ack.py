"""What a controller reads when its stack calls it."""

from typing import Protocol


class Ack(Protocol):
    """One row of a controller's view: the columns of `schema.LINUX_VIEW` or `schema.QUIC_VIEW`, all integers.

    >>> from types import SimpleNamespace
    >>> ack: Ack = SimpleNamespace(rs_rtt_us=40_000)
    >>> ack.rs_rtt_us
    40000
    """

    def __getattr__(self, column: str) -> int: ...
