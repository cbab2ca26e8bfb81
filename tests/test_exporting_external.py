"""A written qlog in qvis: its own loader, from a checkout that QVIS_SOURCE names (visualizations/src).

git clone https://github.com/quiclog/qvis && npm install --prefix . typescript@3.9
QVIS_SOURCE=qvis/visualizations/src NODE_PATH=node_modules pytest tests/test_exporting_external.py
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from test_exporting_qlog import LOSSES

import cctrace as cct
from cctrace.exporting.qlog import write_qlog

SOURCE = os.environ.get("QVIS_SOURCE")
pytestmark = [
    pytest.mark.external,
    pytest.mark.skipif(not SOURCE or not shutil.which("node"), reason="no source of qvis, or no node"),
]


def test_qvis_loads_every_event_without_a_complaint(tmp_path):
    file = tmp_path / "flow.sqlog"
    count = write_qlog(cct.read(LOSSES).flow(0), file, "cubic6")
    command = ["node", Path(__file__).with_name("qvis.js"), Path(SOURCE).resolve(), file]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    found, back = json.loads(result.stdout), cct.read(file)
    assert found["events"] == count
    kinds = back.events["kind"].tolist()
    for theirs, ours in (("sent", "sent"), ("received", "received"), ("lost", "lost")):
        assert len(found[theirs]) == kinds.count(ours) > 0
    cwnd = [one["data"]["congestion_window"] for one in found["metrics"] if "congestion_window" in one["data"]]
    assert cwnd[-1] == back.extra["congestion_window_bytes"][-1]
    assert {one["data"]["new"] for one in found["states"]} == {"slow_start", "recovery", "congestion_avoidance"}
