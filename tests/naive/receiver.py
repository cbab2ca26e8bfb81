"""A receiver that acknowledges every segment at once; segments are numbered from 0."""


class Receiver:
    """Tells of up to three runs of segments above the first hole, the latest first; reports duplicates [RFC2883]."""

    def __init__(self):
        self.have = set()

    def take(self, i):
        """Take segment `i`; return the first segment it lacks and the SACK blocks, as (first, last + 1) segment."""
        edge = self.edge()
        duplicate = [(i, i + 1)] if i in self.have else []
        self.have.add(i)
        runs, above = [], sorted(j for j in self.have if j > self.edge())
        for j in above:
            if runs and runs[-1][1] == j:
                runs[-1][1] = j + 1
            else:
                runs.append([j, j + 1])
        runs.sort(key=lambda run: not run[0] <= i < run[1])
        if duplicate and i >= edge and runs and not runs[0][0] <= i < runs[0][1]:
            duplicate = []
        return self.edge(), (duplicate + [tuple(run) for run in runs])[:3]

    def edge(self):
        """The first segment it lacks."""
        return next(j for j in range(len(self.have) + 1) if j not in self.have)
