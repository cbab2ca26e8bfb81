"""Congestion controls, one file each, and the registry that names them."""
