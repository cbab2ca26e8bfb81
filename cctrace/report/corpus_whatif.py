"""The part of a corpus's page on flows that another controller would have served better."""

import math
from collections.abc import Hashable, Mapping
from typing import Any

from cctrace.corpus.queries import Corpus
from cctrace.corpus.whatif import FIGURES, MARGIN
from cctrace.counterfactual.figures import SHARE_TOLERANCE
from cctrace.display import escape
from cctrace.report.elements import text_table
from cctrace.units import format_number, format_share

_WORDS = {"goodput": ("more goodput", "less goodput"), "rtt": ("a shorter RTT", "a longer RTT")}
_WORDS["share"] = ("fewer retransmissions", "more retransmissions")
_LEAST = {"goodput": MARGIN, "rtt": MARGIN, "share": SHARE_TOLERANCE}


def whatif_part(corpus: Corpus) -> str:
    """Return the HTML of the what-ifs over a corpus; "" if there are none."""
    if "whatifs" not in corpus.tables:
        return ""
    found = {figure: corpus.whatif_by(figure=figure, margin=_LEAST[figure]) for figure in FIGURES}
    sentences = "".join(f"<p>{escape(_sentence(row))}</p>" for row in found["goodput"].to_dict("records"))
    rows = (_row(figure, row) for figure, frame in found.items() for row in frame.to_dict("records"))
    heads = ("Candidate", "Figure", "Better", "Worse", "About the same", "Undecided", "Change, median")
    return f"""<h2>Would another controller have done better?</h2>{sentences}
<p class="soft">Compared with each flow's own controller over the path inferred from the flow; only flows that the
simulation of their own controller reproduces. Better and worse mean {format_share(MARGIN)} or more of goodput or RTT,
or {100 * SHARE_TOLERANCE:g} points of the retransmitted share, with 90 % confidence. In brackets 95 % intervals over
flows; the remaining flows may be either.</p>
{text_table(heads, rows, 2)}"""


def _sentence(row: Mapping[Hashable, Any]) -> str:
    name, wanted = row["controller"], row["asked"] - row["sent"]
    if not row["answered"]:
        return f"{name}: of {wanted:,} flows that others sent, the simulation reproduces none: no answer."
    left = wanted - row["answered"]
    others = f" Left out: {left:,} refused, or not reproduced by the simulation." if left else ""
    others += f" Sent by it: {row['sent']:,}." if row["sent"] else ""
    return (
        f"{name} would have had more goodput in {_share(row, 'better')} of {row['answered']:,} flows, less in "
        f"{_share(row, 'worse')}; {row['alike']:,} about the same, {row['undecided']:,} undecided.{others}"
    )


def _share(row: Mapping[Hashable, Any], kind: str) -> str:
    value, low, high = (row[f"{kind}_share{end}"] for end in ("", "_low", "_high"))
    if math.isnan(value):
        return "unknown"
    return f"{format_share(value)} ({format_number(100 * low)} to {format_share(high)})"


def _row(figure: str, row: Mapping[Hashable, Any]) -> list[str]:
    value, low, high = (100 * row[f"change{end}"] for end in ("", "_low", "_high"))
    change = "" if math.isnan(value) else f"{value:+.3g}{' points' if figure == 'share' else ' %'}"
    change += f" ({low:+.3g} to {high:+.3g})" if change and not math.isnan(low) else ""
    texts = [row["controller"], " / ".join(_WORDS[figure]), _share(row, "better"), _share(row, "worse")]
    return [escape(text) for text in (*texts, f"{row['alike']:,}", f"{row['undecided']:,}", change)]
