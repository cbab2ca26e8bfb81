"""The learning agent of BBRx [Chung18] §III: flow statistics in, a table of parameters out.

    agent = cct.learn.Agent()                         a search per bin of Table I, from beta 0.45 and k 4
    agent.observe(flows)                              statistics of flows that ended; full bins move on
    agent.table()                                     what flows are to use now, as models/bbrx_table1.json is written
    cct.learn.simulated(agent, seed=1)                the same with simulated flows, until every bin has elected

Agent and flows are loosely coupled, as in the paper: the agent knows nothing of how flows are made, and a controller
(``bbrx:table=FILE``) nothing of the agent. See docs/learning.md.
"""

from cctrace.learn.agent import Agent
from cctrace.learn.environment import Environment, simulated, statistics
from cctrace.learn.search import Search

__all__ = ["Agent", "Environment", "Search", "simulated", "statistics"]
