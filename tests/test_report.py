"""The report is one file that refers to nothing outside, escapes what it shows, and holds every packet."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import cctrace as cct
from cctrace import datasets
from cctrace.analysis.analyze import analyze
from cctrace.diagnosis.findings import Event, Limit, Verdict
from cctrace.estimates import Estimate
from cctrace.fit.collapse import Forecast
from cctrace.flows.packed import EventColumns
from cctrace.plot import flow_panels, flow_phases
from cctrace.plot.packets import KINDS, packets_of
from cctrace.plot.panels import Phases
from cctrace.plot.states import Lane
from cctrace.refusals import Refusal
from cctrace.report import FlowSection, Report
from cctrace.report.encode import floats, integers
from cctrace.report.overview import _title, report_of
from cctrace.report.page import render
from tests.build_view import flow_view
from tests.conversation import Conversation
from tests.page_columns import decoded

HOSTILE = "</script><img src=x onerror=alert(1)>&\"'\u2028"


def report(title="capture.pcap", view=None):
    view = view or flow_view()
    panels = flow_panels(view)
    section = FlowSection(title, [("Goodput", "10 Mbit/s")], panels, flow_phases(view), 2.0, notes=[title])
    return Report(title, title, ["Flow", "Goodput"], [[title, "10 Mbit/s"], ["small flow", "0 bit/s"]], [section])


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def series_of(page, panel, label):
    """The times and values of one series, as the page's script reads them."""
    flow = data_of(page)["flows"][0]
    panel = next(p for p in flow["panels"] if p["id"] == panel)
    series = next(s for s in panel["series"] if s["label"] == label)
    return decoded(flow["times"][series["t"]]), decoded(series["y"])


def test_alpha_is_drawn_on_the_page_of_a_flow_with_counted_marks():
    table = pd.DataFrame({"time_s": [0.5, 1.0, 1.5], "ce_share": [0.25, np.nan, 0.0], "alpha": [1.0, 1.0, 0.5]})
    page = render(report(view=replace(flow_view(), ecn=table)))
    time_s, alpha = series_of(page, "flow0-marks", "alpha (DCTCP’s average)")
    assert np.allclose((time_s, alpha), ([0.5, 1.5], [100, 50]), rtol=1e-3)


def test_the_page_refers_to_nothing_outside_itself():
    page = render(report())
    assert all(target.startswith("#") for target in re.findall(r"""(?:src|href)\s*=\s*["']?([^"'\s>]+)""", page))
    assert "://" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_what_comes_from_the_users_files_is_escaped():
    page = render(report(title=HOSTILE))
    assert "<img" not in page
    assert page.count("</script>") == 2
    data_of(page)


def test_who_may_have_sent_a_flow_is_told_with_the_reason():
    section = replace(
        report().flows[0],
        candidates=[("bbr3", 0.9), (HOSTILE, 0.0999), ("reno", 0.0001)],
        sender=f"bbr3 (90 % sure) {HOSTILE}",
        identified=HOSTILE,
    )
    page = render(replace(report(), flows=[section]))
    assert "Which congestion control sent it: bbr3 (90 % sure)" in page
    assert "9.99 %" in page
    assert "reno" not in page
    assert "<img" not in page
    assert "Which congestion control" not in render(report())


def test_the_verdict_opens_a_section_with_its_cause_and_its_commands_are_code():
    flow = replace(report().flows[0], cause="random loss", verdict="Random losses. How much: `cctrace whatif a<b`.")
    page = render(replace(report(), flows=[flow]))
    assert "<strong>Random loss.</strong> Random losses. How much: <code>cctrace whatif a&lt;b</code>." in page
    body = page[page.index("<body>") :]
    order = ['class="verdict"', 'class="figures"', 'class="toolbar"', "<canvas", "<details"]
    assert sorted(order, key=body.index) == order


def test_a_single_flow_needs_no_table_and_small_flows_have_one_of_their_own():
    one = report()
    assert 'id="flows"' not in render(replace(one, rows=one.rows[:1]))
    page = render(replace(one, rows=[one.rows[0], one.rows[0]], others=[["10.0.0.1:1 → 10.0.0.2:2", "8 kB"]]))
    table, folded = page.split('id="flows"')[1].split("</table>")[:2]
    assert table.count("<tr>") == 3
    assert "1 smaller flow</summary>" in folded
    assert "10.0.0.1:1 → 10.0.0.2:2" in folded


def test_the_title_says_how_many_of_the_flows_are_explained():
    named = report_of(analyze([datasets.path("web_server", "ss.txt.gz")]))
    assert named.title == f"{len(named.rows)} flows"
    assert _title([None, None], 11) == "2 of 11 flows"


def test_the_marks_of_events_are_in_the_legends():
    events = [Event("stall", 0.5, 0.6, "Nothing came.")]
    page = render(replace(report(), flows=[replace(report().flows[0], events=events)]))
    assert '<b class="event">▼</b> an event' in page
    assert '<b class="event">▲</b> below a graph: an event' in page
    assert 'class="event">' not in render(report())


def test_few_flows_have_no_search_field_and_many_have():
    rows = [[f"flow {i}", "1 bit/s"] for i in range(20)]
    assert 'id="search"' not in render(report())
    assert 'id="search"' in render(replace(report(), rows=rows))


def test_the_embedded_series_are_those_of_the_panels_in_full():
    view = flow_view()
    time_s, values = series_of(render(report(view=view)), "flow0-rtt", "RTT samples")
    expected = next(p for p in flow_panels(view) if p.name == "rtt").series[0]
    assert values == pytest.approx(expected.value, abs=1e-3)
    assert time_s == pytest.approx(expected.time_s, abs=1e-6)


def test_a_series_that_holds_its_values_is_kept_where_it_changes():
    view = flow_view()
    time_s, values = series_of(render(report(view=view)), "flow0-in_flight", "cwnd (replay)")
    assert time_s == pytest.approx([0, 2])
    assert values == pytest.approx([70 * 1.448] * 2)


def test_panels_of_many_events_are_thinned_to_what_the_page_has_room_for_and_keep_their_extremes():
    view = flow_view(rows=100_000)
    events = view.events.rows
    events["rs_rtt_us"] += np.random.default_rng(1).integers(0, 10_000, 100_000)
    events["rs_rtt_us"][65_432] = 90_000
    page = render(report(view=replace(view, events=EventColumns.of(events))), 75_000)
    assert len(page) < 250_000
    assert series_of(page, "flow0-rtt", "RTT samples")[1].max() == pytest.approx(90)
    assert data_of(page)["flows"][0]["thinned"]


@pytest.mark.parametrize(
    "values",
    [[], [0], [-5, 7, 7, 7], [2**52, 0, -(2**52)], list(range(100_000))],
    ids=["none", "zero", "negative", "large", "ramp"],
)
def test_a_column_of_integers_is_read_back_exactly(values):
    assert decoded(integers(values)).tolist() == values


def test_a_column_of_floats_is_read_back_to_a_hundred_thousandth_of_its_largest():
    values = np.random.default_rng(2).normal(0, 300, 1000)
    assert decoded(floats(values)) == pytest.approx(values, abs=np.abs(values).max() / 100_000)


def lossy_talk():
    """Five segments, the second lost and sent again upon the third SACK; frames 1 to 3 are the handshake."""
    talk = Conversation()
    talk.data(1, 1, segments=5)
    for i, right in enumerate((3, 4, 5)):
        talk.ack(41.1 + i / 100, 1449, blocks=[(1 + 2 * 1448, 1 + right * 1448)])
    talk.data(41.13, 1449)
    talk.ack(81.2, 1 + 5 * 1448, window=0)
    return talk.data(93, 1 + 5 * 1448, segments=2).ack(133, 1 + 7 * 1448)


def test_every_packet_of_a_connection_is_there_with_what_became_of_it():
    sent, received = packets_of(lossy_talk().capture().flow(0))
    assert sent.frame.tolist() == [1, 3, 4, 5, 6, 7, 8, 12, 14, 15]
    assert received.frame.tolist() == [2, 9, 10, 11, 13, 16]
    assert sent.seq.tolist() == [0, 1, 1, 1449, 2897, 4345, 5793, 1449, 7241, 8689]  # without the wraps of the wire
    assert [KINDS[kind] for kind in sent.kind] == 7 * ["new"] + ["fast"] + 2 * ["new"]
    assert received.ack.tolist() == [1, 1449, 1449, 1449, 7241, 10137]
    assert received.window.tolist() == [65535, 65536, 65536, 65536, 0, 65536]  # a SYN's is not scaled
    blocks = list(zip(received.left.tolist(), received.right.tolist(), strict=True))
    assert blocks == [(2897, 4345), (2897, 5793), (2897, 7241)]
    assert received.blocks.tolist() == [0, 1, 1, 1, 0, 0]


def test_the_page_holds_the_packets_exactly():
    flow = lossy_talk().capture().flow(0)
    sent, received = packets_of(flow)
    section = replace(report().flows[0], packets=(sent, received), start_ns=int(sent.time_ns[0]))
    packets = data_of(render(replace(report(), flows=[section])))["flows"][0]["packets"]
    for name in ("seq", "size", "frame", "flags"):
        assert decoded(packets["sent"][name]).tolist() == getattr(sent, name).tolist()
    assert decoded(packets["sent"]["t"]).tolist() == (sent.time_ns - sent.time_ns[0]).tolist()
    assert decoded(packets["received"]["window"]).tolist() == received.window.tolist()
    assert decoded(packets["received"]["left"]).tolist() == received.left.tolist()
    assert decoded(packets["received"]["length"]).tolist() == (received.right - received.left).tolist()


def test_the_legend_of_the_packets_has_sack_only_where_there_is_one():
    without = Conversation().data(1, 1, segments=2).ack(41, 1 + 2 * 1448)
    pages = []
    for talk in (lossy_talk(), without):
        section = replace(report().flows[0], packets=packets_of(talk.capture().flow(0)))
        pages.append(render(replace(report(), flows=[section])))
    assert ['data-layer="sack"' in page for page in pages] == [True, False]


def test_a_window_of_unknown_scale_is_not_drawn():
    talk = Conversation(handshake=False)
    for i in range(5):
        talk.data(40 * i, 1 + i * 2896, segments=2).ack(40 * i + 40, 1 + (i + 1) * 2896)
    received = packets_of(talk.capture().flow(0))[1]
    assert set(received.window.tolist()) == {-1}


@pytest.mark.parametrize("name", ["jitter_bbr_sd2ms", "loss_cubic_1pct", "single_bbr_1bdp", "tso_bbr_300m_veth"])
def test_of_a_recording_every_packet_is_drawn_and_every_retransmission_has_its_reason(name):
    capture = cct.read(datasets.path(name, "sender.pcap.zst"))
    flow = capture.flow(0)
    sent, received = packets_of(flow)
    frames = np.sort(np.concatenate([sent.frame, received.frame]))
    assert np.array_equal(frames, np.arange(1, len(capture.packets) + 1))  # one flow, and nothing but TCP
    why = flow.retransmissions["why"].value_counts()
    for i, kind in enumerate(KINDS[1:5], 1):
        assert (sent.kind == i).sum() == why[kind]
    assert sent.spurious.sum() == flow.retransmissions["spurious"].sum()


def test_a_capture_taken_elsewhere_than_at_the_sender_says_so_in_every_figure():
    section = replace(report().flows[0], taken_at="receiver")
    page = render(replace(report(), flows=[section]))
    assert page.count("captured at: receiver") == page.count("<figure") > 3
    assert "captured at:" not in render(report())


def test_limits_events_and_verdicts_are_shown_and_escaped():
    section = replace(
        report().flows[0],
        limits=[Limit("startup", 0.0, 0.5), Limit("cwnd", 0.5, 2.0)],
        events=[Event("timeout", 1.25, 1.5, HOSTILE)],
        verdicts=[Verdict("random_loss", 0.8, 0.0, 2.0, {}, HOSTILE, "Use another controller.")],
    )
    page = render(replace(report(), flows=[section]))
    assert "congestion window 75 %" in page
    assert 'data-from="1.25" data-to="1.5"' in page
    assert "Use another controller." in page
    assert "<img" not in page
    flow = data_of(page)["flows"][0]
    assert flow["limits"] == [["start-up", "startup", 0.0, 0.5], ["congestion window", "cwnd", 0.5, 2.0]]
    assert flow["events"][0][3] == HOSTILE


def test_the_overview_links_to_the_flows_that_have_a_section():
    page = render(report())
    assert '<a href="#flow0">capture.pcap</a>' in page
    assert '<h2 id="flow0">' in page
    assert '<td data-label="Flow">small flow</td>' in page
    assert '<td data-label="Goodput">0 bit/s</td>' in page  # its name, where the screen is too narrow for a table


def test_the_verdict_comes_first_and_agreement_is_explained_where_it_stands():
    section = replace(report().flows[0], verdict=HOSTILE, figures=[("Sent", "1 MB")])
    page = render(replace(report(), flows=[section]))
    assert page.index('<p class="verdict">&lt;/script&gt;') < page.index('<dl class="figures">')
    assert "the share of the kernel" not in page
    compared = replace(section, figures=[("Sent", "1 MB"), ("bw = kernel", "99 %")])
    assert "the share of the kernel" in render(replace(report(), flows=[compared]))
    assert 'class="verdict"' not in render(report())


def test_stripes_too_thin_to_see_are_left_out_until_they_are_not():
    cycle = [(0.04 * i, 0.04 * (i + 1), ("PROBE_BW up", "PROBE_BW down")[i % 2]) for i in range(500)]
    assert Phases(cycle).thin
    assert not Phases(cycle[:20]).thin
    assert not Phases([(0.0, 0.01, "STARTUP"), (0.01, 20.0, "PROBE_BW")]).thin
    section = replace(report().flows[0], phases=Phases(cycle))
    assert "appear when zoomed in" in render(replace(report(), flows=[section]))


class Forecasts:
    """As much of `cctrace.fit.Collapse` as the page needs."""

    forecasts_ = {
        "bbr2016": Forecast(
            Estimate(8000.0, 7000.0, None),
            Estimate(2000.0, 1900.0, 2100.0),
            Estimate(0.5),
            Estimate(1e-9),
            0.0,
            0.1,
            2,
            "inside",
            ((4000.0, 0.9), (10_000.0, 0.21)),
        )
    }
    delay_us_, sd_us_ = 20_000.0, Estimate(2000.0, 1900.0, 2100.0)

    def line(self):
        return HOSTILE


def test_the_forecast_of_collapse_is_a_table_and_the_runs_it_stands_on_with_the_flows_own_jitter():
    page = render(replace(report(), flows=[replace(report().flows[0], forecast=Forecasts())]))
    assert "<img" not in page
    row = re.search(r"<td>bbr2016</td>.*?</tr>", page)[0]
    assert re.findall("<td>([^<]*)", row)[2:] == [
        "8 ms (7 ms to -)",
        "2 ms (1.9 ms to 2.1 ms)",
        "50 %",
        "less than 0.001 %",
    ]
    runs = [
        tuple(map(float, at)) for at in re.findall(r'<circle cx="([^"]+)" cy="([^"]+)" r="[^"]+" class="run"', page)
    ]
    assert runs[:2] == [
        (pytest.approx(62 + 558 * 4000 / 10_500, abs=0.1), pytest.approx(214 - 200 * 0.9 / 1.05, abs=0.1)),
        (pytest.approx(62 + 558 * 10_000 / 10_500, abs=0.1), pytest.approx(214 - 200 * 0.21 / 1.05, abs=0.1)),
    ]
    assert len(runs) == 3  # the last one is the legend's
    here = re.search(r'<line x1="([^"]+)" x2="[^"]+" y1="14" y2="214" class="here"', page)[1]
    assert float(here) == pytest.approx(62 + 558 * 2000 / 10_500, abs=0.1)
    assert "this flow: sd 2 ms" in page


def test_why_there_is_no_forecast_is_said():
    page = render(
        replace(report(), flows=[replace(report().flows[0], forecast=Refusal("forecast", f"too short {HOSTILE}"))])
    )
    assert "minRTT collapse here?</summary><p>Not known: too short &lt;/script&gt;" in page
    assert '<svg class="surface"' not in page


def test_states_over_time_are_in_the_page_with_their_names():
    lane = Lane("mode", Phases([(0.0, 0.5, "STARTUP"), (0.5, 1.5, HOSTILE)]))
    page = render(replace(report(), flows=[replace(report().flows[0], lanes=[lane])]))
    held = data_of(page)["flows"][0]["lanes"][0]
    assert decoded(held["t"]).tolist() == pytest.approx([0, 0.5])
    assert [held["names"][int(i)] for i in decoded(held["code"])] == ["STARTUP", HOSTILE]
    assert (held["label"], held["end"]) == ("mode", 1.5)
    assert "<img" not in page
