"""Flows in the formats of other tools, with what their senders decided: qlog."""
