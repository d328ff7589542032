"""`__main__` of the single file: starts busbw, or says which Python it needs.

Python 2.7 and all later ones can parse it. If the Python that was given cannot run busbw, one that
can is looked for on PATH.
"""

import os
import subprocess
import sys

import busbw_built  # written by the build

NO_MEASUREMENT = 3
PRINT_SUFFIX = "import _imp; print(_imp.extension_suffixes()[0])"


def suffix():
    """How the names of extension modules end: this names the Python, its version and machine."""
    try:
        import _imp
    except ImportError:  # Python 2
        return ""
    return _imp.extension_suffixes()[0]


def another():
    """A Python on PATH that can run busbw, and whose name has its version; '' if there is none."""
    for ending in reversed(busbw_built.SUFFIXES):
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            path = os.path.join(folder, "python" + version(ending))
            if os.access(path, os.X_OK) and answer(path) == ending:
                return path
    return ""


def answer(python):
    """The suffix of another Python; '' if it does not run."""
    try:
        return (
            subprocess.check_output([python, "-c", PRINT_SUFFIX], stderr=subprocess.PIPE)
            .decode()
            .strip()
        )
    except (OSError, subprocess.CalledProcessError):
        return ""


def version(ending):
    """3.11 from .cpython-311-x86_64-linux-gnu.so."""
    digits = ending.split("-")[1]
    return digits[0] + "." + digits[1:]


def refusal():
    """What this Python is, and which ones can run busbw."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    ending = suffix()
    if ending:
        python += " (" + ending.strip(".").rpartition(".")[0] + ")"
    first, last = version(busbw_built.SUFFIXES[0]), version(busbw_built.SUFFIXES[-1])
    able = first if first == last else first + " to " + last
    machine = busbw_built.SUFFIXES[0].strip(".").rpartition(".")[0].split("-", 2)[2]
    problem = sys.executable + " is Python " + python
    needed = "this file needs CPython " + able + " for " + machine
    hint = "install one, then: python" + last + " " + sys.argv[0]
    return "error: " + problem + "; " + needed + "\n\nhint: " + hint + "\n"


def main():
    """Run busbw in this process, or in another Python."""
    if suffix() in busbw_built.SUFFIXES:
        import busbw_file

        busbw_file.run(os.path.abspath(sys.argv[0]))
        return
    python = another()
    if python:
        os.execv(python, [python] + sys.argv)  # noqa: RUF005 - Python 2 has no unpacking in lists
    sys.stderr.write(refusal())
    sys.exit(NO_MEASUREMENT)


if __name__ == "__main__":
    main()
