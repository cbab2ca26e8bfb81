"""The fixture `cctrace` of pytest: expectations of captures and simulations as tests.

    def test_my_controller_fills_the_link(cctrace):
        path = cctrace.Path(rate="40Mbit", rtt="40ms", buffer="2bdp")
        cctrace.expect(cctrace.simulate(path, MyController, "20s"), goodput=">= 35Mbit", retransmitted="<= 0.5%")

It is the package itself, imported when a test first uses it, with `expect` beside it. pytest finds it by the entry
point `pytest11` wherever cctrace is installed; `-p no:cctrace` leaves it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cctrace.errors import ArgumentError

if TYPE_CHECKING:
    from cctrace.checking.check import Checked
    from cctrace.checking.expectations import Given


class Fixture:
    """The names of the package, and `expect`.

    Examples
    --------
    >>> cctrace = Fixture()
    >>> path = cctrace.Path(rate="20Mbit", rtt="40ms", buffer="1bdp")
    >>> checked = cctrace.expect(cctrace.simulate(path, ["reno"], "4s", seed=1), goodput=">= 10Mbit")
    >>> checked.holds
    True
    """

    def __getattr__(self, name: str) -> Any:
        import cctrace

        return getattr(cctrace, name)

    def expect(self, source: Any, expectations: Given | None = None, **more: Any) -> Checked:
        """Fail the test unless expectations hold.

        Parameters
        ----------
        source
            As for `cctrace.check`.
        expectations : path, dict or sequence of dict, optional
            As for `cctrace.check`.
        **more
            Expectations as keywords, instead: ``goodput=">= 35Mbit"``.

        Returns
        -------
        Checked

        Raises
        ------
        ArgumentError
            If an expectation is not what it should be.
        """
        __tracebackhide__ = True  # the test's line is what a reader wants to see
        from cctrace.checking.check import check

        if (expectations is None) == (not more):
            raise ArgumentError(
                "give expectations either as a file (or dict), or as keywords such as goodput='>= 1Mbit'"
            )
        checked = check(source, more if expectations is None else expectations)
        if not checked.holds:
            pytest.fail(checked.summary(), pytrace=False)
        return checked


@pytest.fixture(scope="session")
def cctrace() -> Fixture:
    """The package cctrace, with ``expect(source, goodput=">= 35Mbit")`` beside its names."""
    return Fixture()
