"""An upstream that is some milliseconds away, and can be cut off: a proxy before a server on 127.0.0.1.

client -> [`Distant`], a process of its own -> the server. Bytes arrive as many milliseconds later as one way takes, in each
direction; a new connection takes a way there and back before its first byte. How fast they flow is not limited.
"""

import asyncio
import multiprocessing
import time

from servers import free_port

PIECE_BYTES = 256 << 10
# What may be on its way in one direction of one connection.
PIECES_MAX = 64


class Distant:
    """A proxy on `port` before the server on `behind`, `delay_ms` away from it."""

    def __init__(self, behind, delay_ms):
        self.behind, self.delay_ms, self.port = behind, delay_ms, free_port()
        self.process = None
        self.passed = multiprocessing.Value("q", 0)

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        """Begins; all that has passed is counted from here on."""
        self.passed.value = 0
        listening = multiprocessing.Event()
        work = (self.port, self.behind, self.delay_ms / 1000, listening, self.passed)
        self.process = multiprocessing.Process(target=_run, args=work, daemon=True)
        self.process.start()
        if not listening.wait(30):
            raise RuntimeError(f"nothing listens on port {self.port}")
        return self

    def cut(self):
        """Ends every connection at once; whoever asks next is refused."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def _run(port, behind, delay, listening, passed):
    asyncio.run(_serve(port, behind, delay, listening, passed))


async def _serve(port, behind, delay, listening, passed):
    async def connected(reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", behind, limit=PIECE_BYTES)
        except OSError:
            writer.close()
            return
        there = _pump(reader, far_writer, delay, 2 * delay, None)
        back = _pump(far_reader, writer, delay, 0, passed)
        await asyncio.gather(there, back, return_exceptions=True)

    server = await asyncio.start_server(connected, "127.0.0.1", port, limit=PIECE_BYTES, backlog=512)
    listening.set()
    async with server:
        await server.serve_forever()


async def _pump(reader, writer, delay, before_first, passed):
    """Passes on what is read, each piece when its time has come, and then the end."""
    under_way = asyncio.Queue(PIECES_MAX)

    async def read():
        wait = delay + before_first
        while True:
            try:
                piece = await reader.read(PIECE_BYTES)
            except OSError:
                piece = b""
            await under_way.put((time.monotonic() + wait, piece))
            if not piece:
                return
            wait = delay

    reading = asyncio.create_task(read())
    try:
        # A later piece of the first flight waits for the one before it, as on a wire.
        while (piece := await _arrived(under_way)):
            writer.write(piece)
            await writer.drain()
            if passed is not None:
                passed.value += len(piece)
    except OSError:
        pass
    finally:
        reading.cancel()
        writer.close()


async def _arrived(under_way):
    due, piece = await under_way.get()
    await asyncio.sleep(max(0.0, due - time.monotonic()))
    return piece
