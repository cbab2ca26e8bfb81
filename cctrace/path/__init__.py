"""What the packets of a flow show about its path."""
