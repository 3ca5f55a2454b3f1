import os
import subprocess
import sys
import time

import pytest

from measure_jobs import job
from scalewise.errors import ScalewiseError
from scalewise.measure import shaped
from scalewise.measure.launch import LaunchError
from scalewise.measure.launch_shaped import ShapedLauncher
from scalewise.measure.launch_spec import LaunchSpec, PlannedJob
from scalewise.measure.shaped import pretend_nodes
from scalewise.records.files import read_records
from scalewise.records.links import ShapedLinks
from waiting import NEEDS, PATIENCE, path_of

SLOW = ShapedLinks(ranks_per_node=1, bandwidth=1.25e6)

RECEIVE = """
import socket
server = socket.create_server(("", 5000))
print("ready", flush=True)
peer = server.accept()[0]
count = 0
while data := peer.recv(1 << 16):
    count += len(data)
print(count, flush=True)
"""

SEND = """
import socket, sys
socket.create_connection((sys.argv[1], 5000)).sendall(bytes(2_000_000))
"""


@pytest.fixture
def rooted():
    path_of("links")
    if os.geteuid() != 0:
        pytest.skip(f"{NEEDS}root")


def namespaces():
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if line.startswith(shaped.PREFIX)]


@pytest.mark.usefixtures("rooted")
@pytest.mark.parametrize(("sender", "receiver"), [(1, 0), (0, 1)])
def test_links_are_as_slow_as_they_should_be(sender, receiver):
    with pretend_nodes(SLOW, ranks=2) as nodes:
        server = subprocess.Popen([*nodes[receiver].command, sys.executable, "-c", RECEIVE],
                                  stdout=subprocess.PIPE, text=True)  # fmt: skip
        assert server.stdout.readline() == "ready\n"
        began = time.monotonic()
        subprocess.run([*nodes[sender].command, sys.executable, "-c", SEND,
                        nodes[receiver].address], check=True, timeout=PATIENCE)  # fmt: skip
        count, _ = server.communicate(timeout=PATIENCE)
        # A busy machine takes longer, never less: both buckets let 256 KiB through at once.
        assert time.monotonic() - began > (2e6 - 2 * shaped.BURST_BYTES) / 1.25e6
        assert count == "2000000\n"


@pytest.mark.usefixtures("rooted")
def test_nothing_is_left_behind_and_what_a_killed_run_left_goes():
    ended = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True)
    stale = f"{shaped.PREFIX}{ended.stdout.strip()}-0"
    subprocess.run(["ip", "netns", "add", stale], check=True)
    with pretend_nodes(ShapedLinks(ranks_per_node=2, bandwidth=1e8), ranks=4) as nodes:
        assert [node.address for node in nodes] == ["10.213.7.1", "10.213.7.2"]
        assert stale not in namespaces()
        inside = f"{shaped.PREFIX}{os.getpid()}-"
        assert sum(each.startswith(inside) for each in namespaces()) == 3
    assert not any(each.startswith(inside) for each in namespaces())


def test_without_the_tools_the_reason_is_named(monkeypatch):
    monkeypatch.setattr(shaped, "can_shape", lambda: False)
    with (
        pytest.raises(ScalewiseError, match="pretend nodes need Linux, root, ip and tc"),
        pretend_nodes(SLOW, ranks=2),
    ):
        pass


@pytest.mark.usefixtures("rooted")
def test_ranks_train_over_the_links_and_a_failure_names_its_rank(tmp_path):
    pytest.importorskip("torch")
    file = tmp_path / "train.jsonl"
    links = ShapedLinks(ranks_per_node=1, bandwidth=1.25e7)
    planned = [PlannedJob(job=job("fsdp2-mb4"), id="one")]
    spec = LaunchSpec(planned=planned, records=str(file), device="cpu", threads=1, links=links)
    ShapedLauncher(timeout=PATIENCE, logs=tmp_path).run(spec)
    (made,) = read_records(file).records
    assert made.environment.links == links
    assert (made.environment.ranks, made.environment.ranks_per_node) == (2, 1)
    # FSDP sends at least one all-gather and one reduce-scatter of half of the weights.
    sent = 2 * 4 * made.results["parameters_per_rank"]
    fastest = min(made.results["step_seconds"])
    assert fastest > max(sent - 2 * shaped.BURST_BYTES, 0.0) / links.bandwidth
    folder = tmp_path / "none"
    folder.write_text("a file in place of the folder of records")
    bad = LaunchSpec(planned=planned, records=str(folder / "train.jsonl"), device="cpu",
                     threads=1, links=links)  # fmt: skip
    with pytest.raises(LaunchError, match=r"rank 0 failed: .*(Not a directory|none)"):
        ShapedLauncher(timeout=PATIENCE, logs=tmp_path).run(bad)
