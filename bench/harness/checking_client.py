"""Fifty people searching: keep-alive connections that check each answer while the catalogue is replaced.

`checking_client.py PORT PATHS_FILE CONNECTIONS SECONDS_MAX MARKER_PATH MARKER_COUNT` asks until SIGTERM or until the
time is over, then prints one JSON line: requests, failures by kind, the first few failures in words, latencies in microseconds.

A failure is: no connection, a connection lost in the middle, a status other than 200, a body that is not JSON, a count that
contradicts the list, or an answer to the marker question that mixes two revisions of the catalogue.
Latencies here include this client's own work (one core of Python): they are for orientation, wrk takes the figures.
"""

import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter

MARKER_EVERY = 10


class Tally:
    def __init__(self):
        self.requests = 0
        self.marker_answers = 0
        self.revisions = Counter()
        self.failures = Counter()
        self.examples = []
        self.latencies = []

    def fail(self, kind, path, detail):
        self.failures[kind] += 1
        if len(self.examples) < 10:
            self.examples.append(f"{kind}: {path}: {detail}"[:300])


async def read_answer(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split()[1])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        while size := int((await reader.readline()).split(b";")[0], 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return status, headers, body


def check(tally, path, status, body, marker_path, marker_count):
    if status != 200:
        return tally.fail("status", path, status)
    try:
        answer = json.loads(body)
    except ValueError as error:
        return tally.fail("not JSON", path, error)
    if isinstance(answer, dict) and answer["resultcount"] != len(answer["results"]):
        return tally.fail("count", path, f"resultcount {answer['resultcount']}, {len(answer['results'])} results")
    if path == marker_path:
        revisions = {result["Description"].rsplit(" ", 1)[1] for result in answer["results"]}
        tally.marker_answers += 1
        tally.revisions.update(revisions)
        if len(revisions) != 1 or len(answer["results"]) != marker_count:
            return tally.fail("mixed", path, f"{len(answer['results'])} results of revisions {sorted(revisions)}")
    return None


async def person(number, port, paths, stop, tally, marker_path, marker_count):
    draw = random.Random(number)
    reader = writer = None
    while not stop.is_set():
        path = marker_path if draw.randrange(MARKER_EVERY) == 0 else draw.choice(paths)
        begun = time.perf_counter()
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            status, headers, body = await asyncio.wait_for(read_answer(reader), 30)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, ValueError) as error:
            tally.requests += 1
            tally.fail("connection", path, repr(error))
            if writer is not None:
                writer.close()
            reader = writer = None
            await asyncio.sleep(0.05)
            continue
        tally.requests += 1
        tally.latencies.append(time.perf_counter() - begun)
        check(tally, path, status, body, marker_path, marker_count)
        if headers.get("connection", "").lower() == "close":
            writer.close()
            reader = writer = None
    if writer is not None:
        writer.close()


async def main(port, paths_file, connections, seconds_max, marker_path, marker_count):
    with open(paths_file, encoding="ascii") as file:
        paths = file.read().split()
    tally, stop = Tally(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.call_later(seconds_max, stop.set)
    await asyncio.gather(*(person(number, port, paths, stop, tally, marker_path, marker_count)
                           for number in range(connections)))
    latencies = sorted(tally.latencies) or [0.0]
    print(json.dumps({
        "requests": tally.requests, "failed": sum(tally.failures.values()), "failures": tally.failures,
        "examples": tally.examples, "marker_answers": tally.marker_answers, "revisions": tally.revisions,
        **{name: round(latencies[min(len(latencies) - 1, int(len(latencies) * share))] * 1e6)
           for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))},
    }))


if __name__ == "__main__":
    arguments = sys.argv[1:]
    asyncio.run(main(int(arguments[0]), arguments[1], int(arguments[2]), float(arguments[3]), arguments[4], int(arguments[5])))
