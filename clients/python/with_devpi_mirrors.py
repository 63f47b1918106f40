"""devpi's own tests of mirrors, its functional ones and those of streaming, unchanged against a Larder.

    with_devpi_mirrors.py DIRECTORY

Those that fail are the ones that `known.MIRROR_TESTS` names, with an id of docs/devpi-differences.md and what they fail with: another
failure fails this, and so does a test that passes although it is named.
"""

import re
import xml.etree.ElementTree
from pathlib import Path

import environments
from known import MIRROR_TESTS
from server import Desk, check, client

TESTS = Path(__file__).resolve().with_name("devpi_mirror_tests.py")
PAGE = environments.ROOT / "docs" / "devpi-differences.md"
# Of devpi's classes, whatever else they bring in a later version.
CLASSES = {"TestMirrorIndexThings": 10, "TestStreaming": 4}


def test(work):
    desk = Desk(work, environments.environment("devpi-server"), DEVPI_MIRROR_TESTS=work, PYTEST_DISABLE_PLUGIN_AUTOLOAD=1)
    report = work / "report.xml"
    options = ("-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", work, "--tb=short", f"--junitxml={report}")
    desk.run("python", "-B", "-m", "pytest", *options, TESTS, status=(0, 1))
    counts, unexpected, met = dict.fromkeys(CLASSES, 0), [], set()
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        name = case.get("name")
        counts[case.get("classname").rpartition(".")[2]] += 1
        trouble = [element for element in case if element.tag in ("failure", "error", "skipped")]
        said = "\n".join(f"{element.tag}: {element.get('message')}\n{element.text}" for element in trouble)
        _, expected = MIRROR_TESTS.get(name, (None, None))
        if not trouble and expected is None:
            continue
        if not trouble:
            unexpected.append(f"{name} passes, although it is named")
        elif expected is None or any(element.tag != "failure" for element in trouble) or expected not in said:
            unexpected.append(f"{name}: {said}")
        else:
            met.add(name)
    check("devpi's tests of each class", counts, CLASSES)
    assert not unexpected, "\n".join(unexpected)
    check("tests that differ as it is known", met, set(MIRROR_TESTS))
    explained = set(re.findall(r"(?m)^\| (P\d+) \|", PAGE.read_text(encoding="utf-8")))
    check("ids that are not explained", {id for id, _ in MIRROR_TESTS.values()} - explained, set())
    print(f"{sum(counts.values()) - len(met)} of devpi's tests pass, {len(met)} differ as documented", flush=True)


client(test)
