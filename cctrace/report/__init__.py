"""Self-contained HTML reports."""

from cctrace.report.page import FlowSection, Report, write

__all__ = ["FlowSection", "Report", "write"]
