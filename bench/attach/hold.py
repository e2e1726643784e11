"""Holds so many MiB that it goes on changing and checking, beside threads that wait in epoll_wait, for a lock and in sleep.

    hold.py MIB

Prints `ready`, and then the number of each pass; ends with 1 where anything is not as it was.
"""
import os
import select
import sys
import threading
import time


def content(number, version):
    return b"%d %d " % (number, version) * 90


def wait_for_pipes(reader):
    poll = select.epoll()
    poll.register(reader, select.EPOLLIN)
    while True:
        for _, _ in poll.poll():
            os.read(reader, 1)


def wait_for_lock(lock):
    while True:
        lock.acquire(timeout=3)


def wait_for_time():
    while True:
        time.sleep(0.7)


def main():
    count = int(sys.argv[1]) * 1024
    versions = [0] * count
    blocks = [content(number, 0) for number in range(count)]
    reader, writer = os.pipe()
    lock = threading.Lock()
    lock.acquire()
    for work in ((wait_for_pipes, reader), (wait_for_lock, lock), (wait_for_time,)):
        threading.Thread(target=work[0], args=work[1:], daemon=True).start()
    print("ready", flush=True)
    at = 0
    for done in range(1 << 40):
        for number in range(at, at + count // 20):
            number %= count
            if blocks[number] != content(number, versions[number]):
                print("wrong", number, flush=True)
                os._exit(1)
            if number % 3 == 0:
                versions[number] += 1
                blocks[number] = content(number, versions[number])
        at = (at + count // 20) % count
        os.write(writer, b"x")
        print(done, flush=True)
        time.sleep(0.05)


main()
