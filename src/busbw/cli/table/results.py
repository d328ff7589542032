"""Rows of the table of commands: print, compare, keep and report results."""

from busbw.cli.table.row import RESULTS, Row

ROWS = (
    Row(
        "show",
        RESULTS,
        "Print any file of busbw, nccl-tests or an application's communication.",
        (
            ("a result as a table", "busbw show result.json"),
            ("the last run again", "busbw show -1"),
            ("what an application sent: captures, logs, traces and dumps", "busbw show run1/"),
            (
                "logs of an application as a record that busbw replay reads",
                "busbw show logs/ --format jsonl -o pattern.jsonl",
            ),
            ("a log of nccl-tests as CSV", "busbw show run.log --format csv"),
            (
                "from stdin, for a comment on GitHub",
                "ssh h1 cat result.json | busbw show - --format markdown",
            ),
        ),
    ),
    Row(
        "compare",
        RESULTS,
        "Compare two results: same, slower, faster or ambiguous.",
        (
            ("two files", "busbw compare before.json after.json"),
            ("the last two runs", "busbw compare -2 -1"),
            ("two directories of repeated runs", "busbw compare before/ after/ --tolerance 3%"),
            (
                "measure both in turn, and compare",
                "busbw compare --run '--net ib' --run '--net socket' -- all_reduce -b 1M",
            ),
        ),
    ),
    Row(
        "versions",
        RESULTS,
        "Compare releases of NCCL: which sizes have become slower.",
        (
            ("three releases, with wheels that pip gets", "busbw versions 2.28.9 2.30.7 2.32.3"),
            (
                "two collectives, up to 1 GiB",
                "busbw versions 2.28.9 2.32.3 -- all_reduce all_gather -b 8 -e 1G",
            ),
            (
                "without a network, from a folder of wheels",
                "busbw versions 2.28.9 2.32.3 --wheels wheels -- all_reduce",
            ),
        ),
    ),
    Row(
        "history",
        RESULTS,
        "List and plot the runs so far, and check a run against earlier ones.",
        (
            ("list all runs", "busbw history"),
            ("those of one collective", "busbw history --collective all_reduce"),
            ("is the last run slower than those before?", "busbw history check -1"),
        ),
        {
            "add": (
                ("one result", "busbw history add result.json"),
                ("let the last run stay", "busbw history add -1"),
                ("all of a directory", "busbw history add results/*.json"),
                (
                    "an export of another machine",
                    "ssh h1 busbw history export | busbw history add -",
                ),
            ),
            "check": (
                (
                    "is it slower than the last runs of its machine?",
                    "busbw history check today.json",
                ),
                ("with fewer false alarms", "busbw history check today.json --confidence 99%"),
                ("measure and check", "busbw run all_reduce --json - | busbw history check -"),
            ),
            "export": (
                ("everything, one result per line", "busbw history export > history.jsonl"),
                ("two runs as files", "busbw history export 12 13 -d results"),
                (
                    "one machine's runs, to another history",
                    "busbw history export --machine h1 | busbw history add - --db h1.sqlite",
                ),
            ),
            "plot": (
                ("busbw at 1 GiB over the last 30 runs", "busbw history plot --size 1G"),
                ("over the last 100", "busbw history plot --size 1G --last 100"),
                (
                    "one collective on one machine",
                    "busbw history plot --size 64M --collective all_gather --machine h1",
                ),
            ),
            "rm": (
                ("remove a run, after a question", "busbw history rm 12"),
                ("remove several without a question", "busbw history rm 12 13 14 --yes"),
                ("keep a copy before", "busbw history export 12 -d removed"),
            ),
        },
    ),
    Row(
        "report",
        RESULTS,
        "Write results as one HTML page: plots, tables, machines, findings.",
        (
            ("one result", "busbw report result.json"),
            ("before and after, compared", "busbw report before.json after.json -o change.html"),
            ("every result in a directory", "busbw report results/ -o results.html"),
        ),
        tables=False,
    ),
)
