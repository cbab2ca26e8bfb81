"""Readers, one file per format, and the one public `read`."""
