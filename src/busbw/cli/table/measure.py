"""Rows of the table of commands: measure, explain and predict collectives and links."""

from busbw.cli.table.row import MEASURE, MODEL, Row

ROWS = (
    Row(
        "run",
        MEASURE,
        "Measure a collective and verify its data.",
        (
            ("all sizes from 8 B to 8 GiB, on all GPUs of this machine", "busbw run all_reduce"),
            (
                "sizes from 1 MiB to 1 GiB on two hosts, with the result in a file",
                "busbw run all_gather --hosts h1:8,h2:8 -b 1M -e 1G --json result.json",
            ),
            (
                "fail where the links carry less than 80 % of what they could",
                "busbw run all_reduce -b 1G -e 1G --min-percent 80%",
            ),
            (
                "print what makes any program use busbw's network plugin",
                "busbw run --net busbw --print-env",
            ),
        ),
    ),
    Row(
        "link",
        MEASURE,
        "Measure the links between hosts, and name slow hosts and pairs.",
        (
            ("every pair of three hosts over TCP", "busbw link --hosts h1,h2,h3"),
            (
                "RDMA with perftest, with a page of heat maps",
                "busbw link --hosts h1,h2,h3,h4 --test perftest --html links.html",
            ),
            (
                "find slow hosts with few runs of all_reduce",
                "busbw link --hosts h1:8,h2:8,h3:8,h4:8 --suspect hosts",
            ),
        ),
    ),
    Row(
        "compat",
        MEASURE,
        "Install commands named all_reduce_perf, ... that behave like nccl-tests.",
        (
            ("install them in a directory", "busbw compat ~/nccl-tests"),
            (
                "then run one as you would run that of nccl-tests",
                "all_reduce_perf -b 8 -e 128M -f 2 -g 8",
            ),
            ("print its output again in another format", "busbw show run.log --format csv"),
        ),
        tables=False,
    ),
    Row(
        "predict",
        MODEL,
        "Predict how fast a collective or a recorded application should be.",
        (
            ("this machine", "busbw predict all_reduce"),
            (
                "on 1, 16 and 128 hosts",
                "busbw predict all_reduce --system h100x8 --nodes 1,16,128 --nics 8x400G",
            ),
            (
                "corrected by a result of such a system",
                "busbw predict all_reduce --system h100x8 --nics 8x400G --calibrate r.json",
            ),
            (
                "a recorded application on 32 hosts",
                "busbw predict --pattern run1 --system h100x8 --nodes 32 --nics 8x400G",
            ),
        ),
    ),
    Row(
        "explain",
        MODEL,
        "Name the algorithm behind a busbw, and the load of each link.",
        (
            ("a result of busbw or nccl-tests", "busbw explain result.json"),
            (
                "a log that does not say what it ran on",
                "busbw explain run.log --system h100x8 --nics 8x400G --nodes 2",
            ),
            ("as JSON", "busbw explain result.json --format json"),
        ),
    ),
    Row(
        "reference",
        MODEL,
        "List published runs and your own, and compare a result with them.",
        (
            ("all runs", "busbw reference"),
            ("those of all_reduce on hosts of 8 H100", "busbw reference --system h100x8"),
            ("the last run beside them", "busbw reference show -1 --plot"),
        ),
        {
            "show": (
                ("who measured a run", "busbw reference show az_1x8_h200"),
                ("a result beside its reference", "busbw reference show result.json"),
                (
                    "a log that does not say what it ran on",
                    "busbw reference show run.log --system h100x8 --nics 8x400G --nodes 2",
                ),
            ),
            "add": (
                ("the last run", "busbw reference add -1"),
                ("runs of a healthy system", "busbw reference add run1.json run2.json"),
                (
                    "into a file that others use too",
                    "busbw reference add result.json --reference /shared/busbw/reference.json",
                ),
            ),
            "remove": (
                ("a run", "busbw reference remove run1"),
                ("two runs", "busbw reference remove run1 run2"),
                ("of another file", "busbw reference remove run1 --reference shared.json"),
            ),
        },
    ),
)
