"""What files are called, and what stands in them, is shown and never acts: not on folders, terminals or pages."""

import html
import json
import os
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

import cctrace as cct
from cctrace import corpus, datasets
from cctrace.cli.common import print_json, print_table, progress
from cctrace.display import visible
from cctrace.io.source import file_path, file_url
from cctrace.names import short_names
from cctrace.report.document import link

ESCAPE = "\x1b]0;PWNED\x07\x1b[31m\x9b2J\u202e"  # sets a terminal's title, colours, clears it; reverses the writing
NOT_UTF8 = os.fsdecode(b"bad\xff")
NAMES = ("..", ".", "javascript:alert(1)<!--", "50% #1?", f"{ESCAPE}red", NOT_UTF8, "report.html", "[bold]x[nosuch]")


@pytest.fixture(autouse=True)
def nobody_asks_who_sent_it(monkeypatch):
    """To identify a sender takes seconds, and is tested elsewhere."""
    monkeypatch.setattr("cctrace.analysis.one_flow._identified", lambda *_: None)
    monkeypatch.setattr("cctrace.analysis.analyze._forecast", lambda *_: None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Captures of hostile names."""
    here = tmp_path_factory.mktemp("captures")
    run = cct.simulate(cct.Path(rate="2Mbit"), "cubic", "2s", packets=True)
    for name in NAMES:
        run.to_pcap(here / f"{name}.pcap")
    return here


def is_harmless(text):
    return all(one.isprintable() or one == "\n" for one in text)


def test_a_folder_of_hostile_names_is_analysed_within_its_output(run, folder, tmp_path):
    out = tmp_path / "deep" / "out"
    status, told, err = run("analyze", folder, "-o", out)
    assert status == 0, err
    assert is_harmless(told + err)
    assert {path.name for path in tmp_path.iterdir()} == {"deep"}
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"out"}
    page = (out / "report.html").read_text("utf-8")
    links = [html.unescape(one) for one in re.findall(r'href="([^"]*)#flow0"', page)]
    assert len(links) == len(NAMES)
    assert all(one.startswith("./") and (out / unquote(one)).is_file() for one in links)
    assert all(is_harmless(path.read_text("utf-8")) for path in out.rglob("report.html"))


def test_names_of_folders_never_lead_elsewhere_and_are_all_different():
    files = [f"/x/{name}.pcap.zst" for name in (*NAMES, "...", "", "a" * 250, "a" * 250 + "/b", "b/../a")]
    names = short_names(files, taken={"report.html"})
    assert len(set(names)) == len(files)
    for name in names:
        assert name not in ("", ".", "..", "report.html")
        assert "/" not in name
        assert not name.startswith(".")
        assert len(name.encode()) < 255


def test_a_link_leads_below_its_page_or_is_refused():
    assert link("javascript:alert(1)", "a#b?.html") == "./javascript%3Aalert%281%29/a%23b%3F.html"
    for parts in (("..", "x"), ("",), ("a/../../b",)):
        with pytest.raises(ValueError, match="below the page"):
            link(*parts)


def test_tables_are_written_where_a_name_is_not_utf_8(run, tmp_path):
    folder = tmp_path / NOT_UTF8
    capture = datasets.path("loss_cubic_1pct", "sender.pcap.zst")
    assert run("analyze", capture, "--no-effects", "-o", folder)[0] == 0
    assert (folder / "flow0-events.parquet").exists()
    assert run("convert", capture, folder / f"{NOT_UTF8}.parquet")[0] == 0
    assert run("flows", folder / f"{NOT_UTF8}.parquet")[0] == 0
    simulation = cct.simulate(cct.Path(rate="1Mbit"), "reno", "1s")
    assert simulation.to_parquet(folder / f"{NOT_UTF8}.pq") == 1


@pytest.mark.parametrize("command", ["flows", "analyze", "identify", "replay", "convert"])
def test_a_hostile_name_in_an_error_is_written_out(run, tmp_path, command):
    file = tmp_path / f"{ESCAPE}{NOT_UTF8}.pcap"
    file.write_bytes(b"no capture")
    more = {"replay": ["--cc", "cubic"], "convert": [tmp_path / "x.csv"], "analyze": ["-o", tmp_path / "out"]}
    status, out, err = run(command, file, *more.get(command, []), "--debug")
    assert status == 2
    assert is_harmless(out + err)
    assert r"\x1b]0;PWNED\x07\x1b[31m\x9b2J\u202ebad\xff.pcap" in err


def test_hostile_texts_within_a_file_are_written_out(run, tmp_path):
    poll = {"tcpi_rtt": 40000, "tcpi_snd_cwnd": 10, "tcpi_bytes_acked": 10**6, "src": ESCAPE, "sport": 1}
    polls = [{"time_ns": 10**18 + i, "dst": f"{NOT_UTF8}", "dport": 2, "cc": ESCAPE, **poll} for i in range(3)]
    (tmp_path / "polls.json").write_text(json.dumps(polls))
    for more in ([], ["--json"]):
        status, out, err = run("analyze", tmp_path / "polls.json", "-o", tmp_path / "out", *more)
        assert status == 0, err
        assert is_harmless(out + err)
    assert is_harmless((tmp_path / "out" / "report.html").read_text("utf-8"))


def test_json_keeps_what_it_writes_out(capsys):
    print_json({"file": ESCAPE + NOT_UTF8})
    text = capsys.readouterr().out
    assert is_harmless(text)
    assert json.loads(text) == {"file": ESCAPE + NOT_UTF8}


def test_tables_and_progress_on_a_terminal_show_names_without_markup(capsys, monkeypatch):
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    print_table(["name"], [[ESCAPE + "[bold]x[/nosuch]" + NOT_UTF8]])
    with progress(f"reading [/nosuch] {ESCAPE}") as say:
        say(f"reading [/nosuch] {ESCAPE}{NOT_UTF8}")
    told = capsys.readouterr()
    assert "\x1b]0" not in told.out + told.err
    assert r"\x1b]0;PWNED" in told.out
    assert "[bold]x[/nosuch]" in told.out


def test_a_name_that_is_not_utf8_goes_through_a_corpus(folder, tmp_path):
    file = folder / f"{NOT_UTF8}.pcap"
    (tmp_path / "list.txt").write_bytes(os.fsencode(file))
    for number, inputs in enumerate((file, f"@{tmp_path / 'list.txt'}")):
        where = tmp_path / f"results{number}"
        summary = corpus.run(str(inputs), str(where), "flows", workers=1)
        assert (summary.captures, summary.errors) == (1, {})
        (name,) = set(corpus.open(str(where)).flows.frame(["capture"])["capture"])
        assert Path(file_path(name)) == file


def test_a_file_is_read_by_its_url(tmp_path):
    path = tmp_path / f"{NOT_UTF8} %41"
    assert file_path(file_url(str(path))) == str(path)
    assert file_url(str(tmp_path)) == str(tmp_path)


def test_what_prints_is_shown_as_it_is():
    plain = "5 µs → 1 ms “naïve” 日本 …\n\tindented"
    assert visible(plain) == plain
