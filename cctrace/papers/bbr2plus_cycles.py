"""BBRv2+, Figs. 1, 2 and 13: state machines of BBR, BBRv2 and BBRv2+, and section 3.3's bound in shallow buffers."""

from cctrace.papers.bbr2plus import BBR, BBR2, PLUS, PLUS_PAPER, PLUS_SMOOTHED, RTT_MS, run_of
from cctrace.papers.lifecycle import BOUND, EIGHTHS, GAIN, RTT_PROBE, STARTS, V1, V2, VISIT, Lifecycle

SHALLOW = "BBRv2, buffer 0.25 BDP"
_MOVED = {"buffer": "2bdp", "jitter": "normal:sd=200us"}  # without jitter min_rtt recurs: no PROBE_RTT
_STILL = {"buffer": "2bdp"}
_BBR2 = {("CRUISE", GAIN): 1.0, ("UP", GAIN): 1.25, ("DOWN", GAIN): 0.75, ("CRUISE", VISIT): 2500.0}
_TRY = {("PRE_UP", GAIN): 1.1, ("PRE_UP", VISIT): RTT_MS, ("GUARD", GAIN): 1.0, ("GUARD", VISIT): RTT_MS}
_FAILS = {("DOWN_SLIGHTLY", GAIN): 0.9}
_FORMS = (PLUS, PLUS_PAPER, PLUS_SMOOTHED)
_LENGTH = ({"seeds": (1, 2), "duration": "40s"}, {"seeds": (1,), "duration": "13s"})
FIGURES = [
    Lifecycle("1", "life cycle of BBR", *_LENGTH, systems={BBR: (run_of([BBR], 1, "60s", _MOVED), V1)},
              statements={("1", "STARTUP at 2/ln 2, DRAIN at ln 2/2, then six phases at 1, one at 1.25, one at 0.75"):
                              ((BBR,), STARTS | EIGHTHS),
                          ("1", "PROBE_RTT: four packets for 200 ms"): ((BBR,), RTT_PROBE)}),
    Lifecycle("2", "life cycle of BBRv2", *_LENGTH,
              systems={BBR2: (run_of([BBR2], 1, "60s", _STILL), V2),
                       SHALLOW: (run_of([BBR2], 1, "60s", {"buffer": "0.25bdp"}), V2)},
              statements={("2", "cruises at 1 for two to three seconds, probes at 1.25, drains at 0.75"):
                              ((BBR2,), _BBR2),
                          ("3.3", "in ProbeCruise at most 0.85 inflight_hi is in flight"):
                              ((SHALLOW,), {("CRUISE", BOUND): 0.85})}),
    Lifecycle("13", "life cycle of BBRv2+", *_LENGTH,
              systems={name: (run_of([name], 1, "60s", _STILL), V2) for name in _FORMS},
              statements={("13", "ProbeTry: an RTT at 1.1, and one at 1; what fails drains at 0.9"):
                              (_FORMS, _TRY | _FAILS),
                          ("4.2", "a try comes every 8 rounds or so"): (_FORMS, {("CRUISE", VISIT): 8.0 * RTT_MS})}),
]  # fmt: skip
