"""The file of a tuning: a table for one system, with the rules of several collectives.

It is written after every size. A table of an earlier tuning can be measured against NCCL's choice
again, on the same system.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from busbw.core.errors import UsageError
from busbw.core.given_file import read_text
from busbw.core.sweep import SweepSpec
from busbw.core.tuner_table import TunerRule, TunerTable, parse, ranges, whole
from busbw.core.version import __version__
from busbw.measure.events import now
from busbw.measure.record import save
from busbw.tune.jobs import Jobs, TuningCheck, check
from busbw.tune.types import TunedSize, TunedSystem
from busbw.tune.validate import NAMES, count_sizes

FOUND, CHECKED = "found, not yet checked with new ranks", "checked with new ranks"
SYSTEM = ("device", "ranks", "hosts", "nccl", "network")


def read(file: Path) -> TunerTable:
    """The table in a file; UsageError if it cannot be read."""
    try:
        return parse(read_text(file), str(file))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is no text"
        raise UsageError(f"{file}: {why}", "name a file that busbw tune has written") from error


def system_of_table(table: TunerTable, name: str) -> TunedSystem:
    """The system that a table is for; UsageError if it does not say."""
    texts = {key: next(iter(table.texts_of(key)), "") for key in SYSTEM}
    numbers = {key: whole(texts[key]) for key in ("ranks", "hosts", "nccl")}
    if not texts["device"] or min(numbers["ranks"], numbers["hosts"]) < 1 or numbers["nccl"] < 0:
        raise UsageError(
            f"{name}: it does not say for which device, ranks, hosts and NCCL it was made",
            "tune again",
        )
    network = "" if texts["network"] == "-" else texts["network"]
    return TunedSystem(device=texts["device"], network=network, **numbers)


def fixed_variables(table: TunerTable, name: str) -> dict[str, str]:
    """The variables that belong to the rules."""
    pairs = [text.partition("=") for text in table.texts_of("variable")]
    wrong = [key for key, _, value in pairs if key not in NAMES or whole(value) < 1]
    if wrong:
        raise UsageError(
            f"{name}: {wrong[0]} is not {', '.join(NAMES[:-1])} or {NAMES[-1]} with a number",
            "tune again",
        )
    return {key: value for key, _, value in pairs}


def is_checked(table: TunerTable, collective: str) -> bool:
    """Whether the rules of a collective were checked with new ranks."""
    return f"{collective} {CHECKED}" in table.texts_of("state")


def differences(table: TunedSystem, system: TunedSystem) -> tuple[list[str], list[str]]:
    """What makes a table useless on a system, and the harmless: another patch of NCCL."""
    compared = (
        ("GPU", table.device, system.device),
        ("ranks", table.ranks, system.ranks),
        ("hosts", table.hosts, system.hosts),
        ("NCCL", _release(table.nccl), _release(system.nccl)),
        ("network", table.network or "none", system.network or "none"),
    )
    wrong = [f"{name} {theirs}, here {ours}" for name, theirs, ours in compared if theirs != ours]
    harmless = []
    if not wrong and table.nccl != system.nccl:
        versions = f"NCCL {_version(table.nccl)}, here is {_version(system.nccl)}"
        harmless = [f"the table is for {versions}"]
    return wrong, harmless


def _release(nccl: int) -> str:
    return f"{nccl // 10000}.{nccl // 100 % 100}" if nccl else "none"


def _version(nccl: int) -> str:
    return f"{_release(nccl)}.{nccl % 100}"


def sweep_text(spec: SweepSpec) -> str:
    """The sweep as the table records it: `all_reduce float sum 1024 67108864 x4`."""
    step = f"x{spec.step_factor}" if spec.step_factor > 1 else f"+{spec.step_bytes}"
    return f"{spec.collective} {spec.datatype} {spec.op} {spec.min_bytes} {spec.max_bytes} {step}"


def recorded_sweeps(table: TunerTable, name: str, like: SweepSpec) -> list[SweepSpec]:
    """The sweeps that a table records; everything else is as in `like`."""
    specs = [_sweep(text, name, like) for text in table.texts_of("measured")]
    if not specs:
        raise UsageError(f"{name}: it does not say what was measured", "tune again")
    return specs


def _sweep(text: str, name: str, like: SweepSpec) -> SweepSpec:
    """The sweep of one line, as `measured` writes it."""
    words = text.split()
    numbers = [whole(word) for word in (*words[3:5], words[5][1:])] if len(words) == 6 else []
    if not numbers or min(numbers) < 1 or words[5][0] not in "x+":
        raise UsageError(f"{name}: 'about measured {text}' is no sweep", "tune again")
    first, last, step = numbers
    fields = {field: getattr(like, field) for field in SweepSpec.__struct_fields__}
    fields |= {
        "collective": words[0],
        "datatype": words[1],
        "op": words[2],
        "min_bytes": first,
        "max_bytes": last,
    }
    if words[5][0] == "x":
        fields["step_factor"] = step
    else:
        fields |= {"step_factor": 1, "step_bytes": step}
    spec = SweepSpec(**fields)
    try:
        count_sizes(spec)
    except UsageError as error:
        raise UsageError(
            f"{name}: 'about measured {text}': {error.message}", "tune again"
        ) from error
    return spec


def build(
    system: TunedSystem,
    spec: SweepSpec,
    sizes: Sequence[TunedSize],
    settings: Mapping[str, str],
    before: TunerTable | None,
    *,
    checked: bool,
) -> TunerTable:
    """The table of these sizes, and of the other collectives `before`."""
    before = before or TunerTable()
    others = [rule for rule in before.rules if rule.collective != spec.collective]
    swept = _of_others(before, "measured", spec.collective)
    states = _of_others(before, "state", spec.collective)
    states.append(f"{spec.collective} {CHECKED if checked else FOUND}")
    about = [
        ("made", f"{now()} by busbw {__version__}"),
        ("device", system.device),
        ("ranks", str(system.ranks)),
        ("hosts", str(system.hosts)),
        ("nccl", str(system.nccl)),
        ("network", system.network or "-"),
        *(("variable", f"{name}={value}") for name, value in settings.items()),
        *(("measured", text) for text in (*swept, sweep_text(spec))),
        *(("state", text) for text in states),
    ]
    return TunerTable(rules=[*others, *_rules(system, spec.collective, sizes)], about=about)


def _of_others(table: TunerTable, key: str, collective: str) -> list[str]:
    """The texts under this key that are about other collectives."""
    return [text for text in table.texts_of(key) if text.split()[0] != collective]


def _rules(system: TunedSystem, collective: str, sizes: Sequence[TunedSize]) -> list[TunerRule]:
    notes = {size.size_bytes: _note(size) for size in sizes if size.kept}
    nodes = next((size.nodes for size in sizes if size.nodes), system.hosts)
    choices = [(size.size_bytes, size.choice if size.kept else None) for size in sizes]
    rules = []
    for first, last, choice in ranges(choices):
        notes_of_range = [note for size, note in notes.items() if first <= size <= last]
        rules.append(
            TunerRule(
                ranks=system.ranks,
                hosts=nodes,
                collective=collective,
                first=first,
                last=last,
                choice=choice,
                note="; ".join(notes_of_range),
            )
        )
    return rules


def _note(size: TunedSize) -> str:
    """`1024 B: 12.1 % less time than NCCL's Ring LL (11.0 to 13.2)`."""
    assert size.gain is not None
    gain, interval = size.gain, ""
    if gain.low is not None and gain.high is not None:
        interval = f" ({100 * (1 - gain.high):.1f} to {100 * (1 - gain.low):.1f})"
    return (
        f"{size.size_bytes} B: {100 * (1 - gain.ratio):.1f} % less time than NCCL's"
        f" {size.own}{interval}"
    )


def write(table: TunerTable, file: Path) -> None:
    """Replace the file atomically; NoMeasurement if it cannot be written."""
    # NCCL of other users reads it too
    save(table.text().encode(), file, "give --output a path with room", shared=True)


def refuse_other(
    file: Path, table: TunedSystem, system: TunedSystem, say: Callable[[str], None]
) -> None:
    """UsageError if a file, whose table is for the system `table`, is for another system than
    this one; otherwise says which differences are harmless.
    """
    wrong, harmless = differences(table, system)
    if wrong:
        raise UsageError(
            f"{file} is for another system: {'; '.join(wrong)}",
            "tune here, into another file: busbw tune ... --output FILE",
        )
    for text in harmless:
        say(f"note: {text}")


def check_file(
    file: Path, jobs: Jobs, rounds: int, say: Callable[[str], None]
) -> Iterator[TuningCheck]:
    """Each collective of the table, compared with NCCL's choice.

    UsageError for a table of another system.
    """
    name = str(file)
    table = read(file)
    tuned_system, variables = system_of_table(table, name), fixed_variables(table, name)
    jobs.judge = lambda current: refuse_other(file, tuned_system, current, say)
    for spec in recorded_sweeps(table, name, jobs.job.sweep):
        if not any(rule.collective == spec.collective for rule in table.rules) and not variables:
            say(f"note: {file} leaves {spec.collective} to NCCL")
            continue
        jobs.job = msgspec.structs.replace(jobs.job, sweep=spec)
        yield check(jobs, table.text(), variables, rounds)
