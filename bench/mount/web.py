#!/usr/bin/env python3
"""A web server whose files are three times its memory, on a slow disk: requests per second, latency, disk
traffic, cache size and processor time over the number of clients.

  native     nginx alone in a memory cgroup of M: the kernel's page cache
  native-2x  the same in 2 M
  pleat      nginx on a `pleat mount`, both in a cgroup of M

Text, HTML and JSON files of 4 to 256 KiB that pack 3:1 to 4:1 with LZ4; Zipf popularity. The client runs
outside the cgroup. Needs nginx and wrk (Debian: nginx-light, wrk), root and cgroup v1.

    sudo python3 web.py --alpha 0.4,1.0
    sudo python3 web.py -m 32 --clients 10,50 --seconds 3 --warm-up 3 -n 1      # a quick look
"""
import json
import os
import random
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import common
from common import MB, Bench, Group, Meter, Served, need, run_in

PORT, NGINX_MB, DRAWS = 18480, 24, 200_000
CONFIG = """
daemon off; worker_processes {workers}; pid {work}/nginx.pid; error_log /dev/null crit; user root;
events {{ worker_connections 1024; }}
http {{
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; open_file_cache off;
    client_body_temp_path {work}/tmp; proxy_temp_path {work}/tmp; fastcgi_temp_path {work}/tmp;
    uwsgi_temp_path {work}/tmp; scgi_temp_path {work}/tmp;
    server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


def make_files(root, total_mb):
    """The files, by a fixed seed; their paths."""
    rnd, pools = random.Random(7), {kind: common.rows(7, kind) for kind in ("html", "json", "text")}
    paths, left, sample = [], total_mb * MB, []
    while left > 0:
        size = int(min(256 << 10, max(4 << 10, rnd.lognormvariate(10.2, 0.8))))
        kind = rnd.choice(sorted(pools))
        path = f"d{len(paths) % 64:02}/{len(paths):06}.{kind}"
        body = common.text_of(pools[kind], rnd, size)
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(body)
        sample += [body] * (len(paths) % 50 == 0)
        paths.append(path)
        left -= size
    ratio = common.lz4_ratio(sample)
    mean = total_mb * 1024 / len(paths)
    print(f"{len(paths)} files, {mean:.0f} KiB on average, pack {ratio or 0:.2f}:1 (LZ4, page by page)")
    return paths, ratio


class Server:
    """nginx in a cgroup."""

    def __init__(self, bench, group, root):
        work = bench.work / bench.fresh("nginx")
        work.mkdir()
        config = work / "nginx.conf"
        config.write_text(CONFIG.format(work=work, root=root, port=PORT, workers=bench.args.workers))
        self.process = subprocess.Popen(["nginx", "-e", "/dev/null", "-c", config, "-p", work],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        preexec_fn=group.enter, start_new_session=True)

    def __enter__(self):
        for _ in range(100):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/", timeout=5)
            except urllib.error.HTTPError:
                return self  # no listing of the root: it is there
            except OSError:
                time.sleep(0.1)
        self.__exit__()
        raise RuntimeError("nginx does not answer")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def load(clients, seconds, requests):
    """One run of wrk; what its script reports."""
    env = dict(os.environ, LIST=str(requests))
    out = run_in(None, ["wrk", "-t2", f"-c{clients}", f"-d{seconds}s", "--timeout", "20s", "-s",
                        Path(__file__).with_name("requests.lua"), f"http://127.0.0.1:{PORT}"],
                 seconds + 60, env=env)
    line = next(line for line in out.splitlines() if line.startswith("JSON "))
    return json.loads(line[5:])


def measure(bench, system, root, requests, alpha):
    """All numbers of clients on one system, from cold."""
    args = bench.args
    limit = args.memory * (2 if system.endswith("-2x") else 1)
    bench.disk.cold()
    group = Group(bench, limit)
    served = Served(bench, system.removesuffix("-2x"), root, args.memory - args.reserve, group)
    results = []
    with served, Server(bench, group, served.path):
        load(max(args.clients), args.warm_up, requests)
        for clients in args.clients:
            with Meter(bench.disk, group) as meter:
                figures = load(clients, args.seconds, requests)
            if figures["errors"]:
                print(f"{system}: {figures['errors']} errors")
            results.append({"system": system, "alpha": alpha, "clients": clients, **figures, **meter.rates,
                            "requests_s": figures["requests"] / figures["seconds"], **group.figures(),
                            "served_rss_mb": served.rss_mb(), "oom_kills": group.oom_kills()})
    group.close()
    for result in results:
        result["stats"] = served.stats
    return results


def report(args, runs):
    tables, keys = [], ["requests_s", "p99_ms", "disk_reads_s", "disk_read_mb_s", "cache_mb", "served_rss_mb",
                            "used_mb", "cpus"]
    names = ["requests/s", "p99 ms", "disk reads/s", "disk MB/s", "page cache MB", "pleat MB", "memory used MB",
             "CPUs of the server"]
    for alpha in args.alphas:
        lines, curves = [], {key: {} for key in keys}
        for clients in args.clients:
            for system in args.systems:
                mine = [r for r in runs if (r["alpha"], r["clients"], r["system"]) == (alpha, clients, system)]
                values = [common.median_of(mine, key) for key in keys]
                lines.append([str(clients), system] + values)
                for key, value in zip(keys, values):
                    curves[key].setdefault(system, []).append((clients, value))
        tables.append((f"Zipf {alpha}", common.markdown(["clients", "system"] + names, lines)))
        panels = [(name, curves[key]) for key, name in zip(keys, names)]
        common.plot(args.output / f"web-zipf{alpha}.svg", f"Web server, files 3 x memory, Zipf {alpha}", "clients",
                    panels)
    common.save(args, "web", runs, tables)


def main():
    common.SYSTEMS["native-2x"] = ("native", "")
    parser = common.options(__doc__, 256, systems="native,native-2x,pleat", runs=3)
    parser.add_argument("--alpha", default="0.4,1.0", help="Zipf exponents; default %(default)s")
    parser.add_argument("--clients", default="10,25,50,100,200", help="default %(default)s")
    parser.add_argument("--seconds", type=int, default=15, help="of each measurement; default %(default)s")
    parser.add_argument("--warm-up", type=int, default=30, help="seconds; default %(default)s")
    parser.add_argument("--files", type=float, default=3, help="times the memory; default %(default)s")
    parser.add_argument("--workers", type=int, default=8,
                        help="processes of nginx, each of which waits for its disk reads; default %(default)s")
    parser.add_argument("--reserve", type=int, default=NGINX_MB, metavar="MB",
                        help="of M for nginx and the kernel's own, not given to pleat; default %(default)s")
    args = common.settle(parser.parse_args())
    args.alphas, args.clients = args.alpha.split(","), [int(c) for c in args.clients.split(",")]
    need(nginx="nginx-light", wrk="wrk")
    runs = []
    with Bench(args) as bench:
        root = bench.disk.path / "www"
        bench.disk.limit(0)
        root.mkdir()
        paths, ratio = make_files(root, int(args.memory * args.files))
        args.lz4_ratio = ratio
        for alpha in args.alphas:
            requests = bench.work / f"zipf{alpha}"
            drawn = common.zipf(len(paths), float(alpha), DRAWS)
            requests.write_text("".join(f"/{paths[n]}\n" for n in drawn))
            for _ in range(args.runs):
                for system in args.systems:
                    runs += measure(bench, system, root, requests, alpha)
        report(args, runs)


if __name__ == "__main__":
    main()
