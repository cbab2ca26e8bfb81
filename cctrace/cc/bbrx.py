"""BBRx: BBR that also answers to the RTT, by a proportional-integral law (Chung et al., NetDev 0x12, 2018).

Model:  r = gamma C - (beta / delta) C (R - k/4 Rmin),   delta = Rmin                              [Chung18] Eqs. 4, 5

C is BBR's bandwidth estimate, R the latest RTT, Rmin BBR's min_rtt. C times the excess of the RTT over its target k/4
Rmin is the surplus queue, of which the rate drains the share beta per min_rtt. The law is evaluated once in every epoch
of delta (Algorithm 1). States as in `bbr2016`. On entering STARTUP and PROBE_BW the flow reads beta from the bin of
Table I that its C and Rmin fall in:

    models/bbrx_table1.json: beta from 0.25 (long and slow paths) to 0.75 (short or fast ones), k = 4 everywhere; the
    paper's text shows one cell of the first row, and the row's others are taken to equal it

Sources: [Chung18]; there is no released code, its kernel was 4.15.
Differs from bbr2016: the pacing rate follows r in place of C. beta = 0 and gamma = 1 is bbr2016, decision by decision.

Left open by the paper, and chosen here:

* gain cycling: kept, the pacing gain multiplies r;
* cwnd: BBR's, from C (Eq. 4 speaks of the rate alone);
* R: the latest RTT sample of an epoch, as measured (no smoothing); without one, or without min_rtt, r = gamma C;
* between epochs r stays the same share of C, so that BBR's probing goes on while C changes;
* STARTUP: BBR's rule that the rate does not fall there is kept, so the law slows its rise and does not cut;
* a floor: the law goes negative where R - k/4 Rmin exceeds Rmin / beta; r is kept at C * 88/256 at least, BBR's own
  slowest rate (DRAIN), so that samples go on coming;
* above gamma C: allowed while R is below its target (k > 4), as Eq. 5 says;
* a bin is looked up with the values at that moment; before the first RTT with [0,50) ms.

``bbrx:table=NAME`` takes another table, of models/ or a file as `cctrace learn` writes it; `beta` and `k` given as
parameters hold in every bin.
"""

import functools
from typing import Any, ClassVar

from cctrace import presets
from cctrace.cc.ack import Ack
from cctrace.cc.base import Controller, Param, floats, ints
from cctrace.cc.bbr1_model import BW_UNIT
from cctrace.cc.bbr2016 import BBR2016
from cctrace.cc.cmath import U32_MAX
from cctrace.errors import ArgumentError

# Rows of Rmin by columns of C; all tables have Table I's bins.
_BINS = presets.load("bbrx_table1")["bins"]
TABLE_MBPS = tuple(cell["rate_mbps"][0] for cell in _BINS if cell["min_rtt_ms"] == _BINS[0]["min_rtt_ms"])
COLUMNS, ROWS = len(TABLE_MBPS), len(_BINS) // len(TABLE_MBPS)
TABLE_RTT_US = tuple(1000 * cell["min_rtt_ms"][0] for cell in _BINS[::COLUMNS])
MIN_K, MAX_K, MAX_BETA = 4, 40, 2.0


def table_values(name: str) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return (beta, k) of every bin, in Table I's order, of a table: of `models/` by name, or a file.

    A cell that the paper's text lacks is taken to equal the first of its row.

    Raises `ArgumentError` if there is no such table, or it is not one of Table I's bins.
    """
    bins = presets.bins(name)
    if [(b.get("min_rtt_ms"), b.get("rate_mbps")) for b in bins] != [(b["min_rtt_ms"], b["rate_mbps"]) for b in _BINS]:
        raise ArgumentError(f"table={name!r}: its bins are not those of Table I (models/bbrx_table1.json)")
    cells = [bins[n - n % COLUMNS] if cell.get("beta") is None else cell for n, cell in enumerate(bins)]
    try:
        beta, k = tuple(float(cell["beta"]) for cell in cells), tuple(int(cell["k"]) for cell in cells)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ArgumentError(f"table={name!r}: every bin needs numbers beta and k") from None
    if not all(0 <= value <= MAX_BETA for value in beta) or not all(MIN_K <= value <= MAX_K for value in k):
        raise ArgumentError(f"table={name!r}: beta must be in 0..{MAX_BETA:g}, k in {MIN_K}..{MAX_K}")
    return beta, k


def with_table(cls: type[Controller], name: str) -> type[Controller]:
    """Return the controller with another table in place of Table I."""
    return _with_values(cls, *table_values(name))  # type: ignore[arg-type]  # mypy holds that classes have no hash


@functools.lru_cache(maxsize=64)
def _with_values(cls: type[Controller], beta: tuple[float, ...], k: tuple[int, ...]) -> type[Controller]:
    fields = {"table_beta": floats(len(beta), beta), "table_k": ints(len(k), k)}
    return type(cls.__name__, (cls,), {"__module__": cls.__module__, "__doc__": cls.__doc__} | fields)


_BETA1, _K1 = table_values("bbrx_table1")


class BBRx(BBR2016):
    """BBR with a PI law on the RTT; see the module's header."""

    params = BBR2016.params | {
        "gamma": Param(1.0, 0.5, 1.0, "target utilisation [Chung18] Eq. 4 (the paper uses 1 and 0.98)"),
        "beta": Param(-1.0, -1.0, MAX_BETA, "queue control constant [Chung18] Eq. 4; below 0: from the table"),
        "k": Param(0, 0, MAX_K, "target RTT in quarters of min_rtt, from 4 [Chung18] Eq. 5; 0: from the table"),
    }
    named_settings: ClassVar[dict[str, Any]] = {"table": with_table}

    table_beta = floats(len(_BETA1), _BETA1)
    table_k = ints(len(_K1), _K1)

    latest_rtt_us: int = -1
    epoch_us: int = -1  # when the law was last evaluated; -1: not yet
    share: float = 1.0  # r / C in this epoch
    bin_k: int = 4
    bin_beta: float = 0.0  # in force, as `bin_k`, since the last entry into STARTUP or PROBE_BW

    def init(self, ack: Ack) -> None:
        """Start at gamma C."""
        self.share = self.gamma
        super().init(ack)

    def update_model(self, ack: Ack) -> None:
        """As the parent; evaluate the law once an epoch, with the latest RTT [Chung18] Algorithm 1."""
        super().update_model(ack)
        if ack.rs_rtt_us >= 0:
            self.latest_rtt_us = ack.rs_rtt_us
        if self.epoch_us < 0 or ack.now_us - self.epoch_us >= self.min_rtt_us:
            self.epoch_us = ack.now_us
            self.share = self.law()

    def set_pacing_rate(self, ack: Ack, bw: int, gain: int) -> None:
        """Pace at gain * r [Chung18] Eq. 5."""
        super().set_pacing_rate(ack, int(bw * self.share), gain)

    def law(self) -> float:
        """Return r / C [Chung18] Eq. 5."""
        if self.latest_rtt_us < 0 or self.min_rtt_us == 0 or self.min_rtt_us == U32_MAX:
            return self.gamma
        surplus = (self.latest_rtt_us - 0.25 * self.bin_k * self.min_rtt_us) / self.min_rtt_us
        return max(self.gamma - self.bin_beta * surplus, self.drain_gain)

    def enter_startup(self, ack: Ack) -> None:
        """As the parent, with the bin read again."""
        super().enter_startup(ack)
        self.read_table(ack)

    def enter_probe_bw(self, ack: Ack) -> None:
        """As the parent, with the bin read again."""
        super().enter_probe_bw(ack)
        self.read_table(ack)

    def read_table(self, ack: Ack) -> None:
        """Look up beta and k for this path [Chung18] Table I."""
        mbps = self.max_bw() * ack.mss * 8 / BW_UNIT  # segments/us: Mbit/s follow at once
        cell = 0
        for n in range(1, COLUMNS):
            cell = cell + int(mbps >= TABLE_MBPS[n])
        if self.min_rtt_us != U32_MAX:
            for n in range(1, ROWS):
                cell = cell + COLUMNS * int(self.min_rtt_us >= TABLE_RTT_US[n])
        self.bin_beta = self.table_beta[cell]
        self.bin_k = self.table_k[cell]
        if self.beta >= 0.0:
            self.bin_beta = self.beta
        if self.k > 0:
            self.bin_k = self.k
