"""Compile, replay and simulate controllers."""
