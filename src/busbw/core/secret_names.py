"""Which values are secrets: by the names of their variables, options and fields, or by their own
form.
"""

import base64
import binascii
import re

# A name with one of these is of a secret, wherever it stands in the name.
_STRONG = re.compile(
    r"TOKEN(?!I[SZ])|SECRET|PASSW|PASSPHRASE|PASSCODE|CREDENTIAL|PRIVATE|JWT|COOKIE|PSK"
    r"|AUTH(?!OR(?!I)|ENTICAT)"
    r"|(?:API|ACCESS|ACCOUNT|MASTER|STORAGE|SIGNING|ENCRYPTION|LICENSE|SERVICE|DEPLOY|SHARED|SECURITY"
    r"|SESSION|CLIENT)[_.-]?KEY",
    re.IGNORECASE,
)
# A name whose last word is one of these is of a secret too; `_KEY` only outside of settings of
# communication, which have harmless ones.
_LAST_WORD = re.compile(
    r"[_.-](?i:KEY|PASS|PASSIN|PASSOUT|PWD|PW|CREDS?)$|^KEY$|[a-z](?:Key|Pass|Pwd)$"
)
_HARMLESS_KEY = re.compile(
    r"^-*(?:R?NCCL|UC[XC]|FI|OMPI|PMIX|PRTE|GLOO|I_MPI|MPICH|CUDA|SLURM|BUSBW)_|(?:^"
    r"|[_.-])(?:[A-Z]|SORT|PRIMARY|FOREIGN|PARTITION|CACHE"
    r"|PUBLIC|PUB|INDEX|HASH|RSS)[_.-]?KEY$",
    re.IGNORECASE,
)
_DIRECTORIES = ("PWD", "OLDPWD")
# Options of ssh that switch a way of logging in, and options that ask for no secret.
_SETTINGS = re.compile(
    r"^-*(?:no|without|disable|skip)[_-]|^(?:Pubkey|Password|KbdInteractive|ChallengeResponse"
    r"|Hostbased|GSSAPI)Authentication$"
    r"|^PreferredAuthentications$|^NumberOfPasswordPrompts$"
    r"|(?:TYPE|METHODS?|MODE|MECHANISM|PLUGIN|PROVIDER|SCHEME|TIMEOUT|LIFETIME|LENGTH|ENABLED"
    r"|REQUIRED)$",
    re.IGNORECASE,
)
# such a value is secret even if it is a number
_ALWAYS = re.compile(r"PASS|PWD|PW$|SECRET", re.IGNORECASE)
_OF_A_FILE = re.compile(r"(?:FILES?|PATH|DIR|FOLDER|LOCATION|SOCK|SOCKET)$", re.IGNORECASE)

_WORDS = frozenset(
    (
        "",
        "***",
        "yes",
        "no",
        "true",
        "false",
        "on",
        "off",
        "enabled",
        "disabled",
        "none",
        "null",
        "(null)",
        "auto",
        "default",
        "ask",
        "munge",
        "files",
    )
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
# Base64 may begin with a slash: a path is known by a directory that systems have.
_PATH = re.compile(
    r"(?:~|\.{1,2}|\$HOME|/(?:etc|home|root|run|var|opt|usr|mnt|tmp|srv|dev|proc|sys|data|work"
    r"|users|secrets|scratch|shared|nfs|lustre|gpfs))/"
    r"[\w./@+~:-]*"
)
_ANY_PATH = re.compile(r"[~.$\w]*/[\w./@+~:-]*")
# Values that show by their form that they are secrets.
_FORMS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:AKIA|ASIA)[0-9A-Z]{12,}|LTAI[0-9A-Za-z]{12,}"  # access keys of AWS, Alibaba Cloud
    r"|hf_[A-Za-z0-9]{16,}|nvapi-[\w-]{16,}"  # Hugging Face, NVIDIA
    r"|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}"
    r"|gl(?:pat|ptt|dt|rt|ft|soat|cbt|agent|imt|oas)-[\w-]{10,}"  # GitLab
    r"|sk-(?=[\w-]{0,200}[0-9A-Z])[\w-]{16,}|xox[a-z]-[\w-]{8,}|xapp-[\w-]{16,}|AIza[\w-]{20,}"
    r"|ya29\.[\w-]{16,}|GOCSPX-[\w-]{16,}"  # Google
    r"|npm_[A-Za-z0-9]{20,}|pypi-[\w-]{16,}"
    r"|hvs\.[\w-]{16,}|glsa_\w{16,}|dckr_[po]at_[\w-]{10,}"
    r"|[srp]k_(?:live|test)_\w{10,}|whsec_[\w+/=]{16,}"  # Stripe
    r"|SG\.[\w-]{16,}\.[\w-]{16,}|key-[0-9A-Za-z]{32}|SK[0-9a-f]{32}"  # SendGrid, Mailgun, Twilio
    r"|do[opr]_v1_\w{20,}|dapi[0-9a-f]{32}|tskey-[\w-]{16,}"  # DigitalOcean, Databricks, Tailscale
    r"|AGE-SECRET-KEY-1\w{16,}|gsk_\w{20,}|r8_\w{30,}|lin_api_\w{16,}"  # Groq, Replicate, Linear
    r"|(?:bot)?\d{8,10}:AA[\w-]{30,}"  # bots of Telegram
    r"|[\w.~-]{3}\dQ~[\w.~-]{31,34}"  # Azure
    r"|eyJ[\w-]{4,}\.[\w-]+(?:\.[\w-]*)*"  # JSON web tokens
    r")|\$(?:1|2[abxy]|5|6|y|7|gy|apr1|argon2\w{1,2}|pbkdf2[\w-]*)\$[./A-Za-z0-9$=,+]{12,}"
)
# Addresses that are a secret themselves, by what stands before it.
_WEBHOOK = re.compile(
    r"((?:hooks\.slack(?:-gov)?\.com/\w+|discord(?:app)?\.com/api(?:/v\d+)?/webhooks"
    r"|webhook\.office\.com/webhookb2|outlook\.office(?:365)?\.com/webhook"
    r"|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook|hooks\.zapier\.com/hooks"
    r"|maker\.ifttt\.com/trigger|events\.pagerduty\.com/integration)/)[^\s\"'<>]+",
    re.IGNORECASE,
)
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


def secret_name(name: str) -> bool:
    """Whether the value of a variable, option or field of this name is a secret."""
    if _SETTINGS.search(name) or name.strip("-").upper() in _DIRECTORIES:
        return False
    if _STRONG.search(name):
        return True
    return _LAST_WORD.search(name) is not None and not (
        name.lower().endswith("key") and _HARMLESS_KEY.search(name)
    )


def harmless_value(name: str, value: str) -> bool:
    """Whether a value under the name of a secret is no secret: a switch, a number of something, or
    the path of a file with the secret.
    """
    if value.lower() in _WORDS or _PATH.fullmatch(value):
        return True
    if _OF_A_FILE.search(name) and (_ANY_PATH.fullmatch(value) or value == "FILE"):
        return True
    return _NUMBER.fullmatch(value) is not None and not _ALWAYS.search(name)


def masked_forms(text: str, mask: str) -> str:
    """The text with `mask` for each secret that shows its form: keys of known services, private
    keys, logins in URLs, headers.
    """
    text = _PEM.sub(mask, text)
    text = _LOGIN.sub(f"://{mask}@", text)
    text = _ISCSI.sub(rf"\g<1>{mask}@", _WEBHOOK.sub(rf"\g<1>{mask}", text))
    text = _SQL.sub(rf"\g<1>{mask}", _SHARE_USER.sub(rf"\g<1>{mask}", text))
    text = _BEARER.sub(rf"\g<1>{mask}", text)

    def masked_login(match: re.Match[str]) -> str:
        scheme, credentials = match.groups()
        return f"{scheme}{mask}" if _is_login_in_base64(credentials) else match.group()

    return _FORMS.sub(mask, _BASIC.sub(masked_login, text))


def _is_login_in_base64(text: str) -> bool:
    """Whether the text is `user:password` in base64, also in that of URLs and without padding."""
    padded = text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4)
    try:
        return b":" in base64.b64decode(padded, validate=True)
    except (binascii.Error, ValueError):
        return False
