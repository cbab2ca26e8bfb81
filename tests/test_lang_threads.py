"""Work that a second thread does ahead of knowing whether it is needed."""

import threading

import pytest

from cctrace.lang import threads


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)


def test_a_guess_is_made_in_another_thread(two_cores):
    with threads.Guess(threading.get_ident) as guess:
        guess.begin()
        assert guess.result() != threading.get_ident()


@pytest.mark.parametrize(("cores", "begin"), [(1, True), (2, False)])
def test_without_a_second_core_or_unless_begun_it_is_made_when_asked_for(monkeypatch, cores, begin):
    monkeypatch.setattr(threads, "cores", lambda: cores)
    with threads.Guess(threading.get_ident) as guess:
        if begin:
            guess.begin()
        assert guess.result() == threading.get_ident()


def test_an_error_is_raised_where_the_result_is_asked_for_and_nowhere_else(two_cores):
    with threads.Guess(lambda: 1 / 0) as guess:
        guess.begin()
        with pytest.raises(ZeroDivisionError):
            guess.result()
    with threads.Guess(lambda: 1 / 0) as guess:
        guess.begin()


def test_a_guess_that_is_not_needed_ends_and_so_does_one_that_it_made(two_cores):
    ended, begun = [], threading.Event()

    def forever(name):
        try:
            begun.set()
            while True:
                threads.check_wanted()
        finally:
            ended.append(name)

    def nested():
        with threads.Guess(lambda: forever("inner")) as inner:
            inner.begin()
            forever("outer")

    with threads.Guess(nested) as guess:
        guess.begin()
        begun.wait()
        guess.give_up()
    assert sorted(ended) == ["inner", "outer"]
    threads.check_wanted()  # this thread was not given up
