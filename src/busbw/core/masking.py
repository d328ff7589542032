"""Masks secrets in what is kept: words of a command line, text of files and logs, and structures
before they are serialized.

A structure keeps its keys, lengths and order, so that a document decodes to the same shape. Masking
too much costs a fact, masking too little a secret: a doubtful value is masked.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from busbw.core.secret_arguments import PRINTING, STDIN_READERS, secret_arguments, secret_options
from busbw.core.secret_names import harmless_value, masked_forms, secret_forms, secret_name

MASK = "***"
_SHORT, _KNOWN_TEXTS = 200, 2048

_PROSE = re.compile(r"[a-z]{1,8}[.,;]?")  # of "run wandb login to go on"
_BETWEEN_COMMANDS = ("&&", "||", "|", ";", "&")
# Those of these options that may hold their value in the same word: -pVALUE.
_ATTACHED = ("-hp", "-p", "-P", "-u", "-w", "-U", "-a", "/p:")
# `NAME=` of a secret among the options of mount. Elsewhere the value may be a count: `pass=518`.
_SHORT_NAME = re.compile(r"(?i:pass|pw)=(?!\d+\b)|(?<=,)(?i:pass|pw)=")
# Words that a name and a value follow.
_BEFORE_NAME = re.compile(r"--?(?:g|prte|pmix)?mca|--?g?env|setenv|(?:configure|config|racadm) set")
_OPTION = re.compile(r"--[a-z]|-[A-Za-z]$|<<<$|[|;&]+$")
_ASSIGNED_WORD = re.compile(r"(--?)?([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)

# bounded, because a line without blanks may be long
_NAME = r"(?<![A-Za-z0-9_])-{0,2}[A-Za-z_][\w.-]{0,200}+"
_ASSIGNED = re.compile(
    rf"({_NAME})(\\?[\"']?\s*(?:=>|:=|=|:(?!//))\s*)(?:(?:Bearer|Basic|Token|ApiKey|Negotiate)\s+)?"
)
_VALUE = re.compile(
    r'\\"(?P<escaped>.*?)\\"|"(?P<double>(?:\\.|[^"\\])*)"|\'(?P<single>[^\']*)\'|(?P<plain>\S+)',
    re.DOTALL,
)
_TO_THE_END = re.compile(
    r"(\b(?:(?:Set-)?Cookie2?|(?:Proxy-)?Authorization):\s*(?:Digest\s)?)([^\"'\n]*)", re.IGNORECASE
)
_QUERY = re.compile(
    r"([?&;](?:[\w.-]*(?:token|secret|passw|auth|credential|signature|session)[\w.-]*|sig|key"
    r"|pass|pwd|code)=)([^&;\s#\"'<>]+)",
    re.IGNORECASE,
)
_SCHEMES = ("bearer", "basic", "token", "apikey", "negotiate", "digest")
_ABOUT_BEARER = re.compile(r"tokens?\b|auth|<", re.IGNORECASE)
_CLOSING, _OPENING = "\"'])},;", "\"'([{$`"
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'|\S+')
_WORD = re.compile(r"\S+")  # also of a command within quotes
_BEFORE_PROGRAM = re.compile(r"[=\"'`(\\;|&]")  # ProxyCommand="sshpass
# Text without any of these, and of those of the tables, holds no secret that the rules could find.
# One search for each is faster than a pattern of all.
_TRIGGER_WORDS = """
token secret pass cred private jwt cookie psk auth key pwd bearer basic sig= code= :// -----begin
login user= username= kinit sudo identified iscsi: _pw -pw .pw
"""


def masked_value(name: str, value: str) -> str:
    """The value of a variable or field, masked if its name says that it is a secret, or in part
    if the value itself does.
    """
    if secret_name(name) and not harmless_value(name, value):
        return MASK
    return masked(value)


def masked(text: str) -> str:
    """Text of a file, a log or a library call without secrets.

    A JSON document keeps its structure; words may end with NUL as in procfs.
    """
    if not _may_hold_secret(text):
        return text
    if "\0" in text:
        return "\0".join(masked_words(text.split("\0")))
    document = _masked_json(text)
    if document is not None:
        return document
    lines = masked_forms(text, MASK).splitlines(keepends=True)
    return "".join(map(_masked_line, lines))


def _may_hold_secret(text: str) -> bool:
    # files of a machine have few texts, such as a lane's speed, hundreds of times each
    return (_known_trigger if len(text) < _SHORT else _has_trigger)(text)


def _has_trigger(text: str) -> bool:
    # of a PCI configuration space few bytes are not zero
    folded = " ".join(filter(None, text.casefold().split("\0")))
    return any(map(folded.__contains__, _triggers()))  # nearly twice as fast as a generator


@cache
def _triggers() -> tuple[str, ...]:
    programs = [name for name, options in secret_options().items() if options]
    commands = [row.command for table in secret_arguments().values() for row in table]
    triggers = [
        *_TRIGGER_WORDS.split(),
        *(trigger for form in secret_forms() for trigger in form.triggers),
        *(program for program in programs if "pass" not in program),
        *(" ".join(command[:2]) for command in commands),
    ]
    return tuple(dict.fromkeys(triggers))


_known_trigger = lru_cache(_KNOWN_TEXTS)(_has_trigger)


def masked_words(words: Sequence[str]) -> list[str]:
    """The words of a command line without secrets: options, NAME=VALUE, and text within words."""
    kept = _kept_lengths(words)
    return [
        word[: kept[index]] + MASK if index in kept else _masked_word(word)
        for index, word in enumerate(words)
    ]


def masked_data(data: Any, name: str = "") -> Any:
    """Lists, dictionaries, text and numbers, as JSON has them, without secrets.

    `name` is the name of the field that has the data as its value.
    """
    if isinstance(data, Mapping):
        return _masked_mapping(data, name)
    if isinstance(data, list | tuple):
        return _masked_list(data, name)
    if isinstance(data, str):
        return masked_value(name, data)
    is_number = isinstance(data, int | float) and not isinstance(data, bool)
    if is_number and secret_name(name) and not harmless_value(name, str(data)):
        return MASK
    return data


def _masked_list(data: Sequence[Any], name: str) -> list[Any]:
    """The items; two texts may be a name and its value, several the words of a command line."""
    if not data or not all(isinstance(item, str) for item in data):
        return [masked_data(item, name) for item in data]
    if len(data) == 2 and secret_name(data[0]) and not data[0].startswith("-"):
        return [data[0], masked_value(data[0], data[1])]
    if secret_name(name):
        return [masked_data(item, name) for item in data]
    return masked_words(data)


def _masked_mapping(data: Mapping[Any, Any], outer: str) -> dict[Any, Any]:
    """The fields; those within a field with the name of a secret are secrets too.

    The name of the field `value` is the text of the field `name`, if there is one.
    """
    names = {key: str(key) if secret_name(str(key)) else outer for key in data}
    name = data.get("name")
    if isinstance(name, str) and "value" in data and secret_name(name):
        names["value"] = name
    return {key: masked_data(value, names[key]) for key, value in data.items()}


def _masked_json(text: str) -> str | None:
    """A JSON document without secrets, unchanged if it has none; None if it is no JSON."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        data = json.loads(text)
        masked = masked_data(data)
    except (ValueError, RecursionError):
        return None
    if masked == data:
        return text
    ending = text[len(text.rstrip()) :]
    return json.dumps(masked, ensure_ascii=False) + ending


def _kept_lengths(words: Sequence[str]) -> dict[int, int]:
    """By the index of each word with a secret, how many characters at its start are no secret."""
    kept: dict[int, int] = {}
    options: tuple[str, ...] = ()
    for index, word in enumerate(words):
        if index in kept:
            continue
        program = _program(word)
        options = secret_options().get(program, options)
        for row in secret_arguments().get(program, ()):
            kept |= _arguments(words, index + 1, row.command[1:], row.harmless)
        if program in PRINTING or word == "<<<":
            kept |= _standard_input(words, index)
        masked_before = words[index + 1 : index + 2] == [MASK]
        if _starts_secret_header(word, words[index - 1] if index else "") and not masked_before:
            return kept | dict.fromkeys(range(index + 1, len(words)), 0)
        attached = next(filter(word.startswith, filter(options.__contains__, _ATTACHED)), word)
        if len(attached) < len(word):
            kept[index] = len(attached)
        name = _name_of_next(words, index, options)
        following = words[index + 1] if index + 1 < len(words) else ""
        if name is not None and following and not _is_no_secret(name, following):
            kept[index + 1] = 0
    return kept


def _program(word: str) -> str:
    """The program that a word starts, without its directory and what stands before it."""
    return _BEFORE_PROGRAM.split(word.lstrip(_OPENING))[-1].rpartition("/")[2]


def _arguments(
    words: Sequence[str], start: int, literals: Sequence[str], harmless: int
) -> dict[int, int]:
    """The arguments of a command after these literals, of which one is the secret, without the
    first ones, which are harmless; up to the next command.
    """
    end = _end_of_command(words, start)
    for literal in literals:
        places = [at for at in range(start, end) if words[at].lower() == literal]
        if not places:
            return {}
        start = places[0] + 1
    found: dict[int, int] = {}
    for index, word in enumerate(words[start:end], start):
        is_prose = literals == ("login",) and _PROSE.fullmatch(word)
        if is_prose or _program(word) in secret_options():
            break
        if not word.startswith("-") and "://" not in word:
            found[index] = 0
    return dict(list(found.items())[harmless:])


def _end_of_command(words: Sequence[str], start: int) -> int:
    ends = (at for at in range(start, len(words)) if words[at] in _BETWEEN_COMMANDS)
    return next(ends, len(words))


def _standard_input(words: Sequence[str], index: int) -> dict[int, int]:
    """What `echo` prints into a program that reads a secret, or `<<<` gives to one."""
    end = _end_of_command(words, index)
    if words[index] == "<<<":
        return dict.fromkeys(range(index + 1, end), 0) if _reads_secret(words[:index]) else {}
    if not _reads_secret(words[end + 1 : _end_of_command(words, end + 1)]):
        return {}
    return {at: 0 for at in range(index + 1, end) if not words[at].startswith("-")}


def _reads_secret(words: Sequence[str]) -> bool:
    return any(_program(word) in STDIN_READERS for word in words)


def _starts_secret_header(word: str, before: str) -> bool:
    """Whether all words after this one belong to a header with a secret."""
    if word.lower() in ("cookie:", "set-cookie:"):
        return True
    return word.lower() == "digest" and before.lower().endswith("authorization:")


def _name_of_next(words: Sequence[str], index: int, options: tuple[str, ...]) -> str | None:
    """The name of a secret whose value is the next word.

    Empty if the place of the word shows it without a name; None if the next word is no such value.
    """
    word, before = words[index], words[index - 1] if index else ""
    scheme = word.lower() if word.lower() in _SCHEMES else ""
    in_netrc = word == "password" and index > 1 and words[index - 2] == "login"
    if word in options or in_netrc:
        return ""
    # of a header that was split into words
    if scheme and (scheme == "bearer" or before.lower().endswith("authorization:")):
        return scheme
    if word == "=":
        return before if secret_name(before) else None
    if before == "set" and index > 1:
        before = f"{words[index - 2]} {before}"
    if not (word.startswith("-") or word.endswith(":") or _BEFORE_NAME.fullmatch(before)):
        return None
    name = word.removesuffix(":").rpartition("/:")[2]  # npm's //registry/:_authToken
    return word if "=" not in name and ":" not in name and secret_name(name) else None


def _is_no_secret(name: str, value: str) -> bool:
    """Whether a word in a secret's place is an option, a switch, or the scheme of a header."""
    if name == "bearer":
        return _ABOUT_BEARER.match(value) is not None
    if _OPTION.match(value) or (name.endswith(":") and value.lower() in _SCHEMES):
        return True
    return bool(name) and harmless_value(name.removesuffix(":"), value.strip(_CLOSING))


def _masked_word(word: str) -> str:
    """A word of a command line: the value of `NAME=VALUE` is all that follows, blanks too."""
    assignment = _ASSIGNED_WORD.fullmatch(word)
    if not assignment:
        return masked(word)
    dashes, name, value = assignment.groups()
    start = f"{dashes or ''}{name}"
    if not secret_name(start) and not _SHORT_NAME.match(word):
        whole = f"{start}={_masked_word(value)}"
        return masked_forms(whole, MASK) if "%" in value else whole  # user=name%password
    return word if harmless_value(name, value) else f"{start}={MASK}"


def _masked_line(line: str) -> str:
    if not _may_hold_secret(line):
        return line
    document = _masked_json(line)
    if document is not None:
        return document
    line = _TO_THE_END.sub(_masked_header, line)
    line = _QUERY.sub(rf"\g<1>{MASK}", line)
    line = _mask_options(_mask_assignments(line), _TOKEN)
    return _mask_options(line, _WORD) if "'" in line or '"' in line else line


def _masked_header(match: re.Match[str]) -> str:
    """All of the value of a header in which blanks are part of the value.

    In other headers, text may follow the scheme and the token.
    """
    name, value = match.groups()
    is_digest = name.lower().rstrip().endswith("digest")
    is_cookie = name.lower().lstrip().startswith(("cookie", "set-cookie"))
    return name + MASK if value and (is_digest or is_cookie) else match.group()


def _mask_assignments(line: str) -> str:
    """The line with the values of secret names masked in `NAME=VALUE` and `NAME: VALUE`."""
    parts: list[str] = []
    at, counted, quotes = 0, 0, 0
    while assignment := _ASSIGNED.search(line, at):
        start = assignment.end()
        parts.append(line[at:start])
        at = start
        name, is_short = assignment[1], _SHORT_NAME.match(line, assignment.start())
        value = _VALUE.match(line, start) if is_short or secret_name(name) else None
        if value is None:
            continue
        kind = str(value.lastgroup)
        begin, end = value.span(kind)
        quotes, counted = quotes + line.count('"', counted, begin), begin
        if kind == "plain":
            end = _end_of_plain(line, begin, end, quoted=quotes % 2 == 1)
        if not harmless_value(name, line[begin:end]):
            parts.append(line[start:begin] + MASK)
            at = end
    return "".join(parts) + line[at:]


def _end_of_plain(line: str, begin: int, end: int, *, quoted: bool) -> int:
    """Where an unquoted value ends: at the quote open before it, or before closing marks."""
    quote = line.find('"', begin, end) if quoted else -1
    if quote >= 0:
        return quote
    return begin + len(line[begin:end].rstrip(_CLOSING)) or end


def _mask_options(line: str, token_form: re.Pattern[str]) -> str:
    """The line with the values of options masked, as in the words of a command line."""
    tokens = list(token_form.finditer(line))
    words = [token.group().strip(_CLOSING) for token in tokens]
    parts, at = [], 0
    for index, kept in sorted(_kept_lengths(words).items()):
        word, token = words[index], tokens[index]
        if word and word != MASK:
            begin = token.start() + token.group().index(word)
            parts.append(line[at : begin + kept] + MASK)
            at = begin + len(word)
    return "".join(parts) + line[at:]
