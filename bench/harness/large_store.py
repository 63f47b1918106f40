"""A store as large as the public index, written straight into `records.db`: names, sizes and dates made up with a fixed seed.

number of files -> [`shape`]: files of each project -> releases in the order of their uploads -> records of an index.

Uploading ten million files would take days. The records are those that uploads leave behind, in the order in which uploads would write
them: neighbours in time are of different projects, as on the public index, so reading them at a start is no easier than there. There are no
blobs, and the records do not say that they need any: lists and pages are answered, files are not. The same numbers give the same records.
"""

import array
import hashlib
import math
import random
import sqlite3

USER, INDEX = "root", "big"
# Half of the public index's projects have a handful of files, and a few have ten thousand: a log-normal distribution, and a few by hand.
FILES_PER_PROJECT = 100 / 7
MEDIAN_FILES, SIGMA = 5.0, 1.45
FILES_MAX = 10_000
FIRST_UPLOAD, LAST_UPLOAD = 1_200_000_000, 1_790_000_000  # seconds since 1970
WORDS = ("async auth aws bio cache client cloud config core data django fast flask geo graph http image json lib ml net open parse plot py "
         "query rest simple stream test tools web").split()
PYTHONS = [None, None, ">=3.6", ">=3.7", ">=3.7", ">=3.8", ">=3.8", ">=3.8", ">=3.9", ">=3.9", ">=3.10", ">=3.10", ">=3.8,<4.0", ">=3.9,<4.0",
           "!=3.0.*,!=3.1.*,!=3.2.*,>=2.7"]
PLATFORMS = ["manylinux_2_17_x86_64.manylinux2014_x86_64", "manylinux_2_17_aarch64.manylinux2014_aarch64", "musllinux_1_2_x86_64",
             "macosx_11_0_arm64", "macosx_10_12_x86_64", "win_amd64", "win32"]
WHEELS = [f"cp3{minor}-cp3{minor}-{platform}" for minor in range(13, 7, -1) for platform in PLATFORMS]
YANKED, ATTESTED = 0.01, 0.04
SCATTER, LETTERS = 7_368_787, 26 ** 5


def name(number):
    """The name of project number `number`: two words and five letters that tell names apart, 15 bytes on average."""
    scattered = number * SCATTER % LETTERS
    letters, rest = "", scattered
    for _ in range(5):
        letters += chr(97 + rest % 26)
        rest //= 26
    return f"{WORDS[scattered // 7 % 32]}-{WORDS[scattered // 331 % 32]}-{letters}"


def shape(files, files_max=FILES_MAX):
    """The number of release files of each project; one in a million has `files_max`, and the first project is one of them."""
    projects, drawn = max(10, round(files / FILES_PER_PROJECT)), random.Random(1)
    large = max(1, files // 1_000_000)
    rest = [min(files_max, max(1, round(MEDIAN_FILES * math.exp(drawn.gauss(0, SIGMA))))) for _ in range(projects - large)]
    # The sum is to be what was asked for: the difference is spread over the projects, one file at a time.
    missing, at = files - large * files_max - sum(rest), 0
    while missing:
        step = 1 if missing > 0 else -1
        if 1 <= rest[at] + step <= files_max:
            rest[at] += step
            missing -= step
        at = (at + 1) % len(rest)
    return [files_max] * large + rest


def releases(counts):
    """`(time, project, number of the release, its files, all its project's files)`, as 64-bit numbers in the order of time."""
    drawn, found = random.Random(2), array.array("Q")
    for project, count in enumerate(counts):
        kind = drawn.random()
        # Some have source archives alone, most have a wheel as well, the others a wheel for each platform.
        each = 1 if kind < 0.18 else 2 if kind < 0.82 else drawn.randint(4, 30)
        each = 20 if count >= 1000 else each
        versions = -(-count // each)
        times = sorted(drawn.randrange(1 << 20) for _ in range(versions))
        found.extend(time << 44 | project << 24 | version << 8 | min(each, count - version * each) for version, time in enumerate(times))
    return sorted(found)


def filenames(project, version, count):
    """The files of a release: its source archive, then its wheels."""
    stem = f"{project.replace('-', '_')}-{version}"
    if count == 1:
        return [f"{stem}.tar.gz"]
    if count == 2:
        return [f"{stem}.tar.gz", f"{stem}-py3-none-any.whl"]
    return [f"{stem}.tar.gz", *(f"{stem}-{tags}.whl" for tags in WHEELS[:count - 1])]


def version_text(number):
    """0.1.0, 0.1.1 and so on, up to 0.1.5, then 0.2.0."""
    number += 6
    return f"{number // 60}.{number // 6 % 10}.{number % 6}"


def records(counts, serial):
    """`(key, serial, body)` of each file and each release; the serials go on after `serial`."""
    drawn, span = random.Random(3), LAST_UPLOAD - FIRST_UPLOAD
    for packed in releases(counts):
        time, number, at, count = packed >> 44, packed >> 24 & 0xFFFFF, packed >> 8 & 0xFFFF, packed & 0xFF
        project, version = name(number), version_text(at)
        uploader = f"user{number // 3}"
        python = PYTHONS[(number * 7 + at // 20) % len(PYTHONS)]
        is_attested = number % 100 < ATTESTED * 100 and time > (1 << 19)
        microseconds = (FIRST_UPLOAD * 1_000_000) + (time * span >> 20) * 1_000_000 + drawn.randrange(1_000_000)
        prefix, last = f"{USER}/{INDEX}/{project}/", serial + count
        metadata = drawn.randbytes(32).hex()
        yanked = ',"yanked":"broken"' if drawn.random() < YANKED else ""
        yield f"python/version/{prefix}{version}", last, f'{{"v":1,"metadata":"{metadata}"{yanked}}}'.encode()
        for filename in filenames(project, version, count):
            serial += 1
            digest = hashlib.sha256(filename.encode()).digest()
            body = (f'{{"v":1,"version":"{version}","sha256":"{digest.hex()}","size_bytes":{2000 + int(drawn.paretovariate(0.7) * 5000) % 90_000_000},'
                    f'"uploaded_at_unix_microseconds":{microseconds + serial % 1000},"uploader":"{uploader}"')
            if python:
                body += f',"requires_python":"{python}"'
            if filename.endswith(".whl"):
                body += f',"core_metadata_sha256":"{drawn.randbytes(32).hex()}"'
            if is_attested:
                job = f"https://ci.example.org {uploader}/{project}"
                body += f',"provenance_sha256":"{drawn.randbytes(32).hex()}","publisher":"{job}","attested_by":"{job}"'
            yield f"python/file/{prefix}{filename}", serial, f"{body}}}".encode()


def stage(serial):
    """The record of the index itself."""
    body = ('{"v":1,"config":{"acl_read":[":ANONYMOUS:"],"acl_upload":["root"],"bases":[],"mirror_whitelist":[],'
            '"mirror_whitelist_inheritance":"intersection","type":"stage","volatile":true}}')
    return f"python/stage/{USER}/{INDEX}", serial, body.encode()


def write(database, counts):
    """Writes all of it into the SQLite file of a store."""
    def rows(serial):
        yield (*stage(serial + 1), b"")
        yield from ((*record, b"") for record in records(counts, serial + 1))

    fill(database, rows)


def fill(database, rows):
    """Writes what `rows(serial)` gives after this serial, as `(key, serial, body, blobs)`, into the SQLite file of a store that `larder init` made and that
    no server has open."""
    store = sqlite3.connect(database, isolation_level=None)
    try:
        # Nothing here must survive a crash, and keys come in any order: their index is to stay in memory until it is whole.
        for pragma in ("journal_mode=DELETE", "journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", "cache_size=-4000000"):
            store.execute(f"PRAGMA {pragma}").fetchall()
        serial = store.execute("SELECT serial FROM larder_store").fetchone()[0]
        by_serial = store.execute("SELECT sql FROM sqlite_master WHERE name = 'larder_records_by_serial'").fetchone()[0]
        store.execute("BEGIN")
        store.execute("DROP INDEX larder_records_by_serial")
        store.executemany("INSERT INTO larder_records (key, serial, body, blobs) VALUES (?, ?, ?, ?)", rows(serial))
        store.execute(by_serial)
        store.execute("UPDATE larder_store SET serial = (SELECT max(serial) FROM larder_records)")
        store.execute("COMMIT")
        store.execute("PRAGMA journal_mode=DELETE").fetchall()
        store.execute("PRAGMA journal_mode=WAL").fetchall()
    finally:
        store.close()
