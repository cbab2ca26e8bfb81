"""Readers, one file per format, and the one public `read_file`, which tells formats apart by content.

A reader is two functions: `sniff(head)` looks at the first bytes, `read(source)` returns `Packets` or `TcpInfo`.
Readers are imported when they are needed, so that reading a capture does not wait for what other formats need.
"""

from importlib import import_module

from cctrace.errors import ArgumentError, FormatError
from cctrace.io.source import open_source

# Name of a format (`format=`) and module. The order is that of sniffing: the most certain magic first.
FORMATS = {
    "pcap": "pcap",
    "tcpinfo-csv": "tcpinfo_csv",
}
CAPTURES = ("pcap",)


def read_file(source, format=None, decapsulate=(), limit=None):
    """Read one file of any supported format.

    Parameters
    ----------
    source : str, os.PathLike, or binary file object
        A path, "-" for standard input, or a URL. Compressed or not: told by content.
    format : str, optional
        One of `FORMATS`, to skip the guessing.
    decapsulate : sequence of str
        Captures: tunnels to look into, of ipip, gre, vxlan, geneve, or "all".
    limit : int, optional
        Largest number of bytes accepted out of a compressed file.

    Returns
    -------
    Packets or TcpInfo

    Raises
    ------
    FormatError
        The file is missing, empty, of no known format, or holds nothing that could be read.

    Examples
    --------
    >>> from cctrace.io import read_file
    >>> packets = read_file("sender.pcap.zst")      # doctest: +SKIP
    """
    if format is not None and format not in FORMATS:
        raise ArgumentError(f"format={format!r}: allowed are {', '.join(FORMATS)}")
    with open_source(source, limit) as opened:
        name = format or sniff(opened)
        module = import_module(f"cctrace.io.{FORMATS[name]}")
        return module.read(opened, decapsulate) if name in CAPTURES else module.read(opened)


def sniff(source):
    """Return the name of the format of an open `Source`; FormatError if it is none that cctrace reads."""
    for name, module in FORMATS.items():
        if import_module(f"cctrace.io.{module}").sniff(source.head):
            return name
    start = source.head[:8].hex(" ")
    raise FormatError(f"{source.name}: not a format that cctrace reads (starts with bytes {start})")
