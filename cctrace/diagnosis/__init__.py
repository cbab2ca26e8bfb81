"""Why a flow behaved as it did: facts, limits, events, and the rules that name causes."""

GOALS = ("goodput", "delay", "loss")  # what the order of the verdicts may serve first
