"""Which controller sent a flow."""
