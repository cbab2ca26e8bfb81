"""Every golden vector: each controller decides, call by call, what the released code decided."""

import pytest

from cctrace.replaying import vectors
from tests.places import GOLDEN


@pytest.mark.parametrize("mode", ["compiled", "interpreted"])
@pytest.mark.parametrize("path", sorted(GOLDEN.rglob("*.parquet")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_output_and_state_equals_the_released_codes(path, mode):
    result = vectors.verify_file(path, mode)
    assert result["mismatching_rows"] == 0, result["first"]
