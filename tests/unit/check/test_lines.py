"""The exact findings of each rule for each command line."""

import shlex
from collections.abc import Callable

from cases_command import ALONE, ON_A_MACHINE
from more_command import MORE_ALONE, MORE_ON_A_MACHINE

from busbw.check.command.lint import lint
from busbw.check.machine import Machine


def findings_of_line(name: str, line: str, machine: Machine | None) -> list[str]:
    """A line with what a rule finds in it."""
    lines = [f"{name}: {line}"]
    lines += (
        [
            f"  with {text}"
            for text in (machine.environment or {}, machine.call("mpirun", str).text)
            if text
        ]
        if machine
        else []
    )
    for finding in lint(shlex.split(line), machine):
        if finding.name == name:
            lines.append(f"  {finding.verdict.value}: {finding.message}")
            lines += [
                f"    {item.where}: {item.seen!r}"
                + (f", not {item.expected!r}" if item.expected else "")
                for item in finding.evidence
            ]
            lines += [f"    $ {finding.fix}"] if finding.fix else []
    return lines


def test_findings_of_each_line(golden: Callable[[str, str], None]) -> None:
    bare_cases = [(name, line, None) for name, line, *_ in (*ALONE, *MORE_ALONE)]
    line_cases = [
        *bare_cases,
        *((name, line, on) for name, line, on, *_ in (*ON_A_MACHINE, *MORE_ON_A_MACHINE)),
    ]
    golden(
        "checks/lines.txt",
        "\n".join(
            text
            for case in sorted(line_cases, key=lambda case: case[0])
            for text in findings_of_line(*case)
        )
        + "\n",
    )
