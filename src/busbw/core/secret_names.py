"""Which values are secrets: by the names of their variables, options and fields, or by their own
form (core/secret_words.csv, core/secret_forms.csv).
"""

import base64
import binascii
import re
from functools import cache
from typing import Literal

import msgspec

from busbw.core.table_file import rows

# such a value is secret even if it is a number
_ALWAYS = re.compile(r"PASS|PWD|PW$|SECRET", re.IGNORECASE)
_DIRECTORIES = ("PWD", "OLDPWD")
# a number, or the first and last of a range: --tokens 128:4K
_NUMBER = re.compile(r"\d+(?:\.\d+)?|\d{1,7}[KMG]?(?::\d{1,7}[KMG]?)?")
_ANY_PATH = re.compile(r"[~.$\w]*/[\w./@+~:-]*")
# netroot=iscsi:user:password@server, as the kernel's command line has it
_ISCSI = re.compile(r"(\biscsi:)(?!//)[^\s\"'<>@]{1,500}@")
# user=name%password among the options of mount.cifs
_SHARE_USER = re.compile(r"(\buser(?:name)?=[^\s,%\"']{1,200}%)[^\s,\"']+")
_SQL = re.compile(
    r"(\b(?:IDENTIFIED BY|PASSWORD(?: FOR [^=]{1,99})?)(?:\s+|\s*=\s*)')[^']+", re.IGNORECASE
)
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?:"
    r" BLOCK)?-----|\Z)",
    re.DOTALL,
)
_BEARER = re.compile(r"\b(Bearer\s+)(?!tokens?\b|auth|<)([^\s\"',;<>]+)", re.IGNORECASE)
_BASIC = re.compile(r"\b(Basic\s+)([A-Za-z0-9+/_-]{4,}={0,2})", re.IGNORECASE)
# `://user:password@`; a number and a slash after the colon are a port. `://token@` without a colon
# is one if it is long.
_LOGIN = re.compile(
    r"://(?:[^\s/@:\"'<>]{0,200}:(?!\d{1,5}/)[^\s\"'<>]{0,500}|[^\s/@:\"'<>]{20,500})@"
)


class SecretForm(msgspec.Struct, frozen=True):
    """The form of a service's secrets."""

    kind: Literal["key", "hash", "address"]
    service: str
    pattern: str
    triggers: tuple[str, ...]


class SecretWords(msgspec.Struct, frozen=True):
    """Patterns of parts of names or values, and their use."""

    use: str
    words: tuple[str, ...]


class _Patterns(msgspec.Struct, frozen=True):
    """Patterns of names of secrets, of names that are none, and of values that are none."""

    strong: re.Pattern[str]
    last_word: re.Pattern[str]
    harmless_key: re.Pattern[str]
    setting: re.Pattern[str]
    of_a_file: re.Pattern[str]
    path: re.Pattern[str]
    values: frozenset[str]


@cache
def secret_forms() -> tuple[SecretForm, ...]:
    """All forms of secrets."""
    return rows("core/secret_forms.csv", SecretForm, lists=("triggers",))


@cache
def _patterns() -> _Patterns:
    table = {row.use: row.words for row in rows("core/secret_words.csv", SecretWords, ("words",))}
    any_of = {use: "|".join(words) for use, words in table.items()}
    return _Patterns(
        strong=re.compile(rf"{any_of['in_name']}|(?:{any_of['key_of']})[_.-]?KEY", re.IGNORECASE),
        last_word=re.compile(rf"[_.-](?i:{any_of['last_word']})$|^KEY$|[a-z](?:Key|Pass|Pwd)$"),
        harmless_key=re.compile(
            rf"^-*(?:{any_of['harmless_key_prefix']})_"
            rf"|(?:^|[_.-])(?:{any_of['harmless_key']})[_.-]?KEY$",
            re.IGNORECASE,
        ),
        setting=re.compile(
            rf"^-*(?:no|without|disable|skip)[_-]|^(?:{any_of['switch']})Authentication$"
            rf"|^PreferredAuthentications$|^NumberOfPasswordPrompts$|(?:{any_of['setting']})$",
            re.IGNORECASE,
        ),
        of_a_file=re.compile(rf"(?:{any_of['of_a_file']})$", re.IGNORECASE),
        path=re.compile(rf"(?:~|\.{{1,2}}|\$HOME|/(?:{any_of['directory']}))/[\w./@+~:-]*"),
        values=frozenset(("", *table["value"])),
    )


@cache
def _keys_and_hashes() -> re.Pattern[str]:
    keys, hashes = _alternatives("key"), _alternatives("hash")
    return re.compile(rf"(?<![A-Za-z0-9])(?:{keys})|{hashes}")


@cache
def _webhook() -> re.Pattern[str]:
    """Addresses that are a secret themselves, by what stands before it."""
    return re.compile(rf"((?:{_alternatives('address')})/)[^\s\"'<>]+", re.IGNORECASE)


def _alternatives(kind: str) -> str:
    return "|".join(form.pattern for form in secret_forms() if form.kind == kind)


def secret_name(name: str) -> bool:
    """Whether the value of a variable, option or field of this name is a secret."""
    known = _patterns()
    if known.setting.search(name) or name.strip("-").upper() in _DIRECTORIES:
        return False
    if known.strong.search(name):
        return True
    return known.last_word.search(name) is not None and not (
        name.lower().endswith("key") and known.harmless_key.search(name)
    )


def harmless_value(name: str, value: str) -> bool:
    """Whether a value under the name of a secret is no secret: a switch, a number of something, or
    the path of a file with the secret.
    """
    known = _patterns()
    if value.lower() in known.values or known.path.fullmatch(value):
        return True
    if known.of_a_file.search(name) and (_ANY_PATH.fullmatch(value) or value == "FILE"):
        return True
    return _NUMBER.fullmatch(value) is not None and not _ALWAYS.search(name)


def masked_forms(text: str, mask: str) -> str:
    """The text with `mask` for each secret that shows its form: keys of known services, private
    keys, logins in URLs, headers.
    """
    text = _PEM.sub(mask, text)
    text = _LOGIN.sub(f"://{mask}@", text)
    text = _ISCSI.sub(rf"\g<1>{mask}@", _webhook().sub(rf"\g<1>{mask}", text))
    text = _SQL.sub(rf"\g<1>{mask}", _SHARE_USER.sub(rf"\g<1>{mask}", text))
    text = _BEARER.sub(rf"\g<1>{mask}", text)

    def masked_login(match: re.Match[str]) -> str:
        scheme, credentials = match.groups()
        return f"{scheme}{mask}" if _is_login_in_base64(credentials) else match.group()

    return _keys_and_hashes().sub(mask, _BASIC.sub(masked_login, text))


def _is_login_in_base64(text: str) -> bool:
    """Whether the text is `user:password` in base64, also in that of URLs and without padding."""
    padded = text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4)
    try:
        return b":" in base64.b64decode(padded, validate=True)
    except (binascii.Error, ValueError):
        return False
