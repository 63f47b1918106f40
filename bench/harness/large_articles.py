"""A store of many articles, written straight into `records.db` and the blobs: names, texts and histories made up with a fixed seed.

number of articles -> texts, as blobs -> records of revisions, in the order in which writers would have written them.

Ten articles share a text, so that a million of them need 100,000 small files. Names are in folders of some fifty pages; one folder has ten
thousand, and one article a thousand versions. The same number gives the same records.
"""

import hashlib
import itertools
import random
from datetime import datetime, timedelta, timezone

import large_store

SHARED_BY = 10
LEAF_PAGES = 50
ARCHIVE_PAGES = 10_000
LONG_HISTORY = 1_000
TAGS, AUTHORS = 200, 997
WORDS_OF_TEXT, VOCABULARY = 120, 20_000
FIRST_WRITE = datetime(2015, 1, 1, tzinfo=timezone.utc)
TYPE = "text/markdown; charset=utf-8"


def archived(size):
    """How many pages the large folder has."""
    return min(ARCHIVE_PAGES, size // 10)


def name(number, size):
    """The name of article `number`: those of the large folder come first, the last one of them has the long history."""
    if number < archived(size):
        return f"archive/{large_store.name(number)}"
    words, leaves = large_store.WORDS, max(1, size // LEAF_PAGES)
    leaf = number * large_store.SCATTER % leaves
    return f"{words[leaf % 32]}/{words[leaf // 32 % 32]}-{leaf // 1024}/{large_store.name(number)}"


def versions(number):
    """How many versions an article has, 1.45 on average; article 0 has the long history."""
    return LONG_HISTORY if number == 0 else 1 + (number % 10 < 3) + 3 * (number % 20 == 0)


def title(number):
    return f"About {large_store.name(number).replace('-', ' ')}"


def vocabulary():
    """Words of four to six letters, the most frequent first."""
    starts, ends = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"], ["", "n", "r", "s", "t", "x"]
    words = [one + other + end for end in ends for one in starts for other in starts]
    return random.Random(4).sample(words, VOCABULARY)


def texts(size):
    """Markdown of some 700 bytes, with two links."""
    drawn, words = random.Random(5), vocabulary()
    weights = list(itertools.accumulate(1 / (rank + 10) for rank in range(VOCABULARY)))
    for _ in range(max(1, size // SHARED_BY)):
        chosen = drawn.choices(words, cum_weights=weights, k=WORDS_OF_TEXT)
        links = [f"See [{chosen[at]}](/article/{name(drawn.randrange(size), size)})." for at in range(2)]
        lines = [" ".join(chosen[at:at + 20]).capitalize() + "." for at in range(0, WORDS_OF_TEXT, 20)]
        yield "\n\n".join([f"# {chosen[0].capitalize()} {chosen[1]}", *lines, *links, ""]).encode()


def write_texts(blobs, size):
    """Writes the texts into the directory `blobs`; the digest and the size of each."""
    found = []
    for text in texts(size):
        digest = hashlib.sha256(text).digest()
        folder = blobs / "sha256" / f"{digest[0]:02x}" / f"{digest[1]:02x}"
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        (folder / digest.hex()).write_bytes(text)
        found.append((digest, len(text)))
    return found


def records(size, contents, serial):
    """`(key, serial, body, blobs)` of each version; the serials go on after `serial`. First versions come first."""
    drawn = random.Random(6)
    for version in range(1, LONG_HISTORY + 1):
        # Few articles have more than five.
        for number in range(size if version <= 5 else 1):
            if versions(number) < version:
                continue
            serial += 1
            digest, length = contents[(number * 7 + version * 13) % len(contents)]
            at = (FIRST_WRITE + timedelta(seconds=serial * 60)).strftime("%Y-%m-%dT%H:%M:%SZ")
            tags = ",".join(sorted({f'"t{int(drawn.random() ** 3 * TAGS)}"' for _ in range(number % 3)}))
            body = (f'{{"v":1,"kind":"put","base":{version - 1},"author":"user{number % AUTHORS}","at":"{at}","size_bytes":{length},'
                    f'"sha256":"{digest.hex()}","content_type":"{TYPE}","title":"{title(number)}","tags":[{tags}]}}')
            yield f"article/{version:010}/{name(number, size)}", serial, body.encode(), digest


def write(data, size):
    """Writes all of it into a data directory that `larder init` made and that no server has open."""
    contents = write_texts(data / "blobs", size)
    large_store.fill(data / "records.db", lambda serial: records(size, contents, serial))
