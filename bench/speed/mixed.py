"""A server that keeps its data in memory beside a batch job, in one memory: redis and sort.

    mixed.py LOG OUT [KEYS]

A tenth of the keys get 95 of 100 requests, about 250 requests a second, each answer checked. Prints what the server's
clients wait while the batch job runs, and what the batch job takes, as FIGURE lines for sidebyside.py. Needs redis-server.
"""
import os
import random
import socket
import subprocess
import sys
import time

BATCH_OF_KEYS = 100


def request(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def read_reply(stream):
    line = stream.readline()
    if line[:1] != b"$":
        return line
    length = int(line[1:])
    return stream.read(length + 2)[:-2] if length >= 0 else None


def value_of(key):
    return (b"%d:" % key) * 20 + random.Random(key).randbytes(200)


def start_server(out):
    path = os.path.join(out, "redis.sock")
    options = ["--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", out]
    server = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
    client = socket.socket(socket.AF_UNIX)
    # Its socket is there before it listens.
    while client.connect_ex(path) != 0:
        if server.poll() is not None:
            sys.exit("redis-server did not start")
        time.sleep(0.05)
    return server, client, client.makefile("rb")


def load(client, stream, keys):
    for first in range(0, keys, BATCH_OF_KEYS):
        batch = range(first, min(first + BATCH_OF_KEYS, keys))
        client.sendall(b"".join(request(b"SET", b"key:%d" % key, value_of(key)) for key in batch))
        for _ in batch:
            assert read_reply(stream) == b"+OK\r\n"


def ask_while_running(batch, client, stream, keys):
    """Seconds that each request took."""
    choose, waits = random.Random(7), []
    while batch.poll() is None:
        key = choose.randrange(keys // 10 if choose.random() < 0.95 else keys)
        start = time.monotonic()
        client.sendall(request(b"GET", b"key:%d" % key))
        got = read_reply(stream)
        waits.append(time.monotonic() - start)
        assert got == value_of(key), f"key {key} has another value"
        time.sleep(0.001)
    return sorted(waits)


def main():
    log, out = sys.argv[1:3]
    keys = int(sys.argv[3]) if len(sys.argv) > 3 else 150_000
    server, client, stream = start_server(out)
    try:
        load(client, stream, keys)
        began = time.monotonic()
        sort = ["sort", "-S", "2G", "--parallel=1", "-T", out, "-o", os.path.join(out, "sorted"), log]
        batch = subprocess.Popen(sort)
        waits = ask_while_running(batch, client, stream, keys)
        if batch.returncode != 0:
            sys.exit("sort has failed")
        print(f"FIGURE batch {time.monotonic() - began:.2f} s")
        print(f"FIGURE requests {len(waits)} n")
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            print(f"FIGURE {name} {waits[int(len(waits) * share)] * 1e6:.0f} us")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
