"""Identification of a flow's congestion control."""
