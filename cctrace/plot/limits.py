"""What limited a flow when, as plots show it: words and colours of `cctrace.diagnosis.findings`."""

# Name -> words, colour on a light page, colour on a dark one.
LIMITS = {
    "startup": ("start-up", "#e69f00", "#e0a83a"),
    "probe_rtt": ("PROBE_RTT", "#56b4e9", "#56b4e9"),
    "rto_stall": ("waiting for a timeout", "#b3001b", "#ff6b81"),
    "recovery": ("recovery from losses", "#e4748b", "#c9566f"),
    "marks": ("reduction after marks (ECN)", "#009e73", "#2fc495"),
    "receive_window": ("receive window", "#8a6d00", "#cbb04a"),
    "send_buffer": ("send buffer", "#a0522d", "#c98560"),
    "application": ("application", "#9aa5b1", "#6b7785"),
    "cwnd": ("congestion window", "#c2570c", "#f0924c"),
    "pacing": ("pacing rate", "#7b3fa0", "#b07fd6"),
    "unknown": ("unknown", "#dfe4ea", "#3a434e"),
}


def limit_words(name: str) -> str:
    """Return a limit's name for people.

    >>> limit_words("receive_window")
    'receive window'
    """
    return LIMITS[name][0] if name in LIMITS else name.replace("_", " ")
