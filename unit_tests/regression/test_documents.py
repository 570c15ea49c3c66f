"""The decks are legal, and README.md and docs/ say what the program says."""

import re
import subprocess
import tomllib
from pathlib import Path

import h5py

import support

DOCUMENTS = [support.SOURCE / "README.md", *sorted((support.SOURCE / "docs").glob("*.md"))]
FOLDERS = ("app", "core", "data", "docs", "inputs", "jobs", "schedules", "unit_tests", "cmake", ".ci")


def between(name, document):
    text = (support.SOURCE / "docs" / document).read_text()
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.DOTALL)
    assert found, f"docs/{document} has no part between <!-- {name} --> and <!-- /{name} -->"
    return found.group(1)


def anchors(document):
    """What links can name: the headings, as GitHub makes anchors of them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


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
            support.assert_contains(checked.output, "legal: every rule of the schedule holds", f", {stages} stage{'s' if stages > 1 else ''}, ")


def test_decks_say_what_each_key_is():
    for deck in sorted((support.SOURCE / "inputs").rglob("*.toml")):
        bare = [line for line in deck.read_text().splitlines() if re.match(r"[\w\".]+ *=", line) and not re.search(r"(?<=.)# *\S", line)]
        assert not bare, f"{deck}: keys without a comment: {bare}"


def test_deck_table():
    told = support.run(1, "--help-deck-markdown").output
    told = told[told.index("###") :]  # after warnings of Kokkos, if any
    table = between("deck", "deck.md")
    missing = [line for line in told.strip().splitlines() if line.strip() and line not in table]
    assert not missing, "docs/deck.md lacks these lines of minipipe --help-deck-markdown:\n" + "\n".join(missing)
    assert table.strip() == told.strip(), "docs/deck.md's deck table is not the output of minipipe --help-deck-markdown"


def tensor_names():
    support.train(1, "tensors", {"run.steps": 2})
    (file,) = support.checkpoints("tensors")
    with h5py.File(file) as data:
        return {re.sub(r"\.h\.\d+\.", ".h.<i>.", name) for name in data["model"]}


def test_tensor_table():
    told = set(re.findall(r"^\| *`([^`]+)`", between("tensors", "outputs.md"), re.MULTILINE))
    names = tensor_names()
    assert told == names, f"only in docs/outputs.md: {sorted(told - names)}; only in a checkpoint: {sorted(names - told)}"


def test_paths():
    folders = "|".join(re.escape(folder) for folder in FOLDERS)
    assert len(DOCUMENTS) > 1
    for document in DOCUMENTS:
        where = document.relative_to(support.SOURCE)
        text = document.read_text()
        named = set(re.findall(rf"(?<![\w/.$-])((?:{folders})/[\w./<>{{}},*-]+)", text))
        links = [link for link in re.findall(r"\]\(([^)\s]+)[^)]*\)", text) if "://" not in link and not link.startswith("mailto:")]
        missing = []
        for path in sorted(named):
            path = path.rstrip(".,-")
            if re.search(r"[<>{}]", path) or path.startswith("data/sample"):
                continue  # placeholders, and what jobs/setup.sh makes
            if not (list(support.SOURCE.glob(path)) if "*" in path else Path(support.SOURCE, path).exists()):
                missing.append(path)
        for link in links:  # relative to the document
            path, _, anchor = link.partition("#")
            target = (document.parent / path).resolve() if path else document
            if not target.exists() or (anchor and anchor not in anchors(target)):
                missing.append(link)
        assert not missing, f"{where} names what is not there: {missing}"
        if where.name == "README.md":
            assert any(path.startswith("jobs/") for path in named), "README.md names no script in jobs/"
            reached = {(document.parent / link.partition("#")[0]).resolve() for link in links}
            unreached = [str(other.relative_to(support.SOURCE)) for other in DOCUMENTS[1:] if other not in reached]
            assert not unreached, f"README.md does not lead to {unreached}"


def test_scripts_help():
    scripts = sorted((support.SOURCE / "jobs").glob("*.sh"))
    assert scripts, "no scripts in jobs/"
    empty = Path("help").resolve()
    empty.mkdir(exist_ok=True)
    for script in scripts:
        for option in ("--help", "-h"):
            done = subprocess.run([script, option], cwd=empty, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            assert done.returncode == 0, f"{script.name} {option}: status {done.returncode}, wanted 0\n{done.stdout}"
            support.assert_contains(done.stdout, f"jobs/{script.name}")
            comments = [line for line in done.stdout.splitlines() if line.startswith("#")]
            assert not comments, f"{script.name} {option} prints comment signs: {comments}"
        if script.name != "test.sh":  # whose arguments are those of ctest
            done = subprocess.run([script, "--no-such-option"], cwd=empty, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            assert done.returncode == 1, f"{script.name} --no-such-option: status {done.returncode}, wanted 1\n{done.stdout}"
            support.assert_contains(done.stdout, "--no-such-option")
        left = [path.name for path in empty.iterdir()]
        assert not left, f"{script.name} --help leaves {left}"


def test_options_of_scripts():
    """read_options, which scripts share."""

    script = """. "$0"; list=old number=1
        read_options "number list? no-strict!" "$@"
        printf "%s|" "$number" "$list" "${no_strict:-}" "${overrides[@]}" """

    def told(*arguments):
        done = subprocess.run(["bash", "-c", script, support.SOURCE / "jobs/lib/common.sh", *arguments], text=True, timeout=20,
                              check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    assert told() == (0, "1|old||"), told()
    every = ("a.b=c d", "--number", "2", "--list", "", "--no-strict", "x.y=[1]")
    assert told(*every) == (0, "2||--no-strict|a.b=c d|x.y=[1]|"), told(*every)
    for wrong, word in ((["--numbers", "2"], "--numbers"), (["2"], "'2'"), (["--number"], "--number needs"), (["--number", ""], "--number needs"),
                        (["--list"], "--list needs"), (["--number list?", "2"], "--number list?"), (["--a.b=c"], "--a.b=c")):
        status, text = told(*wrong)
        assert status == 1 and word in text, (wrong, status, text)


def test_no_links_in_git():
    if not (support.SOURCE / ".git").exists():
        return  # an archive, not a checkout
    told = subprocess.run(["git", "-c", f"safe.directory={support.SOURCE}", "-C", support.SOURCE, "ls-files", "-s"], text=True,
                          check=True, stdout=subprocess.PIPE).stdout
    assert told, "git knows no files"
    links = [line for line in told.splitlines() if line.startswith("120000")]
    assert not links, f"symbolic links under version control: {links}"


if __name__ == "__main__":
    support.main([test_decks, test_decks_say_what_each_key_is, test_deck_table, test_tensor_table, test_paths, test_scripts_help,
                  test_options_of_scripts, test_no_links_in_git])
