"""Flags of a TCP header by their bits, as in the column `flags` of packets [RFC9293] 3.1."""

FIN, SYN, RST, PSH, ACK, CWR = 1, 2, 4, 8, 16, 128
