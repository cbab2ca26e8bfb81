"""The learning agent of BBRx [Chung18] §III: flow statistics in, a table of parameters out.

    agent = cct.learn.Agent()                         a search per bin of Table I, from beta 0.45 and k 4
    agent.observe(flows)                              statistics of finished flows; full bins advance
    agent.table()                                     parameters for flows to use now, as in models/bbrx_table1.json
    cct.learn.simulated(agent, seed=1)                the same with simulated flows, until every bin has elected

Agent and flows are loosely coupled, as in the paper: the agent does not know how flows are made, nor a controller
(``bbrx:table=FILE``) the agent. See docs/learning.md.
"""

from cctrace.learn.agent import Agent
from cctrace.learn.environment import Environment, simulated, statistics
from cctrace.learn.search import Ascent, Search

__all__ = ["Agent", "Ascent", "Environment", "Search", "simulated", "statistics"]
