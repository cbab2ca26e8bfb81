"""Analyse, replay, identify and fit any number of captures, from one to a million.

    cct.corpus.run("captures/**/*.pcap.zst", "results")          on this machine's processes
    cct.corpus.run("s3://bucket/…", "s3://…", scheduler="tcp://…:8786")      on the workers of a Dask cluster
    corpus = cct.corpus.open("results")                          tables, aggregates, plots

See docs/corpus.md.
"""

from cctrace.corpus.compaction import compact
from cctrace.corpus.queries import Corpus, open
from cctrace.corpus.runs import Summary, run

__all__ = ["Corpus", "Summary", "compact", "open", "run"]
