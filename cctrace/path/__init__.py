"""Path properties inferred from a flow's packets."""
