"""What another controller, or another path, would have done."""
