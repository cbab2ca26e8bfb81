"""Raw dumps of struct tcp_info: a file of one, or of several of one length one after the other.

Such a file has no magic number: it is read when `format="tcp-info-struct"` asks for it.
"""

from cctrace.errors import FormatError
from cctrace.io.counters import tcpinfo
from cctrace.io.counters.structs import SHORTEST, TCP_INFO, decode
from cctrace.io.source import Source, reads


def sniff(head: bytes) -> bool:
    """Return False: a raw struct has no magic number."""
    return False


STATES, CA_STATES = 13, 4  # TCP_BOUND_INACTIVE and TCP_CA_Loss, the last of their kinds


@reads("struct tcp_info")
def read(source: Source, length: int | None = None) -> tcpinfo.TcpInfo:
    """Read a file of raw structs; `length` bytes each, the whole file being one if not given.

    Raises `FormatError`: the file is shorter than the oldest struct, not a multiple of `length`, or a struct begins
    with an impossible TCP state.
    """
    data, name = source.read(1 << 26), source.name
    length = length or len(data)
    if length < SHORTEST or len(data) % length:
        raise FormatError(
            f"{name}: {len(data)} bytes are not a struct tcp_info: it has at least {SHORTEST}, a multiple of {length}"
        )
    dumps = [data[at : at + length] for at in range(0, len(data), length)]
    for number, dump in enumerate(dumps):
        if dump[0] > STATES or dump[1] > CA_STATES:
            raise FormatError(
                f"{name}: not a struct tcp_info at offset {number * length}: tcpi_state {dump[0]} (at most {STATES}), "
                f"tcpi_ca_state {dump[1]} (at most {CA_STATES})"
            )
    extra = length - TCP_INFO.itemsize
    warnings = [f"{name}: {extra} bytes per struct are newer than cctrace knows; ignored"] if extra > 0 else []
    return tcpinfo.build(decode(dumps), [{}], name, "tcp-info-struct", warnings)
