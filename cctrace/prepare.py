"""Compile ahead of use for the stock commands: ``python -m cctrace.prepare``, the last step of an installation.

It is optional: code that is missing from the cache, or outdated, is compiled on first use.
"""

import importlib
import time
from collections.abc import Callable
from functools import partial

from cctrace.lang import cache
from cctrace.lang.processes import processes

RECORDINGS = ("jitter_bbr_sd2ms", "loss_cubic_1pct")  # to analyse them compiles all but 0.1 s of what analyses need


def analysis(name: str) -> None:
    """Do what ``cctrace analyze`` does, with a shipped recording."""
    import cctrace as cct
    from cctrace.analysis.analyze import analyze

    importlib.import_module("cctrace.report")  # writes the bytecode of everything that the command imports
    recording = cct.datasets.path(name)
    analyze(recording / "sender.pcap.zst", [recording / "tcpinfo.csv.zst"])


def simulations() -> None:
    """Simulate plainly and with all that a simulation can do."""
    import cctrace as cct

    path = cct.Path(rate="10Mbit", rtt="10ms", buffer="1bdp")
    plain, reference = cct.Sender("bbr2022"), cct.Sender("bbr3", profile="reference")
    for senders in ([plain], [reference], [plain, reference], [plain, cct.Sender("quic_reno")]):
        for trace in (False, True):
            cct.simulate(path, senders, duration="100ms", trace=trace)


def others() -> None:
    """Use the table of a file, a fit, and replays."""
    import cctrace as cct
    from cctrace.flows.table import of_file
    from cctrace.io.captures import halves
    from cctrace.path.transmissions import transmissions

    of_file(cct.datasets.path("tso_bbr_300m_veth", "sender.pcap.zst"))
    halves.prepare()
    flow = cct.read(cct.datasets.path("jitter_bbr_sd2ms", "sender.pcap.zst")).flow(0)
    transmissions(flow)  # what every fit begins with
    cct.fit.Jitter(("normal",)).fit(flow)
    for name in ("bbr3", "cubic6"):
        cct.replay(flow, name)


def controllers(part: int, parts: int) -> None:
    """Compile one in `parts` of the registered controllers."""
    from cctrace.cc import REGISTRY, controller
    from cctrace.lang.compile import compiled

    for name in list(REGISTRY)[part::parts]:
        cls, _ = controller(name)
        if not cls.interpreted_only:
            compiled(cls)


def tasks(parts: int) -> list[Callable[[], None]]:
    """Return the calls that compile everything, the longest first, with the registered controllers in `parts`."""
    longest, *shorter = (partial(analysis, name) for name in RECORDINGS)
    # The shorter ones come late, when most of what they share is compiled.
    return [longest, simulations, *(partial(controllers, part, parts) for part in range(parts)), others, *shorter]


def main() -> None:
    """Compile with two processes; prints one line."""
    begin = time.monotonic()
    with processes(2) as pool:
        for done in [pool.submit(task) for task in tasks(parts=4)]:
            done.result()
    entries = list(cache.cache_dir().glob("*.o"))
    size = sum(entry.stat().st_size for entry in entries) / 1e6
    seconds = time.monotonic() - begin
    print(f"{len(entries)} pieces of compiled code in {cache.cache_dir()} ({size:.1f} MB), {seconds:.0f} s")


if __name__ == "__main__":
    main()
