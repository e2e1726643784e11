"""Forks by os.fork() and by multiprocessing, with a heap that the children check and some that they fill; warnings are shown.

    forks.py ROWS STATUS
"""
import multiprocessing
import os
import sys
import warnings


def rows(count):
    return [("x" * 200) + str(number) for number in range(count)]


def size(heap):
    return sum(map(len, heap))


def fill(count, results):
    results.put(size(rows(count)))


def main():
    count, status = int(sys.argv[1]), int(sys.argv[2])
    warnings.simplefilter("always")
    heap = rows(count)
    wanted = size(heap)
    for _ in range(3):
        child = os.fork()
        if child == 0:
            os._exit(0 if size(heap) == wanted else 1)
        print("a child ended with", os.waitpid(child, 0)[1])
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    children = [fork.Process(target=fill, args=(count // 8, results)) for _ in range(2)]
    for child in children:
        child.start()
    print(sorted(results.get() for _ in children))
    for child in children:
        child.join()
        print("a worker ended with", child.exitcode)
    print("right" if size(heap) == wanted else "wrong")
    sys.exit(status)


if __name__ == "__main__":
    main()
