"""Questions: what is asked, drawn from the catalogue that is served, always the same for one catalogue and seed.

dump -> Catalogue -> paths with the number of results that a plain scan finds.
The counts come from the dump alone, never from a server, so that a wrong answer cannot pass for a fast one.
"""

import gzip
import json
import random
import re
from collections import Counter
from pathlib import Path
from urllib.parse import quote

# Weights of characters in the collation that the AUR's database compares text with; all others weigh what they are.
COLLATION = Path(__file__).resolve().parents[2] / "testdata/aur/general_ci.txt"
RESULTS_MAX = 5000
TOO_MANY = -1
EXACT_FIELDS = {
    "maintainer": "Maintainer", "submitter": "Submitter", "comaintainers": "CoMaintainers", "depends": "Depends",
    "makedepends": "MakeDepends", "optdepends": "OptDepends", "checkdepends": "CheckDepends", "provides": "Provides",
    "conflicts": "Conflicts", "replaces": "Replaces", "groups": "Groups", "keywords": "Keywords",
}
RELATIONS = {"depends", "makedepends", "optdepends", "checkdepends", "provides", "conflicts", "replaces"}

# How many questions of which kind: 1,000 in all. A `word` is drawn from the words that occur, each once, however often
# it occurs; a `phrase` is a run of a description, blanks included; `missing` is a word with a change that nothing has.
# The fields with few values come first, so that short needles do not use up the refusals that are allowed.
SEARCH_MIX = [
    *[(by, "value", 20) for by in EXACT_FIELDS], *[(by, "missing", 6) for by in EXACT_FIELDS],
    ("name-desc", "word", 170), ("name-desc", "middle", 80), ("name-desc", "short", 40), ("name-desc", "phrase", 50),
    ("name-desc", "missing", 60),
    ("name", "word", 120), ("name", "middle", 60), ("name", "short", 30), ("name", "whole", 38), ("name", "missing", 40),
]
TOO_MANY_SHARE_MAX = 0.05
# The API decodes a query before it splits it, so an encoded `&` ends the needle; a needle with what looks like an
# encoded character is left out too, since a server that decodes twice asks for another one.
CUT_BY_THE_API = re.compile("&|%[0-9A-Fa-f]{2}")

_weights = {}


def fold(text):
    """`text` as the AUR's database compares it: without case and accents, one character for each."""
    if not _weights:
        lines = COLLATION.read_text(encoding="ascii").splitlines()
        _weights.update((int(number, 16) for number in line.split()) for line in lines if line[:1] not in ("", "#"))
    return text.translate(_weights)


def read_dump(path):
    """The packages of a dump, gzip or plain, as dictionaries in the order of the file."""
    with open(path, "rb") as file:
        data = file.read()
    while data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    return json.loads(data)


def info_path(name):
    return f"/rpc?v=5&type=info&arg={quote(name, safe='')}"


def suggest_path(prefix):
    return f"/rpc?v=5&type=suggest&arg={quote(prefix, safe='')}"


def search_path(needle, by=None):
    field = f"&by={by}" if by else ""
    return f"/rpc?v=5&type=search{field}&arg={quote(needle, safe='')}"


class Catalogue:
    """The packages of one dump with what is needed to draw questions and to count their results."""

    def __init__(self, packages):
        self.packages = sorted(packages, key=lambda package: package["Name"])
        self.names = [package["Name"] for package in self.packages]
        self._lower_names = [name.lower() for name in self.names]
        # Questions are drawn from texts in lower case, as people type, and counted in folded ones.
        self._lower_descriptions = [(package.get("Description") or "").lower() for package in self.packages]
        self._folded_names = [fold(name) for name in self.names]
        # A separator that no question contains keeps a needle from matching across the two fields.
        self._folded_texts = [f"{name}\x00{fold(package.get('Description') or '')}"
                              for name, package in zip(self._folded_names, self.packages)]
        self._exact = {by: Counter() for by in EXACT_FIELDS}
        for package in self.packages:
            for by, field in EXACT_FIELDS.items():
                values = listed_values(package, by, field)
                self._exact[by].update({fold(value.rstrip(" ")) for value in values})

    def count(self, needle, by):
        """The number of packages a search finds by a plain scan, TOO_MANY where the API refuses to list them."""
        needle = fold(needle)
        if by in EXACT_FIELDS:
            found = self._exact[by][needle.rstrip(" ")]
        else:
            texts = self._folded_names if by == "name" else self._folded_texts
            found = sum(needle in text for text in texts)
        return found if found <= RESULTS_MAX else TOO_MANY

    def median_name(self):
        """The package whose record has the median length: the one that stands for `info` of one package."""
        by_length = sorted(self.packages, key=lambda package: (len(json.dumps(package)), package["Name"]))
        return by_length[len(by_length) // 2]["Name"]

    def common_prefix(self):
        """The three characters that most names begin with: the one question that stands for `suggest`."""
        prefixes = Counter(name[:3] for name in self._lower_names if len(name) >= 3)
        return min(prefixes.items(), key=lambda item: (-item[1], item[0]))[0]

    def random_names(self, seed, count):
        return random.Random(seed).choices(self.names, k=count)

    def random_prefixes(self, seed, count):
        draw = random.Random(seed)
        return [name[:draw.randint(1, 6)].lower() for name in draw.choices(self.names, k=count)]

    def search_mix(self, seed):
        """The mix of different searches as `[{"by", "kind", "needle", "path", "results"}]`, in a fixed random order.

        A question whose answer would be "Too many package results." is drawn again once 5 % of all are such.
        """
        draw = random.Random(seed)
        words = sorted({word for text in self._lower_descriptions for word in re.findall(r"[a-z0-9]{4,}", text)})
        name_words = sorted({word for name in self._lower_names for word in re.findall(r"[a-z0-9]{3,}", name)})
        values = {by: [package for package in self.packages if package.get(field)] for by, field in EXACT_FIELDS.items()}
        mix, seen = [], set()
        total = sum(wanted for _, _, wanted in SEARCH_MIX)
        refused, refused_max = 0, int(TOO_MANY_SHARE_MAX * total)

        def needle_of(by, kind):
            if kind == "value":
                package = draw.choice(values[by])
                return draw.choice(sorted(field_values(package, by, EXACT_FIELDS[by])))
            name = draw.choice(self._lower_names)
            if kind == "missing":
                word = draw.choice(name_words)
                at = draw.randrange(len(word))
                return word[:at] + draw.choice("qxzj") + draw.choice("qxzj") + word[at:]
            if kind == "whole":
                return name
            if kind == "word":
                return draw.choice(name_words if by == "name" else words)
            text = draw.choice(self._lower_descriptions) if kind == "phrase" else name
            longest, shortest = {"middle": (7, 4), "short": (3, 2), "phrase": (40, 10)}[kind]
            length = draw.randint(shortest, longest)
            at = draw.randint(0, max(0, len(text) - length))
            return text[at:at + length].strip()

        # Fields that this catalogue leaves empty, or with few different values, are made up for by words.
        for by, kind, wanted in [*SEARCH_MIX, ("name-desc", "word", total)]:
            if kind == "value" and not values[by]:
                continue
            wanted = min(wanted, total - len(mix))
            tries = 200 * wanted
            while wanted and tries:
                tries -= 1
                needle = needle_of(by, kind)
                if len(needle) < 2 or not needle.isascii() or CUT_BY_THE_API.search(needle) or (by, needle) in seen:
                    continue
                results = self.count(needle, by)
                if (kind == "missing") != (results == 0):
                    continue
                if results == TOO_MANY:
                    if refused == refused_max:
                        continue
                    refused += 1
                seen.add((by, needle))
                wanted -= 1
                # The default field is asked for by leaving `by` away, as most clients do, every other time.
                asked = None if by == "name-desc" and len(mix) % 2 else by
                mix.append({"by": by, "kind": kind, "needle": needle, "path": search_path(needle, asked), "results": results})
        draw.shuffle(mix)
        return mix


def listed_values(package, by, field):
    """What an exact search of `by` finds this package under, as written; versions are cut off relations."""
    value = package.get(field) or []
    listed = {value} if isinstance(value, str) else set(value)
    if by in RELATIONS:
        listed = {re.split("[<>=]", entry, maxsplit=1)[0] for entry in listed}
    if by == "optdepends":  # older dumps give them a description
        listed = {entry.split(": ", 1)[0] for entry in listed}
    if by == "provides":
        listed.add(package["Name"])
    return listed


def field_values(package, by, field):
    """`listed_values` in lower case: what to ask for."""
    return {value.lower() for value in listed_values(package, by, field)}


def result_count(body):
    """The number of results that an answer claims: TOO_MANY for that refusal.

    Raises ValueError if the body is not JSON of the shape that the API promises, or contradicts itself.
    """
    answer = json.loads(body)
    if isinstance(answer, list):
        return len(answer)
    if answer.get("error") == "Too many package results.":
        return TOO_MANY
    if answer["type"] == "error":
        raise ValueError(f"answered with the error {answer['error']!r}")
    if answer["resultcount"] != len(answer["results"]):
        raise ValueError(f"resultcount is {answer['resultcount']}, but {len(answer['results'])} results are listed")
    return answer["resultcount"]


def counts_hit(needle_counter, ask, by, wanted, tolerance, how_many, tries_max=3000):
    """Needles whose search finds `wanted` results, give or take `tolerance`: `[(needle, results)]`, at most `how_many`.

    `needle_counter` says in how many texts a word occurs as a word; as a substring it may occur in more, so `ask`
    (needle -> results) decides.
    """
    candidates = [needle for needle, texts in needle_counter.items()
                  if 0.2 * wanted <= texts <= wanted + tolerance and len(needle) >= 4]
    random.Random(f"{by} {wanted}").shuffle(candidates)
    # Words that occur nearly as often as wanted are the likelier ones.
    candidates.sort(key=lambda needle: abs(wanted - needle_counter[needle]) > 0.1 * wanted)
    found = []
    for needle in candidates[:tries_max]:
        results = ask(needle)
        if abs(results - wanted) <= tolerance:
            found.append((needle, results))
            if len(found) == how_many:
                break
    return found
