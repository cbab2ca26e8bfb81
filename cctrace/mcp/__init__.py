"""cctrace as a server of the Model Context Protocol: an agent queries captures by calling tools.

    server.py      the tools and resources, in the protocol's terms
    worker.py      a separate process that answers, so that a call can be aborted
    files.py       access to files: only those below one folder
    captures.py    tools about recorded flows
    paths.py       tools that fit, simulate and draw
    answers.py     contents and size limits of answers

Nothing is written except cctrace's cache of compiled code; nothing from a file or a call is executed.
"""
