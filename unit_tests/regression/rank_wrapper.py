"""Stands between mpiexec and one rank: rank_wrapper.py DIR PROGRAM ARGS...

Starts the program as a child in the wrapper's own process group (where a launcher that ends the job finds both), passes signals
on, and leaves in DIR: rank_R.pid (child and its start time, wrapper and its start time), rank_R.out (what the program printed)
and rank_R.status (exit status or -signal, and the seconds it ran). It then waits for the other ranks to end and ends with
status 0, so that the launcher sees as little as possible of how the ranks ended: launchers differ in what they do then.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1


def start_time(pid):
    """Clock tick at which the process started, from /proc: tells a process from a later one of the same number."""
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[19])


def write_whole(path, text):
    with open(path + ".tmp", "w") as file:
        file.write(text)
    os.rename(path + ".tmp", path)


def prepare_child():
    # A killed wrapper takes its program along.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    limit = os.environ.get("REGRESSION_FILE_LIMIT")
    if limit:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))


def main():
    folder, command = sys.argv[1], sys.argv[2:]
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
    ranks = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
    base = os.path.join(folder, f"rank_{rank}")
    passed_on = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
    begin = time.monotonic()
    with open(base + ".out", "wb") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=prepare_child,
            restore_signals=False,
        )
    for number in passed_on:
        signal.signal(number, lambda received, frame: child.send_signal(received))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
    me = os.getpid()
    write_whole(base + ".pid", f"{child.pid} {start_time(child.pid)} {me} {start_time(me)}\n")
    status = child.wait()
    write_whole(base + ".status", f"{status} {time.monotonic() - begin:.3f}\n")
    stop = time.monotonic() + 60
    while time.monotonic() < stop and not os.path.exists(os.path.join(folder, "leave")):
        if all(os.path.exists(os.path.join(folder, f"rank_{r}.status")) for r in range(ranks)):
            break
        time.sleep(0.02)
    return 0


if __name__ == "__main__":
    sys.exit(main())
