"""The program of each rank in these tests: join, report rank and host, and wait or abort as the
arguments say.
"""

import json
import os
import socket
import sys
import time

from busbw.core.errors import BusbwError
from busbw.launch.rendezvous import join


def main() -> None:
    try:
        control = join(os.environ, expect=int(sys.argv[2]) if len(sys.argv) > 2 else None)
    except BusbwError as error:
        print(json.dumps({"error": error.render(), "exit": int(error.exit)}), flush=True)
        sys.exit(int(error.exit))
    total = control.reduce_all([control.process + 1.0, 1.0], "sum")
    hosts = control.allgather(socket.gethostname())
    half = control.split(control.process % 2)
    parts = half.allgather(control.process)
    nccl = control.gather(os.environ.get("NCCL_SOCKET_IFNAME", ""))
    lowest = control.reduce_all([float(control.process)], "min") + control.reduce_all(
        [float(control.process)], "max"
    )
    name = control.bcast(f"from {control.process}")
    if control.process == 0:
        facts = {
            "total": total,
            "hosts": hosts,
            "parts": parts,
            "nccl": nccl,
            "lowest": lowest,
            "name": name,
            "size": control.processes,
        }
        print(json.dumps(facts), flush=True)
    if sys.argv[1] == "wait":
        time.sleep(120)
    if sys.argv[1] == "abort" and control.process == control.processes - 1:
        control.abort(3, "told to")
    if sys.argv[1] == "raise" and control.process == control.processes - 1:
        raise RuntimeError("told to")
    control.barrier()
    half.close()
    control.close()


main()
