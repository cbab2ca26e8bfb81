"""Fit models, paths and parameters to event streams."""
