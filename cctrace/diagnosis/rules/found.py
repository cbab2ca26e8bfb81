"""Earlier findings, for later rules."""

from cctrace.diagnosis import constants as const
from cctrace.diagnosis.findings import Finding

ENDS = {"receiver_limited", "application_limited", "slow_start_only", "send_buffer_limited", "pacing_limited"}


class Found:
    """Findings so far, with the names of all and of the sure ones."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    @property
    def names(self) -> set[str]:
        """The causes found."""
        return {finding.name for finding in self.findings}

    @property
    def sure(self) -> set[str]:
        """Causes that explain others' evidence."""
        return {finding.name for finding in self.findings if finding.confidence >= const.EXPLAINS}
