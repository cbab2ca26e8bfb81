"""What earlier rules have found, as later ones ask for it."""

from __future__ import annotations

from cctrace.diagnosis import constants as const
from cctrace.diagnosis.findings import Finding

ENDS = {"receiver_limited", "application_limited", "slow_start_only", "send_buffer_limited", "pacing_limited"}


class Found:
    """Findings so far, and the names of all and of those that are sure."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    @property
    def names(self) -> set[str]:
        """The causes that were found."""
        return {finding.name for finding in self.findings}

    @property
    def sure(self) -> set[str]:
        """Those that explain what others would, too."""
        return {finding.name for finding in self.findings if finding.confidence >= const.EXPLAINS}
