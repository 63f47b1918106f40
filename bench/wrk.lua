-- What wrk asks, and how it reports: `wrk -s wrk.lua URL -- PATHS_FILE [PAUSE_MIN_MS PAUSE_MAX_MS]`.
--
-- PATHS_FILE holds one path a line; they are asked in that order, over and over. `-` means: ask only URL
-- (then wrk sends one prepared request and runs no Lua at all while it measures).
-- With pauses, each connection waits that long (drawn evenly) between an answer and its next request.
-- The last line of output is `RESULT ` and one JSON object; latencies are in microseconds.

function init(args)
  local file = args[1] or "-"
  if file ~= "-" then
    local prepared, at = {}, 0
    for path in io.lines(file) do
      prepared[#prepared + 1] = wrk.format("GET", path)
    end
    local count = #prepared
    request = function()
      at = at % count + 1
      return prepared[at]
    end
  end
  local pause_min, pause_max = tonumber(args[2]), tonumber(args[3])
  if pause_min then
    math.randomseed(1)
    delay = function() return math.random(pause_min, pause_max) end
  end
end

function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"microseconds":%d,"bytes":%d,"connect_errors":%d,"read_errors":%d,"write_errors":%d,'
    .. '"status_errors":%d,"timeouts":%d,"p50":%d,"p90":%d,"p99":%d,"p999":%d,"max":%d}\n',
    summary.requests, summary.duration, summary.bytes, errors.connect, errors.read, errors.write,
    errors.status, errors.timeout,
    latency:percentile(50), latency:percentile(90), latency:percentile(99), latency:percentile(99.9), latency.max))
end
