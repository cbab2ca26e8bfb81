"""Flows: from packets to the sender's view."""
