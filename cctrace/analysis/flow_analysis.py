"""`FlowAnalysis`: all results for one flow, in one object."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cctrace.columns import Columns, Table, frame_of, spans_of
from cctrace.display import Jsonable, Summarized, connection
from cctrace.flows.counters import title_of
from cctrace.flows.table import retransmitted_share
from cctrace.refusals import Refusal
from cctrace.schema import ENDS

if TYPE_CHECKING:
    import pandas as pd

    from cctrace.analysis.flow_view import FlowView
    from cctrace.counterfactual.effects import Effects
    from cctrace.counterfactual.whatif import WhatIf
    from cctrace.diagnosis.diagnose import Diagnosis
    from cctrace.fit.collapse import Collapse
    from cctrace.flows.counters import CounterFlow
    from cctrace.flows.flow import Flow
    from cctrace.flows.offset import Alignment
    from cctrace.identification.identify import Identification

SIMULATED = ("whatif", "effects")  # keys of answers with a format of their own


@dataclass(frozen=True, repr=False)
class FlowAnalysis(Summarized, Jsonable):
    """All results for one bulk flow. If a part has no result, `notes` say why.

    Attributes
    ----------
    file : str
        The capture, or the counters.
    row : dict
        The flow's row of `Capture.flows`; for a capture not taken at the sender with the RTTs of the sender's view,
        which include the queue in between.
    notes : tuple of str
        Caveats for the reader of the numbers.
    controller : str or None
        The kernel's name of the sender's congestion control, None if unknown.
    variant : str or None
        Its variant, from the counters and the sends, see `cctrace.identification.named`.
    identification : Identification or None
        The sender, from the sends; limited to the variants of the controller that counters name.
    through_fq : bool or None
        Whether it was sent through fq; None if unknown.
    paced : bool
        Whether the socket paced although the replayed controller sets no rate.
    replayed : str or None
        The controller replayed over the flow, None if none was.
    agreement : dict or None
        Its agreement with the kernel's log, see `Comparison.to_dict`; None without counters.
    polled : dict of str to ndarray, or None
        The kernel's and the replay's values at each poll; `polls` as a DataFrame.
    diagnosis : Diagnosis or None
        What limited the flow; None if it has no event stream.
    ecn : dict or None
        The capture's ECN, see `Ecn.to_dict`.
    collapse : Collapse or Refusal or None
        Forecast of minRTT collapse on the path of a BBR's flow; None for other controllers, and for counters.
    whatif : WhatIf or Refusal or None
        Effect of another controller or path; None if not requested.
    effects : Effects or Refusal or None
        Effect of removing each cause; None if not requested.
    view : FlowView or None
        Data to draw; None if the sender's view could not be reconstructed.
    flow : Flow or None
        The flow itself; None for a file too large to hold all its packets.
    packets : object
        What `keep` returned for a flow of such a file.
    counters : CounterFlow or None
        The counters of a connection without a capture.
    modelled : dict of str to ndarray, or None
        State of a controller replayed over counters after each call, see `replaying.model.model_table`; `model` as
        a DataFrame.
    clock : Alignment or None
        Relation of the counters' clock to the capture's.

    Examples
    --------
    >>> import cctrace as cct
    >>> recording = cct.datasets.path("loss_cubic_1pct")
    >>> (found,) = cct.analyze(recording / "sender.pcap.zst", effects=False)
    >>> found.diagnosis.cause, sorted(found.to_dict())[:3]
    ('random_loss', ['agreement', 'bbr_modes', 'bytes_sent'])
    """

    card_title = "Analysis of a flow"

    file: str
    row: dict[str, Any]
    notes: tuple[str, ...] = ()
    controller: str | None = None
    variant: str | None = None
    identification: Identification | None = None
    through_fq: bool | None = None
    paced: bool = False
    replayed: str | None = None
    agreement: dict[str, float] | None = None
    polled: Columns | None = None
    diagnosis: Diagnosis | None = None
    ecn: dict[str, Any] | None = None
    collapse: Collapse | Refusal | None = None
    whatif: WhatIf | Refusal | None = None
    effects: Effects | Refusal | None = None
    view: FlowView | None = None
    flow: Flow | None = None
    packets: object = None
    counters: CounterFlow | None = None
    modelled: Table | None = None
    clock: Alignment | None = None

    @property
    def polls(self) -> pd.DataFrame | None:
        """The kernel's and the replay's values at each poll; None without counters."""
        return None if self.polled is None else frame_of(self.polled)

    @property
    def model(self) -> pd.DataFrame | None:
        """State of a controller replayed over counters after each call; None if none was."""
        return None if self.modelled is None else frame_of(self.modelled)

    @property
    def title(self) -> str:
        """Return "address:port → address:port", bulk sender first."""
        if self.row["src"] is None:
            return "connection without a name" if self.counters is None else title_of(self.counters)
        return connection(*(self.row[name] for name in ENDS))

    @property
    def retransmitted_share(self) -> float:
        """Return retransmitted over sent segments, NaN if none was sent."""
        return float(retransmitted_share(self.row))

    @property
    def sentence(self) -> str:
        """Return in one sentence, without advice, why the flow behaved as it did; or why that is unknown."""
        if self.diagnosis is None:
            return "; ".join(self.notes[:1])
        return self.diagnosis.verdicts[0].text if self.diagnosis.verdicts else self.diagnosis.verdict

    def summary(self) -> str:
        """Return as text the sender, the cause, and the caveats."""
        lines = [f"{self.title}: sent by {self.controller or self.variant or 'an unknown controller'}", self.sentence]
        if self.whatif is not None:
            lines += [f"what if: {self.whatif}"] if isinstance(self.whatif, Refusal) else self.whatif.lines()
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def frame(self) -> pd.DataFrame:
        """Return a table of one row: `to_dict` without the simulated parts."""
        import pandas as pd

        return pd.DataFrame([{name: value for name, value in self.to_dict().items() if name not in SIMULATED}])

    def to_dict(self) -> dict[str, Any]:
        """Return the keys of `cctrace flows --json`, plus those of the analysis."""
        known = {key: value for key, value in self.row.items() if key != "warnings"}
        identification = self.identification
        return known | {
            "file": self.file,
            "retransmitted_share": self.retransmitted_share,
            "controller": self.controller,
            "replayed": self.replayed,
            "through_fq": self.through_fq,
            "candidates": [candidate._asdict() for candidate in identification.candidates] if identification else [],
            "agreement": self.agreement,
            "ecn": self.ecn,
            "bbr_modes": _modes(self.counters) if self.counters else None,
            **_findings(self.diagnosis),
            "collapse": self.collapse and self.collapse.to_dict(),
            "whatif": self.whatif and self.whatif.to_dict(),
            "effects": self.effects and self.effects.to_dict(),
            "clock": asdict(self.clock) if self.clock else None,
            "warnings": list(self.notes),
        }


def _modes(counters: CounterFlow) -> list[dict[str, Any]]:
    """Return BBR's modes over time from polls: dicts of mode, start_s and end_s since the first poll."""
    modes = counters.modes()
    spans = [] if modes is None else spans_of(counters.seconds(), modes)
    return [{"mode": None if mode == "None" else mode, "start_s": start, "end_s": end} for start, end, mode in spans]


def _findings(diagnosis: Diagnosis | None) -> dict[str, Any]:
    if diagnosis is None:
        return {"diagnosis": None, "limits": [], "events": [], "verdicts": []}
    found = asdict(diagnosis)
    found["verdicts"] = [verdict.to_dict() for verdict in diagnosis.verdicts]
    return {name: found.pop(name) for name in ("limits", "events", "verdicts")} | {"diagnosis": found}
