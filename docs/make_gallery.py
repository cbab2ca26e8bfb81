"""Draw every plot of `cct.plot`, and those of questions.md, into docs/_static/gallery, and write gallery.md.

`.venv/bin/python docs/make_gallery.py [NAME…]` (extra "plot"; a minute or two). The tests hold page and code together.
"""

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PICTURES = DOCS / "_static" / "gallery"
PAGE = DOCS / "gallery.md"
DPI = 55  # legible on a page; a picture takes 10 to 90 kB

BEFORE = """import cctrace as cct

cubic = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
bbr = cct.read(cct.datasets.path("single_bbr_1bdp", "sender.pcap.zst")).flow(0)
run = cct.replay(bbr, "bbr2022", record="all")
path = cct.Path(rate="20Mbit", rtt="40ms", buffer="2bdp")"""

# Name of the picture: (what it answers, the code; its last line is the figure).
PLOTS = {
    "plot_flow": ("The panels of a flow, with a replay", "cct.plot_flow(bbr, run)"),
    "time_sequence": ("Which packets were retransmitted, and why", "cct.plot.time_sequence(cubic, 1.0, 1.6)"),
    "ladder": ("Which end waited for the other", "cct.plot.ladder(cubic, start_s=1.0, packets=24)"),
    "states": ("States of the controller over time", "cct.plot.states(bbr, run, 0, 5)"),
    "throughput": ("Throughput over time", "cct.plot.throughput(bbr)"),
    "rtt": ("RTT samples over time", "cct.plot.rtt(bbr)"),
    "windows": ("Whether the receive window was the limit", "cct.plot.windows(cubic)"),
    "segment_sizes": ("Segment sizes", "cct.plot.segment_sizes(cubic)"),
    "one_way_delays": (
        "Which direction has the delay",
        'receiver = cct.read(cct.datasets.path("loss_cubic_1pct", "receiver.pcap.zst")).flow(0)\n'
        "cct.plot.one_way_delays(cubic, receiver)",
    ),
    "cdf": (
        "Distributions of two controllers' queueing delays",
        'names = ("bbr3", "cubic6")\n'
        'runs = {name: [cct.simulate(path, [name], "10s", seed, trace=True) for seed in (1, 2)] for name in names}\n'
        'cct.plot.cdf(runs, "queue")',
    ),
    "boxes": ("Distributions as boxes", 'cct.plot.boxes({"BBR": bbr, "CUBIC": cubic}, "rtt")'),
    "qq": (
        "Whether two samples have the same distribution",
        'cct.plot.qq({"BBR": [1.0, 2, 3, 5, 8], "CUBIC": [2.0, 4, 6, 9, 20]}, label="RTT (ms)")',
    ),
    "lines": (
        "The effect of a parameter",
        'runs = cct.sweep(path, ["bbr2022", "cubic6"], seeds=range(3), duration="5s", loss=["0%", "0.5%", "1%"])\n'
        "table = runs.to_dataframe().reset_index()\n"
        'table = table.assign(loss=table["loss"].str.rstrip("%").astype(float), mbps=table["goodput_bps"] / 1e6)\n'
        'means = table.groupby(["cc", "loss"])["mbps"].agg(mbps="mean", mbps_sd="std").reset_index()\n'
        'cct.plot.lines(means, "loss", [("mbps", "Goodput (Mbit/s)")], "cc", xlabel="Random loss (%)")',
    ),
    "bars": (
        "The effect of a parameter, as bars",
        'cct.plot.bars(means.astype({"loss": str}), "loss", "mbps", "cc", ylabel="Goodput (Mbit/s)")',
    ),
    "heatmap": (
        "The effect of two parameters",
        'cct.plot.heatmap(table, "seed", "loss", "mbps", by="cc", label="Goodput (Mbit/s)", xlabel="Random loss (%)")',
    ),
    "ellipses": (
        "Throughput against delay",
        "import pandas as pd\n\n"
        "systems = pd.DataFrame(\n"
        '    {"cc": ["bbr3", "cubic6"], "delay": [1.2, 2.4], "delay_spread": [0.1, 0.4], "delay_p95": [1.4, 3.0]}\n'
        '    | {"throughput": [0.95, 1.0], "throughput_spread": [0.02, 0.05]}\n'
        ")\n"
        "cct.plot.ellipses(systems)",
    ),
    "over_time": (
        "Your own curves over time",
        "bins = bbr.throughput(bin_s=0.25)\n"
        'curve = (bins["time_s"], bins["acked_bps"] / 1e6, "acknowledged", {})\n'
        'cct.plot.over_time({"Goodput": [curve]}, ylabel="Mbit/s", columns=1)',
    ),
    "collapse_surface": (
        "At which jitter BBR's min_rtt collapses, by the closed form",
        "import numpy as np\n\n"
        "model = cct.analytic.Collapse(mean_us=5000, sd_us=750, floor_us=75)\n"
        "cct.plot.collapse_surface(model, np.linspace(200, 1500, 40), np.linspace(0, 5000, 40))",
    ),
    "queue_ratio": ("BBR's share of a buffer", "cct.plot.queue_ratio(2.0, [0.5, 1.0, 2.0, 4.0])"),
}

# Pictures of questions.md.
ANSWERS = {
    "receiver": 'cct.plot.windows(cct.read("datasets/web_server/sender.pcap.zst").flow(6))',
    "application": 'cct.plot.throughput(cct.read("datasets/web_server/sender.pcap.zst").flow(3), span_s=0.2)',
    "policer": (
        'policed = cct.Path(rate="40Mbit", rtt="30ms", buffer="2bdp", policer=("10Mbit", "100kB"))\n'
        'sim = cct.simulate(policed, ["cubic6"], "10s", seed=1, packets=True)\n'
        "cct.plot.time_sequence(sim.capture().flow(0), 0, 1.2)"
    ),
    "sender": (
        "from cctrace.analysis.flow_view import FlowView\n\n"
        'flow = cct.read("datasets/compete_bbr_cubic_2bdp/sender.pcap.zst").flow(1)\n'
        'panels = cct.plot.flow_panels(FlowView.of(flow, cct.replay(flow, "cubic6", record="all")))\n'
        'cct.plot.figure([panel for panel in panels if panel.name == "in_flight"])'
    ),
    "collapse": (
        'jittery = cct.read("datasets/jitter_bbr_sd2ms/sender.pcap.zst").flow(0)\n'
        'cct.fit.Collapse(quick=True).fit(jittery).plot("bbr2016").figure'
    ),
    "bbr3": (
        'answer = cct.whatif(cubic, ["bbr3"]).frame().reset_index(names="sender")\n'
        'answer = answer.assign(mbps=answer["goodput_bps"] / 1e6, of="goodput")\n'
        'cct.plot.bars(answer, "sender", "mbps", "of", ylabel="Goodput (Mbit/s)")'
    ),
}


def figure_of(code, names):
    """Run code, and return the value of its last line."""
    *before, last = code.split("\n")
    exec("\n".join(before), names)
    return eval(last, names)


def page():
    """Return gallery.md."""
    out = [
        "# Gallery",
        "",
        "Every plot of `cct.plot`, with the code that draws it. Each example begins with",
        "",
    ]
    out += ["```python", BEFORE, "```", "", "[Plots for papers](plots.md) draws them from the command line."]
    for name, (answers, code) in PLOTS.items():
        out += ["", f"## {answers}", "", "```python", code, "```", "", f"![{answers}](_static/gallery/{name}.png)"]
    return "\n".join(out) + "\n"


def main():
    """Draw what is named, or all, and write the page."""
    PICTURES.mkdir(exist_ok=True, parents=True)
    names = {}
    exec(BEFORE, names)
    wanted = set(sys.argv[1:])
    for name, code in ({name: code for name, (_, code) in PLOTS.items()} | ANSWERS).items():
        if not wanted or name in wanted:
            figure_of(code, names).savefig(PICTURES / f"{name}.png", dpi=DPI)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
