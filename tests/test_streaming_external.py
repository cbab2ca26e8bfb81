"""Sessions over Sabre's own logs and manifests, with options drawn at random: every download as Sabre has it.

Needs a checkout of github.com/UMass-LIDS/sabre, named by $SABRE.
"""

import json
import os
import random
import runpy
from pathlib import Path

import pytest

from cctrace.streaming import Settings, Video, read_periods
from cctrace.streaming.player import Player
from cctrace.streaming.rates import Rates

PLACE = Path(os.environ.get("SABRE", "/no/such"))
RECORDER = Path(__file__).parent / "sabre" / "record.py"
pytestmark = [
    pytest.mark.external,
    pytest.mark.skipif(not PLACE.is_dir(), reason="set SABRE to a checkout of UMass-LIDS/sabre"),
]
LOGS = ("mmsys18/3Glogs", "mmsys18/4Glogs", "mmsys18/hd_fs", "mmsys18/sd_fs", "tomm19/sd_fs")


@pytest.mark.parametrize("seed", range(40))
def test_a_session_over_a_log_of_sabre_is_sabres(seed):
    dice = random.Random(seed)
    network = dice.choice(sorted((PLACE / "example" / dice.choice(LOGS)).glob("*.json")))
    movie = PLACE / "example" / dice.choice(("movie.json", "mmsys18/bbb4k.json"))
    settings = {
        "rule": ("dynamic", "throughput", "bola", "bolae", "dynamicdash")[seed % 5],
        "estimate": dice.choice(("ewma", "sliding")),
        "buffer_s": dice.choice((10.0, 25.0, 40.0)),
        "gamma_p": dice.choice((5.0, 8.0)),
        **{name: dice.random() > 0.25 for name in ("oscillate", "safe_buffer", "abandon")},
        "basic": dice.random() < 0.25,
    }
    recorder = runpy.run_path(str(RECORDER))
    manifest = json.loads(movie.read_text())
    wanted, stalled_s = recorder["sabre"](PLACE / "src" / "sabre.py", read_periods(network), manifest, settings)
    player = Player(Video.read(movie), Settings(**settings), Rates(read_periods(network)))
    assert player.run()
    assert recorder["rows_of"](player.downloads) == wanted
    assert player.stalled_ms / 1000 == pytest.approx(stalled_s, abs=1e-5)
