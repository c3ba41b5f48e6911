"""Every hostile case ends with its documented code, in time and in bounds, and does nothing that it must not."""

import pytest

from tests.hostile import corpus, harness


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return harness.outcomes(list(corpus.everything().values()), tmp_path_factory.mktemp("hostile"))


@pytest.mark.slow
@pytest.mark.parametrize("group", corpus.GROUPS)
def test_hostile_cases_end_as_documented(group, found):
    cases = {name: case for name, case in corpus.everything().items() if case.group == group}

    assert cases
    assert harness.complaints(cases, found) == []


def test_there_are_as_many_cases_as_promised():
    assert len(corpus.everything()) >= 450
