"""The batch scripts without a batch system: syntax, the Flux and PBS scripts under stand-ins for flux, qsub and qstat, and wrong
settings, each named with its remedy. jobs/test-slurm.sh tests the Slurm scripts against a real Slurm."""

import os
import shutil
import subprocess
from pathlib import Path

import support

JOBS = support.SOURCE / "jobs"
STEPS = {"run.steps": 300, "train.microbatches": 16, "checkpoint.interval": 0, "output.evaluation_interval": 50}

FLUX = r"""#!/usr/bin/env bash
# flux job timeleft; flux run -n N COMMAND...; flux --parent batch ... (written down, one argument a line)
case "$1 $2" in
  "job timeleft") [ "$FAKE_TIME_LEFT" = infinity ] && echo infinity || echo "$FAKE_TIME_LEFT.5" ;;
  "run -n") n=$3; shift 3; exec mpiexec -n "$n" "$@" ;;
  "--parent batch") shift 2; printf '%s\n' "$@" > submitted; echo f23 ;;
  *) echo "flux: what is $*?" >&2; exit 1 ;;
esac
"""
QSUB = r"""#!/usr/bin/env bash
printf '%s\n' "$@" > submitted
echo "MINIPIPE_DECK=$MINIPIPE_DECK" >> submitted
"""
# A line that qstat breaks, as it does with long ones.
QSTAT = r"""#!/usr/bin/env bash
[ "$1 $2" = "-f 17.server" ] || exit 1
printf 'Job Id: 17.server\n    Job_Name = minipipe\n    queue = day\n    Resource_List.select = 1:ncpus=2:\n\tmpiprocs=2\n'
printf '    Resource_List.walltime = 00:00:%02d\n    resources_used.walltime = 00:00:01\n' $((FAKE_TIME_LEFT + 1))
"""


def write_programs(folder, **programs):
    Path(folder).mkdir(exist_ok=True)
    for name, text in programs.items():
        file = Path(folder, name)
        file.write_text(text)
        file.chmod(0o755)
    return str(Path(folder).resolve())


def start(name, *arguments, programs, **environment):
    """Runs a batch script here, as if it had been submitted from this folder: (status, output)."""
    changes = {"MINIPIPE": support.MINIPIPE, "MINIPIPE_ROOT": str(support.SOURCE), "MINIPIPE_MARGIN": "0",
               # Twice this mpirun lingers after ranks that stop with status 75.
               "OMPI_MCA_odls_base_sigkill_timeout": "1",
               "PATH": f"{Path(programs).resolve()}:{os.environ['PATH']}", **environment}
    done = subprocess.run(["bash", JOBS / name, *arguments], env={**os.environ, **changes}, text=True, timeout=200, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def script(*arguments, status=0, **options):
    """The same with a status to be asserted; the output."""
    found, told = start(*arguments, **options)
    assert found == status, f"{arguments}: status {found}, wanted {status}\n{told}"
    return told


def until_done(out, resubmission, *arguments, **options):
    """Starts the job until it is done, twice with one second left of its time; what it submits in between is `resubmission`."""
    summary = Path(out, "summary.json")
    for starts in range(1, 4):
        Path("submitted").unlink(missing_ok=True)
        status, told = start(*arguments, FAKE_TIME_LEFT="1" if starts < 3 else "600", **options)
        if status == 0:
            assert '"done":true' in summary.read_text() and not Path("submitted").exists(), told
            assert starts > 1, "never stopped by its time limit: the test needs more updates"
            return told
        assert status == 75, told
        assert '"done":false' in summary.read_text()
        support.assert_contains(told, "stopped early with a checkpoint: submitted again", "rank 1 on")
        assert Path("submitted").read_text().splitlines() == resubmission
    raise AssertionError(f"the job is not done after {starts} starts:\n{told}")


def whole():
    if not Path("whole").exists():
        support.train(2, "whole", STEPS)
    return "whole"


def test_syntax():
    scripts = sorted(JOBS.rglob("*.sh")) + sorted(JOBS.rglob("*.sbatch"))
    assert len(scripts) > 20
    for file in scripts:
        subprocess.run(["bash", "-n", file], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "-x", "-P", "SCRIPTDIR", "-P", support.SOURCE, "-S", "warning", *scripts], check=True)


def test_flux():
    programs = write_programs("flux", flux=FLUX)
    first, *rest = support.overrides({**STEPS, "output.directory": "flux_out"})
    # The arguments once, those of the variable among them.
    resubmission = ["--nslots=2", "--time-limit=1m", str(JOBS / "flux/train.sh"), "deck.toml", first, *rest]
    told = until_done("flux_out", resubmission, "flux/train.sh", "deck.toml", *rest, programs=programs, MINIPIPE_ARGUMENTS=first,
                      MINIPIPE_BATCH_OPTIONS="--nslots=2 --time-limit=1m")
    support.assert_contains(told, "launcher flux, 2 ranks")
    support.assert_same_trace(whole(), "flux_out")


def test_flux_without_a_time_limit():
    programs = write_programs("flux", flux=FLUX)
    script("flux/train.sh", "deck.toml", "run.steps=2", "output.directory=endless", programs=programs, FAKE_TIME_LEFT="infinity")
    assert support.summary("endless")["done"] is True


def test_more_updates():
    """A run that was done goes on where more updates are asked for."""
    programs = write_programs("flux", flux=FLUX)
    for steps, told in ((2, "launcher flux"), (2, "more: done already"), (4, "2 updates done")):
        output = script("flux/train.sh", "deck.toml", f"run.steps={steps}", "output.directory=more", programs=programs, FAKE_TIME_LEFT="600")
        support.assert_contains(output, told)
        assert support.summary("more")["steps"] == steps


def test_keys_of_the_user():
    """A key that the script would give, too."""
    programs = write_programs("flux", flux=FLUX)
    told = script("flux/train.sh", "deck.toml", "run.steps=2", "output.directory=own", "run.time_limit=50", "output.progress=none", programs=programs,
                  FAKE_TIME_LEFT="600")
    assert " step 1/2 " not in told, told
    told = script("flux/train.sh", "deck.toml", "output.directory=own2", "run.resume=own", status=1, programs=programs, FAKE_TIME_LEFT="600")
    support.assert_contains(told, "error: run.resume: batch jobs go on from the newest checkpoint", "leave it out")


def test_outside_of_the_batch_system():
    for name, told in (("slurm/train.sbatch", "no Slurm job: sbatch jobs/"), ("slurm/sweep.sbatch", "no Slurm job: sbatch --array"),
                       ("pbs/train.sh", "no PBS job: qsub")):
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "PBS"))}
        done = subprocess.run(["bash", JOBS / name, "deck.toml"], env={**environment, "MINIPIPE": support.MINIPIPE}, cwd=support.SOURCE, text=True,
                              timeout=60, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 1, done.stdout
        support.assert_contains(done.stdout, told)


def test_without_home():
    programs = write_programs("flux", flux=FLUX)
    home = os.environ.pop("HOME", None)
    try:
        script("flux/train.sh", "deck.toml", "run.steps=2", "output.directory=homeless", programs=programs, FAKE_TIME_LEFT="600")
    finally:
        if home is not None:
            os.environ["HOME"] = home
    assert support.summary("homeless")["done"] is True


def test_pbs():
    programs = write_programs("pbs", qsub=QSUB, qstat=QSTAT)
    Path("nodes").write_text("node\nnode\n")
    resubmission = ["-V", "-l", "select=1:ncpus=2:mpiprocs=2", "-l", "walltime=00:00:02", "-q", "day", str(JOBS / "pbs/train.sh"),
                    "MINIPIPE_DECK=deck.toml"]
    told = until_done("pbs_out", resubmission, "pbs/train.sh", programs=programs, PBS_JOBID="17.server", PBS_NODEFILE="nodes",
                      PBS_O_WORKDIR=os.getcwd(), MINIPIPE_DECK="deck.toml",
                      MINIPIPE_ARGUMENTS=" ".join(support.overrides({**STEPS, "output.directory": "pbs_out"})))
    support.assert_contains(told, "job 17.server", "launcher mpirun, 2 ranks")
    support.assert_same_trace(whole(), "pbs_out")


def test_wrong_settings():
    programs = write_programs("flux", flux=FLUX)
    module = {"BASH_FUNC_module%%": '() { case "$1" in load) case "$2" in gcc/*) ;; *) echo "no $2" >&2; return 1 ;; esac ;; *) echo gcc/12 ;; esac; }'}
    refused = (
        ({"MINIPIPE_MODULES": "nosuch/1.0"}, "MINIPIPE_MODULES names nosuch/1.0, but there is no module command", "MINIPIPE_MACHINE"),
        ({"MINIPIPE_MODULES": "gcc/12 nosuch/1.0", **module}, "module nosuch/1.0 cannot be loaded; 'module avail nosuch' shows", "set MINIPIPE_MODULES"),
        ({"MINIPIPE_MACHINE": "nosuchfile"}, "MINIPIPE_MACHINE=nosuchfile cannot be read; name a file such as jobs/machines/"),
        ({"MINIPIPE_LAUNCHER": "nosuchlauncher"}, "MINIPIPE_LAUNCHER=nosuchlauncher is not on PATH", "choose srun, mpirun or flux"),
        ({"MINIPIPE": "nosuchprogram"}, "no program at nosuchprogram; build it", "or set MINIPIPE"),
        ({"FAKE_TIME_LEFT": "30", "MINIPIPE_MARGIN": "60"}, "30 s of wall time are left, not more than MINIPIPE_MARGIN=60 s", "lower MINIPIPE_MARGIN"),
    )
    for environment, *texts in refused:
        told = script("flux/train.sh", "deck.toml", "output.directory=wrong", status=1, programs=programs, **{"FAKE_TIME_LEFT": "600", **environment})
        support.assert_contains(told, *texts)
    support.assert_contains(script("flux/train.sh", status=1, programs=programs), "no deck: flux batch jobs/flux/train.sh DECK, or set MINIPIPE_DECK")
    told = script("flux/train.sh", "deck.toml", "train.microbatch=3", status=2, programs=programs, FAKE_TIME_LEFT="600")
    support.assert_contains(told, "did you mean train.microbatches?")
    told = script("flux/train.sh", "deck.toml", status=2, programs=programs, MINIPIPE_ROOT=os.getcwd())
    support.assert_contains(told, "is not a checkout of minipipe; submit from one, or set MINIPIPE_ROOT")
    assert not Path("wrong").exists()


def test_modules_are_logged():
    programs = write_programs("flux", flux=FLUX)
    module = {"BASH_FUNC_module%%": '() { : "$NO_SUCH_VARIABLE"; [ "$1" = load ] || echo gcc/12; }'}
    Path("site.sh").write_text('case $NO_SUCH_VARIABLE in *) export OMPI_SITE=here ;; esac\n')
    told = script("flux/train.sh", "deck.toml", "run.steps=2", "output.directory=logged", programs=programs, FAKE_TIME_LEFT="600",
                  MINIPIPE_MODULES="gcc/12", MINIPIPE_MACHINE="./site.sh", **module)
    support.assert_contains(told, "modules: gcc/12", "-- minipipe ", "MINIPIPE_MODULES=gcc/12", "OMPI_SITE=here", "OMP_NUM_THREADS=1", "rank 0 on")


def test_ranks_that_mpi_does_not_see():
    """A launcher that MPI does not understand starts N times the whole run: refused, with the remedy."""
    for name in ("PMI_SIZE", "SLURM_STEP_NUM_TASKS"):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("OMPI_COMM")}
        done = subprocess.run([support.MINIPIPE, "train", "deck.toml", "output.directory=alone"], env={**environment, name: "2"}, text=True,
                              timeout=100, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 2, done.stdout
        support.assert_contains(done.stdout, f"the launcher started 2 processes ({name}), but MPI sees each of them alone", "srun --mpi=pmix", "MINIPIPE_MPI")
    assert not Path("alone").exists()


if __name__ == "__main__":
    support.main([test_syntax, test_flux, test_flux_without_a_time_limit, test_more_updates, test_keys_of_the_user, test_outside_of_the_batch_system, test_without_home, test_pbs, test_wrong_settings, test_modules_are_logged,
                  test_ranks_that_mpi_does_not_see])
