"""A token that other users could have written is none."""

import os

import pytest

from busbw.cli.main import guarded
from busbw.cli.metrics_server import _token
from busbw.core.errors import UsageError


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602, 0o777])
def test_a_token_that_others_can_write_is_refused(tmp_path, mode, capsys):
    file = tmp_path / "the token"
    file.write_text("s3cret")
    file.chmod(mode)
    assert guarded(["watch", "--listen", "0.0.0.0:28729", "--token-file", str(file)]) == 2
    err = capsys.readouterr().err
    assert (
        f"error: --token-file {file}: mode {mode:04o}, other users can change the token\n\n"
        f"hint:"
        f" chmod 600 '{file}'" in err
    )
    assert "s3cret" not in err


def test_a_token_of_another_user_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text("s3cret")
    file.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(file, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(UsageError, match="mode 0600, owned by user") as raised:
        _token(file)
    assert f"chmod 600 {file}" in raised.value.hint


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o444])
def test_a_private_token_file_is_accepted(tmp_path, mode):
    file = tmp_path / "token"
    file.write_text(" s3cret\n")
    file.chmod(mode)
    assert _token(file) == "s3cret"


@pytest.mark.parametrize(
    ("token", "mode", "message"),
    [
        ("s3cret-of-16-char", 0o644, "mode 0644, all users can read the token"),
        ("s3cret-of-16-char", 0o604, "mode 0604, all users can read the token"),
        ("x", 0o600, "a token of 1 character can be guessed"),
    ],
)
def test_beyond_loopback_a_token_is_secret_and_long(tmp_path, token, mode, message, capsys):
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(mode)
    assert guarded(["watch", "--listen", "0.0.0.0:28729", "--token-file", str(file)]) == 2
    err = capsys.readouterr().err
    assert message in err and "hint: " in err
