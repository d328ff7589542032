"""Whom `busbw watch job` names when faults are injected into a training, how soon, and how often it
names somebody in a clean one.

    job_faults.py OUT -- train.py ARGUMENT...                        every kind, on CPUs here
    job_faults.py OUT --hosts 2 --ranks 4 --faults 100 -- train.py   over two emulated hosts
    job_faults.py OUT --clean 600 -- train.py                        10 minutes without a fault
    job_faults.py OUT --rivals -- train.py                           and what other tools say
    job_faults.py OUT --count                                        count what OUT has

The script is any training of PyTorch that torchrun can start; job_faults_rank.py runs it. Faults
are drawn from --seed by number, and happen one after the other in a job, at random moments; one
that ends the job is followed by a new job. Each prints a line and adds one to OUT/faults.jsonl, so
that a benchmark that was ended goes on where it was. Emulated hosts need root.

A fault is right if the first rank that is named is the one that was hit, within the limit of its
kind. A name is wrong if it is any other rank, from the fault until the job is well again.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src"), str(HERE.parent / "tests" / "netlab")]

import job_faults_rivals as rivals  # noqa: E402 - found by the path above
from job_faults_kinds import KINDS, LATEST_S, Fault, draw  # noqa: E402
from job_faults_rank import CONTROL, Word, control  # noqa: E402
from job_faults_score import FAULTS, PASS, Outcome, Verdicts, append, score, table  # noqa: E402

START_LIMIT_S, RECOVERY_LIMIT_S, END_LIMIT_S = 300.0, 120.0, 30.0
KIND_S = 10.0  # after a rank was named, for the cause
FIRST_STEPS = 80  # before the first fault: ranks are compared from 50 on
BUSBW = (sys.executable, "-m", "busbw")
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


class Job:
    """A training under `busbw capture`, and the watch beside it."""

    def __init__(self, folder: Path, options: argparse.Namespace, lab: Any = None) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.lab, self.rate_mbit = lab, options.rate
        self.folder, self._options = folder, options
        self._environ = dict(os.environ, OMP_NUM_THREADS="1")
        if options.rivals:
            self._environ |= rivals.environment(folder)
        self._capture = folder / "capture"
        self.words = [control(folder, rank) for rank in range(options.ranks)]
        for words in self.words:
            words[Word.COMPUTE_MS], words[Word.METRICS_EVERY] = options.compute, options.metrics
            words[Word.PRODUCTS] = options.products
        self._log = (folder / "log").open("wb")
        self._programs = [self._start(host) for host in range(options.hosts)]
        self.verdicts = Verdicts()
        self._lines: Queue[tuple[float, dict[str, Any]]] = Queue()
        self._watch: subprocess.Popen[bytes] | None = None

    def _start(self, host: int) -> subprocess.Popen[bytes]:
        options = self._options
        per_host = options.ranks // options.hosts
        address = self.lab.hosts[0].address if self.lab else "127.0.0.1"
        torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={per_host}"]
        torchrun += [f"--nnodes={options.hosts}", f"--node-rank={host}", "--max-restarts=0"]
        torchrun += [f"--master-addr={address}", f"--master-port={options.port}"]
        timed = ["--timed"] if has_gpus() else []
        line = [*BUSBW, "capture", *timed, "--output", str(self._capture), "--", *torchrun]
        line += [str(HERE / "job_faults_rank.py"), *options.script]
        return self._run(host, line, stdout=self._log, stderr=self._log)

    def _run(self, host: int, line: list[str], **streams: Any) -> subprocess.Popen[bytes]:
        environ = self._environ | {CONTROL: str(self.folder)}
        if self.lab:
            environ |= self.lab.environment() | {CONTROL: str(self.folder)}
            environ["GLOO_SOCKET_IFNAME"] = self.lab.hosts[host].interface
            line = self.lab.hosts[host].enter(*line)
        return subprocess.Popen(line, env=environ, start_new_session=True, **streams)

    def begin(self) -> None:
        """Wait until the job makes steps and the watch finds nothing wrong."""
        deadline = time.monotonic() + START_LIMIT_S
        while not self._capture.is_dir() or min(w[Word.STEPS] for w in self.words) < FIRST_STEPS:
            self._check_alive(deadline)
            time.sleep(0.2)
        line = [*BUSBW, "watch", "job", str(self._capture), "--format", "json"]
        if self.lab:
            line += ["--hosts", ",".join(host.address for host in self.lab.hosts)]
        self._watch = self._run(0, line, stdout=subprocess.PIPE, stderr=self._log)
        Thread(target=self._read, daemon=True).start()
        while not self.is_well():
            self._check_alive(deadline)
            self.take(0.5)

    def _check_alive(self, deadline: float) -> None:
        if time.monotonic() > deadline or any(one.poll() is not None for one in self._programs):
            raise RuntimeError(f"the job does not run well: see {self.folder}/log")

    def _read(self) -> None:
        assert self._watch is not None and self._watch.stdout is not None
        with contextlib.suppress(ValueError), (self.folder / "watch.jsonl").open("wb") as kept:
            for line in self._watch.stdout:
                kept.write(line)
                self._lines.put((time.monotonic(), json.loads(line)))

    def take(self, seconds: float) -> None:
        """Note what the watch says for so long."""
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0:
            with contextlib.suppress(Empty):
                self.verdicts.take(*self._lines.get(timeout=left_s))

    def is_well(self) -> bool:
        """Whether the last verdict was that nothing is wrong."""
        return self.verdicts.last == PASS

    def recover(self) -> bool:
        """Wait until nothing is wrong any more; False if that does not happen."""
        deadline = time.monotonic() + RECOVERY_LIMIT_S
        self.take(2.0)
        while not self.is_well():
            if time.monotonic() > deadline:
                return False
            self.take(0.5)
        return True

    def pid(self, rank: int) -> int:
        """The process of a rank."""
        return int(json.loads((self._capture / f".rank_{rank}.now").read_bytes())["pid"])

    def host_of(self, rank: int) -> int:
        """The number of its host."""
        return int(rank // (self._options.ranks // self._options.hosts))

    def names_of(self, rank: int) -> tuple[str, ...]:
        """What its host may be called."""
        if not self.lab:
            return ("",)
        host = self.lab.hosts[self.host_of(rank)]
        return host.name, host.address

    def end(self) -> None:
        """End all that was started, by the processes' sessions."""
        started = [*self._programs, *([self._watch] if self._watch else [])]
        for number in (signal.SIGTERM, signal.SIGKILL):
            for one in started:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(one.pid, number)
            deadline = time.monotonic() + END_LIMIT_S
            while any(one.poll() is None for one in started) and time.monotonic() < deadline:
                time.sleep(0.1)
        for path in self._capture.glob(".rank_*.now"):  # of a session of torchrun's
            with contextlib.suppress(OSError, ValueError, KeyError):
                os.kill(json.loads(path.read_bytes())["pid"], signal.SIGKILL)
        self._log.close()


def has_gpus() -> bool:
    """Whether the ranks compute on GPUs: CUDA_VISIBLE_DEVICES= makes them run on CPUs."""
    return NVIDIA_DRIVER.exists() and os.environ.get("CUDA_VISIBLE_DEVICES") != ""


def strike(job: Job, fault: Fault, options: argparse.Namespace) -> Outcome:
    """Inject a fault, wait for the verdict, undo it, and wait until the job is well."""
    limit_s = min(fault.kind.limit_s, options.limit)
    if options.rivals:
        limit_s = max(limit_s, rivals.HOLD_S + 1)
    job.take(fault.after_s)
    hosts = [job.names_of(rank) for rank in range(len(job.words))]
    job.verdicts.forget()
    step_ms = job.words[fault.rank][Word.STEP_MS]
    others = rivals.Rivals(job.folder, len(job.words)) if options.rivals else None
    with fault.kind.do(job, fault.rank):
        began_s = time.monotonic()
        while (passed_s := time.monotonic() - began_s) < limit_s:
            job.take(0.25)
            outcome = score(fault, job.verdicts, began_s, hosts)
            is_named = outcome.right_s is not None
            if others and not others.look(sum(words[Word.STEPS] for words in job.words)):
                continue
            if outcome.kind_right or (is_named and passed_s > outcome.right_s + KIND_S):
                break
    outcome = score(fault, job.verdicts, began_s, hosts)
    outcome.step_ms, outcome.seed = round(step_ms, 1), options.seed
    if others:
        right = _may_be_named(fault, hosts)
        said = others.end(fault.number, fault.kind.name, fault.rank, right)
        rivals.append(options.out, said)
    return outcome


def _may_be_named(fault: Fault, hosts: list[tuple[str, ...]]) -> set[int]:
    if fault.kind.suspect == "host":
        return {rank for rank, host in enumerate(hosts) if host == hosts[fault.rank]}
    return {fault.rank} if fault.kind.suspect == "rank" else set()


def run_faults(options: argparse.Namespace, lab: Any) -> None:
    """All faults that OUT has not, one job after the other."""
    kinds = [kind for kind in KINDS if not kind.needs_hosts or options.hosts > 1]
    kinds = [kind for kind in kinds if not kind.needs_gpus or has_gpus()]
    kinds = [kind for kind in kinds if not kind.needs_loader or options.loader]
    if options.kinds:
        kinds = [kind for kind in kinds if kind.name in options.kinds]
    else:
        kinds = [kind for kind in kinds if not kind.on_request]
    done = {outcome.number for outcome in Outcome.read(options.out)}
    job: Job | None = None
    try:
        for number in range(options.first, options.first + options.faults):
            if number in done:
                continue
            fault = draw(options.seed, number, options.ranks, kinds)
            if job is None:
                job = Job(options.out / f"job_{number}", options, lab)
                job.begin()
            outcome = strike(job, fault, options)
            append(options.out / FAULTS, outcome)
            print(outcome, flush=True)
            if fault.kind.ends_job or not job.recover():
                job.end()
                job = None
    finally:
        if job:
            job.end()


def run_clean(options: argparse.Namespace, lab: Any) -> None:
    """A job without a fault; each change of the verdict to a warning counts."""
    job = Job(options.out / f"clean_{int(time.time())}", options, lab)
    for words in job.words:
        words[Word.GARBAGE] = options.garbage
        words[Word.EVALUATE_EVERY], words[Word.SAVE_EVERY] = options.evaluate, options.save
        words[Word.PAUSE_S] = options.pause
    try:
        job.begin()
        job.verdicts.forget()
        others = rivals.Rivals(job.folder, options.ranks) if options.rivals else None
        deadline = time.monotonic() + options.clean
        while time.monotonic() < deadline:
            job.take(10.0)
            if others:
                others.look(sum(words[Word.STEPS] for words in job.words))
            append(options.out / "clean.jsonl", job.verdicts.clean(10.0))
        if others:
            rivals.append(options.out, others.end(-1, "", -1, set()))
    finally:
        job.end()


def products(options: argparse.Namespace) -> float:
    """Of matrices in a millisecond: how ranks compute; 0 if they sleep in place of a GPU."""
    if not options.busy and not has_gpus():
        return 0.0
    line = [sys.executable, str(HERE / "job_faults_rank.py")]
    return float(subprocess.run(line, check=True, stdout=subprocess.PIPE, timeout=120).stdout)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--hosts", type=int, default=1, help="emulated if more than 1")
    parser.add_argument("--rate", type=float, default=200.0, help="Mbit/s that each host sends")
    parser.add_argument("--faults", type=int, default=len(KINDS))
    parser.add_argument("--first", type=int, default=0, help="number of the first fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="*", help="only these")
    parser.add_argument("--limit", type=float, default=LATEST_S, help="seconds for a verdict")
    parser.add_argument("--compute", type=float, default=60.0, help="ms added to each step")
    parser.add_argument(
        "--no-loader", dest="loader", action="store_false", help="it has no DataLoader"
    )
    parser.add_argument("--busy", action="store_true", help="by a CPU, not asleep")
    parser.add_argument("--metrics", type=int, default=10, help="steps between small all_reduces")
    parser.add_argument("--port", type=int, default=29_445)
    parser.add_argument("--clean", type=float, default=0.0, help="seconds without any fault")
    parser.add_argument("--garbage", type=int, default=0, help="objects collected, in --clean")
    parser.add_argument("--evaluate", type=int, default=0, help="steps between evaluations, too")
    parser.add_argument("--save", type=int, default=0, help="steps between checkpoints, too")
    parser.add_argument("--pause", type=float, default=2.0, help="seconds for one of either")
    parser.add_argument(
        "--rivals", action="store_true", help="ask other tools, in runs of their own"
    )
    parser.add_argument("--count", action="store_true", help="print the table of OUT alone")
    words, script = sys.argv[1:], list[str]()
    if "--" in words:
        at = words.index("--")
        words, script = words[:at], words[at + 1 :]
    options = parser.parse_args(words)
    if not script and not options.count:
        parser.error("name a training after --")
    options.script = script
    options.out = options.out.absolute()
    return options


def main() -> None:
    """Run what is asked, then count."""
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options.products = products(options) if not options.count else 0.0
    if not options.count:
        run = run_clean if options.clean else run_faults
        with contextlib.ExitStack() as undo:
            lab = None
            if options.hosts > 1:
                import netlab

                lab = undo.enter_context(netlab.lab(options.hosts, options.rate))
            run(options, lab)
    print(table(options.out))
    print(rivals.table(options.out))


if __name__ == "__main__":
    main()
