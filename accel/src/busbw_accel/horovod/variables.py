"""The table of HOROVOD_* variables that have an effect. Imports no torch."""

import math
from functools import partial

from busbw_accel.lightcc_env import Switch as Variable
from busbw_accel.lightcc_env import parse_whole

PREFIX = "HOROVOD_"
LAUNCHER_VARIABLES = (
    Variable(
        "HOROVOD_ELASTIC_TIMEOUT",
        "600",
        "how long elastic jobs wait for slots or silent ranks",
        "whole seconds",
        partial(parse_whole, least=1),
    ),
)
RANK_VARIABLES = (
    Variable("HOROVOD_RANK", "", "this process's rank"),
    Variable("HOROVOD_SIZE", "", "number of ranks"),
    Variable("HOROVOD_LOCAL_RANK", "", "this process's index on its host"),
    Variable("HOROVOD_LOCAL_SIZE", "", "ranks of this host"),
    Variable("HOROVOD_CROSS_RANK", "", "this host's index among hosts with this local rank"),
    Variable("HOROVOD_CROSS_SIZE", "", "number of those hosts"),
    Variable("HOROVOD_HOSTNAME", "", "this host, as other ranks name it"),
    Variable("HOROVOD_GLOO_RENDEZVOUS_ADDR", "", "where rank 0 listens, if MASTER_ADDR is not set"),
    Variable("HOROVOD_GLOO_RENDEZVOUS_PORT", "", "its port"),
    Variable(
        "HOROVOD_GLOO_IFACE",
        "",
        "network interface of CPU operations, if GLOO_SOCKET_IFNAME is not set",
    ),
)


def _flag(word: str) -> bool:
    return bool(int(word))


def _seconds(word: str) -> float:
    value = float(word)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(word)
    return value


SETTINGS = (
    Variable(
        "HOROVOD_FUSION_THRESHOLD",
        "134217728",
        "fuse all-reduces up to this size; 0: never",
        "bytes",
        parse_whole,
    ),
    Variable("HOROVOD_CYCLE_TIME", "1", "pause between exchanges", "milliseconds", _seconds),
    Variable(
        "HOROVOD_CACHE_CAPACITY", "1024", "cached operations; 0: no cache", "a number", parse_whole
    ),
    Variable(
        "HOROVOD_STALL_CHECK_DISABLE",
        "0",
        "no warnings about operations that wait for ranks",
        "0 or 1",
        _flag,
    ),
    Variable(
        "HOROVOD_STALL_CHECK_TIME_SECONDS",
        "60",
        "warn about operations that wait for ranks longer than this",
        "seconds",
        _seconds,
    ),
    Variable(
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
        "0",
        "fail operations that wait longer than this; 0: never",
        "seconds",
        _seconds,
    ),
    # Longer than Horovod's 30 s: a rank answers from a Python thread, which a long call into C can
    # hold up.
    Variable(
        "HOROVOD_GLOO_TIMEOUT_SECONDS",
        "120",
        "a rank without an answer for this long is lost",
        "seconds",
        _seconds,
    ),
    Variable(
        "HOROVOD_TIMELINE",
        "",
        "file for rank 0's trace; DYNAMIC: started by start_timeline",
        "a file name",
    ),
    Variable(
        "HOROVOD_TIMELINE_MARK_CYCLES", "0", "also write exchanges to the trace", "0 or 1", _flag
    ),
    Variable(
        "HOROVOD_DYNAMIC_PROCESS_SETS",
        "0",
        "process sets can be added and removed",
        "0 or 1",
        _flag,
    ),
    Variable(
        "HOROVOD_HIERARCHICAL_ALLREDUCE",
        "0",
        "an optimizer's gradients: inside hosts, then across",
        "0 or 1",
        _flag,
    ),
    Variable("HOROVOD_TORUS_ALLREDUCE", "0", "as HOROVOD_HIERARCHICAL_ALLREDUCE", "0 or 1", _flag),
    Variable("HOROVOD_ELASTIC", "0", "reduce gradients even with a single rank", "0 or 1", _flag),
)
