"""The code of the documentation does what the documentation says."""

import re

import pytest

from tests.places import DOCS


def test_a_controller_written_from_the_page_alone_runs_and_does_what_the_page_says(tmp_path, capsys):
    """The class is put into a module, as a reader would: what is compiled needs its source."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "own_controller.md").read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 6
    module = tmp_path / "own.py"
    module.write_text("\n".join(blocks), encoding="utf-8")
    names: dict = {"__name__": "own"}
    exec(compile(module.read_text(encoding="utf-8"), str(module), "exec"), names)
    flows = names["sim"].flows
    assert flows["goodput_bps"][0] == pytest.approx(18.8e6, rel=0.005)  # the page's own figures
    assert flows["tail_queue_delay_mean_us"][0] == pytest.approx(2460, abs=50)
    assert "rs_rtt_us" in capsys.readouterr().out
