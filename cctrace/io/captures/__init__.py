"""Packets from capture files: pcap, pcapng, snoop; link layers, tunnels, fragments."""
