"""Wireshark integration: comments on the packets of a capture, and fields to filter by.

The modules:

    annotate.py     a capture, its analysis, and the two resulting files
    columns.py      state of a flow at each of its packets
    comments.py     the comments derived from that
    companion.py    the file with all columns, which the plug-in reads
    cctrace.lua     the plug-in; install.py installs it
"""
