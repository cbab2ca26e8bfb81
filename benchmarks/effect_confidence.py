"""How sure effects are: fit the one number of `Effect.confidence`, and print how often effects were right.

    python -m benchmarks.interventions DIR --parts verdicts --output answers.csv
    python -m benchmarks.effect_confidence answers.csv [more.csv ...] [--judge]

The number (`MISSES_TIMES` of `diagnosis/constants.py`) is that which makes the answers likeliest. `--judge` keeps the
present one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import optimize

from benchmarks.interventions import calibration_error, is_right
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.findings import Effect
from cctrace.estimates import Estimate, Estimate90

BINS = 5
LEAST = 1e-3  # of a probability, so that no single answer decides
BOUNDS = 0.1, 5.0  # of the number


@contextmanager
def scale(times: float) -> Iterator[None]:
    """Take this number for the present one."""
    kept, const.MISSES_TIMES = const.MISSES_TIMES, times
    try:
        yield
    finally:
        const.MISSES_TIMES = kept


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

    def says() -> np.ndarray:
        return np.array([effect.confidence for effect in effects])

    def unlikely(times: float) -> float:
        with scale(times):
            p = np.clip(says(), LEAST, 1 - LEAST)
        return -float(np.log(np.where(right, p, 1 - p)).sum())

    chosen = const.MISSES_TIMES
    if not options.judge:
        chosen = float(optimize.minimize_scalar(unlikely, bounds=BOUNDS, method="bounded").x)
    print(f"MISSES_TIMES {chosen:.2g}, log likelihood {-unlikely(chosen):.1f}")
    with scale(chosen):
        sure = says()
    print("| effects | says | right |\n|---|---|---|")
    for part in np.array_split(np.argsort(sure, kind="stable"), BINS):
        print(f"| {len(part)} | {sure[part].mean():.2f} | {right[part].mean():.2f} |")
    error, n = calibration_error(sure, right, BINS)
    by_chance = np.sqrt(2 / np.pi * BINS * (sure * (1 - sure)).mean() / n)
    print(f"calibration error {error:.3f} over {n} effects ({by_chance:.3f} by chance alone if calibrated)")


if __name__ == "__main__":
    main()
