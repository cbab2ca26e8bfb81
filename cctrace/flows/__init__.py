"""The sender's view: from captured packets to the event stream."""
