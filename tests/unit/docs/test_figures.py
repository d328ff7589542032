"""Figures of the documentation that come from recorded runs are those of the record, and the
record's are those of its files.

A sentence that links to a record takes its numbers from there: each of them stands in the record's
README, or is one of its numbers rounded or divided by 1000 (us in a record, ms in a page). If the
link stands elsewhere on the page, ELSEWHERE names the record.

A record has many numbers, so a wrong one can match by chance. Of numbers changed by 1 to 3 in their
last digit, 83 % of those with three digits or more are seen, 40 % of those with two, and 5 % of
those with one. A count such as 76 of 84 stands in the record in these words.

The numbers in tables of a record's README are found in its files, or computed from them:
record_tables.py says how. Of numbers that are changed in the same way, 82 % of those with three
digits or more are seen, 58 % of those with two and 10 % of those with one. Those that are not in
the files stand in UNTRACED with the reason. So do measured numbers in sentences of a record
(record_sentences.py).
"""

import itertools
import random
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import record_sentences
import record_tables
from markdown_it import MarkdownIt

from busbw.cli.main import guarded
from busbw.report import read, registry

ROOT = Path(__file__).parents[3]
RECORDS = ROOT / "benchmarks"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUNS = [path.parent for path in sorted(RECORDS.glob("*/README.md"))]
PARSER = MarkdownIt("commonmark").enable("table")
LINK = re.compile(r"<([^>]*)>")
NUMBER = re.compile(r"(?<![\w.,-])\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
COUNT = re.compile(r"(?<![\w.,])(\d+) of (?:the )?(\d+)(?![\w.])")
# Page, a regular expression that finds the sentences, record.
ELSEWHERE = (
    (
        "docs/explanation/compression.md",
        r"\d MB (in fp32|for int8|at 1%|at rank 4)",
        "train_2xh200_202611/README.md",
    ),
    (
        "docs/explanation/how-to-read-busbw.md",
        r"the peak is|of the link rate and|repeats each",
        "precise_2xh200_202611/README.md",
    ),
    (
        "docs/explanation/net-plugin.md",
        r"fullest member|with busbw's ports|^With (ports|32)|keyed hash|^The links of such",
        "net_paths_202611/README.md",
    ),
    ("docs/explanation/net-plugin.md", r"reached 96.6|^Blocks of", "net_1xh200_202611/README.md"),
    ("docs/explanation/offloading.md", r"^[\d.]+ GB/s$", "host_memory_1xh100_202611/README.md"),
    (
        "docs/explanation/offloading.md",
        r"a step took|need \d+ GB|all states on the host,|FSDP2 takes|they take|it trained",
        "offload_1xh100_202611/README.md",
    ),
    (
        "docs/explanation/the-model.md",
        r"^[-+]\d.*%$|^times (of|up to) \d|H20 reach",
        "model_202611/errors.txt",
    ),
    (
        "docs/how-to/nccl-over-ethernet.md",
        r"^[\d., ]+( us| ms|%)$|times as fast as Socket",
        "net_1xh200_202611/README.md",
    ),
    (
        "docs/how-to/train-over-slow-networks.md",
        r"^\d+(\.\d)?$|GPT-2's median|^It is at|45 ms|at 44%",
        "train_2xh200_202611/README.md",
    ),
    ("docs/how-to/tune-nccl.md", r"^At three of them", "tune_2xh100_202611/README.md"),
    (
        "docs/how-to/what-does-my-training-send.md",
        r"a call costs|held up by|Inspector costs|the launch:|above needed",
        "capture_2xh100_202611/README.md",
    ),
)

NOT_STORED = "the output of these runs was not stored, as the README says"
WALL_TIME = "wall time of a command, which its files of that day do not have"
ABOVE = "a ratio of medians in tables above, or the mean of two numbers of raw.txt"
COMPUTED = "computed from numbers in the files or tables"
SETTING = "a setting or a target, not a measurement"
# Record, a regular expression that finds `heading | row | column` or `heading | sentence`, and why
# their numbers are not in the files.
UNTRACED = (
    ("accel_2cpu_202611", r"target for 2D", SETTING),
    ("all_reduce_2xh200_202611", r"whole call$", WALL_TIME),
    ("capture_2xh100_202611", r"(two hosts, events, us|plugin)$", NOT_STORED),
    ("compare_rates_202611", r"defaults", SETTING),
    (
        "convergence_text_202611",
        r"dense \(DDP\) \| KB a step",
        "DDP counts no bytes: four for each of 445,000 parameters",
    ),
    ("dynamic_table_1xh100_202611", r"NVIDIA's dynamicemb", "figures of other projects' records"),
    ("exact_coding_2cpu_202611", r"4 ranks send$", COMPUTED),
    ("history_rates_202611", r"defaults", SETTING),
    ("history_rates_202611", r"hide the slow size", COMPUTED),
    ("link_2cpu_202611", r"^Simulated", SETTING),
    ("link_2cpu_202611", r"6 random \| exactly", "the sum of twelve lines of tournaments.txt"),
    ("mpi_overhead_2cpu_202611", r"No median", COMPUTED),
    (
        "net_1xh200_202611",
        r"^Targets",
        ABOVE + "; core-seconds are differences of lines of cpu.txt over the bytes",
    ),
    (
        "net_1xh200_202611",
        r"Socket, default \| first$",
        "of vgg_socket_1.json, one run, so that no other number confirms it",
    ),
    (
        "net_1xh200_202611",
        r"^Training.* \| (VGG16, ms per step|256 MiB, ms)$",
        "two rounds each, on lines of channels/1.txt and 3.txt",
    ),
    ("net_1xh200_202611", r"^What brought it there", NOT_STORED),
    ("net_2xh100_202611", r"^Targets", ABOVE),
    ("net_2xh200_202611", r"^Targets", ABOVE),
    ("net_2xh200_202611", r"^Why 256 MiB stops there", NOT_STORED),
    (
        "net_loss_2cpu_202611",
        r"^Pauses",
        "three rounds of 6,000 steps, whose lines are put together",
    ),
    ("net_loss_2cpu_202611", r"^Rates", COMPUTED),
    ("net_slow_link_2cpu_202611", r"less time", COMPUTED),
    ("offload_1xh100_202611", r"^Other libraries", COMPUTED),
    (
        "offload_1xh100_202611",
        r"over offload$",
        "the step over that of busbw on the same machine, another row",
    ),
    (
        "offload_1xh100_202611",
        r"B \| way|13.17B",
        "the version of torchao, and the tokens of a step",
    ),
    (
        "offload_1xh100_202611",
        r"^Plan and measurement",
        "predicted from the rates in plan_8b.json for shares that its text does not have",
    ),
    ("plan_2xh200_202611", r"All 24", COMPUTED),
    ("precise_2xh200_202611", r"^The whole sweep|of classic's time$", WALL_TIME),
    (
        "precise_2xh200_202611",
        r"^What the stated interval covers",
        "computed by tests/unit/stats/test_recorded_coverage.py and by trials of rules",
    ),
    ("visits_202611", r"^Two H200", "up to four runs each, on lines of gpu_times.txt"),
    ("slurm_two_hosts_202611", r"", "versions and numbers of processors"),
    ("train_1xh200_202611", r"if nothing is exchanged", COMPUTED),
    ("train_2xh100_202611", r"three iterations", COMPUTED),
    ("train_2xh200_202611", r"times those of dense", "of the record that it links to"),
)


def sentences(text: str) -> Iterator[str]:
    """The sentences and table cells of a page, without code; a link is its target in angle
    brackets, before its words.
    """
    for block in (block for block in PARSER.parse(text) if block.type == "inline"):
        words = ""
        for part in block.children or ():
            words += {"softbreak": " ", "link_open": f"<{part.attrGet('href')}>"}.get(
                part.type, part.content if part.type == "text" else ""
            )
        yield from record_sentences.SENTENCE.split(words)


def records(page: Path, sentence: str) -> list[Path]:
    """The READMEs of the records that a sentence links to."""
    links = [(page.parent / link.partition("#")[0]).resolve() for link in LINK.findall(sentence)]
    return [link for link in links if link.parent.parent == RECORDS and link.name == "README.md"]


@cache
def recorded(record: Path) -> frozenset[str]:
    """All numbers in a file of a record."""
    return frozenset(
        re.findall(
            r"\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", record.read_text(encoding="utf-8"))
        )
    )


def states_number(number: str, record: Path) -> bool:
    """Whether a record contains a number, or one that rounds to it."""
    plain = number.replace(",", "")
    places = len(plain.partition(".")[2])
    half = 0.500001 * 10.0**-places
    for value in recorded(record):
        digits = len(value.partition(".")[2])
        if any(
            abs(float(value) / 10**power - float(plain)) <= half and digits + power >= places
            for power in (0, 3)
        ):
            return True
    return False


def unfounded(sentence: str, records: list[Path]) -> list[str]:
    """The numbers and counts of a sentence that none of the records contains."""
    words = LINK.sub("", sentence)
    texts = [record.read_text(encoding="utf-8") for record in records]
    counts = [
        f"{count} of {total}"
        for count, total in COUNT.findall(words)
        if not any(re.search(rf"\b{count} of ([\w']+ )?{total}\b", text) for text in texts)
    ]
    return [
        number
        for number in NUMBER.findall(words)
        if not any(states_number(number, record) for record in records)
    ] + counts


def rendered(result: Path) -> str:
    """The output of `busbw show` for a result."""
    return registry.render(read.read(result.read_bytes(), result.name), "table")


def test_sentences_have_the_figures_of_the_records_that_they_link_to() -> None:
    linked = [
        (page, text, record_files)
        for page in PAGES
        for text in sentences(page.read_text(encoding="utf-8"))
        if (record_files := records(page, text))
    ]
    assert len(linked) > 50
    assert [
        (str(page.relative_to(ROOT)), text, wrong)
        for page, text, record_files in linked
        if (wrong := unfounded(text, record_files))
    ] == []


@pytest.mark.parametrize(
    ("page", "pattern", "record"),
    ELSEWHERE,
    ids=[f"{Path(row[0]).stem}_{Path(row[2]).parent}" for row in ELSEWHERE],
)
def test_sentences_have_the_figures_of_the_record_of_their_page(
    page: str, pattern: str, record: str
) -> None:
    sentences_here = [
        LINK.sub("", text) for text in sentences((ROOT / page).read_text(encoding="utf-8"))
    ]
    sentences_here = [text for text in sentences_here if re.search(pattern, text)]
    assert sentences_here
    assert [
        (text, wrong) for text in sentences_here if (wrong := unfounded(text, [RECORDS / record]))
    ] == []


def title_of(table: record_tables.Table, place: tuple[int, int]) -> str:
    """A cell as UNTRACED finds it."""
    return f"{table.heading} | {table.labels[place[0]]} | {table.titles[place[1]]}"


@pytest.mark.parametrize("record", RUNS, ids=[path.name for path in RUNS])
def test_numbers_of_a_record_are_those_of_its_files(record: Path) -> None:
    patterns = [pattern for name, pattern, _ in UNTRACED if name == record.name]
    untraced_cells = [
        (title_of(table, place), numbers)
        for table, place, numbers in record_tables.untraced(record)
    ]
    untraced_cells += record_sentences.untraced(record)
    assert [
        cell
        for cell in untraced_cells
        if not any(re.search(pattern, cell[0]) for pattern in patterns)
    ] == []
    assert [
        pattern
        for pattern in patterns
        if not any(re.search(pattern, cell) for cell, _ in untraced_cells)
    ] == [], "all are in the files now"


def test_a_changed_number_of_a_record_is_detected(tmp_path: Path) -> None:
    copied = shutil.copytree(RECORDS / "train_1xh200_202611", tmp_path / "record")
    assert record_tables.untraced(copied) == []
    page = copied / "README.md"
    page.write_text(
        page.read_text(encoding="utf-8").replace("| 87.9 % | 164.0 |", "| 88.9 % | 164.0 |"),
        encoding="utf-8",
    )
    ((table, place, numbers),) = record_tables.untraced(copied)
    assert title_of(table, place).endswith(" | int4, host staging | of alone")
    assert numbers == ["88.9"]


def test_a_changed_number_in_a_sentence_of_a_record_is_detected(tmp_path: Path) -> None:
    copied = shutil.copytree(RECORDS / "watch_2xh100_202611", tmp_path / "record")
    assert record_sentences.untraced(copied) == []
    page = copied / "README.md"
    page.write_text(
        page.read_text(encoding="utf-8").replace("330 GB/s for the", "347.9 GB/s for the"),
        encoding="utf-8",
    )
    ((sentence, numbers),) = record_sentences.untraced(copied)
    assert sentence.startswith("NVLink and PCIe counters of two GPUs | ")
    assert numbers == ["347.9"]


def test_most_numbers_changed_in_their_last_digit_are_detected() -> None:
    choice = random.Random(1)
    detected: list[bool] = []
    for record in RUNS:
        index = record_tables.index(record)
        for table in record_tables.tables((record / "README.md").read_text(encoding="utf-8")):
            before = record_tables.missing(table, index).keys()
            places = [
                place
                for place, figures in table.cells.items()
                if place not in before and any(len(figure.text) > 3 for figure in figures)
            ]
            for place in choice.sample(places, min(len(places), 4)):
                changed = record_tables.changed(table, place, choice.choice((-3, -2, -1, 1, 2, 3)))
                detected.append(place in record_tables.missing(changed, index))
    assert len(detected) > 200
    assert sum(detected) > 0.7 * len(detected)


def test_a_figure_that_no_record_has_is_detected() -> None:
    record = "benchmarks/all_reduce_2xh200_202611/README.md"
    text = (
        "Here `8` H200 reach 77 of 84 values, 85 others, 1,685 combinations and 99.23 ms"
        f" ([record]({record})). 85 is not meant."
    )
    first, second = sentences(text)
    record_files = records(ROOT / "README.md", first)
    assert [record.parent.name for record in record_files] == ["all_reduce_2xh200_202611"]
    assert unfounded(first, record_files) == ["85", "1,685", "99.23", "77 of 84"]
    assert records(ROOT / "README.md", second) == []


@pytest.mark.parametrize(
    ("page", "file", "view"),
    [
        ("replace-nccl-tests.md", "all_reduce_2xh200_202611/compat_2.txt", ""),
        ("pytorch-benchmark.md", "all_reduce_2xh200_202611/torch_2.json", "torch-csv"),
    ],
    ids=["nccl-tests", "torch"],
)
def test_outputs_are_recorded(
    page: str, file: str, view: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output = (RECORDS / file).read_text(encoding="utf-8")
    if view:
        assert guarded(["show", str(RECORDS / file), "--format", view]) == 0
        output = capsys.readouterr().out
    recorded_lines = {line.rstrip() for line in output.splitlines()} | {"..."}
    blocks = re.findall(
        r"```(?:text|console)\n(.*?)```",
        (ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert any(
        len(block.splitlines()) > 5 and set(block.splitlines()) <= recorded_lines
        for block in blocks
    )


def test_the_variation_of_single_means_is_recorded() -> None:
    """That of docs/how-to/compare-runs.md, over the runs of nccl-tests' sweep in one record."""
    runs: dict[tuple[str, str], list[Path]] = {}
    for path in sorted((RECORDS / "all_reduce_2xh200_202611").rglob("*_[1-5].*")):
        if (path.suffix == ".txt" and path.with_suffix(".json").exists()) or path.name.startswith(
            ("run_", "torch_", "nccl_loop_")
        ):
            continue
        runs.setdefault((path.parent.name, path.stem[:-2]), []).append(path)
    pairs = [
        pair
        for paths in runs.values()
        for pair in itertools.combinations(
            [read.read(path.read_bytes(), path.name) for path in paths], 2
        )
    ]
    rows = [rows for first, other in pairs for rows in zip(first.rows, other.rows, strict=True)]
    times = [
        (a.time_s, b.time_s)
        for first, other in rows
        for a, b in ((first.out_of_place, other.out_of_place), (first.in_place, other.in_place))
    ]
    differences = [abs(a - b) / min(a, b) for a, b in times]
    assert (
        len(times),
        round(100 * sum(share > 0.3 for share in differences) / len(differences)),
    ) == (2170, 12)
    assert all(abs(a - b) <= 20e-6 + 0.1 * min(a, b) for a, b in times)


def test_the_text_of_a_recorded_training_is_that_of_its_result() -> None:
    texts = [
        path
        for path in sorted(RECORDS.glob("train_*/**/*.txt"))
        if path.with_suffix(".json").exists()
    ]
    assert len(texts) > 20
    different = [
        path
        for path in texts
        if rendered(path.with_suffix(".json")) != path.read_text(encoding="utf-8")
    ]
    assert [str(path.relative_to(RECORDS)) for path in different] == []
