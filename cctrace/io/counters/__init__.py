"""Kernel counters and logs of endpoints, each format as polls of struct tcp_info."""
