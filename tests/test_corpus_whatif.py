"""For which flows would another controller have done better? Counted over a corpus, with intervals."""

import numpy as np
import pandas as pd
import pytest

import cctrace as cct
from cctrace.corpus.tables import TABLES
from cctrace.corpus.tasks import parse, rows_of
from cctrace.corpus.whatif import compared, kinds, median, share
from cctrace.errors import ArgumentError
from cctrace.flows.counters import CounterFlow
from cctrace.report.corpus import write_pages


def rows(changes, own="reno", reproduces=True, name="cubic6", width=0.01):
    """Return rows of the table `whatifs` with these changes of goodput."""
    changes = np.asarray(changes, float)
    told = {"goodput_change": changes, "goodput_change_low": changes - width, "goodput_change_high": changes + width}
    frame = pd.DataFrame(told | {"own": own, "controller": name, "reproduces": reproduces})
    return frame.assign(refused=None, network="10.0.0.0/24")


def test_flows_are_better_worse_alike_or_undecided():
    told = kinds(rows([0.2, -0.2, 0.0, 0.05]))
    assert told.tolist() == ["better", "worse", "alike", "undecided"]


def test_a_longer_rtt_is_worse():
    frame = pd.DataFrame({"rtt_change_low": [0.2], "rtt_change_high": [0.4]})
    assert kinds(frame, "rtt").tolist() == ["worse"]


def test_an_open_end_is_never_alike():
    frame = rows([0.0]).assign(goodput_change_high=None)
    assert kinds(frame).tolist() == ["undecided"]


def test_only_flows_that_reproduce_and_others_sent_count():
    frame = pd.concat(
        [
            rows([0.2] * 6 + [-0.2] * 2),
            rows([0.2] * 4, reproduces=False),
            rows([np.nan], reproduces=None).assign(refused="no packets"),
            rows([0.0] * 3, own="cubic6"),
        ],
        ignore_index=True,
    )
    (found,) = compared(frame).to_dict("records")
    assert (found["asked"], found["sent"], found["answered"]) == (16, 3, 8)
    assert (found["better"], found["worse"]) == (6, 2)
    assert found["better_share"] == 0.75
    assert found["better_share_low"] < 0.5 < 0.75 < found["better_share_high"]
    assert found["change"] == pytest.approx(0.2)


def test_what_is_untold_may_be_either():
    (sure,), (unsure,) = (compared(rows([0.2] * 5 + more)).to_dict("records") for more in ([0.0] * 5, [0.05] * 5))
    assert (sure["undecided"], unsure["undecided"]) == (0, 5)
    assert unsure["better_share"] == sure["better_share"] == 0.5
    assert sure["better_share_high"] < 0.85 < unsure["better_share_high"]
    assert sure["worse_share_high"] < 0.3 < unsure["worse_share_high"]


def test_intervals_of_shares_and_medians_hold_as_often_as_they_say():
    rng = np.random.default_rng(1)
    counts = rng.binomial(40, 0.3, 2000)
    held = np.mean([low <= 0.3 <= high for _, low, high in (share(count, 40) for count in counts)])
    assert 0.92 <= held <= 0.98
    held = np.mean([low <= 0 <= high for _, low, high in (median(rng.standard_cauchy(30)) for _ in range(2000))])
    assert 0.94 <= held <= 0.985
    assert np.isnan(median([1.0, 2.0, 3.0])[1])  # three flows tell no interval


def test_a_figure_that_is_none_is_named():
    with pytest.raises(ArgumentError, match="figure='delay'"):
        compared(rows([0.1]), figure="delay")


@pytest.mark.parametrize("text", ["whatif", "whatif=nosuch", "whatif=cubic6+nosuch", "flows=cubic6"])
def test_a_task_that_is_none_is_named(text):
    with pytest.raises(ArgumentError):
        parse(text)


def test_counters_alone_are_a_row_that_says_why():
    table = cct.read(str(cct.datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst")))
    (row,) = rows_of("whatif=cubic6", CounterFlow(table, 0), {"capture": "c"})["whatifs"]
    assert "packets" in row["refused"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for k, (name, loss) in enumerate((("reno", "1%"), ("cubic6", "0%"))):
        path = cct.Path(rate="8Mbit", rtt="30ms", buffer="1bdp", loss=loss)
        cct.simulate(path, name, "10s", k + 1, packets=True, ack_every=2).to_pcap(folder / f"{k}.pcap")
    cct.corpus.run(str(folder), str(folder / "out"), "flows,whatif=bbr2022+cubic6", workers=1)
    return cct.corpus.open(str(folder / "out"))


def test_a_corpus_answers_for_which_flows_another_would_have_done_better(corpus):
    frame = corpus.whatifs.frame()
    assert list(frame.columns[: len(TABLES["whatifs"])]) == [column.name for column in TABLES["whatifs"]]
    assert len(frame) == 4  # two flows, two candidates
    told = corpus.whatif_by().set_index("controller")
    assert told.loc["bbr2022", "better"] >= 1  # Reno loses its rate to chance, BBR does not
    assert told.loc["cubic6", "sent"] == 1
    assert set(corpus.overview()["whatif"]["controller"]) == {"bbr2022", "cubic6"}


def test_the_page_says_it_in_a_sentence(corpus, tmp_path):
    page = write_pages(corpus, tmp_path, pages=0).read_text(encoding="utf-8")
    assert "Would another controller have done better?" in page
    assert "bbr2022 would have had more goodput in" in page
