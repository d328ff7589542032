"""A tuning as text: every size with NCCL's choice and the table's, then how to use the table."""

import shlex
from collections.abc import Mapping, Sequence

from busbw.core import json_codec
from busbw.core.collectives import BY_NAME
from busbw.core.sizes import counted, format_size
from busbw.core.tuner_table import TunerRule, TunerTable
from busbw.stats.judging import RELEVANT_DIFFERENCE
from busbw.tune.types import Gain, TunedSize, TunedSystem, Tuning, variables_text
from busbw.ui.columns import Column, aligned, wrapped
from busbw.ui.number_formats import finding_text, nccl_version_text, time_text

DROP_ORDER = ("why not", "NCCL's choice", "new time", "time")


def less_time(gain: Gain | None) -> str:
    """`12.1 % (11.0 to 13.2)`: how much less time, with its interval; `-` if it is unknown."""
    if gain is None:
        return "-"
    interval = ""
    if gain.low is not None and gain.high is not None:
        interval = f" ({_percent(gain.high)} to {_percent(gain.low)})"
    return f"{_percent(gain.ratio)} %{interval}"


def _percent(ratio: float) -> str:
    return f"{100 * (1 - ratio):.1f}".replace("-0.0", "0.0")


def _choice(size: TunedSize) -> str:
    return str(size.choice) if size.kept and size.choice else "NCCL's choice"


COLUMNS: tuple[Column, ...] = (
    Column(title="size", value=lambda size: format_size(size.size_bytes)),
    Column(title="NCCL's choice", value=lambda size: size.own or "-", left=True),
    Column(
        title="time", value=lambda size: time_text(size.gain.default_s if size.gain else size.own_s)
    ),
    Column(title="table", value=_choice, left=True),
    Column(
        title="new time", value=lambda size: time_text(size.gain.choice_s) if size.gain else "-"
    ),
    Column(title="less time", value=lambda size: less_time(size.gain), left=True),
    Column(title="with new ranks", value=lambda size: less_time(size.check), left=True),
    Column(title="why not", value=lambda size: "" if size.kept else size.reason, left=True),
)


def _choice_text(rule: TunerRule) -> str:
    chunk = f", chunks of {format_size(rule.chunk)}" if rule.chunk else ""
    return f"{rule.choice}{chunk}"


RULES: tuple[Column, ...] = (  # of a table; `value` takes a TunerRule
    Column(title="ranks", value=lambda rule: rule.ranks),
    Column(title="hosts", value=lambda rule: "any" if rule.hosts is None else rule.hosts),
    Column(title="collective", value=lambda rule: rule.collective, left=True),
    Column(title="from", value=lambda rule: format_size(rule.first)),
    Column(title="to", value=lambda rule: format_size(rule.last)),
    Column(title="choice", value=_choice_text, left=True),
    Column(title="note", value=lambda rule: rule.note, left=True),
)


def title(collective: str, system: TunedSystem) -> str:
    """`AllReduce, 2 ranks on 2 hosts, NVIDIA H200, NCCL 2.28.9, Socket`."""
    nccl = f"NCCL {nccl_version_text(system.nccl)}" if system.nccl else ""
    where = f"{counted(system.ranks, 'rank')} on {counted(system.hosts, 'host')}"
    parts = (BY_NAME[collective].title, where, system.device, nccl, system.network)
    return ", ".join(filter(None, parts))


def size_line(size: TunedSize) -> str:
    """`64 KiB: Tree LL128, 8 channels is best of 18, 2.4 % (2.3 to 2.6) less time than ...`."""
    own = f"NCCL's {size.own}" if size.own else "NCCL's choice"
    if size.choice is None or size.gain is None:
        best, comparison = own, time_text(size.own_s)
    else:
        reason = "" if size.kept else f" ({size.reason})"
        best, comparison = str(size.choice), f"{less_time(size.gain)} less time than {own}{reason}"
    return f"{format_size(size.size_bytes)}: {best} is best of {size.candidates}, {comparison}"


def summary(tuning: Tuning) -> str:
    """The outcome in one sentence."""
    total, kept = counted(len(tuning.sizes), "size"), tuning.kept()
    if not kept and not tuning.variables:
        return (
            f"NCCL's choice is best for all of {total}: nothing else is faster by 2 % or more, and"
            " holds with new ranks"
        )
    slower = []
    if tuning.variables:
        slower = [
            format_size(size.size_bytes)
            for size in tuning.sizes
            if size.check and size.check.ratio > 1 + RELEVANT_DIFFERENCE
        ]
    harm = "no measured size is slower by over 2 % with new ranks"
    if slower:
        harm = f"{', '.join(slower)} slower by over 2 %"
    if not tuning.file:
        return (
            f"{variables_text(tuning.variables)} for all sizes alike, as NCCL's variables cannot"
            f" vary by size; {harm}"
        )
    with_variables = f", with {variables_text(tuning.variables)}" if tuning.variables else ""
    return f"the table has rules for {len(kept)} of {total}{with_variables}; {harm}"


def outcome(tuning: Tuning) -> str:
    """The summary, and a line for each choice that was dropped."""
    dropped = (f"dropped: {choice}: {reason}\n" for choice, reason in tuning.dropped.items())
    return "".join([f"{summary(tuning)}\n", *dropped])


def text(tuning: Tuning, exports: Mapping[str, str], width: int | None = None) -> str:
    """The tuning as text, with the variables `exports` for any NCCL program, if given."""
    parts = [
        title(tuning.collective, tuning.system) + "\n\n",
        aligned(columns(tuning), tuning.sizes, width, DROP_ORDER),
        "\n",
        wrapped(outcome(tuning), width),
        wrapped("".join(map(finding_text, tuning.findings)), width),
    ]
    if exports:
        where = "To use it with any NCCL program, export on every host:"
        if tuning.file:
            where = (
                f"To use it with any NCCL program, copy {tuning.file} to the same path on every"
                " host, and export there:"
            )
        lines = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in exports.items())
        parts.append("\n" + wrapped(where + "\n", width) + "\n" + lines)
    return "".join(parts)


def table_text(table: TunerTable, width: int | None = None) -> str:
    """A table for NCCL's tuner interface: what it says of itself, and its rules."""
    about = "".join(f"{key:<9} {text}\n" for key, text in table.about)
    rules = "no rule: NCCL's choice is best\n"
    if table.rules:
        rules = aligned(RULES, table.rules, width, ("note", "hosts"))
    return f"{wrapped(about, width)}\n{rules}"


def columns(tuning: Tuning) -> list[Column]:
    """The columns in which any size has a value."""
    left_out = set[str]()
    if tuning.variables:  # the gain is that of the check
        left_out.add("with new ranks")
    if not tuning.file:
        left_out.add("table")
    return [
        column
        for column in COLUMNS
        if column.title not in left_out and _has_value(column, tuning.sizes)
    ]


def _has_value(column: Column, sizes: Sequence[TunedSize]) -> bool:
    return any(column.text(size) not in ("", "-") for size in sizes)


def json(tuning: Tuning) -> str:
    """`busbw.tuning/1` on one line."""
    return json_codec.encode(tuning).decode() + "\n"
