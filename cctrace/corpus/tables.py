"""The tables of a corpus: column, dtype, unit, meaning. A change of any of them is a new `VERSION`.

Every table has `capture` (path or URL, of a member of an archive "archive:member"); those of flows also `connection`,
the row of `Capture.flows`. The columns `date` and `source` are in the folders' names, as in any partitioned dataset.
Where a flow cannot answer a task, `refused` says why and the other columns are missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cctrace.extras import needed
from cctrace.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 2
TEXT, TEXTS, NUMBERS, TRUTH = "str", "list<str>", "list<f8>", "bool"


_CAPTURE = (Column("capture", TEXT, "", "path or URL of the capture"),)
_FLOW = (
    *_CAPTURE,
    Column("connection", "i4", "", "row of `cctrace flows`"),
    Column("network", TEXT, "", "the receiver's network: its /24, of IPv6 its /48"),
)
_START = Column("start_ns", "i8", "ns", "first packet, since the epoch")
_TIMED = (*_FLOW, _START)
_SENT = Column("bytes_sent", "i8", "bytes", "distinct payload")
_SIZE = Column("size", "i8", "bytes", "as stored, -1 unknown")
_REFUSED = (Column("refused", TEXT, "", "why there is no answer; missing if there is one"),)


def _estimate(name: str, unit: str, meaning: str, sure: int = 95) -> tuple[Column, ...]:
    return (
        Column(name, "f8", unit, meaning),
        Column(f"{name}_low", "f8", unit, f"its {sure} % interval: lower end, missing if there is none"),
        Column(f"{name}_high", "f8", unit, f"its {sure} % interval: upper end, missing if there is none"),
    )


_SENDERS = (("original", "of the own controller over the inferred path"), ("candidate", "of the candidate"))
_FIGURES = (("goodput_bps", "bit/s"), ("rtt_mean_us", "us"), ("retransmitted_share", ""))
TABLES: dict[str, tuple[Column, ...]] = {
    "captures": (
        *_CAPTURE,
        _SIZE,
        Column("packets", "i8", "", "TCP packets"),
        Column("connections", "i8", "", "TCP connections"),
        Column("bulk_flows", "i8", "", "flows of 100 kB or more, or the largest: the subject of the other tables"),
        _START,
        Column("duration_s", "f8", "s", "to the last packet"),
        Column("counters", TEXTS, "", "files of counters beside it"),
        Column("warnings", TEXTS, "", "what could not be read, and counters that belong to no flow"),
    ),
    "errors": (
        *_CAPTURE,
        Column("kind", TEXT, "", "unreadable, memory, time, crashed, worker or internal"),
        Column("reason", TEXT, "", "one line"),
        _SIZE,
    ),
    "flows": (
        *_FLOW,
        Column("src", TEXT, "", "address of the bulk sender"),
        Column("sport", "i4", "", "its port"),
        Column("dst", TEXT, "", "address of the other end"),
        Column("dport", "i4", "", "its port"),
        Column("packets", "i8", "", "of both directions"),
        _SENT,
        Column("segments_sent", "i8", "segments", "retransmissions included"),
        Column("retransmitted_segments", "i8", "segments", ""),
        Column("goodput_bps", "f8", "bit/s", ""),
        Column("rtt_min_us", "i8", "us", ""),
        Column("rtt_median_us", "i8", "us", ""),
        Column("rtt_p95_us", "i8", "us", ""),
        _START,
        Column("duration_s", "f8", "s", ""),
        Column("warnings", TEXTS, "", ""),
    ),
    "verdicts": (
        *_FLOW,
        _SENT,
        Column("goodput_bps", "f8", "bit/s", ""),
        _START,
        Column("controller", TEXT, "", "the sender's, by the kernel's name; needs counters"),
        Column("verdict", TEXT, "", "name of the most important verdict"),
        Column("confidence", "f8", "", "confidence in it, 0 to 1"),
        Column("text", TEXT, "", "in words"),
        Column("also", TEXTS, "", "names of the other verdicts, most important first"),
        Column("retransmitted_share", "f8", "", ""),
        Column("receiver_share", "f8", "", "share of the time in which the receiver's window held data back"),
        Column("application_share", "f8", "", "share of the time without data to send"),
        Column("rtt_min_us", "f8", "us", ""),
        Column("rtt_median_us", "f8", "us", ""),
        Column("in_flight_bdp", "f8", "BDP", "median"),
        *_REFUSED,
    ),
    "limits": (
        *_FLOW,
        Column("limit", TEXT, "", "what limited the flow, see `Diagnosis.limits`"),
        Column("seconds", "f8", "s", "total time"),
        Column("share", "f8", "", "of the flow's duration"),
    ),
    "events": (
        *_FLOW,
        Column("event", TEXT, "", "name, see `Diagnosis.events`"),
        Column("start_s", "f8", "s", "since the first packet"),
        Column("end_s", "f8", "s", "since the first packet"),
        Column("text", TEXT, "", "in words"),
    ),
    "controllers": (
        *_TIMED,
        Column("controller", TEXT, "", "the most probable candidate"),
        Column("probability", "f8", "", "its probability"),
        Column("group", TEXTS, "", "the best candidate, and those that the flow cannot distinguish from it"),
        Column("candidates", TEXTS, "", "most probable first"),
        Column("probabilities", NUMBERS, "", "of the candidates, in that order"),
        Column("reason", TEXT, "", "in words"),
        *_REFUSED,
    ),
    "paths": (
        *_TIMED,
        *_estimate("rate_bps", "bit/s", "rate of the bottleneck, its last one where it changed"),
        Column("rate_changes", "i4", "", "number of rate changes"),
        *_estimate("base_rtt_us", "us", "RTT without queue"),
        *_estimate("buffer_bytes", "bytes", "of the bottleneck"),
        *_estimate("random_loss", "", "share of packets lost by chance"),
        *_estimate("jitter_sd_us", "us", "standard deviation of the jitter"),
        Column("jitter", TEXT, "", "its distribution"),
        Column("jitter_process", TEXT, "", "a draw per packet, burst, slot; reorder"),
        Column("cross_traffic", TEXT, "", ""),
        Column("undetermined", TEXTS, "", "properties of the path that the flow does not determine"),
        *_REFUSED,
    ),
    "collapse": (
        *_TIMED,
        Column("controller", TEXT, "", "the controller asked about"),
        Column("collapses", TEXT, "", "yes, no, close"),
        *_estimate("threshold_sd_us", "us", "standard deviation of the jitter from which it would collapse"),
        *_estimate("sd_us", "us", "standard deviation of the jitter measured"),
        *_estimate("probability_hour", "", "probability of a collapse within an hour"),
        *_REFUSED,
    ),
    "replays": (
        *_TIMED,
        Column("controller", TEXT, "", "replayed over the flow"),
        Column("calls", "i8", "", "of the controller"),
        Column("snd_cwnd_median", "f8", "segments, bytes of QUIC controllers", "median of its window"),
        Column("pacing_rate_median_Bps", "f8", "bytes/s", "median of its pacing rate"),
        Column("bw_within_1_percent", "f8", "", "share of the polls whose bandwidth it reproduces; needs counters"),
        Column("min_rtt_within_1_percent", "f8", "", "share of the polls whose min_rtt it reproduces"),
        Column("cwnd_within_2", "f8", "", "share of the polls whose window it reproduces to 2 segments"),
        *_REFUSED,
    ),
    "whatifs": (
        *_TIMED,
        Column("own", TEXT, "", "the controller that sent it; missing if unknown"),
        Column("reproduces", TRUTH, "", "whether its own controller reproduces the recording over the inferred path"),
        Column("controller", TEXT, "", "the candidate"),
        *(Column(f"recorded_{name}", "f8", unit, "of the recording") for name, unit in _FIGURES),
        *(
            column
            for sender, meaning in _SENDERS
            for name, unit in _FIGURES
            for column in _estimate(f"{sender}_{name}", unit, meaning, 90)
        ),
        *_estimate("goodput_change", "", "of the candidate against the original: 0.1 is a tenth more", 90),
        *_estimate("rtt_change", "", "the same of the mean RTT", 90),
        *_estimate("share_change", "", "the same of the retransmitted share, as a fraction", 90),
        Column("not_excluded", TEXTS, "", "what the recording does not exclude, in words"),
        *_REFUSED,
    ),
}
# The order of the rows of each table, which must not depend on which worker was first.
ORDER = {
    name: [key for key in ("capture", "connection", "controller", "start_s", "event", "limit") if key in have]
    for name, have in ((name, [column.name for column in columns]) for name, columns in TABLES.items())
}


def arrow_schema(name: str) -> pa.Schema:
    """Return the Arrow schema of a table."""
    pa = needed("pyarrow", "parquet")
    types = {
        TEXT: pa.string(),
        TEXTS: pa.list_(pa.string()),
        NUMBERS: pa.list_(pa.float64()),
        TRUTH: pa.bool_(),
        "i4": pa.int32(),
        "i8": pa.int64(),
        "f8": pa.float64(),
    }
    fields = [pa.field(column.name, types[column.dtype]) for column in TABLES[name]]
    return pa.schema(fields, metadata={"cctrace_corpus": f'{{"table": "{name}", "schema": {VERSION}}}'})


def ordered(name: str, table: pa.Table) -> pa.Table:
    """Return the rows of a table in its order."""
    return table.sort_by([(key, "ascending") for key in ORDER[name]])
