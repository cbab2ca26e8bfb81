"""What is drawn of a connection that no capture shows: BBR's modes over time, as printed or as its gains tell."""

import numpy as np

from cctrace.flows.counters import CounterFlow
from cctrace.plot.panels import Phases


class Counters(CounterFlow):
    """The polls of one connection, with the modes of its BBR."""

    def modes(self):
        """Return BBR's mode at every poll: array of text, None where unknown; None if there is none at all."""
        modes = self.polls.extra.get("bbr_mode")
        return modes if modes is not None and any(mode is not None for mode in modes) else None

    def phases(self):
        """Return BBR's modes over time as `Phases`; within PROBE_BW also what it probes for. Unknown is "unknown"."""
        modes = self.modes()
        if modes is None:
            return Phases()
        gain, probing = self.values("bbr_pacing_gain"), modes == "PROBE_BW"
        names = np.where(modes == None, "unknown", modes)  # noqa: E711 (element by element)
        names = np.where(
            probing & (gain > 256), "PROBE_BW up", np.where(probing & (gain < 256), "PROBE_BW down", names)
        )
        return Phases.from_names(self.seconds(), names)

    def timeline(self):
        """Return BBR's modes over time: list of dicts of mode, start_s and end_s since the first poll."""
        modes = self.modes()
        spans = [] if modes is None else Phases.from_names(self.seconds(), modes).spans
        return [
            {"mode": None if mode == "None" else mode, "start_s": start, "end_s": end} for start, end, mode in spans
        ]
