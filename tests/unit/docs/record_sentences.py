"""Which measured numbers in the sentences of a record's README are not in its files.

A number is measured if it has two digits or more and the unit of a time, a rate, a share or a
factor follows, perhaps after further numbers. It has to stand somewhere in the files, so a wrong
one can match by chance. A paragraph that says "not stored" is left out.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import record_tables
from markdown_it import MarkdownIt

PARSER = MarkdownIt("commonmark").enable("table")
SENTENCE = re.compile(r"(?<=[.:;])\s+(?=[A-Z<\d])")
ANY = r"\d+(?:,\d{3})*(?:\.\d+)?"
UNIT = r" ?(?:%|ms|us|s|GB/s|times|core-seconds|points)(?![\w/])"
MEASURED = re.compile(rf"((?<![\w.,-]){ANY})(?=(?:(?:,| to| and| or)? {ANY})*{UNIT})")
LEFT_OUT = re.compile(r"not stored|^Targets?\b|^Goals?\b")


def paragraphs(text: str) -> Iterator[tuple[str, str]]:
    """The heading above each paragraph or list item of a page, and its words without code."""
    heading, in_table = "", False
    tokens = PARSER.parse(text)
    for token, following in zip(tokens, [*tokens[1:], tokens[-1]], strict=True):
        in_table = token.type == "table_open" or (in_table and token.type != "table_close")
        if token.type == "heading_open":
            heading = following.content
        elif token.type == "inline" and not in_table:
            parts = (
                " " if part.type == "softbreak" else part.content
                for part in token.children or ()
                if part.type in ("softbreak", "text")
            )
            yield heading, "".join(parts)


def untraced(record: Path) -> list[tuple[str, list[str]]]:
    """The sentences with measured numbers that neither a file nor a table of the record has,
    each after its heading, and these numbers.
    """
    text = (record / "README.md").read_text(encoding="utf-8")
    index = record_tables.index(record)
    tabled = {
        figure.text
        for table in record_tables.tables(text)
        for figures in table.cells.values()
        for figure in figures
    }
    untraced_sentences = []
    for heading, paragraph in paragraphs(text):
        for sentence in SENTENCE.split("" if LEFT_OUT.search(paragraph) else paragraph):
            numbers = [
                number
                for number in MEASURED.findall(sentence)
                if len(number.replace("0.", "").replace(".", "")) > 1
            ]
            missing_numbers = [
                number
                for number in numbers
                if number not in tabled and not index.matching(record_tables.figures(number)[0])
            ]
            if missing_numbers:
                untraced_sentences.append((f"{heading} | {sentence}", missing_numbers))
    return untraced_sentences
