"""What mpirun 4, mpirun 5 and ssh print when they fail, and the error and hint that busbw prints
for it.
"""

import pytest

from busbw.launch.failures import FAILURES, daemon_failed, known_error, launcher_error
from busbw.launch.rank_deaths import exited_rank, killed_rank, put_cause_first

DAEMON = """------------------------------------------------------------
A daemon failed to report back after being spawned. This could
be due to several factors, including inability to find the
daemon executable, or the executable was unable to find its
required supporting libraries. In some cases, the daemon was
able to execute, but was unable to complete a TCP connection
back to prterun:

  Local host:    h1
  Remote host:   h2
  Daemon exit status: {code}
"""

# As Open MPI 4.1.4 printed it, without what it adds.
ORTE_DIRECTORY = """--------------------------------------------------------------------------
A call to mkdir was unable to create the desired directory:

  Directory: /proc/ompi.h2.0
  Error:     Permission denied

Please check to ensure you have adequate permissions to perform
the desired operation.
--------------------------------------------------------------------------
[h2:23704] [[12399,0],1] ORTE_ERROR_LOG: Error in file ../../../orte/util/session_dir.c at line 107
[h2:23704] [[12399,0],1] ORTE_ERROR_LOG: Error in file ../../../orte/util/session_dir.c at line 346
--------------------------------------------------------------------------
ORTE was unable to reliably start one or more daemons.
This usually is caused by:
"""

# As Slurm 22.05.8 printed them.
STEP_ENDED = """srun: launch/slurm: _step_signal: Terminating StepId=4.0
slurmstepd-h1: error: *** STEP 4.0 ON h1 CANCELLED AT 2026-11-21T23:36:09 ***
srun: error: h2: task 2: Terminated
srun: error: h1: tasks 0-1: Terminated
srun: Force Terminated StepId=4.0
"""

CASES = [
    (
        (
            "----------\n"
            "It appears as if there is not enough space for /dev/shm/sm_segment.vm.0.cab40001.0"
            " (the shared-memory backing\n"
            "file). It is likely that your MPI job will now either abort or experience\n"
            "performance degradation.\n\n"
            "  Local host:  vm\n"
            "  Space Requested: 16777216 B\n"
            "  Space Available: 65536 B\n"
        ),
        (
            "host vm: /dev/shm is full: Open MPI needs 16777216 bytes for"
            " /dev/shm/sm_segment.vm.0.cab40001.0, and 65536 are free"
        ),
        "ssh vm df -h /dev/shm",
    ),
    (
        (
            "srun: error:  mpi/pmix_v4: init: (null) [0]: mpi_pmix.c:195: pmi/pmix: can not load"
            " PMIx library\n"
            "srun: error: Couldn't load specified plugin name for mpi/pmix: Plugin init() callback"
            " failed\n"
            "srun: error: MPI: Cannot create context for mpi/pmix\n"
            "srun: error: MPI: Unable to load any plugin\n"
            "srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types\n"
        ),
        "Slurm's PMIx plugin found no PMIx library on this machine",
        "libpmix-dev",
    ),
    (
        (
            "srun: error: invalid partition specified: nope\n"
            "srun: error: Unable to allocate resources: Invalid partition name specified\n"
        ),
        "Slurm allocated no resources: Invalid partition name specified",
        "sinfo",
    ),
    (
        "srun: error: Invalid generic resource (gres) specification\n",
        "Slurm does not have the requested GPUs",
        "sinfo -o '%N %G'",
    ),
    (
        (
            "slurmstepd-h1: error: execve(): /nowhere/python: No such file or directory\n"
            "slurmstepd-h2: error: execve(): /nowhere/python: No such file or directory\n"
            "srun: error: h2: task 3: Exited with exit code 2\n"
            "srun: error: h1: tasks 0-2: Exited with exit code 2\n"
        ),
        "host h1: /nowhere/python cannot be run (No such file or directory)",
        "srun -w h1 ls -l /nowhere/python",
    ),
    (
        (
            "srun: launch/slurm: launch_p_step_launch: StepId=1.0 aborted before step completely"
            " launched.\n"
            "srun: Job step aborted: Waiting up to 4 seconds for job step to finish.\n"
            "srun: error: task 2 launch failed: Unspecified error\n"
            "srun: error: task 3 launch failed: Unspecified error\n"
        ),
        "Slurm could not start rank 2: Unspecified error",
        "slurmd's log",
    ),
    (
        (
            "slurmstepd: error: *** STEP 9.0 ON h1 CANCELLED AT 2026-11-21T23:36:09 DUE TO TIME"
            " LIMIT ***\n"
        ),
        "Slurm's time limit ended the job",
        "-t 30",
    ),
    (
        "srun: error: Node failure on h2\n",
        "host h2 was lost in the middle of the run",
        "scontrol show node h2",
    ),
    (
        (
            "[h2:29498] *** Process received signal ***\n"
            "[h2:29498] Signal: Segmentation fault (11)\n"
            "[h2:29498] [ 1]"
            " /v/lib/libmpi.so.40(mca_pml_ob1_recv_frag_callback_match+0x95)[0x7fce1e878f25]\n"
            "[h2:29498] [ 9] /v/lib/libmpi.so.40(ompi_mpi_init+0x425)[0x7fce1e691215]\n"
            "srun: error: h2: task 1: Segmentation fault\n"
        ),
        "a rank crashed in MPI_Init",
        "run it again",
    ),
    ("srun: error: h2: task 3: Killed\n" + STEP_ENDED, "rank 3 on host h2 died (Killed)", "sacct"),
    (
        "srun: error: h2: task 3: Segmentation fault\n" + STEP_ENDED,
        "rank 3 on host h2 died (Segmentation fault)",
        "srun -w h2",
    ),
    (
        (
            "srun: error: _establish_config_source: failed to fetch config\n"
            "srun: fatal: Could not establish a configuration source\n"
        ),
        "Slurm does not respond: Could not establish a configuration source",
        "scontrol ping",
    ),
    (
        "ssh: Could not resolve hostname h2: Name or service not known\n" + DAEMON.format(code=255),
        "host h2: the name does not resolve",
        "getent hosts h2",
    ),
    (
        "ssh: connect to host h2 port 22: No route to host\n",
        "host h2: No route to host",
        "ip route get h2",
    ),
    (
        "ssh: connect to host h2 port 22: Connection timed out\n",
        "host h2 does not answer on port 22 (Connection timed out)",
        "ConnectTimeout=5 h2 true",
    ),
    (
        "ssh: connect to host h2 port 2222: Connection refused",
        "host h2 does not answer on port 2222 (Connection refused)",
        "plm_rsh_args",
    ),
    (
        "root@h2: Permission denied (publickey,password).\n",
        "host h2: ssh cannot log in",
        "ssh-copy-id h2",
    ),
    (
        "Permission denied (publickey).\n" + DAEMON.format(code=255),
        "host h2: ssh cannot log in",
        "ssh-copy-id h2",
    ),
    (
        "bash: line 1: /opt/openmpi/bin/prted: Permission denied\n" + DAEMON.format(code=126),
        "host h2: no access to /opt/openmpi/bin/prted (permission denied)",
        "ssh h2 ls -l /opt/openmpi/bin/prted",
    ),
    (
        (
            "[[23379,1],1][../../opal/mca/btl/tcp/btl_tcp_endpoint.c:793:mca_btl_tcp_endpoint_start_connect]"
            " from h2 to: h1 Unable to connect to the peer 10.91.0.1 on port 1024: Invalid"
            " argument\n\n[h2:17074] ../ompi/pml_ob1_sendreq.c:190 FATAL\n"
        ),
        "host h2 cannot connect to 10.91.0.1 of host h1 (Invalid argument)",
        "ssh h2 ip route get 10.91.0.1",
    ),
    (
        "PTHREAD ERROR in pthread_scheduler_init():131: Resource temporarily unavailable (11)\n",
        "a program of the job got no thread or process (Resource temporarily unavailable)",
        "ulimit -u",
    ),
    (
        "\nlibgomp: Thread creation failed: Resource temporarily unavailable\n",
        "a program of the job got no thread or process",
        "ulimit -u",
    ),
    (
        "bash: fork: retry: Resource temporarily unavailable\n",
        "a program of the job got no thread or process",
        "ulimit -u",
    ),
    (
        "couldn't open the help file:\n    help-oob-base.txt: Too many open files. Sorry!\n",
        "the launcher got no more open files",
        "ulimit -n 1024",
    ),
    (
        "[vm:8113] PMIX ERROR: PMIX_ERR_SYS_LIMITS_PIPES in file iof_base_setup.c at line 119\n",
        "the launcher got no more open files",
        "ulimit -n 1024",
    ),
    (
        "Host key verification failed.\r\n" + DAEMON.format(code=255),
        "host h2: the host key is unknown to ssh",
        "ssh-keyscan h2",
    ),
    (
        "bash: line 1: orted: command not found\n",
        "host h1, h2: Open MPI's daemon (orted or prted) not found",
        "command -v prted orted",
    ),
    (DAEMON.format(code=127), "host h2: Open MPI's daemon", "ssh h2"),
    (DAEMON.format(code=213), "host h2: no interface of that name", "--ifname 10.1.0.0/16"),
    (DAEMON.format(code=213), "or no writable temporary directory", "ssh h2 'ip -brief address;"),
    (
        (
            "PMIx detected a call to mkdir was unable to create the desired directory:\n\n"
            "  Directory: /proc/ompi.22060\n"
            "  Error:     No such file or directory\n\n"
            "Please check to ensure you have adequate permissions to perform\n"
            "the desired operation.\n"
        ),
        (
            "Open MPI cannot create its directory /proc/ompi.22060 on this host (No such file or"
            " directory)"
        ),
        "TMPDIR=/tmp busbw run",
    ),
    (
        ORTE_DIRECTORY,
        "host h2: Open MPI cannot create its directory /proc/ompi.h2.0 (Permission denied)",
        "ssh h2 mktemp -d",
    ),
    (
        ORTE_DIRECTORY.partition("[")[0],
        "host h1, h2: Open MPI cannot create its directory /proc/ompi.h2.0",
        "mktemp -d",
    ),
    (
        DAEMON.format(code=1),
        "host h2 could not be started: its launch agent exited with 1",
        "BatchMode=yes",
    ),
    (
        "prted: error while loading shared libraries: libevent.so.7: cannot open\n"
        + DAEMON.format(code=127),
        "host h2: libevent.so.7 not found",
        "LD_LIBRARY_PATH",
    ),
    (
        "ORTE was unable to reliably start one or more daemons.\nThis usually is caused by:",
        "a host's daemon did not start",
        "--ifname",
    ),
    (
        (
            "There are not enough slots available in the system to satisfy the 16\n"
            "slots that were requested by the application:"
        ),
        "16 ranks were requested, but the hosts have fewer slots",
        "--hosts h1:8,h2:8",
    ),
    (  # Open MPI 4.1.4
        (
            "ERROR: You have attempted to pass environment variables to Open MPI\n"
            'with both the "-x" method and by setting the MCA parameter "mca_base_env_list".\n'
        ),
        "Open MPI takes no -x, which busbw uses",
        "unset OMPI_MCA_mca_base_env_list",
    ),
    (
        "mpirun has detected an attempt to run as root.",
        "mpirun refuses to run as root",
        "--allow-run-as-root",
    ),
    (
        (
            "prterun noticed that process rank 1 with PID 5995 on node h2 exited on\n"
            "signal 9 (Killed).\n"
            "\0"
        ),
        "rank 1 on host h2 died of signal 9 (SIGKILL)",
        "ssh h2 dmesg | tail",
    ),
    (
        "mpirun noticed that process rank 0 with PID 1 on node h1 exited on signal 7 (Bus error).",
        "rank 0 on host h1 died of signal 7 (SIGBUS)",
        "/dev/shm",
    ),
    (
        "mpirun noticed that process rank 0 with PID 1 on node h1 exited on signal 11 (Seg)",
        "died of signal 11 (SIGSEGV)",
        "core file on h1",
    ),
    (
        (
            "ORTE has lost communication with a remote daemon.\n\n"
            "  HNP daemon   : [[1,0],0] on node h1\n"
            "  Remote daemon: [[1,0],1] on node h2\n"
        ),
        "host h2 was lost in the middle of the run",
        "ssh h2 dmesg",
    ),
    (
        (
            "could not\n"
            "access an executable:\n\n"
            "   Executable: /opt/busbw\n"
            "   Node: h2\n\n"
            "while attempting"
        ),
        "host h2: /opt/busbw does not exist",
        "ls -l /opt/busbw",
    ),
    (
        (
            "mpirun was unable to launch the specified application as it could not access\n"
            "or execute an executable:\n\n"
            "Executable: /opt/busbw\n"
            "Node: h2\n\n"
            "while attempting to start process rank 0."
        ),
        "host h2: /opt/busbw does not exist",
        "ls -l /opt/busbw",
    ),
    (
        "/usr/bin/python3: can't open file '/opt/busbw.pyz': [Errno 2] No such file or directory\n",
        "/opt/busbw.pyz is not on every host",
        "busbw deploy",
    ),
    (
        "No network interfaces were found for out-of-band communications.",
        "no interface of that name",
        "ip -brief address",
    ),
]


@pytest.mark.parametrize(("tail", "words", "hint"), CASES)
def test_known_failures_are_explained(tail, words, hint):
    error = launcher_error(1, tail, ["h1", "h2"])
    assert words in error.message
    assert hint in error.hint
    assert "{" not in error.message + error.hint
    assert error.exit == 3


def test_every_known_failure_has_a_case():
    from re import search

    texts = [" ".join(tail.replace("\0", " ").split()) + " " for tail, _, _ in CASES]
    firsts = {
        next(i for i, row in enumerate(FAILURES) if search(row.pattern, text)) for text in texts
    }
    assert firsts == set(range(len(FAILURES)))


def test_only_a_failure_that_kills_ranks_explains_an_observed_death():
    output = CASES[0][0] + "process rank 1 with PID 7 on node vm exited on signal 7 (Bus error)."
    assert "/dev/shm is full" in known_error(output, kills=True).message
    assert known_error(CASES[1][0], kills=True) is None


def test_a_rank_that_was_killed_is_known_from_either_launcher():
    assert killed_rank("process rank 3 with PID 7 on node h1 exited on signal 9 (Killed).") == 3
    assert (
        killed_rank(
            "process rank 3 with PID 7 on node h1 exited on signal 11 (Segmentation fault)."
        )
        is None
    )
    assert killed_rank("srun: error: h1: tasks 2-3: Killed") == 2
    assert killed_rank("nothing") is None


def test_unknown_failures_quote_the_last_lines():
    error = launcher_error(9, "-----\nnever seen before\n-----\n", ["h1"])
    assert error.message == "the launcher on h1 exited with 9; last lines: never seen before"
    assert "--dry-run" in error.hint
    terminated = launcher_error(1, "")
    assert terminated.message == "the launcher exited with 1, without an error message"
    assert terminated.hint.startswith("look for who sent SIGTERM to mpirun")
    assert (
        launcher_error(-9, "").message
        == "the launcher died of signal 9 (SIGKILL), without an error message"
    )
    assert (
        launcher_error(137, "").message
        == "the launcher exited with 137, as after a rank died of signal 9 (SIGKILL), without an"
        " error message"
    )
    assert (
        launcher_error(213, "no room").message
        == "the launcher exited with 213; last lines: no room"
    ), "no signal has that number"
    assert (
        launcher_error(-200, "").message
        == "the launcher died of signal 200 (unknown), without an error message"
    )


def killed(*groups: str) -> str:
    return "".join(f"srun: error: {group}: Killed\n" for group in groups) + STEP_ENDED


@pytest.mark.parametrize(
    ("output", "exits", "cause"),
    [
        (
            killed("h1: task 1", "h2: tasks 2-3"),
            [2],
            "rank 2 on host h2 died (Killed), or rank 1 on host h1 died first",
        ),
        (killed("h2: tasks 2-3", "h1: tasks 0-1"), [2, 0], "rank 2 on host h2 died (Killed)"),
        (
            killed("h2: tasks 2-3", "h1: tasks 0-1"),
            [],
            "ranks 2-3 on host h2 died (Killed), or ranks 0-1 on host h1 died first",
        ),
        (
            killed("h1: task 1") + "srun: error: h2: task 2: Bus error\n",
            [1, 2],
            "rank 2 on host h2 died (Bus error)",
        ),
        (
            "srun: error: h1: task 0: Aborted\n" + killed("h1: task 1"),
            [1],
            "rank 1 on host h1 died (Killed)",
        ),
        (killed("h2: task 2"), [0], "rank 2 on host h2 died (Killed)"),
    ],
)
def test_the_first_exit_is_the_cause_not_slurms_kills(output, exits, cause):
    message = str(launcher_error(137, put_cause_first(output, exits), ["h1", "h2"]).message)
    assert message.split(":")[0] == cause


def test_mpirun_output_is_not_reordered():
    assert (
        put_cause_first("mpirun noticed that process rank 1 died", [1])
        == "mpirun noticed that process rank 1 died"
    )


@pytest.mark.parametrize("name", ["[prterun-h1-2220@1,1]", "[[30452,1],1]"])
def test_the_rank_that_exited_first_is_read_from_what_mpirun_says(name):
    """Open MPI 5 and 4."""
    text = (
        "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
        "the job to be terminated. The first process to do so was:\n\n"
        f"  Process name: {name}\n  Exit code:    7\n-----\n"
    )
    assert exited_rank(text) == (1, 7)
    assert launcher_error(7, "", ["h1"], "rank 1 on h1 exited with 7").message == (
        "rank 1 on h1 exited with 7, without an error message"
    )


@pytest.mark.parametrize(("code", "ran"), [(213, True), (1, True), (255, False), (127, False)])
def test_a_daemon_that_ran_may_have_left_files(code: int, ran: bool) -> None:
    assert daemon_failed(DAEMON.format(code=code)) is ran
    lost = (
        "PRTE has lost communication with a remote\ndaemon.\n\n  Remote daemon: prted-1 on node h2"
    )
    assert daemon_failed(lost)
