"""What the code cites, the documentation lists; what the README shows, works; generated pages are up to date."""

import contextlib
import importlib
import json
import re
import runpy
import subprocess
import sys

import click
import pytest

import cctrace
from cctrace.cc import REGISTRY
from cctrace.cc.compare import describe
from cctrace.cli import commands, main
from tests.places import REPOSITORY

KEY = re.compile(r"\[([A-Z][A-Za-z]+v?\d{2,4}|RFC ?\d+)\]")


def test_every_source_that_the_code_cites_stands_in_the_references():
    listed = set(KEY.findall((REPOSITORY / "docs" / "references.md").read_text(encoding="utf-8")))
    files = [*REPOSITORY.glob("cctrace/**/*.py"), *REPOSITORY.glob("tests/test_*.py")]
    cited = {(key, file.name) for file in files for key in KEY.findall(file.read_text(encoding="utf-8"))}
    assert {(key, file) for key, file in cited if key.replace("RFC ", "RFC") not in listed} == set()


def test_the_example_of_the_readme_runs(tmp_path):
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.S)
    script = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n{example}"
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "10.99.0.1" in result.stdout
    assert (tmp_path / "flow.png").stat().st_size > 50_000


@pytest.mark.slow  # the whole analysis of a recording
def test_the_output_that_the_readme_shows_is_what_the_command_prints(tmp_path, capsys):
    """But for where lines break: on a terminal they do as the window is wide."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    shown = " ".join(re.search(r"```\n(10\.99\.0\.1:.*?)report: ", readme, re.DOTALL)[1].split())
    capture, counters = (f"datasets/jitter_bbr_sd2ms/{name}" for name in ("sender.pcap.zst", "tcpinfo.csv.zst"))
    with contextlib.chdir(REPOSITORY):
        assert main(["analyze", capture, "--tcpinfo", counters, "-o", str(tmp_path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    verdict, figures = shown.partition(" also: ")[0], shown.rpartition("Replay = kernel")[2]
    assert verdict in printed
    assert [word for word in figures.split() if word not in printed] == []


def test_the_readme_links_only_to_files_that_exist():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", readme)
    assert targets
    assert [target for target in targets if not (REPOSITORY / target).exists()] == []


def test_the_page_of_controllers_is_what_their_classes_say():
    generator = runpy.run_path(str(REPOSITORY / "docs" / "make_variants.py"))
    assert generator["page"]() == generator["PAGE"].read_text(encoding="utf-8"), "run `make docs`"


def test_the_page_on_ecn_has_what_its_benchmark_measured():
    generator = runpy.run_path(str(REPOSITORY / "docs" / "make_ecn.py"))
    assert generator["page"]() == generator["PAGE"].read_text(encoding="utf-8"), "run `python docs/make_ecn.py`"
    assert generator["farthest"](json.loads(generator["TABLE"].read_text(encoding="utf-8"))["runs"]) < 0.2


def test_the_page_of_commands_has_the_help_of_each():
    page = runpy.run_path(str(REPOSITORY / "docs" / "make_commands.py"))["page"]()
    for line in ("## cctrace analyze", "## cctrace corpus run", "--tcpinfo FILE", "Usage: cctrace fit path [OPTIONS]"):
        assert line in page


def test_every_option_is_used_in_a_page_or_in_a_test():
    files = [REPOSITORY / "README.md", *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("tests/*.py")]
    used = set(re.findall(r"--[a-z][a-z-]*", "\n".join(file.read_text(encoding="utf-8") for file in files)))

    def options(command):
        yield from (parameter for parameter in command.params if isinstance(parameter, click.Option))
        for name in getattr(command, "commands", ()):
            yield from options(command.commands[name])

    assert [
        option.opts for option in options(commands) if used.isdisjoint([*option.opts, *option.secondary_opts])
    ] == []


def test_every_state_diagram_is_connected_and_its_labels_end_where_mermaid_ends_them():
    diagrams = re.findall(r"```mermaid\n(.*?)```", (REPOSITORY / "docs/variants.md").read_text("utf-8"), re.DOTALL)
    assert len(diagrams) > 5
    for diagram in diagrams:
        edges = re.findall(r"^ *(\S+) --> (\w+)(?:: ([^:;\n]+))?$", diagram, re.MULTILINE)
        assert len(edges) == diagram.count("-->")
        reached = {"[*]"}
        inside = re.search(r"state PROBE_BW \{(.*)\}", diagram, re.DOTALL)
        while more := {end for start, end, _ in edges if start in reached} - reached:
            reached |= more
            if inside and "PROBE_BW" in reached:
                reached |= {"DOWN", "CRUISE"}  # where PROBE_BW is entered from DRAIN and from PROBE_RTT
        assert reached >= {state for start, end, _ in edges for state in (start, end)}


def test_every_release_names_its_sources_and_every_paper_what_it_leaves_open():
    for name in REGISTRY:
        entry = describe(name)
        assert entry["sources"], name
        assert entry["left_open"] or not name.endswith("_paper"), name


def test_the_citation_has_the_version_of_the_package():
    assert f"\nversion: {cctrace.__version__}\n" in (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")


def test_every_benchmark_that_the_pages_name_is_a_module_that_loads():
    pages = [REPOSITORY / "README.md", REPOSITORY / "Makefile", *REPOSITORY.glob("docs/*.md")]
    named = {name for page in pages for name in re.findall(r"-m benchmarks\.(\w+)", page.read_text(encoding="utf-8"))}
    assert {"explain", "whatif", "simulate"} <= named
    for name in named - {"fuzz"}:  # which wants atheris
        assert callable(importlib.import_module(f"benchmarks.{name}").main)
