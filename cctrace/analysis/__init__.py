"""Everything about one flow, from all rooms below."""
