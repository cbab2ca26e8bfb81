"""Diagnosis of a flow: facts, limits, events, and the rules that name causes."""

GOALS = ("goodput", "delay", "loss")  # primary objective by which verdicts may be ordered
