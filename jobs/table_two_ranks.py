#!/usr/bin/python3
"""The table of jobs/two-ranks.sh, and table.json.

usage: table_two_ranks.py DIR      (with the folders NAME-M-ROUND)
"""
import json
import pathlib
import re
import statistics
import sys


def rate(folder):
    summary = json.loads((folder / "summary.json").read_text())
    return summary.get("schedule_tokens_per_s") or summary["tokens_per_s"]


def rates(folder):
    """name -> {m: [tokens per second of each round]}"""
    found = {}
    for run in sorted(folder.iterdir()):
        name = re.fullmatch(r"(one|1f1b|paci|job0|job1)-(\d+)-\d+", run.name)
        if name and (run / "summary.json").is_file():
            found.setdefault(name[1], {}).setdefault(int(name[2]), []).append(rate(run))
    return found


def main():
    folder = pathlib.Path(sys.argv[1])
    found = rates(folder)
    if set(found) != {"one", "1f1b", "paci", "job0", "job1"}:
        sys.exit(f"error: {folder} has not the runs of jobs/two-ranks.sh; run it first")
    rows = []
    for m in sorted(found["one"]):
        one, flush, paci = (statistics.median(found[name][m]) for name in ("one", "1f1b", "paci"))
        two_jobs = statistics.median(a + b for a, b in zip(found["job0"][m], found["job1"][m]))
        by_model = 2 * m / (m + 1)
        rows.append({"m": m, "one_rank_tokens_per_s": one, "1f1b_over_one": flush / one, "1f1b_by_model": by_model,
                     "two_jobs_over_one": two_jobs / one,
                     "paci_over_one": paci / one, "paci_over_two_jobs": paci / two_jobs,
                     "1f1b_over_two_jobs": flush / two_jobs, "1f1b_over_two_jobs_by_model": m / (m + 1),
                     "paci_over_1f1b": paci / flush, "paci_over_1f1b_by_model": 2 / by_model,
                     "spread": max((max(v) - min(v)) / statistics.median(v) for v in (found[n][m] for n in found))})
    print("  m  one rank  1f1b/one  2m/(m+1)  differs  PACI/one  PACI/1f1b  (m+1)/m  differs    two jobs  PACI/jobs  1f1b/jobs  m/(m+1)  spread")
    print("     tokens/s                           %                                    %         /one                                     %")
    for row in rows:
        differs = [100 * (row[a] / row[b] - 1)
                   for a, b in (("1f1b_over_one", "1f1b_by_model"), ("paci_over_1f1b", "paci_over_1f1b_by_model"))]
        print(f"{row['m']:3d}{row['one_rank_tokens_per_s']:10.0f}{row['1f1b_over_one']:10.3f}{row['1f1b_by_model']:10.3f}"
              f"{differs[0]:+9.1f}{row['paci_over_one']:10.3f}{row['paci_over_1f1b']:11.3f}"
              f"{row['paci_over_1f1b_by_model']:9.3f}{differs[1]:+9.1f}{row['two_jobs_over_one']:12.3f}"
              f"{row['paci_over_two_jobs']:11.3f}{row['1f1b_over_two_jobs']:11.3f}{row['1f1b_over_two_jobs_by_model']:9.3f}"
              f"{100 * row['spread']:8.1f}")
    (folder / "table.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
