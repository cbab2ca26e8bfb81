"""Plots of flows, replays and simulations."""
