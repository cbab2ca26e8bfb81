"""The commands of docs/questions.md print what stands below them; the gallery is what its code says."""

import contextlib
import re
import runpy

import pytest

import cctrace as cct
from cctrace.cli import main
from tests.places import REPOSITORY

PAGE = (REPOSITORY / "docs" / "questions.md").read_text(encoding="utf-8")
GALLERY = runpy.run_path(str(REPOSITORY / "docs" / "make_gallery.py"))
QUESTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize(("question", "flow"), [("Is it my receiver?", 6), ("Is it the application?", 3)])
def test_the_quoted_verdict_is_that_of_the_flow(question, flow):
    recording = cct.datasets.path("web_server")
    one = cct.read(recording / "sender.pcap.zst").flow(flow).attach(cct.read(recording / "ss.txt.gz"))
    quoted = re.search(r"```text\n(.*?)```", QUESTIONS[question], re.DOTALL)[1]
    first = words(quoted).split(": ", 1)[1].split(". ")[0]
    assert words(cct.diagnose(one).verdicts[0].text).startswith(first)


@pytest.mark.slow  # analyses, a fit and a what-if
@pytest.mark.parametrize("question", ["Is it my receiver?", *list(QUESTIONS)[2:]])
def test_the_commands_of_a_question_print_what_the_page_quotes(question, tmp_path, capsys):
    (tmp_path / "datasets").symlink_to(REPOSITORY / "datasets")
    with contextlib.chdir(tmp_path):
        for command in re.findall(r"^    cctrace (.*)$", QUESTIONS[question], re.MULTILINE):
            assert main(command.split()) == 0
    printed = words(capsys.readouterr().out)
    for line in re.search(r"```text\n(.*?)```", QUESTIONS[question], re.DOTALL)[1].strip().split("\n"):
        assert words(line) in printed


def test_every_plot_has_its_place_in_the_gallery_and_every_picture_is_there():
    drawing = {name for name in cct.plot.__all__ if not name.startswith("flow_") and name not in ("figure", "samples")}
    assert set(GALLERY["PLOTS"]) == drawing
    assert GALLERY["page"]() == GALLERY["PAGE"].read_text(encoding="utf-8"), "run docs/make_gallery.py"
    for name in [*GALLERY["PLOTS"], *GALLERY["ANSWERS"]]:
        assert 5_000 < (GALLERY["PICTURES"] / f"{name}.png").stat().st_size < 150_000
    assert set(re.findall(r"_static/gallery/(\w+)\.png", PAGE)) == set(GALLERY["ANSWERS"])


@pytest.mark.slow  # twenty figures, a what-if and a fit among them
def test_the_code_of_the_gallery_draws():
    names = {}
    exec(GALLERY["BEFORE"], names)
    with contextlib.chdir(REPOSITORY):
        for _, code in GALLERY["PLOTS"].values():
            assert GALLERY["figure_of"](code, names).axes
