"""Everything about one flow, combining all lower packages."""
