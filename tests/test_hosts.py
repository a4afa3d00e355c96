"""Runs in two processes of two devices each, which these tests start themselves."""

import csv
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers import TRAIN

import icl_krr as ik
from icl_krr.cli import _hosts, main
from icl_krr.cli._program import parse
from icl_krr.training import _checkpoint

TIMEOUT = 4
RUN = """
import os, pathlib, signal, sys
from icl_krr.cli import _hosts, console
from icl_krr.training import _checkpoint
_hosts.TIMEOUT, kill = int(sys.argv.pop(1)), sys.argv.pop(1) == "dies"
write = pathlib.Path.write_bytes
def write_in_process_0(path, content):
    assert os.environ["SLURM_PROCID"] == "0", f"process 1 writes {path}"
    return write(path, content)
pathlib.Path.write_bytes = write_in_process_0
save = _checkpoint.save
def save_and_stop(*arguments):
    save(*arguments)
    if kill and os.environ["SLURM_PROCID"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
_checkpoint.save = save_and_stop
console()
"""


def start(folder, *options, second="lives", only_second=()):
    """Both processes, as SLURM would start them; kill the second one after a checkpoint or not."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", RUN, str(TIMEOUT), second, *TRAIN, folder]
    slurm = {"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    return [
        subprocess.Popen(
            [*command, "--hosts", "auto", *options, *(only_second if i else ())],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **slurm,
                "JAX_COORDINATOR_PORT": str(port),
                "SLURM_PROCID": str(i),
                "SLURM_LOCALID": str(i),
                "XLA_FLAGS": flags,
            },
        )
        for i in (0, 1)
    ]


def end(processes, seconds=60):
    """What they print, and their exit statuses; none is left, whatever happens."""
    try:
        printed = [process.communicate(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return printed, [process.returncode for process in processes]


def curve(folder):
    """Loss and validation error of every row, and nothing that depends on the machine."""
    with (folder / "metrics.csv").open() as file:
        rows = [(row["step"], row["loss"], row["validation"]) for row in csv.DictReader(file)]
    return np.array(rows, float)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that others must equal: one process, one device, no interruption."""
    folder = tmp_path_factory.mktemp("whole")
    assert main([*TRAIN, str(folder)]) == 0
    return curve(folder)


@pytest.mark.slow
def test_two_processes_continue_a_run_of_one(tmp_path, whole, monkeypatch):
    """From its first checkpoint, with the same losses; process 0 alone prints and writes."""
    save = _checkpoint.save

    def save_and_stop(*arguments):
        save(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_checkpoint, "save", save_and_stop)
        assert main([*TRAIN, str(tmp_path)]) == 130
    before = (tmp_path / "metrics.csv").read_text()
    printed, statuses = end(start(tmp_path, "--json"))
    assert statuses == [0, 0], printed
    assert (tmp_path / "metrics.csv").read_text().startswith(before)  # with the times of its steps
    np.testing.assert_allclose(curve(tmp_path), whole, rtol=1e-6)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"checkpoint.msgpack", "metrics.csv", "model.msgpack", "meta.json"} <= names
    record = json.loads(printed[0][0])
    assert (record["meta"]["mesh"], record["meta"]["processes"]) == ({"tasks": 4}, 2)
    assert not printed[1][0]
    assert "wrote" in printed[0][1]
    assert "wrote" not in printed[1][1]


@pytest.mark.slow
def test_a_killed_process_ends_the_other_and_one_device_continues(tmp_path, whole, capsys):
    processes = start(tmp_path, second="dies")
    try:
        processes[1].wait(60)
    except BaseException:
        end(processes, 0)
        raise
    killed = time.monotonic()
    printed, statuses = end(processes)
    assert time.monotonic() - killed < TIMEOUT + 6
    assert statuses[0] != 0, printed
    assert statuses[1] == -signal.SIGKILL
    assert len(curve(tmp_path)) == 2
    before = (tmp_path / "metrics.csv").read_text()
    command = [*TRAIN, str(tmp_path)]
    assert main([*command, "--training.batch", "6"]) == 2
    assert "training.batch: stored 5, given 6" in capsys.readouterr().err
    assert main([*command, "--mesh", "tasks=1"]) == 0
    assert (tmp_path / "metrics.csv").read_text().startswith(before)
    np.testing.assert_allclose(curve(tmp_path), whole, rtol=1e-6)


@pytest.mark.slow
def test_processes_with_different_settings_are_refused(tmp_path):
    printed, statuses = end(start(tmp_path, only_second=("--training.clip", "2")))
    assert statuses == [2, 2], printed
    message = "settings must be the same in all processes, got different ones in process 1"
    assert message in printed[0][1]
    assert not [*tmp_path.iterdir()]


def test_the_stated_time_is_that_of_the_program():
    assert f"not heard of for {_hosts.TIMEOUT} seconds" in " ".join(ik.training.__doc__.split())
    assert _hosts.TIMEOUT <= 30


MESH = "mesh must be tasks=SIZE with SIZE >= 1, such as tasks=8, got "


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *((["--mesh", mesh], MESH + repr(mesh)) for mesh in ("tasks", "tasks=0", "task=2")),
        (["--mesh", "tasks=9999"], "mesh must have a size <= 1, the number of devices"),
        *((["--hosts", _hosts], "hosts must be auto or") for _hosts in ("10.0.0.1:1234", "a,2,0")),
        *((["--hosts", f"a:1,{ids}"], "hosts must have an ID from 0") for ids in ("0,0", "2,2")),
        (["--hosts", "auto"], "hosts must name processes that JAX can connect, got 'auto'"),
    ],
)
@pytest.mark.parametrize("command", [["train"], ["sweep", "width"]])
def test_devices_that_do_not_fit_are_refused(command, options, message, capsys, tmp_path):
    assert main([*command, *options, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


CLUSTERS = Path(ik.training.__file__).parent / "clusters"


def test_the_job_of_slurm_is_understood(tmp_path):
    script = CLUSTERS / "slurm.sbatch"
    subprocess.run(["bash", "-n", script], check=True)
    (line,) = (line for line in script.read_text().splitlines() if line.startswith("    icl-krr"))
    settings = parse(shlex.split(line)[1:])
    assert settings.devices.hosts == "auto"


def test_the_jobset_of_kubernetes_is_understood():
    account, role, _, jobs = yaml.safe_load_all((CLUSTERS / "jobset.yaml").read_text())
    (workers,) = jobs["spec"]["replicatedJobs"]
    job = workers["template"]["spec"]
    pod = job["template"]["spec"]
    (main_container,) = pod["containers"]
    settings = parse([*main_container["command"], *main_container["args"]][1:])
    assert settings.devices.hosts == "auto"
    assert job["parallelism"] == job["completions"]
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert {name for rule in role["rules"] for name in rule["resources"]} >= {"pods", "jobs"}
    mounted = main_container["volumeMounts"][0]["mountPath"]
    assert str(settings.out).startswith(mounted)
