"""The decks are legal, and README.md says what the program says."""

import re
import tomllib
from pathlib import Path

import h5py

import support

README = support.SOURCE / "README.md"
FOLDERS = ("app", "core", "data", "inputs", "jobs", "schedules", "unit_tests", "cmake", ".ci")


def readme():
    assert README.exists(), "README.md is missing"
    return README.read_text()


def between(name):
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", readme(), re.DOTALL)
    assert found, f"README.md has no part between <!-- {name} --> and <!-- /{name} -->"
    return found.group(1)


def stages_of(deck, text):
    """The stages a deck says: parallel.stages, the mpirun line of its comments, or else several."""
    said = deck.get("parallel", {}).get("stages", 0)
    command = re.search(r"mpi(?:run|exec) -n (\d+)", text)
    if said:
        return [said]
    return [int(command.group(1))] if command else [1, 2, 4]


def test_decks():
    decks = sorted((support.SOURCE / "inputs").rglob("*.toml"))
    assert decks, "no decks in inputs/"
    for deck in decks:
        text = deck.read_text()
        for stages in stages_of(tomllib.loads(text), text):
            checked = support.run(1, "check", deck, "--stages", stages)
            support.assert_contains(checked.output, "legal: every rule of the schedule holds", f"{stages} stages")


def test_deck_table():
    told = support.run(1, "--help-deck-markdown").output
    told = told[told.index("###") :]  # after warnings of Kokkos, if any
    table = between("deck")
    missing = [line for line in told.strip().splitlines() if line.strip() and line not in table]
    assert not missing, "README.md lacks these lines of minipipe --help-deck-markdown:\n" + "\n".join(missing)
    assert table.strip() == told.strip(), "README.md's deck table is not the output of minipipe --help-deck-markdown"


def tensor_names():
    support.train(1, "tensors", {"run.steps": 2})
    (file,) = support.checkpoints("tensors")
    with h5py.File(file) as data:
        return {re.sub(r"\.h\.\d+\.", ".h.<i>.", name) for name in data["model"]}


def test_tensor_table():
    told = set(re.findall(r"^\| *`([^`]+)`", between("tensors"), re.MULTILINE))
    names = tensor_names()
    assert told == names, f"only in README.md: {sorted(told - names)}; only in a checkpoint: {sorted(names - told)}"


def test_paths():
    folders = "|".join(re.escape(folder) for folder in FOLDERS)
    named = set(re.findall(rf"(?<![\w/.$-])((?:{folders})/[\w./<>{{}},*-]+)", readme()))
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", readme())
    linked = {link for link in links if "://" not in link and not link.startswith("mailto:")}
    missing = []
    for path in sorted(named | linked):
        path = path.rstrip(".,-")
        if re.search(r"[<>{}]", path) or path.startswith("data/sample"):
            continue  # placeholders, and what jobs/setup.sh makes
        if not (list(support.SOURCE.glob(path)) if "*" in path else Path(support.SOURCE, path).exists()):
            missing.append(path)
    assert not missing, f"README.md names what is not there: {missing}"
    assert any(path.startswith("jobs/") for path in named), "README.md names no script in jobs/"


if __name__ == "__main__":
    support.main([test_decks, test_deck_table, test_tensor_table, test_paths])
