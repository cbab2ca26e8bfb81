"""Closed-form models of congestion control."""
