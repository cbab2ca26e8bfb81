"""Do the tools of `cctrace mcp` answer what is known? A hundred questions about recordings, put by a scripted client.

    python -m benchmarks.agents [--only KIND] [--json FILE]

The recordings are those of `datasets` and `tests/recordings`. What is true is read from their scenarios (controller,
rate, what was set up to be wrong) and from the kernel's own counters (retransmissions, min_rtt, cwnd, srtt), which the
tools are not given: they see captures only. The client asks over standard input and output, as an agent does, and
knows nothing but what the tools answer. An answer is right within the margin of its kind, set before the first run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

import cctrace as cct

ROOT = Path(__file__).parents[1]
PLACES = (ROOT / "datasets", ROOT / "tests" / "recordings")
FOLDERS = sorted(file.parent for place in PLACES for file in place.glob("*/tcpinfo.csv.zst"))
# How many questions of each kind, in the order of the recordings; and what is asked.
KINDS = {
    "controller": (20, "Which congestion control sent {flow}?"),
    "retransmissions": (18, "How many segments did the sender of {flow} send again?"),
    "min_rtt": (18, "What was the least RTT of {flow}?"),
    "cwnd": (16, "What was the congestion window of {flow} at {time_s:.2f} s?"),
    "srtt": (10, "What was the smoothed RTT of {flow} at {time_s:.2f} s?"),
    "rate": (10, "What is the rate of the bottleneck of {flow}?"),
    "cause": (8, "Why did {flow} go as it did?"),
}
SHARE, SEGMENTS, RTT_US = 0.05, 2, 1000  # margins: relative, of counts, of RTTs
MIDDLE, LATE = 0.5, 0.7  # of a recording, at which cwnd and srtt are asked
IMAGES = {"linux-bbr3": "bbr3", "linux-bbr2": "bbr2"}  # what "bbr" is on a kernel
CAUSES = {
    "loss_cubic_1pct": {"random_loss"},
    "compete_bbr_cubic_2bdp": {"competition"},
    "lab_v1_sndbuf": {"send_buffer_limited"},
    "lab_v3_app": {"application_limited"},
    "lab_codel_ecn": {"ecn_marking"},
    "lab_dctcp": {"ecn_marking"},
    "pacing_limit": {"pacing_limited"},
    "single_bbr_1bdp": {"path_full"},
}


@dataclass(frozen=True)
class Question:
    """A question, and what is true."""

    kind: str
    text: str
    file: str
    flow: int
    truth: Any
    time_s: float = 0.0


def questions() -> list[Question]:
    """Return the hundred questions."""
    found: dict[str, list[Question]] = {kind: [] for kind in KINDS}
    for folder in FOLDERS:
        for question in _of(folder):
            if len(found[question.kind]) < KINDS[question.kind][0]:
                found[question.kind].append(question)
    return [question for kind in KINDS for question in found[kind]]


def _of(folder: Path) -> Iterator[Question]:
    scenario = json.loads((folder / "scenario.json").read_text())
    capture = cct.read(folder / "sender.pcap.zst")
    file = str((folder / "sender.pcap.zst").relative_to(ROOT))

    def question(kind: str, index: int, truth: Any, time_s: float = 0.0) -> Question:
        text = KINDS[kind][1].format(flow=f"flow {index} of {file}", time_s=time_s)
        return Question(kind, text, file, index, truth, time_s)

    setup = scenario["parameters"]
    flows = {flow.key[1]: flow for flow in capture.bulk()}
    if folder.name == "web_server":
        by_client = {one["client"]: one["cc"] for one in setup["flows"]}
        for flow in capture.bulk():
            yield question("controller", flow.index, _name(by_client[flow.key[2]], setup))
        return
    for one in setup["flows"]:
        yield question("controller", flows[one["sport"]].index, _name(one["cc"], setup))
    flow = max(flows.values(), key=lambda flow: flow.row["bytes_sent"])
    if folder.name in CAUSES:
        yield question("cause", flow.index, CAUSES[folder.name])
    if len(setup["flows"]) > 1:
        return
    yield question("rate", flow.index, setup["rate"] * 1e6)
    polls = flow.attach(cct.read(folder / "tcpinfo.csv.zst")).tcpinfo
    time_s = flow.seconds(polls["time_ns"])
    yield question("retransmissions", flow.index, int(polls["total_retrans"].max()))
    yield question("min_rtt", flow.index, int(polls["min_rtt"][polls["min_rtt"] > 0].min()))
    for kind, column, share in (("cwnd", "snd_cwnd", MIDDLE), ("srtt", "rtt", LATE)):
        place = int(np.searchsorted(time_s, share * float(flow.row["duration_s"])))
        if place < len(time_s):
            yield question(kind, flow.index, int(polls[column][place]), float(time_s[place]))


def _name(controller: str, setup: dict[str, Any]) -> str:
    return IMAGES.get(setup.get("kernel_image", ""), "bbr") if controller == "bbr" else controller


class Asker:
    """Answers questions by calling tools."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Return a tool's answer; RuntimeError with its sentence if it has none."""
        result = await self._client.call_tool(name, arguments)
        text = result.content[0].text
        if result.is_error:
            raise RuntimeError(text)
        return json.loads(text)

    async def answer(self, question: Question) -> Any:
        """Return the answer to a question."""
        given: dict[str, Any] = {"file": question.file, "flow": question.flow}
        if question.kind == "controller":
            return (await self.call("identify", **given))["group"]
        if question.kind in ("retransmissions", "min_rtt"):
            rows = (await self.call("flows", file=question.file))["rows"]
            return rows[question.flow][{"retransmissions": "retransmitted_segments"}.get(question.kind, "rtt_min_us")]
        if question.kind in ("cwnd", "srtt"):
            held = await self.call("state_at", **given, time_s=question.time_s)
            return held[{"cwnd": "cwnd_segments", "srtt": "srtt_us"}[question.kind]]
        if question.kind == "rate":
            return (await self.call("fit_path", **given))["rate_bps"][0]["value"]
        return (await self.call("explain", **given))["cause"]


def is_right(question: Question, answer: Any) -> bool:
    """Return whether an answer is right."""
    truth = question.truth
    if question.kind == "controller":
        from cctrace.cc import kernel_name

        return kernel_name(answer[0]) == truth
    if question.kind == "cause":
        return answer in truth
    margin = {"min_rtt": 0.0, "srtt": RTT_US, "rate": 0.0}.get(question.kind, SEGMENTS)
    return abs(answer - truth) <= max(margin, SHARE * truth)


async def run(only: str | None) -> list[dict[str, Any]]:
    """Ask all questions; return a row for each."""
    server = StdioServerParameters(command=sys.executable, args=["-m", "cctrace", "mcp", "--root", str(ROOT)])
    rows = []
    async with Client(stdio_client(server)) as client:
        asker = Asker(client)
        for question in questions():
            if only and question.kind != only:
                continue
            began = time.monotonic()
            try:
                answer = await asker.answer(question)
                right = is_right(question, answer)
            except RuntimeError as error:
                answer, right = str(error), False
            seconds = time.monotonic() - began
            rows.append({"kind": question.kind, "question": question.text, "right": right, "seconds": seconds})
            truth = sorted(question.truth) if isinstance(question.truth, set) else question.truth
            rows[-1] |= {"answer": answer, "truth": truth}
            if not right:
                print(f"wrong: {question.text} {answer}, and true is {truth}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=KINDS, help="only questions of this kind")
    parser.add_argument("--json", type=Path, help="write the answers to a file")
    options = parser.parse_args()
    rows = asyncio.run(run(options.only))
    asked, right = Counter(row["kind"] for row in rows), Counter(row["kind"] for row in rows if row["right"])
    for kind, count in asked.items():
        print(f"{kind:16} {right[kind]:3} of {count}")
    print(f"{'all':16} {sum(right.values()):3} of {len(rows)}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
