"""Files to install for monitoring: systemd units, and alert rules that are played through."""

import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import yaml
from healthy import healthy
from healthy_gpu import all_changed
from promtool import promtool

from busbw.check.chosen import chosen_checks
from busbw.check.registry import examine
from busbw.cli.check import command as check_command
from busbw.cli.main import guarded
from busbw.cli.watch import command as watch_command
from busbw.core.errors import UsageError
from busbw.core.finding import Verdict
from busbw.launch.manifest import alerts, systemd
from busbw.launch.manifest.systemd import UnitSettings

RECORDED = Path(__file__).parents[2] / "recorded" / "prometheus"
SERVICE = UnitSettings(
    program="/opt/busbw/bin/busbw",
    listen="127.0.0.1:28729",
    token_file="",
    directory="/var/lib/node_exporter",
    every_s=300,
)


def setting(unit: str, name: str) -> str | None:
    """The value of a setting that a unit has once."""
    lines = [line.partition("=")[2] for line in unit.splitlines() if line.startswith(f"{name}=")]
    assert len(lines) <= 1
    return lines[0] if lines else None


def test_commands_of_the_units_parse():
    units = systemd.units(SERVICE)
    program, name, *words = shlex.split(setting(units["busbw-watch.service"], "ExecStart"))
    assert (program, name) == (SERVICE.program, "watch")
    assert watch_command.make_context("watch", words).params["listen"] == SERVICE.listen
    program, name, *words = shlex.split(setting(units["busbw-check.service"], "ExecStart"))
    options = check_command.make_context("check", words).params
    assert (program, name, options["format_name"]) == (SERVICE.program, "check", "prometheus")
    assert options["output"] == f"{SERVICE.directory}/busbw.prom"
    assert "CPU and memory" in options["layer"] and "limits" not in options["layer"]
    assert setting(units["busbw-check.timer"], "OnUnitActiveSec") == "300"


def test_a_job_at_full_load_is_no_warning():
    """Memory is full, clocks are at the power limit, and the fabric is busy."""
    tree = healthy()
    all_changed(
        used_bytes=84_000_000_000,
        processes=[{"pid": 4242, "used_bytes": 83_000_000_000, "name": "python3"}],
        reasons=0x4,
        sm_mhz=1410,
        temperature_c=78,
        margin_c=9,
        memory_c=90,
    )(tree)
    memory = tree.paths["/proc/meminfo"]["text"]
    tree.file("/proc/meminfo", re.sub(r"(MemAvailable: +).*", r"\g<1>80000000 kB", memory).strip())
    busy = dict.fromkeys(("out_of_sequence", "np_cnp_sent", "rp_cnp_handled"), "100000000")
    traffic = dict.fromkeys(("port_xmit_packets", "port_rcv_packets", "port_xmit_wait"), "9" * 13)
    pauses = dict.fromkeys(("rx_prio3_pause", "tx_prio3_pause_duration"), 10**9)
    for index in range(8):
        port = f"/sys/class/infiniband/mlx5_{index}/ports/1"
        tree.files(f"{port}/hw_counters", **busy, packet_seq_err="100000")
        tree.files(f"{port}/counters", **traffic)
        tree.update(f"ethtool -S eth{index}", **pauses, outbound_pci_stalled_wr=12)
    chosen = check_command.make_context("check", list(systemd.CHECK)).params
    report = examine(tree.source(), chosen_checks((), chosen["layer"], chosen["skip"]))
    bad = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN)
    assert [finding.name for finding in report.findings if finding.verdict in bad] == []
    assert examine(tree.source()).verdict is Verdict.WARN, "of a node without jobs it is one"


def test_the_token_is_a_credential_of_the_service():
    """Its user cannot read the file of root, and the unit names no token."""
    service = UnitSettings("/busbw", "0.0.0.0:28729", "/etc/busbw/token", "/d", 300)
    unit = systemd.units(service)["busbw-watch.service"]
    assert setting(unit, "LoadCredential") == "token:/etc/busbw/token"
    assert setting(unit, "ExecStart").endswith("--token-file ${CREDENTIALS_DIRECTORY}/token")
    assert setting(systemd.units(SERVICE)["busbw-watch.service"], "LoadCredential") is None


def test_the_single_file_can_unpack_and_root_runs_nothing_of_another_user():
    caches = []
    for name in ("busbw-watch", "busbw-check"):
        unit = systemd.units(SERVICE)[f"{name}.service"]
        caches.append(setting(unit, "CacheDirectory"))
        assert setting(unit, "CacheDirectoryMode") == "0700"
        assert f"\nEnvironment=XDG_CACHE_HOME=/var/cache/{caches[-1]}\n" in unit
    assert caches == ["busbw-watch", "busbw-check"]


def test_words_of_a_command_stay_words():
    words = ["a b", "100%", "$HOME", 'say "no"', "back\\slash", "", "x;y"]
    check = setting(
        systemd.units(UnitSettings("/busbw", "1", "", "/d", 300, words))["busbw-check.service"],
        "ExecStart",
    )
    assert " ".join(check.split(" --format")[0].split(" ")[2:]) == (
        r'''"a b" 100%% $$HOME "say \"no\"" "back\\slash" "" "x;y"'''
    )


@pytest.mark.parametrize("path", ["busbw", "/a b", "/a\nExecStart=/bin/sh", "/50%", "/$HOME", ""])
def test_paths_with_a_meaning_in_units_are_refused(path):
    with pytest.raises(UsageError, match="not an absolute path that a unit can name"):
        systemd.units(UnitSettings(path, "1", "", "/d", 300))


def test_systemd_accepts_the_units(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze: make test-tools")
    busbw = shutil.which("true")
    words = ["manifest", "systemd", "--into", str(tmp_path), "--program", busbw]
    assert guarded([*words, "--listen", "0.0.0.0:28729", "--token-file", "/etc/busbw/token"]) == 0
    units = sorted(map(str, tmp_path.iterdir()))
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr, len(units)) == (0, "", 3)


def test_units_that_exist_are_kept(tmp_path, capsys):
    (tmp_path / "busbw-check.timer").write_text("[Timer]\n")
    words = ["manifest", "systemd", "--into", str(tmp_path), "--program", "/opt/busbw/bin/busbw"]
    assert guarded(words) == 2
    assert [path.read_text() for path in tmp_path.iterdir()] == ["[Timer]\n"]
    assert guarded([*words, "--force"]) == 0
    assert "systemctl enable --now" in capsys.readouterr().err


def test_a_program_or_python_that_the_service_could_not_start_is_named(capsys):
    with tempfile.TemporaryDirectory() as name:  # those of pytest are private
        folder, private = Path(name), Path(name) / "home"
        folder.chmod(0o755)
        private.mkdir(mode=0o700)
        (private / "python").touch()
        (folder / "busbw").write_text(f"#!{private}/python\n")
        for program in (private / "busbw", folder / "busbw", Path("/bin/true")):
            assert guarded(["manifest", "systemd", "--program", str(program)]) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert f"{private}/busbw: busbw-watch.service runs as a user that cannot enter" in first
    assert f"{private}/python: busbw-watch.service runs as a user that cannot enter" in second


def test_files_that_units_need_and_this_host_lacks_are_named(tmp_path, capsys):
    lacking = ["--token-file", "/nope", "--textfile-directory", "/no/where"]
    words = ["manifest", "systemd", "--program", "/bin/true", "--into", str(tmp_path)]
    assert guarded([*words, *lacking]) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note:")]
    assert notes == [
        "note: --token-file /nope: no such file; busbw-watch.service does not start without it",
        "note: --textfile-directory /no/where: no such directory; busbw-check.service does not"
        " start without it",
    ]
    (tmp_path / "token").touch()
    present = ["--token-file", f"{tmp_path}/token", "--textfile-directory", str(tmp_path)]
    assert guarded([*words, *present, "--force"]) == 0
    assert "note:" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--listen", "0.0.0.0:1"], ["--check-options", "--layr GPU"]])
def test_units_that_could_not_start_are_refused(words, capsys):
    assert guarded(["manifest", "systemd", *words]) == 2
    assert words[0] in capsys.readouterr().err


def test_verdicts_are_stale_after_six_of_the_intervals_between_checks(capsys):
    assert guarded(["manifest", "prometheus-rules", "--every", "3600"]) == 0
    text = capsys.readouterr().out
    assert "busbw_check_timestamp_seconds > 21600\n" in text and "@{" not in text


def test_rules_fire_on_the_series_that_they_are_for(tmp_path):
    (tmp_path / "busbw-rules.yml").write_text(alerts.rules(300))
    names = ("rules_test.yml", "rules_test_days.yml")
    for name in names:
        shutil.copy(RECORDED / name, tmp_path)
    lines = promtool("test", "rules", *names, folder=tmp_path)
    assert "".join(lines).count("SUCCESS") == len(names), "\n".join(lines)


GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "monitor-with-prometheus.md"


def test_alertmanager_accepts_the_configuration_of_the_guide(tmp_path):
    """Its matchers name alerts and labels that the rules have."""
    (text,) = re.findall(r"```yaml\n(route:\n.*?)```", GUIDE.read_text(), re.DOTALL)
    rules = [
        rule for group in yaml.safe_load(alerts.rules(300))["groups"] for rule in group["rules"]
    ]
    named = set(re.findall(r"Busbw\w+", text))
    assert len(named) > 5 and named <= {rule.get("alert") for rule in rules}
    faults = {rule["labels"]["fault"] for rule in rules if "alert" in rule}
    assert faults == {"network", "host", "job", "monitoring"}
    if not shutil.which("amtool"):
        pytest.skip("no amtool: make test-tools")
    (tmp_path / "alertmanager.yml").write_text(text)

    def amtool(*words: str) -> str:
        line = ["amtool", *words]
        done = subprocess.run(
            line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    assert "SUCCESS" in amtool("check-config", "alertmanager.yml")
    route = ("config", "routes", "test", "--config.file=alertmanager.yml")
    assert amtool(*route, "severity=critical", "fault=network", "leaf=l1") == "pager"
    assert amtool(*route, "severity=warning", "fault=host") == "mail"
