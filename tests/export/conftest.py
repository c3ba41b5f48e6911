"""What tests of exported C projects share."""

import functools

import pytest

from tests.export.built import Library


@pytest.fixture(scope="module")
def libraries(projects):
    """The libraries of the module's own ``projects``, each built once, by name."""
    return functools.cache(lambda name: Library(projects(name)))
