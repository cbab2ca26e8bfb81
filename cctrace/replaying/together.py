"""Hypotheses about a flow's beginning that are run side by side: each row is read once, for all of them.

Each keeps its state, so that it goes on from there where more rows are needed. Plain functions, see `loop`.
"""

from cctrace.replaying import book as bk
from cctrace.replaying.loop import call_row

RUNS, DREW, OUT = range(3)  # what a hypothesis does: it goes on; it ended with an unknown draw; it cannot be the best


def together(book, rows, sends, marks, draws, which, states, stacks, ends, totals, ack, likelihood, least):
    """Run HYPOTHESES `which` over rows FIRST to before LAST; end those whose likelihood falls below ``least[0]``.

    Row `h` of `marks`, `states`, `stacks` is the state of hypothesis `h`; ``totals[h]`` its log likelihood so far, to
    which no send adds; ``ends[h]`` what it does.
    """
    for i in range(book[bk.FIRST], book[bk.LAST]):
        for n in range(book[bk.HYPOTHESES]):
            h = which[n]
            if ends[h] == RUNS:
                likelihood[0] = totals[h]
                if call_row(book, rows, sends, marks[h], draws, i, states[h], stacks[h], ack, likelihood):
                    ends[h] = DREW
                elif likelihood[0] < least[0]:
                    ends[h] = OUT
                totals[h] = likelihood[0]
                book[bk.OBSERVED] = i
        book[bk.OBSERVED] = -1
