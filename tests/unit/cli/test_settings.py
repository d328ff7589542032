"""Settings: which place counts, what is refused, and what a command line leaves out of use."""

import grp
import json
import os
import pwd
import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busbw.cli.config import files, settings
from busbw.cli.main import cli, guarded, main
from busbw.cli.options.parameters import SETTINGS_ARGV, argv
from busbw.core.errors import UsageError
from busbw.core.settings import BY_KEY, SETTINGS
from busbw.history.place import kept_in

STRANGER = 12345  # a user id


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory, and a folder for the user's own settings."""
    for row in SETTINGS:
        monkeypatch.delenv(row.variable, raising=False)
    (tmp_path / "home" / "busbw").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")


def here(text: str) -> Path:
    file = Path("busbw.toml")
    file.write_text(text)
    return file


def at_home(text: str) -> None:
    (Path(os.environ["XDG_CONFIG_HOME"]) / "busbw" / "busbw.toml").write_text(text)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, tuple[str, str]]:
    """What `busbw check config` shows of the settings that are set: value and origin."""
    assert guarded([*words, "check", "config", "--format", "json"]) == 0
    lines = json.loads(capsys.readouterr().out)["settings"]
    return {
        line["setting"]: (line["value"], line["origin"])
        for line in lines
        if line["value"] is not None
    }


PlanOf = Callable[..., tuple[str, str]]


@pytest.fixture
def plan_of(capsys: pytest.CaptureFixture[str], logged: Callable[[], list[str]]) -> PlanOf:
    """mpirun's command line for these words after `busbw`, and what -v says. The sim engine has no
    such line.
    """

    def plan(*words: str) -> tuple[str, str]:
        code = guarded([*words, "--dry-run"])
        printed = capsys.readouterr()
        assert code == (2 if "this engine runs in this process" in printed.err else 0), printed.err
        return printed.out, "\n".join(logged())

    return plan


def test_each_setting_is_the_default_of_an_option() -> None:
    for row in SETTINGS:
        for path in row.commands:
            command: click.Command = cli
            for name in path.split():
                assert isinstance(command, click.Group)
                found = command.get_command(click.Context(command), name)
                assert found is not None, path
                command = found
            options = {one.name: one.opts for one in command.params}
            assert row.option in options.get(row.parameter, []), (row.key, path)
            assert "--config" in options["config"]
        value = tomllib.loads(f"{row.key} = {row.example}")
        assert settings.values.from_file(row, value[row.key], "here", Path())


def test_the_closest_place_counts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    at_home('engine = "mpi"\nlimit = 90\nhosts = "a:1,b:1"\nhistory = false\n')
    assert shown(capsys)["history"][0] == "false"
    here('engine = "nccl"\nhostfile = "hosts"\n')
    home = f"{tmp_path}/home/busbw/busbw.toml"
    assert shown(capsys) == {
        "engine": ("nccl", "./busbw.toml, line 1"),
        "hostfile": ("hosts", "./busbw.toml, line 2"),  # which puts the hosts out of use
        "limit": ("90", f"{home}, line 2"),
        "history": ("false", f"{home}, line 4"),
    }
    monkeypatch.setenv("BUSBW_ENGINE", "sim")
    monkeypatch.setenv("BUSBW_LIMIT", "")  # as if it were not set
    assert shown(capsys)["engine"] == ("sim", "BUSBW_ENGINE")
    assert shown(capsys)["limit"][0] == "90"
    Path("other.toml").write_text('net = "ib"')
    only = {"net": ("ib", "--config other.toml, line 1"), "engine": ("sim", "BUSBW_ENGINE")}
    assert shown(capsys, "--config", "other.toml") == only
    assert guarded(["check", "config", "--config", "/dev/null"]) == 0
    assert "--config /dev/null  read" in capsys.readouterr().out
    monkeypatch.setenv("BUSBW_CONFIG", "other.toml")
    assert shown(capsys)["net"][1] == "BUSBW_CONFIG=other.toml, line 1"


def test_a_path_is_relative_to_its_file_and_a_list_of_hosts_is_one_value(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    at_home('hostfile = "hosts"\nhistory = "~/runs.db"\n')
    assert shown(capsys)["hostfile"][0] == f"{tmp_path}/home/busbw/hosts"
    assert shown(capsys)["history"][0] == "/home/me/runs.db"
    at_home('history = "./off"\n')
    assert shown(capsys)["history"][0] == f"{tmp_path}/home/busbw/off"
    here('hosts = ["h1:2", "h2:2"]\n')
    assert shown(capsys)["hosts"][0] == "h1:2,h2:2"


@pytest.mark.parametrize("word", ["off", "No", "0", "False"])
def test_a_word_that_switches_the_history_off_does_so_in_files_and_in_the_variable(
    word: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here(f'history = "{word}"\n')
    assert shown(capsys)["history"][0] == "false"
    assert kept_in({"BUSBW_HISTORY": word}) is None
    here("")
    monkeypatch.setenv("BUSBW_HISTORY", word)
    assert shown(capsys)["history"] == ("false", "BUSBW_HISTORY")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("\nhots = 'h1'", "line 2: unknown setting 'hots'", "did you mean hosts? the settings"),
        ("launch-limit = 3", "line 1: unknown setting", "did you mean launch_limit?"),
        ("[run]\nhosts = 'h1'", "line 1: [run]: settings stand in no table", 'hosts = ["h1:8"'),
        ("limit = 'long'", 'limit = "long": must be seconds from 0 to 86400', "write limit = 120"),
        ("limit = true", "limit = true: must be seconds", "write limit"),
        ("limit = nan", "limit = NaN: must be seconds", "write limit"),
        ("engine = 3", "engine = 3: must be text", 'write engine = "nccl"'),
        ("engine = ''", 'engine = "": it is empty', "write engine"),
        ("engine = 'ncll'", "unknown engine 'ncll'", "did you mean nccl?"),
        ("net = 'eth'", "unknown net 'eth'", "the nets are busbw, socket, ib"),
        ("ideal = 450", "ideal = 450: must be a rate as text", 'write ideal = "450GB/s"'),
        ("ideal = '450'", "ideal = 450: a rate needs its unit", 'write ideal = "450GB/s"'),
        ("hosts = []", "hosts = []: must be a list of texts", "write hosts"),
        ("hosts = 'h1:x:y'", "--hosts 'h1:x:y'", ""),
        ("\nhosts = ['h1', '-oProxyCommand=x']", "line 2: --hosts 'h1,-oProxyCommand=x'", ""),
        ("hosts = 'h1'\nhostfile = 'f'", "hosts and hostfile both name the hosts", "leave out"),
        ("hosts = ", ", at its end: invalid value", "write lines like"),
        ("history = true", "history = true: must be a path", "write history"),
        ("system = 'h100x'", "line 1: ", ""),
        ("nics = '8x'", "line 1: ", ""),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(
    text: str, message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    here(text)
    assert main(["busbw", "check", "config"]) == 2
    error = capsys.readouterr().err
    assert "error: ./busbw.toml" in error
    assert message in error
    assert hint in error.partition("hint: ")[2]


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("BUSBW_LIMIT", "long", "BUSBW_LIMIT=long: must be seconds"),
        ("BUSBW_IDEAL", "450", "BUSBW_IDEAL 450: a rate needs its unit"),
        ("BUSBW_ENGINE", "ncll", "BUSBW_ENGINE: unknown engine 'ncll'"),
        ("BUSBW_HOSTS", "h1,h1", "BUSBW_HOSTS: --hosts 'h1,h1': h1 is given twice"),
        ("BUSBW_CONFIG", "none.toml", "BUSBW_CONFIG=none.toml: No such file"),
    ],
)
def test_what_is_wrong_in_a_variable_is_named(
    variable: str,
    value: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, value)
    assert main(["busbw", "run", "all_reduce"]) == 2
    assert message in capsys.readouterr().err
    assert (
        main(["busbw", "check", "--nagios"]) == (0 if variable == "X" else 3) or "LIMIT" in variable
    )


@pytest.mark.parametrize("program", [[], ["--", "torchrun", "train.py", "--", "x"]])
def test_the_recorded_command_line_has_settings_before_the_users_program(
    program: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/busbw", "capture", "--timed", *program])
    context = click.Context(cli, info_name="busbw")
    context.meta[SETTINGS_ARGV] = ["--hosts", "h1:8"]
    with context:
        assert argv() == ["busbw", "capture", "--timed", "--hosts", "h1:8", *program]


@given(st.one_of(st.binary(max_size=80), st.text(max_size=80).map(str.encode)))
def test_any_file_gives_settings_or_an_error_that_names_it(content: bytes) -> None:
    file = Path("any.toml")
    file.write_bytes(content)
    try:
        read = settings.read("any.toml", {})
    except UsageError as error:
        assert error.message.startswith("--config any.toml")
        assert error.hint
    else:
        assert read.values.keys() <= BY_KEY.keys()


def test_a_file_of_others_is_refused_where_it_was_not_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = here('engine = "sim"')
    file.chmod(0o666)
    with pytest.raises(UsageError, match="everybody may write to it") as caught:
        settings.read("", {})
    assert caught.value.hint == "read it, then: chmod o-w busbw.toml"
    file.chmod(0o644)
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    if file.stat().st_uid == 0:  # root's files are trusted
        assert settings.read("", {}).values["engine"].text == "sim"
        os.chown(file, STRANGER + 1, -1)
    with pytest.raises(UsageError, match=r"\./busbw.toml: it belongs to ") as caught:
        settings.read("", {})
    assert "busbw --config" in caught.value.hint or "--config busbw.toml" in caught.value.hint
    assert settings.read("busbw.toml", {}).values["engine"].text == "sim"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", str(file.stat().st_uid))
    assert settings.read("", {}).values["engine"].text == "sim"


@pytest.mark.parametrize(
    ("name", "gid", "members"), [("staff", 0, []), ("", 1, []), ("", 0, ["mallory"])]
)
def test_a_file_that_a_group_may_change_is_refused_unless_it_is_private(
    name: str, gid: int, members: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = here('engine = "sim"')
    file.chmod(0o664)
    user = pwd.getpwuid(file.stat().st_uid)

    def give_group(name: str, gid: int, members: list[str]) -> None:
        group = grp.struct_group((name, "x", gid, members))
        monkeypatch.setattr(grp, "getgrgid", lambda _: group)

    give_group(user.pw_name, user.pw_gid, [user.pw_name])
    assert settings.read("", {}).values["engine"].text == "sim"
    give_group(name or user.pw_name, user.pw_gid + gid, members)
    with pytest.raises(UsageError, match="its group may write to it") as caught:
        settings.read("", {})
    assert caught.value.hint == "read it, then: chmod g-w busbw.toml"


def test_a_file_that_is_replaced_after_it_was_judged_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, judge, judged = here('engine = "sim"'), files._refuse_foreign, []

    def replace_after(path: Path, status: os.stat_result) -> None:
        judge(path, status)
        judged.append(status)
        if len(judged) == 2:
            Path("other.toml").write_text('engine = "mpi"')
            Path("other.toml").replace(file)

    monkeypatch.setattr(files, "_refuse_foreign", replace_after)
    assert settings.read("", {}).values["engine"].text == "sim"
    assert "mpi" in file.read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a link to another user")
def test_a_link_of_another_user_is_refused() -> None:
    Path("mine.toml").write_text('engine = "sim"')
    Path("busbw.toml").symlink_to("mine.toml")
    assert settings.read("", {}).values
    os.lchown("busbw.toml", STRANGER, -1)
    with pytest.raises(UsageError, match="it belongs to"):
        settings.read("", {})


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_folder_or_pipe_of_that_name_is_an_error(make: Callable[[str], None]) -> None:
    make("busbw.toml")
    with pytest.raises(UsageError, match="not a file"):
        files.find(Path("busbw.toml"))


def test_a_setting_is_a_default_and_what_it_leads_to_is_recorded(plan_of: PlanOf) -> None:
    here('hosts = "h1:2,h2:2"\nifname = "lo"\nengine = "mpi"\nlimit = 7\nlaunch_limit = "11 s"\n')
    line, said = plan_of("run", "all_reduce")
    assert "--host h1:2,h2:2" in line
    assert "BUSBW_IFNAME=lo" in line
    assert '"limit_s":7.0,"launch_limit_s":11.0' in line
    assert '"--hosts","h1:2,h2:2","--ifname","lo","--engine","mpi"' in line
    assert "--hosts h1:2,h2:2: from ./busbw.toml, line 1" in said
    line, _ = plan_of("run", "all_reduce", "--limit", "8", "--hosts", "h3:1")
    assert "--host h3:1" in line
    assert '"limit_s":8.0' in line
    line, _ = plan_of("run", "all_reduce", "--config", "/dev/null", "-np", "1")
    assert "--host" not in line


@pytest.mark.parametrize(
    ("text", "words", "left_out"),
    [
        ('hosts = "h1:2"', ("--hostfile", "hosts.txt"), "hosts = h1:2 of ./busbw.toml, line 1"),
        ('hostfile = "none"', ("--hosts", "h1:2"), "--hosts is given"),
        ('hosts = "h1:2"', ("--engine", "sim"), "--engine sim starts no ranks on hosts"),
        ('hosts = "h1:2"\nengine = "sim"', (), "engine = sim of ./busbw.toml, line 2 starts no"),
        ('engine = "sim"', ("--hosts", "h1:2"), "sim starts no ranks"),
        ('engine = "mpi"', ("--net", "socket", "--hosts", "h1:2"), "--net is given"),
        ('net = "ib"', ("--engine", "mpi"), "engine mpi moves no data through NCCL"),
        ('net = "ib"\nengine = "mpi"', (), "engine mpi moves no data through NCCL"),
        ('ideal = "9GB/s"', ("--engine", "sim"), "engine sim has links of its own"),
        ('engine = "mpi"', ("--sim", "noise=0", "--engine", "sim"), "--engine is given"),
    ],
)
def test_a_setting_that_the_command_line_contradicts_is_left_out(
    text: str, words: tuple[str, ...], left_out: str, plan_of: PlanOf
) -> None:
    here(text)
    Path("hosts.txt").write_text("h3 slots=2\n")
    _, said = plan_of("run", "all_reduce", *words)
    assert left_out in said
    assert "left out" in said


def test_an_error_says_that_the_option_is_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    here('ifname = "192.0.2.128/30"\nlimit = 0')
    assert (
        main(["busbw", "run", "all_reduce", "--engine", "mpi", "--hosts", "h1:1", "--dry-run"]) == 2
    )
    assert "(--ifname is from ./busbw.toml, line 1)" in capsys.readouterr().err
    assert main(["busbw", "run", "all_reduce", "--config", ""]) == 2
    assert "--config '': it is empty" in capsys.readouterr().err


def test_hosts_are_not_those_of_a_rank(plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch) -> None:
    here('hosts = "h1:2"\nengine = "sim"')
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    _, said = plan_of("run", "all_reduce")
    assert "this process is a rank of a running job" in said
    assert "engine = sim of ./busbw.toml, line 2 is left out: sim starts no ranks" in said


def test_a_file_is_of_this_machine_where_an_option_is(capsys: pytest.CaptureFixture[str]) -> None:
    here('hosts = "a-host-that-is-not-there"')
    for words in (("--only", "BW070", "--format", "rdma_qos_check"), ("--list",), ("--learn",)):
        guarded(["check", *words])
        printed = capsys.readouterr()
        assert "not-there" not in printed.out + printed.err


def test_a_system_of_the_command_line_has_no_nics_of_a_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    here('system = "h100x8"\nnics = "1x100G"')
    words = ("predict", "all_reduce", "--nodes", "2", "--format", "json")
    bounds = []
    for more in ((), ("--system", "h100x8"), ("--config", "/dev/null", "--system", "h100x8")):
        assert guarded([*words, *more]) == 0
        bounds.append(capsys.readouterr().out)
    assert bounds[0] != bounds[1]
    assert bounds[1] == bounds[2]
