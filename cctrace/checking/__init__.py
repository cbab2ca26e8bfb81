"""Expectations of flows, and whether they hold: what `cctrace check`, the pytest fixture and the GitHub Action ask."""
