"""The reconstruction agrees with the kernel on the recordings that ship with cctrace."""

import json
import shutil

import numpy as np
import pytest

from cctrace import cli, datasets
from cctrace.analysis.validate import _inside, stalls, validate
from cctrace.errors import FormatError

RECORDINGS = sorted(set(datasets.catalogue()) - {"web_server"})  # which has `ss` only
UNDISTURBED = ["jitter_bbr_sd2ms", "tso_bbr_300m_veth"]  # nothing was lost or reordered in them
RECOVERY = ("ca_state", "sacked", "lost", "retrans")


@pytest.fixture(scope="module", params=RECORDINGS)
def agreement(request):
    return validate(datasets.path(request.param))[0]


def test_every_figure_that_must_be_exact_is(agreement):
    """Counters follow from sequence numbers and the kernel's counting rules alone: no clock blurs them."""
    exact = [one for one in agreement.figures if one.name in ("total_retrans", "delivered", "bytes_acked", "unacked")]
    assert len(exact) == 4
    assert [one for one in exact if not one.met] == []


@pytest.mark.parametrize("agreement", [name for name in RECORDINGS if name not in UNDISTURBED], indirect=True)
def test_recovery_is_the_kernels_recovery(agreement):
    disturbed = agreement.kernel["ca_state"] != 0
    assert disturbed.sum() >= 20
    for name in RECOVERY:
        assert agreement.agrees(name)[disturbed].mean() >= 0.9, name


@pytest.mark.parametrize("agreement", UNDISTURBED, indirect=True)
def test_where_the_kernel_saw_no_loss_none_is_found(agreement):
    assert not any(agreement.kernel[name].any() for name in RECOVERY)
    for name in RECOVERY:
        assert agreement.agrees(name).all(), name


def test_no_retransmission_lacks_an_explanation(agreement):
    assert agreement.to_dict()["unexplained_retransmissions"] == 0


@pytest.mark.parametrize("agreement", [name for name in RECORDINGS if "bbr" in name], indirect=True)
def test_rates_of_probe_rtt_are_application_limited_as_the_kernel_says(agreement):
    """BBR has them marked, which no capture shows; its replay does."""
    probing = (agreement.kernel["bbr_pacing_gain"] == 256) & (agreement.kernel["bbr_cwnd_gain"] == 256)
    assert probing.any()
    assert agreement.agrees("delivery_rate_app_limited")[probing].mean() >= 0.95
    assert agreement.agrees("delivery_rate")[probing].mean() >= 0.9


def test_validate_prints_every_figure_and_its_verdict(capsys):
    status = cli.main(["validate", str(datasets.path("loss_cubic_1pct")), "--json"])
    (result,) = json.loads(capsys.readouterr().out)
    assert result["recording"] == "loss_cubic_1pct"
    assert result["figures"]["delivered"]["share"] == 1.0
    assert status == 0  # a missed figure is a finding
    assert result["replayed"] == "Cubic6"


def test_a_planted_disagreement_is_found(tmp_path):
    """One byte of the kernel's counters changed in every poll: `delivered` must no longer agree."""
    folder = tmp_path / "recording"
    shutil.copytree(datasets.path("loss_cubic_1pct"), folder)
    import zstandard

    name = folder / "tcpinfo.csv.zst"
    lines = zstandard.ZstdDecompressor().stream_reader(name.read_bytes()).read().decode().splitlines()
    at = lines[0].split(",").index("tcpi_delivered")
    changed = [lines[0]]
    for line in lines[1:]:
        cells = line.split(",")
        cells[at] = str(int(cells[at]) + 1)
        changed.append(",".join(cells))
    name.unlink()
    (folder / "tcpinfo.csv").write_text("\n".join(changed) + "\n")
    figures = {figure.name: figure for figure in validate(folder)[0].figures}
    assert figures["delivered"].share == 0.0
    assert figures["bytes_acked"].share == 1.0


def test_a_folder_that_is_no_recording_is_refused(tmp_path):
    with pytest.raises(FormatError, match=r"no sender\.pcap"):
        validate(tmp_path)


def test_polls_inside_stalls_are_set_aside():
    intervals = np.array([[10, 20], [40, 50]])
    assert _inside(np.array([10, 11, 20, 21, 45, 51]), intervals).tolist() == [False, True, True, False, True, False]
    assert len(stalls(datasets.path("jitter_bbr_sd2ms"))) == 4  # scenario.json: intervals_over_4ms
