"""Tests that must not run at the same time share a group: pytest-xdist 3.8 does not see groups with
pytest 9.2.
"""

import os

import pytest


@pytest.mark.xdist_group("groups")
@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="one process runs all tests")
def test_groups_have_an_effect(request):
    assert request.node.nodeid.endswith("@groups")
