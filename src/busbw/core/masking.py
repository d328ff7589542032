"""Takes secrets out of what is kept: words of a command line, text of files and logs, and
structures before they are serialised.

A structure keeps its keys, lengths and order, so that a document decodes to the same shape. Masking
too much costs a fact, masking too little a secret: in doubt the value goes.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from busbw.core.secret_names import harmless_value, masked_forms, secret_name

MASK = "***"

# Options whose next word is a secret, by the program that was named last. A program without any
# ends the rules of the one before it.
_LOGIN = ("-p",)
_MYSQL = ("-p", "--password")
_SNMP = ("-c", "-A", "-X")
_LDAP = ("-w", "-y")
_PROGRAMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("ssh", "scp", "sftp", "rsync", "mpirun", "mpiexec", "prterun", "srun", "sudo", "env"), ()
    ),
    **dict.fromkeys(
        (
            "sshpass",
            "login",
            "mongo",
            "mongosh",
            "mongodump",
            "racadm",
            "useradd",
            "usermod",
            "7z",
            "rabbitmqadmin",
        ),
        _LOGIN,
    ),
    **dict.fromkeys(("mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump"), _MYSQL),
    **dict.fromkeys(("snmpget", "snmpset", "snmpwalk", "snmpbulkwalk", "snmptrap"), _SNMP),
    **dict.fromkeys(("ldapsearch", "ldapadd", "ldapmodify", "ldapwhoami", "ldapdelete"), _LDAP),
    **dict.fromkeys(("zip", "unzip", "mosquitto_pub", "mosquitto_sub"), ("-P",)),
    "curl": ("-u", "--user", "-U", "--proxy-user"),
    "ipmitool": ("-P", "-k", "-Y"),
    "lftp": ("-u",),
    "nmcli": ("password", "wifi-sec.psk", "802-11-wireless-security.psk"),
    "redis-cli": ("-a",),
    "smbclient": ("-U",),
}
# of these options, which may also hold their value in the same word: -pVALUE
_ATTACHED = ("-p", "-P", "-u", "-w", "-U", "-a")
# a name and a value are the next two words
_NAMED = re.compile(r"--?(?:g|prte|pmix)?mca|--?g?env|setenv")
_OPTION = re.compile(r"--[a-z]|-[A-Za-z]$")
_ASSIGNED_WORD = re.compile(r"(--?)?([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)

# bounded: a line without blanks may be long
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
# Text without any of these holds no secret that the rules could find. One search for each is faster
# than a pattern of all.
_TRIGGERS = (
    "token",
    "secret",
    "pass",
    "cred",
    "private",
    "jwt",
    "cookie",
    "psk",
    "auth",
    "key",
    "pwd",
    "bearer",
    "basic",
    "sig=",
    "code=",
    "://",
    "-----begin",
    "eyj",
    "login",
    "$1",
    "$2",
    "$5",
    "$6",
    "$y",
    "akia",
    "asia",
    "hf_",
    "nvapi-",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_",
    "dckr_",
    "glpat-",
    "sk-",
    "xox",
    "aiza",
    "npm_",
    "pypi-",
    "hvs.",
    "glsa_",
    *(name for name, options in _PROGRAMS.items() if options and "pass" not in name),
)


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
    document = _json(text)
    if document is not None:
        return document
    return "".join(_line(line) for line in masked_forms(text, MASK).splitlines(keepends=True))


def _may_hold_secret(text: str) -> bool:
    folded = text.casefold()
    return any(trigger in folded for trigger in _TRIGGERS)


def masked_words(words: Sequence[str]) -> list[str]:
    """The words of a command line without secrets: in values of options, in NAME=VALUE, and in
    text within a word.
    """
    kept = _hidden(words)
    return [
        word[: kept[number]] + MASK if number in kept else _word(word)
        for number, word in enumerate(words)
    ]


def masked_data(data: Any, name: str = "") -> Any:
    """Lists, dictionaries, text and numbers, as JSON has them, without secrets.

    `name` is what the data is the value of.
    """
    if isinstance(data, Mapping):
        return _mapping(data, name)
    if isinstance(data, list | tuple):
        texts = bool(data) and all(isinstance(item, str) for item in data)
        if texts and len(data) == 2 and secret_name(data[0]) and not data[0].startswith("-"):
            return [data[0], masked_value(data[0], data[1])]
        return (
            masked_words(data)
            if texts and not secret_name(name)
            else [masked_data(item, name) for item in data]
        )
    if isinstance(data, str):
        return masked_value(name, data)
    number = isinstance(data, int | float) and not isinstance(data, bool)
    return MASK if number and secret_name(name) and not harmless_value(name, str(data)) else data


def _mapping(data: Mapping[Any, Any], outer: str) -> dict[Any, Any]:
    """The fields; those within a field that is named as a secret are secrets too, and `value` is
    that of the field `name`.
    """
    own = data.get("name")
    names = {key: str(key) if secret_name(str(key)) else outer for key in data}
    if isinstance(own, str) and "value" in data and secret_name(own):
        names["value"] = own
    return {key: masked_data(value, names[key]) for key, value in data.items()}


def _json(text: str) -> str | None:
    """A JSON document without secrets, unchanged if it has none; None if the text is no such
    document.
    """
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        data = json.loads(text)
        hidden = masked_data(data)
    except (ValueError, RecursionError):
        return None
    ending = text[len(text.rstrip()) :]
    return text if hidden == data else json.dumps(hidden, ensure_ascii=False) + ending


def _hidden(words: Sequence[str]) -> dict[int, int]:
    """Of the words that are secrets, by their number: how many characters at their start are
    not.
    """
    found: dict[int, int] = {}
    options: tuple[str, ...] = ()
    for number, word in enumerate(words):
        if number in found:
            continue
        options = _PROGRAMS.get(word.lstrip(_OPENING).rpartition("/")[2], options)
        if _to_the_end(word, words[number - 1] if number else ""):
            return found | dict.fromkeys(range(number + 1, len(words)), 0)
        if word[:2] in options and word[:2] in _ATTACHED and len(word) > 2:
            found[number] = 2
        name = _secret_follows(words, number, options)
        following = words[number + 1] if number + 1 < len(words) else ""
        if name is not None and following and not _is_no_secret(name, following):
            found[number + 1] = 0
    return found


def _to_the_end(word: str, before: str) -> bool:
    """Whether all words after this one are of a header with a secret."""
    return word.lower() in ("cookie:", "set-cookie:") or (
        word.lower() == "digest" and before.lower().endswith("authorization:")
    )


def _secret_follows(words: Sequence[str], number: int, options: tuple[str, ...]) -> str | None:
    """The name of a secret whose value is the next word, '' if the place alone says so; None if
    it is none.
    """
    word, before = words[number], words[number - 1] if number else ""
    scheme = word.lower() if word.lower() in _SCHEMES else ""
    # as in .netrc
    if word in options or (word == "password" and number > 1 and words[number - 2] == "login"):
        return ""
    # of a header that was split into words
    if scheme and (scheme == "bearer" or before.lower().endswith("authorization:")):
        return scheme
    if word == "=":
        return before if secret_name(before) else None
    named = word.startswith("-") or word.endswith(":") or _NAMED.fullmatch(before) is not None
    name = word.removesuffix(":")
    return word if named and "=" not in name and ":" not in name and secret_name(name) else None


def _is_no_secret(name: str, value: str) -> bool:
    """Whether a word is not the value that its place makes it: another option, a switch, the
    scheme of a header.
    """
    if name == "bearer":
        return _ABOUT_BEARER.match(value) is not None
    if _OPTION.match(value) or (name.endswith(":") and value.lower() in _SCHEMES):
        return True
    return bool(name) and harmless_value(name.removesuffix(":"), value.strip(_CLOSING))


def _word(word: str) -> str:
    """A word of a command line: the value of `NAME=VALUE` is all that follows, blanks too."""
    assigned = _ASSIGNED_WORD.fullmatch(word)
    if not assigned:
        return masked(word)
    dashes, name, value = assigned.groups()
    start = f"{dashes or ''}{name}"
    if not secret_name(start):
        return f"{start}={_word(value)}"
    return word if harmless_value(name, value) else f"{start}={MASK}"


def _line(line: str) -> str:
    if not _may_hold_secret(line):
        return line
    document = _json(line)
    if document is not None:
        return document
    line = _TO_THE_END.sub(_header, line)
    line = _QUERY.sub(rf"\g<1>{MASK}", line)
    return _options(_assignments(line))


def _header(found: re.Match[str]) -> str:
    """A header whose value has blanks: all of it.

    Of the scheme and token of others, text may follow.
    """
    digest, cookie = (
        found.group(1).lower().rstrip().endswith("digest"),
        found.group(1).lower().lstrip().startswith(("cookie", "set-cookie")),
    )
    return found.group(1) + MASK if (digest or cookie) and found.group(2) else found.group()


def _assignments(line: str) -> str:
    """The line with the values of `NAME=VALUE` and `NAME: VALUE` masked, whose name is one of a
    secret.
    """
    parts: list[str] = []
    at, counted, quotes = 0, 0, 0
    while found := _ASSIGNED.search(line, at):
        start = found.end()
        parts.append(line[at:start])
        at = start
        value = _VALUE.match(line, start) if secret_name(found.group(1)) else None
        if value is None:
            continue
        kind = str(value.lastgroup)
        begin, end = value.span(kind)
        quotes, counted = quotes + line.count('"', counted, begin), begin
        if kind == "plain":
            end = _end(line, begin, end, quoted=quotes % 2 == 1)
        if not harmless_value(found.group(1), line[begin:end]):
            parts.append(line[start:begin] + MASK)
            at = end
    return "".join(parts) + line[at:]


def _end(line: str, begin: int, end: int, *, quoted: bool) -> int:
    """Where a value without quotes of its own ends: at the quote that was open before it, and
    before closing marks.
    """
    if quoted and (quote := line.find('"', begin, end)) >= 0:
        return quote
    return begin + len(line[begin:end].rstrip(_CLOSING)) or end


def _options(line: str) -> str:
    """The line with the values of options masked, as in the words of a command line."""
    tokens = list(_TOKEN.finditer(line))
    bare = [token.group().strip(_CLOSING) for token in tokens]
    parts, at = [], 0
    for number, kept in sorted(_hidden(bare).items()):
        word, token = bare[number], tokens[number]
        if word and word != MASK:
            begin = token.start() + token.group().index(word)
            parts.append(line[at : begin + kept] + MASK)
            at = begin + len(word)
    return "".join(parts) + line[at:]
