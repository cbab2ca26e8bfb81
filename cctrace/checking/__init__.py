"""Expectations of flows and their evaluation, for `cctrace check`, the pytest fixture and the GitHub Action."""
