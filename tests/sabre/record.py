"""Record what Sabre decides over networks and videos drawn from a seed: tests/sabre/decisions.json.

    git clone https://github.com/UMass-LIDS/sabre && python tests/sabre/record.py sabre/src/sabre.py

The networks and videos are ours (drawn below, and written beside the decisions); of Sabre only its output is kept.
"""

import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

OUT = Path(__file__).with_name("decisions.json")
LADDERS = (
    (4000, (254, 507, 759, 1013, 1254, 1883, 3134, 4952, 9914, 14931)),
    (3000, (230, 331, 477, 688, 991, 1427, 2056, 2962, 5027, 6000)),
    (2000, (1000, 2500, 5000, 8000, 16000, 35000)),
)
FLAGS = {"oscillate": "-ao", "safe_buffer": "-noibr", "abandon": "-noa"}  # each turns it off
DOWNLOAD = re.compile(r"\[\d+-\d+\]\s+(\d+): q=(\d+) s=(\d+)/\d+ t=(\d+)=(\d+)\+\d+ (.*)")


def network(dice, top_kbps):
    """Draw periods (ms, kbit/s, ms): a slow walk of the rate, or outages."""
    rate, periods, rough = top_kbps * dice.uniform(0.1, 1.0), [], dice.random() < 0.5
    for _ in range(dice.randint(20, 60)):
        rate = min(max(rate * dice.uniform(0.5, 1.9), top_kbps / 60), 1.5 * top_kbps)
        now = 0 if rough and dice.random() < 0.05 else round(rate)
        periods.append((dice.choice((500, 1000, 4000, dice.randint(200, 9000))), now, dice.choice((20, 75, 300))))
    return periods


def video(dice):
    """Draw a manifest: a ladder, and segments that are larger or smaller than it says."""
    segment_ms, rates = dice.choice(LADDERS)
    scenes = [dice.uniform(0.6, 1.4) for _ in range(dice.randint(60, 120))]
    sizes = [[round(rate * segment_ms * scene * dice.uniform(0.95, 1.05)) for rate in rates] for scene in scenes]
    return {"segment_duration_ms": segment_ms, "bitrates_kbps": rates, "segment_sizes_bits": sizes}


def sabre(program, periods, movie, settings):
    """Run it; return per download the segment, quality, bits, ms and ms to the first bit, whether it was abandoned."""
    with tempfile.TemporaryDirectory() as place:
        files = {"n": Path(place) / "network.json", "m": Path(place) / "movie.json"}
        named = ("duration_ms", "bandwidth_kbps", "latency_ms")
        files["n"].write_text(json.dumps([dict(zip(named, period, strict=True)) for period in periods]))
        files["m"].write_text(json.dumps(movie))
        command = [sys.executable, program, "-v", "-n", files["n"], "-m", files["m"], "-a", settings["rule"]]
        command += ["-ma", settings["estimate"], "-b", f"{settings['buffer_s']:g}", "-gp", f"{settings['gamma_p']:g}"]
        command += [flag for name, flag in FLAGS.items() if not settings[name]] + ["-ab"] * settings["basic"]
        said = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout
    found = DOWNLOAD.findall(said)
    rows = [[int(n) for n in row[:5]] + [int("ABANDONED" in row[5])] for row in found]
    return rows, float(re.search(r"^total rebuffer: ([\d.]+)", said, re.MULTILINE)[1])


def rows_of(downloads):
    """Return our player's downloads as `sabre` returns Sabre's: numbers cut off as it prints them."""
    names = ("segment", "quality", "bits", "download_ms", "latency_ms", "abandoned")
    return [[int(one[name]) for name in names] for one in downloads]


def main(program):
    """Record 30 sessions."""
    dice, cases = random.Random(17), []
    for k in range(30):
        movie = video(dice)
        settings = {
            "rule": ("dynamic", "throughput", "bola", "bolae", "dynamicdash")[k % 5],
            "estimate": dice.choice(("ewma", "ewma", "sliding")),
            "buffer_s": dice.choice((10.0, 25.0, 25.0, 40.0)),
            "gamma_p": dice.choice((5.0, 5.0, 8.0)),
            "basic": dice.random() < 0.25,
        } | {name: dice.random() > 0.25 for name in FLAGS}
        if k < 5:  # as Sabre is, without options
            settings = {"rule": settings["rule"], "estimate": "ewma", "buffer_s": 25.0, "gamma_p": 5.0, "basic": False}
            settings |= dict.fromkeys(FLAGS, True)
        periods = network(dice, movie["bitrates_kbps"][-1])
        downloads, stalled_s = sabre(program, periods, movie, settings)
        cases.append({"settings": settings, "network": periods, "video": movie} | {"stalled_s": stalled_s})
        cases[-1]["downloads"] = downloads
    origin = "Sabre, github.com/UMass-LIDS/sabre at 09b03bb, run by tests/sabre/record.py"
    columns = ["segment", "quality", "bits", "ms", "first_ms", "abandoned"]
    text = json.dumps({"origin": origin, "columns": columns, "cases": cases}, separators=(",", ":"))
    OUT.write_text(text.replace('{"settings"', '\n{"settings"') + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
