"""What Wireshark shows of an analysis: comments on the packets of a capture, and fields to filter by.

annotate.py     a capture, its analysis, the two files that come of them
columns.py      what is known of a flow at each of its packets
comments.py     what of that is worth a comment
companion.py    the file with all of it, which the plug-in reads
cctrace.lua     the plug-in; install.py puts it in place
"""
