"""Continuous integration fails on a test that is skipped for a reason not listed."""

from types import SimpleNamespace

import pytest


@pytest.fixture
def skips(request):
    """The plugin that `--only-allowed-skips` registers."""
    (plugin,) = (
        plugin
        for plugin in request.config.pluginmanager.get_plugins()
        if hasattr(plugin, "_AllowedSkips")
    )
    return plugin._AllowedSkips()


def exit_code_of(skips, reason: str, **more) -> pytest.ExitCode:
    report = pytest.TestReport(
        "t.py::test",
        ("t.py", 1, "test"),
        {},
        "skipped",
        ("t.py", 1, f"Skipped: {reason}"),
        "setup",
        **more,
    )
    skips.pytest_runtest_logreport(report)
    session = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    skips.pytest_sessionfinish(session)
    return session.exitstatus


@pytest.mark.parametrize(
    "reason", ["needs two GPUs", "NCCL 22809: loads plugins differently from 22900 and newer"]
)
def test_a_listed_reason_is_allowed(skips, reason):
    assert exit_code_of(skips, reason) == pytest.ExitCode.OK


@pytest.mark.parametrize("reason", ["no chromium: make test-tools", "needs two GPUs and more", ""])
def test_any_other_fails_the_run(skips, reason):
    assert exit_code_of(skips, reason) == pytest.ExitCode.TESTS_FAILED


def test_an_expected_failure_is_not_a_skip(skips):
    assert exit_code_of(skips, "no reason", wasxfail="known") == pytest.ExitCode.OK


def test_a_module_that_is_skipped_counts_too(skips):
    skips.pytest_collectreport(
        pytest.CollectReport("t.py", "skipped", ("t.py", 1, "Skipped: no module"), [])
    )
    assert exit_code_of(skips, "needs two GPUs") == pytest.ExitCode.TESTS_FAILED
