"""The nodes of a real Kafka: their ports, their folders and their settings."""

from __future__ import annotations

import dataclasses

import pytest

from producer_core.brokers import layout
from producer_core.errors import BrokerError


def test_each_node_has_its_own_ports_and_folder(tmp_path):
    nodes = layout.plan(3, tmp_path)
    ports = [port for node in nodes for port in (node.port, node.direct_port, node.controller_port)]

    assert len(set(ports)) == 9
    assert [node.number for node in nodes] == [1, 2, 3]
    assert [node.folder.name for node in nodes] == ["node-1", "node-2", "node-3"]


def test_the_address_is_the_listener_unless_a_proxy_is_advertised(tmp_path):
    (node,) = layout.plan(1, tmp_path)
    proxied = dataclasses.replace(node, advertised="127.0.0.1:5")

    assert node.address == node.listens == f"127.0.0.1:{node.port}"
    assert (proxied.address, proxied.listens) == ("127.0.0.1:5", node.listens)


@pytest.mark.parametrize(
    ("count", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_three_nodes_have_three_replicas_and_two_in_sync(tmp_path, count, replicas, in_sync):
    nodes = layout.plan(count, tmp_path)
    found = layout.settings(nodes[0], nodes, auto_create=False)

    assert (found["default.replication.factor"], found["min.insync.replicas"]) == (replicas, in_sync)
    assert found["controller.quorum.voters"].count("@") == count
    assert found["auto.create.topics.enable"] == "false"


def test_settings_are_written_for_the_owner_only(tmp_path):
    (node,) = layout.plan(1, tmp_path)

    layout.write(node, {"node.id": "1"})

    assert "node.id=1\n" in node.settings_file.read_text()
    assert node.settings_file.stat().st_mode & 0o077 == 0


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").touch()
    (node,) = layout.plan(1, tmp_path / "file")

    with pytest.raises(BrokerError, match="cannot be created"):
        layout.write(node, {})
