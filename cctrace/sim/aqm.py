"""Active queue management of a simulated path: names, parameters and defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cctrace.arguments import check_choice
from cctrace.errors import ArgumentError
from cctrace.sim.core.aqm import PIE_TICK_SHIFT
from cctrace.sim.core.structs import CODEL, DUALPI2, FQ_CODEL, NEVER, NO_LANE, PIE, RED
from cctrace.tcp.wire import PACKET_BYTES
from cctrace.units import parse_share, parse_size_bytes, parse_time_ns

_TIMES = ("target", "interval", "ce_threshold", "tupdate", "step")
_SIZES = ("min", "max", "quantum", "avpkt")
_CODEL = {"target": "5ms", "interval": "100ms", "ce_threshold": None}  # [RFC8289] §4; none: no such marks
# Parameters and their defaults, those of `tc` [Linux618]; RED's follow from the buffer.
KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "codel": (CODEL, _CODEL),
    "fq_codel": (FQ_CODEL, _CODEL | {"quantum": f"{PACKET_BYTES}B"}),
    "red": (RED, {"min": None, "max": None, "probability": "2%", "burst": None, "avpkt": "1kB"}),
    "pie": (PIE, {"target": "15ms", "tupdate": "15ms", "alpha": 2.0, "beta": 20.0}),
    "dualpi2": (
        DUALPI2,
        {
            "target": "15ms",
            "tupdate": "16ms",
            "alpha": 0.16,
            "beta": 3.2,
            "step": "1ms",
            "min_qlen_step": 0.0,  # packets found on arrival; [RFC9332] has Th_len, L4STeam's of 2020 took 2
            "coupling": 2.0,
        },
    ),
}
NAMES = ("droptail", *KINDS)
DUALPI2_CLASSIC_WEIGHT = 10  # percent of the bytes reserved for the classic queue


@dataclass(frozen=True)
class Aqm:
    """Active queue management from a text: ``"pie"``, ``"codel:target=2ms"``, ``"red:max=90kB,noecn"``.

    >>> Aqm.parse("pie:target=5ms,noecn").given
    {'target': '5ms'}
    """

    kind: str  # one of `KINDS`
    ecn: bool  # whether packets of ECN flows are marked instead of dropped. DualPI2 always does.
    given: Mapping[str, str]  # the parameters in the text

    @classmethod
    def parse(cls, text: str) -> Aqm:
        """Parse a text. Raises `ArgumentError` if the kind or a parameter is unknown, or a value is invalid."""
        kind, _, rest = text.partition(":")
        check_choice("aqm", kind if kind in KINDS else text, NAMES)
        known = KINDS[kind][1]
        given: dict[str, str] = {}
        ecn = True
        for part in filter(None, rest.split(",")):
            name, _, value = part.partition("=")
            if name == "noecn" and not value and kind != "dualpi2":
                ecn = False
            elif name in known and value:
                given[name] = value
            else:
                raise ArgumentError(
                    f"aqm={text!r}: unknown {part!r} ({kind} takes {', '.join(known)}, NAME=VALUE each)"
                )
        found = cls(kind, ecn, given)
        found.fields(1_000_000, 1_000_000.0)
        return found

    def fields(self, buffer_bytes: int, bdp_bytes: float) -> dict[str, Any]:
        """Return the fields of the simulation's AQM record for a path."""
        code, defaults = KINDS[self.kind]
        values = {
            name: self._value(name, self.given.get(name, default), bdp_bytes) for name, default in defaults.items()
        }
        fields: dict[str, Any] = {"kind": code, "ecn": int(self.ecn), "new_first": NO_LANE, "old_first": NO_LANE}
        for name in ("target", "interval", "ce_threshold", "step"):
            if values.get(name) is not None:
                fields[f"{name}_ns"] = values[name]
        if self.kind == "fq_codel":
            fields["quantum"] = values["quantum"]
        elif self.kind == "red":
            fields |= _red(values, buffer_bytes)
        elif self.kind == "pie":
            fields |= {"update_ns": values["tupdate"], "next_update": values["tupdate"]}  # it existed before the flows
            fields |= {"pie_target": values["target"] >> PIE_TICK_SHIFT}
            fields |= {"pie_alpha": round(values["alpha"]), "pie_beta": round(values["beta"])}
        elif self.kind == "dualpi2":
            fields |= {"update_ns": values["tupdate"], "next_update": values["tupdate"], "coupling": values["coupling"]}
            fields |= {"pi2_alpha_Hz": values["alpha"], "pi2_beta_Hz": values["beta"]}
            fields["min_qlen_step"] = math.ceil(values["min_qlen_step"])
            credit = PACKET_BYTES * (2 * DUALPI2_CLASSIC_WEIGHT - 100)  # dualpi2_calculate_c_protection
            fields |= {"classic_weight": DUALPI2_CLASSIC_WEIGHT, "first_credit": credit, "credit": credit}
        return fields

    def _value(self, name: str, value: Any, bdp_bytes: float) -> Any:
        """Return a parameter as a number: ns, bytes, a share, or unchanged."""
        if value is None or isinstance(value, float):
            return value
        if name in _TIMES:
            number: float = parse_time_ns(value, f"aqm {name}")
        elif name in _SIZES:
            number = parse_size_bytes(value, bdp_bytes, f"aqm {name}")
        elif name == "probability":
            number = parse_share(value, "aqm probability")
        else:
            try:
                number = float(value)
            except ValueError:
                number = math.nan
        if not 0 < number < NEVER:  # what a word of the record holds
            raise ArgumentError(f"aqm {self.kind}: {name}={value} must be positive, and below {NEVER:.0e}")
        return number


def longest_red_wait(burst: float, weight_log: int) -> float:
    """Return by how many packets a burst may exceed `min` if RED's average has that weight: tc_red_eval_ewma."""
    return (1 - (1 - 0.5**weight_log) ** burst) * 2**weight_log


def red_burst(weight_log: int, least_packets: float) -> int:
    """Return the longest burst, in packets, for which `tc` gives the average that weight; `min` is two or more."""
    burst = math.ceil(least_packets)
    while burst + 2 - least_packets <= longest_red_wait(burst + 1, weight_log):
        burst += 1
    return burst


def _red(values: Mapping[str, Any], buffer_bytes: int) -> dict[str, int]:
    """RED as `tc` sets it: a quarter of the buffer is `max`, a third of that `min`; tc_red_eval_ewma, red_set_parms."""
    most = values["max"] or (3 * values["min"] if values["min"] else buffer_bytes // 4)
    least = values["min"] or most // 3
    if not 0 < least < most:
        raise ArgumentError(f"aqm red: min={least} B must be less than max={most} B")
    burst = values["burst"] or (2 * least + most) / (3 * values["avpkt"])
    wait = burst + 1 - least / values["avpkt"]
    if wait < 1:
        raise ArgumentError(f"aqm red: burst={burst:g} packets are fewer than min={least} B holds")
    weights = (log for log in range(1, 32) if wait <= longest_red_wait(burst, log))
    chance = values["probability"]
    return {
        "red_min": least,
        "red_max": most,
        "red_wlog": next(weights, 31),
        "red_step": max(math.floor(chance * 2**32) // (most - least), 1),
        "red_count": -1,
    }
