"""A class of the user's own, written in a cell of a Jupyter notebook, replays compiled."""

import textwrap

import nbclient
import nbformat

from tests.places import GOLDEN, REPOSITORY

VECTOR = GOLDEN / "bbr2022" / "kumar_1_s1.parquet"
CELLS = [
    f"""
    import cctrace as cct
    vector = {str(VECTOR)!r}
    BBR2022 = cct.controller("bbr2022")[0]
    """,
    """
    BOLDNESS = 5

    class Bolder(BBR2022):
        def set_pacing_rate(self, ack, bw, gain):
            super().set_pacing_rate(ack, bw, gain * BOLDNESS // 4)
    """,
    """
    parent, fast = cct.replay(vector, "bbr2022"), cct.replay(vector, Bolder)
    slow = cct.replay(vector, Bolder, mode="interpreted")
    assert fast.decisions.equals(slow.decisions)
    assert fast.decisions.pacing_rate.iloc[-1] > 1.24 * parent.decisions.pacing_rate.iloc[-1]
    """,
    """
    BOLDNESS = 4  # without defining the class again
    assert cct.replay(vector, Bolder).decisions.equals(parent.decisions)
    """,
    """
    class Bolder(BBR2022):
        def takes_rtt(self, ack, expired):
            return ack.rs_rtt_us >= 0
    """,
    """
    latest = cct.replay(vector, Bolder, record=["min_rtt_us"]).decisions.min_rtt_us
    assert latest.nunique() > parent.decisions.min_rtt_us.nunique()
    """,
    """
    class Broken(BBR2022):
        def takes_rtt(self, ack, expired):
            return str(expired) == "yes"
    """,
    """
    try:
        cct.replay(vector, Broken)
    except cct.errors.CompileError as error:
        assert ":3: takes_rtt: calls str, which is not compiled" in str(error)
    else:
        raise AssertionError("a call of str was compiled")
    """,
]


def test_a_class_in_a_cell_replays_compiled_as_interpreted_with_and_without_super():
    cells = [nbformat.v4.new_code_cell(textwrap.dedent(text).strip()) for text in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    where = {"metadata": {"path": str(REPOSITORY)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
