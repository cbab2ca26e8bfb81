"""cctrace as a server of the Model Context Protocol: an agent asks about captures by calling tools.

server.py      the tools and resources as the protocol has them
worker.py      a process of its own that answers, so that a call can be ended
files.py       which files it may read: those below one folder
captures.py    tools about flows as they were recorded
paths.py       tools that fit, simulate and draw
answers.py     what an answer may hold, and how long it may be

Nothing is written but what cctrace caches (compiled code); nothing that a file or a call holds is run.
"""
