"""How ranks were connected, what NCCL ran in place, and why either is not known, for people.

It stands under the table of a sweep or a replay, by request.
"""

from busbw.core.ran import MAX_LISTED, LoggedConnections, NcclConnection
from busbw.core.result import Outcome, Result
from busbw.core.sizes import counted, format_size
from busbw.engines.nccl_log import CHATTY, FILE, LEVEL
from busbw.ui.columns import Column, aligned, wrapped

MAX_LINES = 40
DROP_ORDER = ("channels",)
COLUMNS = (
    Column(title="from", value=lambda connection: connection.sender),
    Column(title="to", value=lambda connection: connection.receiver),
    Column(title="transport", value=lambda connection: connection.name, left=True),
    Column(title="channels", value=lambda connection: connection.channels or "-"),
    Column(title="network devices", value=lambda row: ", ".join(row.devices) or "-", left=True),
)
COUNTED = (
    Column(title="connections", value=lambda row: row.connections),
    Column(title="transport", value=lambda row: row.name, left=True),
    Column(title="network devices", value=lambda row: ", ".join(row.devices) or "-", left=True),
)


def text(result: Outcome, width: int | None = None) -> str:
    """All of it, each on lines of its own."""
    lines = [*_unknown(result), *_in_place(result), *_gin(result)]
    return wrapped("".join(lines), width) + _connections(result, width)


def _unknown(result: Outcome) -> list[str]:
    """Why rows, or connections, are not known."""
    if not result.library.nccl:
        engine = result.library.engine
        return [f"what NCCL ran: the {engine} engine does not use NCCL\n"] if engine else []
    lines = []
    if isinstance(result, Result) and result.ran_unknown:
        lines.append(f"what NCCL ran is not known: {result.ran_unknown}\n")
    if result.ran is None and result.world.ranks > 1:
        reason = _not_recorded(result)
        lines.append(f"how ranks are connected is not recorded{reason}\n")
    return lines


def _not_recorded(result: Outcome) -> str:
    """Why no log of NCCL states how ranks are connected, as `: REASON`; '' if that is not known."""
    level, file = (result.environment.get(name, "") for name in (LEVEL, FILE))
    if result.tool.startswith("busbw") and result.program.endswith("_perf"):
        return ": the commands of nccl-tests do not record it"
    if level and level.upper() not in CHATTY:
        return f": with {LEVEL}={level} NCCL does not log it"
    if level and file.startswith("/dev/"):
        return f": {FILE}={file} is no file that can be read"
    return ""


def _in_place(result: Outcome) -> list[str]:
    """That cells in place differ from those of the table's columns."""
    rows = result.rows if isinstance(result, Result) else []
    differ = [row for row in rows if row.out_of_place and row.in_place and row.ran_in_place]
    if not differ:
        return []
    first = differ[0]
    return [
        f"in place NCCL ran {len(differ)} of {counted(len(rows), 'size')} differently: at"
        f" {format_size(first.size_bytes)} {first.ran_in_place}\n"
    ]


def _gin(result: Outcome) -> list[str]:
    """That kernels sent between hosts themselves, over no connection that NCCL's log names."""
    rows = result.rows if isinstance(result, Result) else []
    kernels = [kernel for row in rows for kernel in (row.ran, row.ran_in_place) if kernel]
    found = sorted({kernel.form for kernel in kernels if kernel.uses_gin})
    if not found:
        return []
    return [f"between hosts {', '.join(found)} sent by GIN, whose network devices are not known\n"]


def _connections(result: Outcome, width: int | None) -> str:
    ran = result.ran or LoggedConnections([])
    text = ""
    if ran.connections:
        table = _shown(ran.connections)
        text = aligned(table, ran.connections[:MAX_LINES], width, DROP_ORDER)
    hidden = len(ran.connections) - MAX_LINES
    if hidden > 0:
        text += f"... {hidden} more connections: --json FILE has them all\n"
    if ran.unlisted:
        text += "\n" if text else ""
        text += aligned(COUNTED, ran.unlisted, width, wrap_last=True)
        text += (
            f"of more than {MAX_LISTED} connections only slow ones are listed (SHM, sockets, or"
            " without GDR), and the others are counted\n"
        )
    return text


def _shown(connections: list[NcclConnection]) -> list[Column]:
    """The columns; devices only where they are known."""
    if any(connection.devices for connection in connections):
        return list(COLUMNS)
    return list(COLUMNS[:-1])
