"""What changed between the snapshots of two times, as text."""

from collections.abc import Sequence

from busbw.check.alike import HostText, merged_text, pattern
from busbw.check.changes import ChangedFact, ChangeReport, WorseFault
from busbw.check.differences_text import MAX_VALUES, MIN_MISSING_FACTS, from_usual
from busbw.check.shell_words import word
from busbw.check.types import MISSING, Fault
from busbw.core.host_ranges import fold
from busbw.core.sizes import counted
from busbw.ui.columns import wrapped

_NOTHING = "\nno finding on either side, and no fact has changed\n"


def text(report: ChangeReport, width: int | None = None, expect: str = "") -> str:
    """The nodes, then the faults: new, worse, gone or not known to be, and unchanged; before the
    unchanged ones the facts that have changed. `expect` is the file that the nodes were judged by.
    """
    head = f"{report.before} to {report.after}: {counted(len(report.nodes), 'node')} compared\n"
    if report.only_before:
        head += f"UNKNOWN {fold(report.only_before)}: only in {report.before}\n"
    if report.muted:
        head += f"MUTED   findings on {fold(report.muted)}\n"
    if report.only_after:
        head += f"only in {report.after}, so that all findings are new: {fold(report.only_after)}\n"
    for file, reason in report.unreadable.items():
        head += f"UNKNOWN {file}: {reason}\n"
    body = (
        _part("new", report.new)
        + _part("worse", report.worse)
        + _part("gone", report.gone)
        + _part("not known, as the host was booted since", report.booted)
        + _part(f"no data in {report.after}", report.unjudged)
        + _facts(report.facts)
        + _part("unchanged", report.unchanged)
    )
    return wrapped(head + (body or _NOTHING) + _hint(report, expect), width)


def _part(title: str, faults: Sequence[Fault]) -> str:
    """A heading with the number of faults, and each fault with its nodes; '' without any."""
    if not faults:
        return ""
    return f"\n{title}: {counted(len(faults), 'fault')}\n" + "".join(map(_fault, faults))


def _fault(fault: Fault) -> str:
    label = fault.verdict.value.upper()
    lines = f"{label:7} {fault.message}  [{fault.id} {fault.name}]\n{_on(fault.hosts)}"
    return lines + (f"        was: {fault.was}\n" if isinstance(fault, WorseFault) else "")


def _on(hosts: Sequence[str]) -> str:
    return f"        on: {fold(hosts)}\n"


def _facts(facts: Sequence[ChangedFact]) -> str:
    """The facts that have changed; those that the same hosts lack on one side together."""
    if not facts:
        return ""
    lacking: dict[tuple[str, str], list[ChangedFact]] = {}
    for fact in facts:
        lacking.setdefault((_lacking(fact), fold(fact.hosts)), []).append(fact)
    lines, by_name = "", dict[str, list[ChangedFact]]()
    for (when, _), alike in lacking.items():
        if when and len(alike) >= MIN_MISSING_FACTS:
            names = ", ".join(fact.fact for fact in alike)
            lines += f"WARN    {len(alike)} facts {when}: {names}\n{_on(alike[0].hosts)}"
            continue
        for fact in alike:
            by_name.setdefault(fact.fact, []).append(fact)
    lines += "".join(map(_changes_of_one, by_name.values()))
    count = len({fact.fact for fact in facts})
    return f"\nchanged: {counted(count, 'fact')}\n{lines}"


def _lacking(fact: ChangedFact) -> str:
    """On which side hosts lack the fact; '' if on none."""
    if fact.after == MISSING:
        return "are missing now"
    return "were missing before" if fact.before == MISSING else ""


def _changes_of_one(facts: Sequence[ChangedFact]) -> str:
    """The changes of one fact; where there are many, those alike in one line."""
    texts: dict[tuple[str, ...], list[HostText]] = {}
    hosts: dict[tuple[str, ...], list[str]] = {}
    for fact in facts:
        text = HostText("", _change(fact))
        key = pattern(text) if len(facts) > MAX_VALUES else (text.text,)
        texts.setdefault(key, []).append(text)
        hosts.setdefault(key, []).extend(fact.hosts)
    name = facts[0].fact
    return "".join(
        f"WARN    {name}: {merged_text(alike)}\n{_on(hosts[key])}" for key, alike in texts.items()
    )


def _change(fact: ChangedFact) -> str:
    """`9000 -> 1500`; of a long list what was added and what was removed."""
    after = from_usual(fact.after, fact.before)
    return after if after != fact.after else f"{fact.before} -> {after}"


def _hint(report: ChangeReport, expect: str) -> str:
    """The command that prints the evidence and fixes of what is new or worse; '' if nothing is."""
    names = dict.fromkeys(fault.name for fault in (*report.new, *report.worse))
    only = "".join(f" --only {name}" for name in names)
    words = f"--from {word(report.after)}" + (f" --expect {word(expect)}" if expect else "")
    return f"\nevidence and fixes: busbw check {words}{only}\n" if only else ""
