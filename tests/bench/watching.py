#!/usr/bin/env python3
"""What it costs to watch a job once a second, in per cent of a CPU: the supervisor, and `pleat top` itself.

    tests/bench/watching.py PLEAT [SECONDS]

For the supervisor its main thread's CPU time (/proc/PID/task/PID/schedstat) is read over SECONDS without a question, then with ten
a second, each of which gets an answer of its own; the difference is ten times what one a second costs. Both are taken three times in turn,
and the medians compared. The jobs sleep: what a look at memory costs is the same in both. `pleat top` runs on a terminal of 200 by 60.
"""

import fcntl, json, os, pty, socket, statistics, struct, subprocess, sys, termios, threading, time

PLEAT = os.path.abspath(sys.argv[1])
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 15
ASKED_A_SECOND = 10
TIMES = 3


def cpu_s(pid, threads):
    """CPU time so far: of the main thread, or of all."""
    tids = [pid] if threads == "main" else map(int, os.listdir(f"/proc/{pid}/task"))
    return sum(int(open(f"/proc/{pid}/task/{tid}/schedstat").read().split()[0]) for tid in tids) / 1e9


def used(pid, threads, during):
    before, start = cpu_s(pid, threads), time.monotonic()
    during(start + SECONDS)
    return (cpu_s(pid, threads) - before) / (time.monotonic() - start)


def socket_of(pid):
    lines = subprocess.run([PLEAT, "list", "--json"], capture_output=True, text=True).stdout.splitlines()
    return next((job["socket"] for job in map(json.loads, lines) if job["pid"] == pid), None)


def ask(path, end):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    answers = connection.makefile()
    while time.monotonic() < end:
        connection.sendall(b'{"version":1,"do":"detail"}\n')
        answers.readline()
        time.sleep(1 / ASKED_A_SECOND + 0.005)


def wait(end):
    time.sleep(max(0, end - time.monotonic()))


def top():
    """On a terminal that somebody reads."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", LC_ALL="C.UTF-8")
        os.execv(PLEAT, [PLEAT, "top"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))

    def read():
        try:
            while os.read(terminal, 65536):
                pass
        except OSError:
            pass

    threading.Thread(target=read, daemon=True).start()
    time.sleep(3)
    share = used(pid, "all", wait)
    os.write(terminal, b"q")
    os.waitpid(pid, 0)
    return share


def measure(processes):
    script = f"i=1; while [ $i -lt {processes} ]; do sleep 600 & i=$((i+1)); done; exec sleep 600"
    job = subprocess.Popen([PLEAT, "run", "--memory", "400M", "--kill-on-exit", "--", "sh", "-c", script])
    try:
        while not socket_of(job.pid):
            time.sleep(0.1)
        time.sleep(3)
        path = socket_of(job.pid)
        without, asked = [], []
        for _ in range(TIMES):
            without.append(used(job.pid, "main", wait))
            asked.append(used(job.pid, "main", lambda end: ask(path, end)))
        more = (statistics.median(asked) - statistics.median(without)) / ASKED_A_SECOND
        print(f"| {processes} | {100 * more:.3f} % | {100 * top():.2f} % |", flush=True)
    finally:
        job.terminate()
        job.wait()


print("| processes | the supervisor | `pleat top` |\n|---:|---:|---:|")
for count in (1, 200):
    measure(count)
