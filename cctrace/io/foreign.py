"""Files that cctrace does not read: what their first bytes say they are, and the command that converts them."""

import re

from cctrace.io.source import Source

_EDITCAP = "editcap -F pcap turns it into one that it reads"
_STARTS = {
    b"GMBU": "a capture of Microsoft's Network Monitor",
    b"RTSS": "a capture of Microsoft's Network Monitor",
    b"TRSNIFF": "a capture of the Sniffer",
    b"XCP\0": "a capture of the Sniffer",
    b"\x7fver": "a capture of OmniPeek or EtherPeek",
    b"iptrace ": "a capture of AIX's iptrace",
    b"TR\0d\0": "a capture of HP-UX's nettl",
    b"\x1c\x00\x01\xac": "a capture of IXIA",
    b"\x1c\x00\x01\xab": "a capture of IXIA",
    b"\xac\x01\x00\x1c": "a capture of IXIA",
    b"\xab\x01\x00\x1c": "a capture of IXIA",
    b"btsnoop\0": "a capture of Bluetooth",
    b"7z\xbc\xaf": "a 7z archive",
    b"\x1f\x9d": "a file of compress",
    b"\x1f\x8b": "gzip within a compressed file",
    b"\x28\xb5\x2f\xfd": "zstd within a compressed file",
}
_FROM_TSHARK = "tshark -r THE_CAPTURE_IT_CAME_FROM -w x.pcap"
# Text and events derived from captures: pattern, what it is, and the command that records the packets instead.
_PATTERNS = (
    (rb"\s*\[\s*\{\s*\"_index\":\s*\"packets", "packets that tshark printed as JSON", _FROM_TSHARK),
    (rb"\s*\{\"index\":\s*\{\"_index\":\s*\"packets", "packets that tshark printed for Elasticsearch", _FROM_TSHARK),
    (rb"\s*<\?xml[^>]*>(\s|<!--.*?-->|<\?.*?\?>)*<(pdml|psml)", "packets that tshark printed as XML", _FROM_TSHARK),
    (
        rb"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\.\d+ (\S+ +(In|Out|B|M|P) +)?(IP6?|ARP|ethertype)\b",
        "text that tcpdump printed",
        "tcpdump -w x.pcap",
    ),
    (
        rb"time_ns,src,sport,dst,dport,conn,direction,",
        "packets that cctrace wrote as CSV",
        "cctrace convert CAPTURE x.pcap",
    ),
    (rb".{72}\x02\x00[\x01\x02]\xc0", "a trace of Windows (ETL)", "etl2pcapng x.etl x.pcapng"),
)


def refusal(source: Source) -> str:
    """Return one line that says why a source of unknown format is not read, and what to do."""
    head, name = source.head, source.name
    for start, what in _STARTS.items():
        if head.startswith(start):
            advice = _EDITCAP if what.startswith("a capture") else "unpack it"
            return f"{name}: {what}, no format that cctrace reads; {advice}"
    for pattern, what, command in _PATTERNS:
        if re.match(pattern, head, re.DOTALL):
            return f"{name}: {what}, no capture; this makes one: {command}"
    if _is_erf(head):
        return f"{name}: a capture of Endace (ERF), no format that cctrace reads; {_EDITCAP}"
    return f"{name}: not a format that cctrace reads (starts with bytes {head[:8].hex(' ')})"


def _is_erf(head: bytes) -> bool:
    """Return whether bytes are up to three ERF records: seconds since the epoch, a type, lengths that chain."""
    at, found = 0, 0
    while at + 16 <= len(head) and found < 3:
        length, wire = (int.from_bytes(head[at + i : at + i + 2], "big") for i in (10, 14))
        seconds = int.from_bytes(head[at + 4 : at + 8], "little")
        if not (1 <= head[at + 8] & 0x7F <= 27 and length > 16 and wire and 500_000_000 < seconds < 4_000_000_000):
            return False
        at, found = at + length, found + 1
    return found > 0
