"""When BBR v2, v2+ and v3 may have begun PROBE_RTT: part of the inference of their waits, see `probes`.

PROBE_RTT starts when min_rtt has not been refreshed for 5 s. Whether an RTT sample refreshed it may depend on a
fraction of a microsecond, which no capture contains. So PROBE_RTT is tried at the time at which it would have started
without such a refresh, and kept if the sends are much likelier with it. A sample of whole milliseconds depends on no
fraction: where what was sent again is acknowledged, the kernel reads it off the time stamps [Linux61]
tcp_ack_update_rtt.
"""

import math

import numpy as np

from cctrace.replaying.hypotheses import FALSE_ALARM, Inference, Subject
from cctrace.replaying.script import Edit
from cctrace.replaying.stack import JIFFIES_START

MIN_RTT_US, REFRESHED = "probe_rtt_min_us", "probe_rtt_min_stamp"
STAMP_US = 1000  # tick of TCP's time stamps
TIE_US = 1  # an RTT sample lower by this much may not have been lower for the kernel
LOOK_US = 100_000  # between checks whether min_rtt was refreshed: half of PROBE_RTT, which must not pass unnoticed
DIP_US = 300_000  # within which PROBE_RTT (200 ms) is visible
GLANCE_US = 20_000  # within which sends that PROBE_RTT's window forbids mostly refute it


class ProbeRtts(Inference):
    """Where a refresh of min_rtt is doubtful, whether PROBE_RTT began without it."""

    def __init__(self, follower: Subject) -> None:
        super().__init__(follower)
        params = follower.params
        self.probe_rtt = follower.cls.states.index("PROBE_RTT")
        self.window = min(params["probe_rtt_win_ms"], params["min_rtt_win_sec"] * 1000) * params["hz"] // 1000
        self.least: tuple[int, ...] = (0, 0, 0)  # min_rtt, its refresh (jiffies), and the mode, at the last check
        # What the kernels' BBR v2 and v3 hold; no kernel sends as the draft's, which times PROBE_RTT by other fields.
        self.times_probe_rtt = follower.times_probe_rtt and MIN_RTT_US in follower.fields
        self.doubtful: list[int] = []  # the refreshes before those that are doubtful, jiffies

    def expires(self, refreshed: int) -> int:
        """Return the first row at which a min_rtt that was refreshed then has expired."""
        ticks = refreshed + self.window + 1 - JIFFIES_START
        return int(self.now_us.searchsorted(ticks * 1_000_000 // self.follower.params["hz"]))

    def look(self) -> None:
        """Note a refresh that is doubtful; try PROBE_RTT at the time at which it is due without it."""
        follower, before = self.follower, self.least
        self.least = tuple(int(follower.get(name)) for name in (MIN_RTT_US, REFRESHED, "mode"))
        if self.probe_rtt in (before[2], self.least[2]):
            self.doubtful.clear()
        elif self.least[1] != before[1]:
            if 0 <= before[0] - self.least[0] <= TIE_US and self.least[0] % STAMP_US:
                self.doubtful.append(before[1])
            else:
                self.doubtful.clear()
        row = follower.row
        if not self.doubtful or row < self.expires(self.doubtful[0]) or row == len(follower.rows):
            return
        earlier, sure = self.doubtful.pop(0) - self.least[1], math.log(1 / FALSE_ALARM)
        for span_us in (GLANCE_US, DIP_US):
            likelihood = follower.scan(np.array([row]), self.after(span_us), {}, {REFRESHED: earlier})
            if likelihood[0] < -sure:
                return
        if likelihood[0] > sure and self.falls(earlier):
            self.edits.append(Edit(row, REFRESHED, earlier))
            follower.set(REFRESHED, follower.get(REFRESHED) + earlier)

    def falls(self, earlier: int) -> bool:
        """Return whether the flight falls to PROBE_RTT's window soon if that starts here; what never ends is none."""
        follower, before = self.follower, self.follower.save()
        follower.set(REFRESHED, follower.get(REFRESHED) + earlier)
        follower.run(self.after(DIP_US))
        fell = follower.get("mode") != self.probe_rtt or follower.get("probe_rtt_done_stamp") != 0
        follower.restore(before)
        return fell
