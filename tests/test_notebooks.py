"""The notebooks run from clean and say and draw what they are kept with, which `make notebooks` rebuilds."""

import copy

import pytest

from notebooks import rebuild

NOTEBOOKS = rebuild.names()
MAX_BYTES = 400_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_from_clean_and_says_what_it_is_kept_with(path):
    fresh = rebuild.run(path)
    printed = [
        output for cell in rebuild.code_cells(fresh) for output in cell.outputs if output.get("name") == "stderr"
    ]
    assert [output.text for output in printed] == []
    assert rebuild.differences(rebuild.read(path), rebuild.kept(fresh)) == [], f"notebooks/rebuild.py {path.stem}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_with_pictures_and_without_anything_of_a_machine(path):
    notebook = rebuild.read(path)
    outputs = [output for cell in rebuild.code_cells(notebook) for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert rebuild.kept(notebook).metadata == notebook.metadata
    assert [cell.source for cell in rebuild.code_cells(notebook) if cell.execution_count is not None] == []
    text = path.read_text(encoding="utf-8")
    said = [output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs]
    assert [found for words in said for found in rebuild.OF_THE_MACHINE.findall(words)] == []
    assert len(text) < MAX_BYTES
    assert [cell.source for cell in notebook.cells if cell.cell_type == "code" and "/home/" in cell.source] == []


@pytest.fixture(scope="module")
def quickstart():
    return rebuild.read(NOTEBOOKS[0])


def changed(notebook, edit):
    other = copy.deepcopy(notebook)
    edit([output for cell in rebuild.code_cells(other) for output in cell.outputs])
    return rebuild.differences(notebook, other)


def test_a_stale_number_word_or_picture_is_told_and_noise_is_not(quickstart):
    assert changed(quickstart, lambda outputs: None) == []
    texts = [output.data for cell in rebuild.code_cells(quickstart) for output in cell.outputs if "data" in output]
    number = next(match for match in rebuild.NUMBER.findall(texts[0]["text/plain"]) if "." in match and len(match) > 6)

    def other_number(outputs):
        data = outputs[0].data
        data["text/plain"] = data["text/plain"].replace(number, str(float(number) * 1.02))

    def other_word(outputs):
        outputs[0].data["text/plain"] = outputs[0].data["text/plain"].replace("src", "source")

    def other_picture(outputs):
        pictures = [output for output in outputs if "image/png" in output.get("data", {})]
        pictures[0].data["image/png"], pictures[1].data["image/png"] = (
            pictures[1].data["image/png"],
            pictures[0].data["image/png"],
        )

    def no_output(outputs):
        outputs[0].data.pop("text/plain")
        outputs[0].data["image/png"] = ""

    assert "kept" in changed(quickstart, other_number)[0]
    assert "source" in changed(quickstart, other_word)[0]
    assert len(changed(quickstart, other_picture)) == 2
    assert "'picture'" in changed(quickstart, no_output)[0]


@pytest.mark.parametrize(
    ("kept", "now", "same"),
    [
        ("rate 10.1 Mbit/s", "rate  10.2 Mbit/s", True),  # the last digit
        ("rate 10.1 Mbit/s", "rate 10.4 Mbit/s", False),
        ("12 flows", "13 flows", False),
        ("1,000,000 calls", "1,001,000 calls", True),
        ("at <x 0x7f877ce68a10>, /tmp/abc/x.pcap", "at <x 0x7f877ce68a11>, /tmp/xyz/x.pcap", True),
        ("read '/check/a/b/x.pcap'", "read '/srv/b/x.pcap'", True),  # wherever the checkout lies
        ("read …", "read /check/a/x.pcap", True),
        ("10 Mbit/s/flow", "10 Mbit/s/pair", False),
        ("https://a.example/b/c", "https://a.example/b/d", False),
        ("P 1.25e-07", "P 1.26e-07", True),
        ("P 1.25e-07", "P 2.25e-07", False),
        ("a  b\n---- c", "a b\n- c", False),
        ("a  b\n---- c", "a b\n-------- c", True),
    ],
)
def test_numbers_are_compared_as_printed_and_paths_not_at_all(kept, now, same):
    assert (rebuild._told(kept, now) == []) == same
