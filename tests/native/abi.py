"""The plugin tables that the library exports.

Add a row for a new version of NCCL's interface (steps: native/README.md).
"""

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_char_p,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_uint64,
    c_ulong,
    c_void_p,
)
from dataclasses import dataclass, field
from typing import Any

# C's variadic part is always one string here; on x86-64 and AArch64 Linux it is passed as a sixth
# argument would be.
LOGGER = CFUNCTYPE(None, c_int, c_ulong, c_char_p, c_int, c_char_p, c_char_p)
PROFILER = CFUNCTYPE(c_int, POINTER(c_void_p), c_int, c_void_p, c_int64, c_void_p)
# version: the first NCCL that prefers it, in NCCL's numbering (2.28.3 is 22803)
TUNERS = {2: 0, 4: 22400, 5: 22800, 6: 23000, 7: 23206}
PROFILERS = {2: 22400, 4: 22700, 5: 22800, 6: 22900, 7: 23100}

Fields = tuple[tuple[str, Any], ...]


class Devices(ctypes.Structure):
    """The devices that a virtual device is made of."""

    _fields_ = [("ndevs", c_int), ("devs", c_int * 4)]


NAMES: Fields = (
    ("name", c_char_p),
    ("pciPath", c_char_p),
    ("guid", c_uint64),
    ("ptrSupport", c_int),
    ("regIsGlobal", c_int),
)
LIMITS: Fields = (
    ("speed", c_int),
    ("port", c_int),
    ("latency", c_float),
    ("maxComms", c_int),
    ("maxRecvs", c_int),
    ("netDeviceType", c_int),
    ("netDeviceVersion", c_int),
)
SIZES: Fields = (
    ("vProps", Devices),
    ("maxP2pBytes", c_size_t),
    ("maxCollBytes", c_size_t),
    ("maxMultiRequestSize", c_int),
)


@dataclass(frozen=True)
class NetTable:
    """One version of the net table.

    `modern`: sizes are size_t, init makes a context, and messages have a profiler handle.
    """

    version: int
    since: int  # the first NCCL that prefers it
    fields: Fields  # of the properties
    properties_bytes: int
    modern: bool = True
    # entries after the common ones; None: must be NULL
    more: dict[str, tuple[Any, ...] | None] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)  # of properties that are always the same

    @property
    def symbol(self) -> str:
        return f"ncclNetPlugin_v{self.version}"

    @property
    def properties(self) -> type[ctypes.Structure]:
        return type(f"PropertiesV{self.version}", (ctypes.Structure,), {"_fields_": self.fields})

    @property
    def entries(self) -> dict[str, tuple[Any, ...] | None]:
        """Functions in the order of the table with the types of their arguments; None: must be
        NULL.
        """
        p, size = c_void_p, c_size_t if self.modern else c_int
        context = (p,) if self.modern else ()
        return {
            "init": (p, c_uint64, p, LOGGER, PROFILER) if self.modern else (LOGGER,),
            "devices": (p,),
            "getProperties": (c_int, p),
            "listen": (*context, c_int, p, p),
            "connect": (*context, c_int, p, p, p),
            "accept": (p, p, p),
            "regMr": (p, p, c_size_t, c_int, p),
            "regMrDmaBuf": None,
            "deregMr": (p, p),
            "isend": (p, p, size, c_int, p, *context, p),
            "irecv": (p, c_int, p, p, p, p, *context, p),
            "iflush": (p, c_int, p, p, p, p),
            "test": (p, p, p),
            "closeSend": (p,),
            "closeRecv": (p,),
            "closeListen": (p,),
            "getDeviceMr": None,
            "irecvConsumed": None,
            **self.more,
        }


NET_TABLES = {
    row.version: row
    for row in (
        NetTable(8, 0, (*NAMES, *LIMITS), 64, modern=False),
        NetTable(
            11,
            22800,
            (*NAMES, ("forceFlush", c_int), *LIMITS, *SIZES),
            112,
            more={"makeVDevice": None, "finalize": (c_void_p,), "setNetAttr": None},
            values={"forceFlush": 0, "vProps": [0], "maxMultiRequestSize": 1},
        ),
    )
}
SYMBOLS = {row.symbol for row in NET_TABLES.values()} | {
    f"ncclTunerPlugin_v{version}" for version in TUNERS
}
SYMBOLS |= {f"ncclProfiler_v{version}" for version in PROFILERS}


def newest(since: dict[int, int], nccl: int) -> int:
    """The newest version that this NCCL knows."""
    return max(version for version, first in since.items() if nccl >= first)


def header() -> str:
    """The net tables as C, for dlopen.c."""
    lines = []
    for row in NET_TABLES.values():
        properties = row.properties
        nulls = [str(at) for at, types in enumerate(row.entries.values(), 1) if types is None]
        parts = [
            (
                (f"{name}[{at}]", getattr(properties, name).offset + 4 * at, 4)
                if kind is Devices
                else (name, getattr(properties, name).offset, ctypes.sizeof(kind))
            )
            for name, kind in row.fields
            for at in range(ctypes.sizeof(kind) // 4 if kind is Devices else 1)
        ]
        lines += [
            f"static const int nulls_{row.version}[] = {{{', '.join(nulls)}, 0}};",
            f"static const struct field fields_{row.version}[] = {{",
            *(f'    {{"{name}", {offset}, {size}}},' for name, offset, size in parts),
            "};",
        ]
    rows = [
        f'    {{"{row.symbol}", {1 + len(row.entries)}, {int(row.modern)}, nulls_{row.version},'
        f" fields_{row.version}, COUNT(fields_{row.version}), {row.properties_bytes}}},"
        for row in NET_TABLES.values()
    ]
    return "\n".join([*lines, "static const struct version versions[] = {", *rows, "};", ""])
