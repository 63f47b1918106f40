#!/usr/bin/env python3
"""nvchecker with `source = "aur"` against a running server: run by the Python of the environment that has it.

cases.json -> a configuration with one entry a package -> nvchecker's own run -> its results compared.

    check.py PORT CASES DIRECTORY      DIRECTORY is where the configuration and the results are written

nvchecker has no option for the AUR's address: `nvchecker_source.aur.AUR_URL` is a constant. It is replaced here
before nvchecker runs; nothing else of it is touched, so that the requests are its own.
"""

import json
import os
import sys

import nvchecker.__main__
import nvchecker_source.aur


def main():
    port, cases_path, directory = sys.argv[1:]
    directory = os.path.abspath(directory)  # nvchecker takes paths as relative to the configuration
    with open(cases_path, encoding="utf-8") as file:
        packages = json.load(file)["info"]  # 200: two batches of 100, the size that nvchecker asks for
    old, new = os.path.join(directory, "old.json"), os.path.join(directory, "new.json")
    for path in (old, new):
        if os.path.exists(path):
            os.remove(path)
    lines = ["[__config__]", f"oldver = {json.dumps(old)}", f"newver = {json.dumps(new)}"]
    for package in packages:
        lines += [f"[{json.dumps(package['Name'])}]", 'source = "aur"']
    lines += ['["renamed"]', 'source = "aur"', f"aur = {json.dumps(packages[0]['Name'])}", "strip_release = true"]
    lines += ['["missing"]', 'source = "aur"', 'aur = "zzqqxx-nothing"']
    config = os.path.join(directory, "nvchecker.toml")
    with open(config, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")

    nvchecker_source.aur.AUR_URL = f"http://127.0.0.1:{port}/rpc/"
    sys.argv = ["nvchecker", "--logger", "pretty", "--file", config]
    status = nvchecker.__main__.main()
    assert not status, f"nvchecker ended with {status}"

    with open(new, encoding="utf-8") as file:
        data = json.load(file)["data"]
    found = {name: entry["version"] for name, entry in data.items()}
    expected = {package["Name"]: package["Version"] for package in packages}
    expected["renamed"] = packages[0]["Version"].rpartition("-")[0] or packages[0]["Version"]
    wrong = {name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)}
    assert not wrong, f"{len(wrong)} differ, such as {[(name, found.get(name), expected.get(name)) for name in sorted(wrong)[:3]]}"
    print(f"nvchecker: {len(found)} versions")


if __name__ == "__main__":
    main()
