"""How sure effects are: fit its three numbers, and print how often effects were right.

    python -m benchmarks.interventions DIR --parts verdicts --output answers.csv
    python -m benchmarks.effect_confidence answers.csv [more.csv ...] [--judge]

The numbers (`NUMBERS`, by the table that has them) are those that make the answers likeliest. `--judge` keeps the
present ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import optimize

from benchmarks.interventions import calibration_error, is_right
from cctrace.counterfactual import constants as of_effects
from cctrace.counterfactual.effects import confidence_of
from cctrace.diagnosis import constants as of_diagnosis
from cctrace.diagnosis.findings import Effect
from cctrace.estimates import Estimate, Estimate90

BINS = 5
LEAST = 1e-3  # of a probability, so that no single answer decides
# (table, name): bounds
NUMBERS = {
    (of_diagnosis, "MISSES_TIMES"): (0.1, 5.0),
    (of_effects, "ABSENT_TIMES"): (0.0, 1.0),
    (of_effects, "DOUBTED"): (0.0, 1.0),
}


@contextmanager
def numbers(chosen: Sequence[float]) -> Iterator[None]:
    """Take these numbers for the present ones."""
    kept = [getattr(*number) for number in NUMBERS]
    try:
        for number, value in zip(NUMBERS, chosen, strict=True):
            setattr(*number, float(value))
        yield
    finally:
        for number, value in zip(NUMBERS, kept, strict=True):
            setattr(*number, value)


def effects_in(answers: pd.DataFrame) -> list[Effect]:
    """Return the effects of rows of answers."""

    def estimate(row: pd.Series, name: str) -> Estimate:
        sides = (row[name], row[f"{name}_low"], row[f"{name}_high"])
        return Estimate90(*(None if pd.isna(side) else float(side) for side in sides))

    return [
        Effect("", estimate(row, "goodput"), estimate(row, "rtt"), Estimate90(0.0)) for _, row in answers.iterrows()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("answers", type=Path, nargs="+")
    parser.add_argument("--judge", action="store_true", help="fit nothing")
    options = parser.parse_args()
    answers = pd.concat([pd.read_csv(file) for file in options.answers], ignore_index=True)
    answers = answers.dropna(subset=["goodput", "goodput_want"])
    effects, right = effects_in(answers), is_right(answers)
    asked = list(zip(effects, answers["presence"].astype(float), answers["is_doubted"].astype(bool), strict=True))

    def says() -> np.ndarray:
        return np.array([confidence_of(effect, presence, is_doubted) for effect, presence, is_doubted in asked])

    def unlikely(chosen: Sequence[float]) -> float:
        with numbers(chosen):
            p = np.clip(says(), LEAST, 1 - LEAST)
        return -float(np.log(np.where(right, p, 1 - p)).sum())

    chosen = [getattr(*number) for number in NUMBERS]
    if not options.judge:
        chosen = optimize.minimize(unlikely, chosen, method="Nelder-Mead", bounds=list(NUMBERS.values())).x
    found = ", ".join(f"{name} {value:.2g}" for (_, name), value in zip(NUMBERS, chosen, strict=True))
    print(f"{found}, log likelihood {-unlikely(chosen):.1f}")
    with numbers(chosen):
        sure = says()
    print("| effects | says | right |\n|---|---|---|")
    for part in np.array_split(np.argsort(sure, kind="stable"), BINS):
        print(f"| {len(part)} | {sure[part].mean():.2f} | {right[part].mean():.2f} |")
    error, n = calibration_error(sure, right, BINS)
    by_chance = np.sqrt(2 / np.pi * BINS * (sure * (1 - sure)).mean() / n)
    print(f"calibration error {error:.3f} over {n} effects ({by_chance:.3f} by chance alone if calibrated)")


if __name__ == "__main__":
    main()
