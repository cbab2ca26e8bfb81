"""`cctrace learn`: the learning agent of BBRx."""

import datetime
import json
import os
from collections.abc import Sequence
from typing import Any

import click

from cctrace import __version__
from cctrace.cli.arguments import NEW_FILE
from cctrace.cli.common import command_options, echo, print_json, print_table, progress, warn
from cctrace.errors import ArgumentError
from cctrace.files import write_text


@click.command(short_help="Learn BBRx's table from simulated flows, or from counters of flows.")
@click.argument("files", metavar="[COUNTERS]...", nargs=-1, type=click.Path())
@click.option("-o", "--output", "table", type=NEW_FILE, help="Write the table here, for --cc bbrx:table=FILE.")
@click.option("--state", type=NEW_FILE, help="Keep the state here, and resume from it.")
@click.option("--bins", metavar="N,...", help="Only these bins, 0 to 11 in the order of models/bbrx_table1.json.")
@click.option("--flows", default=96, type=click.IntRange(1, 100_000), help="Flows whose mean utility is one trial.")
@click.option("--slope", default=100.0, help="Slope of the utility's sigmoid, which the paper leaves open.")
@click.option("--gamma", default=1.0, help="Gamma of the simulated flows; the paper has 1 and 0.98.")
@click.option("--seed", default=1, help="Seed of the simulated flows.")
@click.option(
    "--method",
    type=click.Choice(["parabola", "gradient"]),
    default="parabola",
    help="How to ascend; the paper uses the gradient.",
)
@click.option("--continue", "continues", is_flag=True, help="With COUNTERS: go on tuning bins that have elected.")
@command_options()
def learn(
    files: tuple[str, ...],
    table: str | None,
    state: str | None,
    bins: str | None,
    flows: int,
    slope: float,
    gamma: float,
    seed: int,
    method: str,
    continues: bool,
    as_json: bool,
) -> None:
    """Learn BBRx's table bin by bin: ascend the mean utility of flows, from beta 0.45 and k 4.

    Without COUNTERS, flows are simulated until every bin has elected its values; an interrupted run resumes with
    the same --state. COUNTERS are tcp_info of flows that ran with the table written by the last call (-o): one step
    is made with them, and the next table is written.

    With --json: the table as in models/bbrx_table1.json, with the number of trials per bin, its provenance
    (command, version, date), and `done`.
    """
    if not (table or state or as_json):
        raise ArgumentError("give -o FILE for the table, --state FILE or --json: else what is learned would be lost")
    if files and not state:
        raise ArgumentError("give --state FILE: counters make only one step, which the next call needs")
    if continues and not files:
        raise ArgumentError("--continue needs COUNTERS: simulated flows end when every bin has elected")
    from cctrace.learn import Agent, simulated  # slow to import: report mistakes first

    asked = Agent(flows, slope, gamma=gamma, method=method)
    agent = Agent.load(state) if state and os.path.exists(state) else asked
    if (agent.flows, agent.slope, agent.gamma, agent.method) != (flows, slope, gamma, method):
        had = f"{agent.flows} flows a trial, slope {agent.slope:g}, gamma {agent.gamma:g} and method {agent.method}"
        warn(f"{state} goes on with its {had}")
    agent.continues |= continues
    with progress("learning (the first run on a machine compiles the simulation, some 10 s)") as update:
        if files:
            counted = sum(_observe(agent, file) for file in files)
            echo(f"{counted} flows counted", err=True)
        else:
            simulated(agent, seed, _numbers(bins), update, save=state)
    if state:
        agent.save(state)
    found = _learned(agent, files, bins, seed)
    if table:
        write_text(table, json.dumps(found, indent=1))
    if as_json:
        print_json(found)
        return
    rows = [
        (_range(c["min_rtt_ms"]), _range(c["rate_mbps"]), c["k"], f"{c['beta']:g}", c["trials"]) for c in found["bins"]
    ]
    print_table(("min_rtt, ms", "rate, Mbit/s", "k", "beta", "trials"), rows)


def _learned(agent: Any, files: Sequence[str], bins: str | None, seed: int) -> dict[str, Any]:
    """Return the agent's table with what made it (command, version, day), and whether every bin has elected."""
    given = {"flows": agent.flows, "slope": f"{agent.slope:g}", "gamma": f"{agent.gamma:g}"}
    given |= {} if agent.method == "parabola" else {"method": agent.method}
    given |= {} if files else {"seed": seed} | ({} if bins is None else {"bins": bins})
    command = ["cctrace learn", *files, *(f"--{name} {value}" for name, value in given.items())]
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    made = {"command": " ".join(command), "version": __version__, "date": day, "done": agent.done}
    table = agent.table()
    return {"provenance": table.pop("provenance")} | made | table


def _numbers(bins: str | None) -> list[int] | None:
    try:
        return None if bins is None else [int(number) for number in bins.split(",")]
    except ValueError:
        raise ArgumentError(f"--bins {bins!r}: numbers of bins, for example 0,5,9") from None


def _observe(agent: Any, file: str) -> int:
    """Let the agent learn from the flows of counters, each judged by the bin that it ran in."""
    from cctrace.io import read_file
    from cctrace.io.counters.tcpinfo import TcpInfo
    from cctrace.learn import statistics

    counters = read_file(file)
    if not isinstance(counters, TcpInfo):
        raise ArgumentError(f"{file}: holds no counters of connections")
    rows = statistics(counters, 0.0, 0)
    for index, row in rows.iterrows():
        k, beta = agent.now(agent.bin_of(row["min_rtt_us"], row["bw_bps"]))
        rows.loc[index, ["k", "beta"]] = k, beta
    return agent.observe(rows)


def _range(bounds: Sequence[Any]) -> str:
    return f"{bounds[0]} and more" if bounds[1] is None else f"{bounds[0]} to {bounds[1]}"
