"""Compile ahead of use for the stock commands: ``python -m cctrace.prepare``, the last step of an installation.

It is optional: code that is missing from the cache, or outdated, is compiled on first use.
"""

import importlib
import time

from cctrace.lang import cache
from cctrace.sim.processes import processes


def controllers(part: int, parts: int) -> None:
    """Compile one in `parts` of the registered controllers."""
    from cctrace.cc import REGISTRY, controller
    from cctrace.lang.compile import compiled

    for name in list(REGISTRY)[part::parts]:
        cls, _ = controller(name)
        if not cls.interpreted_only:
            compiled(cls)


def rooms() -> None:
    """Use the reader, the table, the reconstruction, the replay and the simulation."""
    import cctrace as cct
    from cctrace.flows.table import of_file
    from cctrace.path.transmissions import transmissions

    capture = cct.datasets.path("tso_bbr_300m_veth", "sender.pcap.zst")
    of_file(capture)
    flow = cct.read(capture).flow(0)
    transmissions(flow)  # what every fit begins with
    cct.fit.Jitter(("normal",)).fit(cct.read(cct.datasets.path("jitter_bbr_sd2ms", "sender.pcap.zst")).flow(0))
    for name in ("bbr2022", "cubic6"):
        cct.replay(flow, name)
    importlib.import_module("cctrace.report")  # writes the bytecode of everything that `analyze` imports
    importlib.import_module("cctrace.analysis.analyze")
    for trace in (False, True):  # the code of plain simulations, and that of all
        path = cct.Path(rate="10Mbit", rtt="10ms", buffer="1bdp")
        cct.simulate(path, ["reno", "quic_reno"], duration="100ms", trace=trace)


def main() -> None:
    """Compile with two processes; prints one line."""
    begin = time.monotonic()
    with processes(2) as pool:
        tasks = [pool.submit(rooms), *(pool.submit(controllers, part, 4) for part in range(4))]
        for task in tasks:
            task.result()
    entries = list(cache.cache_dir().glob("*.o"))
    size = sum(entry.stat().st_size for entry in entries) / 1e6
    seconds = time.monotonic() - begin
    print(f"{len(entries)} pieces of compiled code in {cache.cache_dir()} ({size:.1f} MB), {seconds:.0f} s")


if __name__ == "__main__":
    main()
