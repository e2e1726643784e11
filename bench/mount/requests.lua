-- Requests of wrk, drawn from a list made beforehand (environment: LIST, one path a line); at the end one
-- line of JSON. Each thread begins somewhere else in the list.
local paths, threads = {}, 0
for line in io.lines(os.getenv("LIST")) do paths[#paths + 1] = line end

function setup(thread)
    thread:set("number", threads)
    threads = threads + 1
end

function init()
    at = math.floor(#paths * number / 7) % #paths
end

function request()
    at = at % #paths + 1
    return wrk.format("GET", paths[at])
end

function done(summary, latency)
    local e = summary.errors
    io.write(string.format('JSON {"requests": %d, "seconds": %.3f, "bytes": %d, "errors": %d, ',
        summary.requests, summary.duration / 1e6, summary.bytes, e.connect + e.read + e.write + e.status + e.timeout))
    io.write(string.format('"mean_ms": %.3f, "p50_ms": %.3f, "p99_ms": %.3f}\n',
        latency.mean / 1e3, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
