"""The sentences on what a capture itself causes, and on where it was taken: see `catalogue`."""

from cctrace.diagnosis.wording import Sentence, cause

CAPTURE_ARTEFACT = cause(
    "unknown: capture unreliable",
    "The capture lacks {uncaptured_share} of the data that the receiver acknowledged, so losses and windows are "
    "uncertain.",
    "Capture with a larger buffer (tcpdump -B), a shorter snapshot, or fewer bytes.",
    "A capture for which tcpdump reports no packets dropped by the kernel.",
    order=Sentence(
        "The file's records are not in the order of their times: {misplaced_share} of this flow's are misplaced, by at "
        "most {back_us}. Losses, RTTs and pauses are artefacts.",
        "Sort it by time (`reordercap IN OUT`, of Wireshark) and analyse the result.",
        "Packets whose sequence numbers grow only in the order of the file.",
    ),
    clock=Sentence(
        "The capture host's clock was stepped {way} by {set_by_us} at {at_s} "
        "([{shown_by}|the TCP timestamps of both ends were not]): RTTs, rates and pauses near it are artefacts.",
        "Analyse the parts before and after separately; capture on a host that slews its clock instead of stepping "
        "it (chrony, ntpd).",
        "TCP timestamps of the two ends that [{shown_by?}follow the capture's clock|jumped by different amounts].",
    ),
    held=Sentence(
        "By their TCP timestamps, packets typically waited {held_us} between the sender's TCP and the capture "
        "point: a queue before that point, such as a shaper on the captured interface, limits what leaves. "
        "Captured RTTs (median {captured_rtt_us}) and data in flight do not include that queue.",
        "Check `tc -s qdisc` on the sender's interface. Capture where TCP hands packets over (before the shaper), "
        "or add the kernel's counters (`ss -tin`, with --tcpinfo), whose RTT includes that queue.",
        "TCP timestamps that match the time of capture.",
    ),
    copies=Sentence(
        "Packets were captured at several interfaces: [{copies?}{copies} copies were left out, and ]{repeated_share} "
        "of the data appears again [{by_id?}with the IP IDs it had before, which retransmissions do not|for no "
        "reason, modified or too late to be distinguished from retransmissions].",
        "Capture on one interface (not -i any), or one direction of each. Of a capture of several, keep one: "
        "`tshark -r FILE -Y frame.interface_id==0 -w ONE` (of `-i any`: sll.ifindex==2).",
        "D-SACKs for the duplicates, which would show that they were sent twice.",
    ),
)
LOST_BEFORE_CAPTURE = cause(
    "losses before the capture",
    "{retransmitted_share} of the segments were lost before the capture point ({retransmitted_segments:count} of "
    "{segments:count} were retransmitted): at random, by a policer or in a full queue, which does not show here.",
    "Capture at the sender, where the RTT of every packet is known.",
    "Two copies of these segments in the capture, which would show that they were not lost before it.",
)
VANTAGE_POINT = cause(
    "captured too far from the sender",
    "The capture point is {sender_side_us} (round trip) from the sender: the sender's view is an estimate.",
    "Capture at the sender.",
    "A capture at the sender in which the same packets leave at other times.",
)
