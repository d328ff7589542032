"""Invisible characters that change how text is displayed reach no terminal and no page."""

import io
import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.cli.streams import bug, print_err, print_out
from busbw.core.unseen import escape_invisible
from busbw.ui.html.element import document, tag

HIDDEN = [
    "\x1b[2J",
    "\x1b[8m",
    "\x9b1m",
    "\x07",
    "\x7f",
    "\rfree",
    "\u202e",
    "\u2066",
    "\u200b",
    "\u200f",
    "\u2028",
    "\ufeff",
    "\xad",
    "\U000e0041",
]


@pytest.mark.parametrize("hidden", HIDDEN)
def test_invisible_text_is_escaped_wherever_it_is_printed(hidden, capsys):
    host = f"gpu{hidden}1"
    print_out(f"{host}\n")
    print_err(host)
    bug(ValueError(host))
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert (
            hidden[0] not in text
            and f"gpu\\u{ord(hidden[0]) if len(hidden[0].encode()) < 4 else 0xDB40:04x}" in text
        )
    page = document(tag("p", host, title=host)).decode()
    assert hidden[0] not in page


@pytest.mark.parametrize("terminal", [False, True])
def test_a_document_keeps_its_values(terminal, monkeypatch):
    class Out(io.TextIOWrapper):
        def isatty(self) -> bool:
            return terminal

    values = {"host": "".join(HIDDEN) + "é"}
    for text in (
        json.dumps(values, ensure_ascii=False),
        json.dumps(values, ensure_ascii=False).encode(),
    ):
        out = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", Out(out, encoding="utf-8"))
        print_out(text)
        assert json.loads(out.getvalue()) == values
        assert (b"\xe2\x80\xae" in out.getvalue()) == (isinstance(text, bytes) and not terminal), (
            "bytes for a program are unchanged"
        )


@given(st.text())
def test_visible_text_is_unchanged(text):
    escaped = escape_invisible(text)
    hidden = [
        letter
        for letter in escaped
        if unicodedata.category(letter) in ("Cc", "Cf") and letter not in "\t\n\r"
    ]
    assert not [
        letter
        for letter in hidden
        if unicodedata.bidirectional(letter)
        in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    ]
    if text.isascii() and text.isprintable():
        assert escaped == text
