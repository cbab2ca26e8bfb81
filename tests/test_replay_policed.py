"""With which loss BBR v1 began to look for a policer, where the capture hides application-limited samples."""

import numpy as np
import pytest

import cctrace as cct
from cctrace.cc.base import Param
from cctrace.cc.bbr2022 import BBR2022
from cctrace.replaying.inference.policed import POLICED, POLICED_BW


class Limited(BBR2022):
    """A BBR whose kernel knew that its first samples were application-limited: the search for a policer began later."""

    params = BBR2022.params | {"limited": Param(0, 0, 1000, "segments delivered by the last such sample")}

    def lt_bw_sampling(self, ack, losses, is_app_limited):
        limited = is_app_limited
        if ack.delivered < self.limited:
            limited = 1
        super().lt_bw_sampling(ack, losses, limited)


def policers(source, cls):
    """Return the rates that a replay takes for a policer's, segments/us << 24, and what it inferred."""
    run = cct.replay(source, cls, record=[POLICED, POLICED_BW])
    found = np.flatnonzero(np.diff(np.asarray(run.decisions[POLICED])) == 1) + 1
    return np.asarray(run.decisions[POLICED_BW])[found].tolist(), run.inferred.script.edits


@pytest.mark.parametrize(("rate", "limited"), [("4Mbit", 0), ("4Mbit", 70), ("4Mbit", 80), ("6Mbit", 0), ("6Mbit", 90)])
def test_the_sends_tell_with_which_loss_the_search_began(tmp_path, rate, limited):
    sender = type("Sender", (Limited,), {"params": Limited.params | {"limited": Param(limited, 0, 1000, "segments")}})
    path = cct.Path(rate="40Mbit", rtt="20ms", buffer="2bdp", policer=(rate, "60kB"))
    sim = cct.simulate(path, [sender], "1s", 1, packets=True, trace=True)
    sim.to_pcap(tmp_path / "flow.pcap")
    kernel, _ = policers(sim.flow(0), sender)
    replayed, edits = policers(cct.read(tmp_path / "flow.pcap").flow(0), "bbr2022")
    assert len(kernel) == 1
    assert replayed == kernel
    assert any(edit.field == POLICED_BW for edit in edits) == (limited > 0)
