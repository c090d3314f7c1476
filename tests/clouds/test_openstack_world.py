"""What real Nova does, as the cloud in memory (tests/clouds/memory) and the planner of clouds/recreate rely on it.

    OPENSTACK_TEMPLATE=FOLDER python -m unittest test_openstack_world
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import openstack
import openstack_world as world

NOVA = {"OpenStack-API-Version": "compute 2.100"}


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Nova(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="openstack-"))
        cls.processes = []
        cls.addClassCleanup(cls.end)
        ports = dict(zip(world.SERVICES, free_ports(len(world.SERVICES))))
        world.clone(Path(os.environ["OPENSTACK_TEMPLATE"]).resolve(), cls.folder, *ports.values())
        for services in (world.SERVICES[:-1], world.SERVICES[-1:]):
            for service in services:
                command = [sys.executable, "-W", "ignore", world.__file__, "serve", str(cls.folder), service]
                with (cls.folder / "log" / f"{service}.out").open("w") as log:
                    cls.processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
            for service in services:
                cls.until(lambda service=service: world.answers(ports[service]), f"{service} answers", 60)
        cls.session = openstack.connect(**world.auth(ports)).session
        cls.flavor = cls.nova("POST", "/flavors", {"flavor": {"name": "small", "ram": 64, "vcpus": 1, "disk": 1}})["flavor"]["id"]
        cloud = openstack.connect(**world.auth(ports, "demo"))
        cls.session, cls.network = cloud.session, cloud.network
        image = cloud.image.create_image("base", disk_format="raw", container_format="bare", data=b"\0" * 4096, wait=True)
        cls.image, cls.images = image.id, cloud.image
        cls.net = cls.network.create_network(name="demo-openshift").id
        cls.network.create_subnet(network_id=cls.net, ip_version=4, cidr="10.0.0.0/24", name="demo-nodes")

    @classmethod
    def end(cls):
        for process in cls.processes:
            process.kill()
            process.wait()
        shutil.rmtree(cls.folder, ignore_errors=True)

    @classmethod
    def nova(cls, method, path, body=None, status=None):
        filters = {"service_type": "compute", "region_name": "R1"}
        answer = cls.session.request(path, method, json=body, headers=NOVA, endpoint_filter=filters, raise_exc=False)
        if status is None:
            assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
        else:
            assert answer.status_code == status, f"{method} {path}: {answer.status_code}, not {status}: {answer.text}"
        return answer.json() if answer.text else {}

    @staticmethod
    def until(condition, what, seconds=30):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s: {what}"
            time.sleep(0.1)

    def knobs(self, **knobs):
        (self.folder / "knobs.json").write_text(json.dumps(knobs))
        self.addCleanup((self.folder / "knobs.json").unlink, missing_ok=True)

    def server(self, name, port, **more):
        server = {"name": name, "imageRef": self.image, "flavorRef": self.flavor, "networks": [{"port": port}], **more}
        return self.nova("POST", "/servers", {"server": server})["server"]["id"]

    def status(self, server):
        found = self.nova("GET", f"/servers/{server}")["server"]
        return found["status"], found["OS-EXT-STS:task_state"]

    def reaches(self, server, status):
        self.until(lambda: self.status(server) == (status, None), f"{server} is {status}")

    def act(self, server, action, status=None, **fields):
        return self.nova("POST", f"/servers/{server}/action", {action: fields or None}, status)

    def running(self, name, **more):
        port = self.network.create_port(network_id=self.net, name=f"{name}-port").id
        server = self.server(name, port, **more)
        self.reaches(server, "ACTIVE")
        return server, port

    def test_of_two_creates_at_once_the_loser_unbinds_the_ports_of_the_winner(self):
        port = self.network.create_port(network_id=self.net, name="twins").id
        self.knobs(spawn_s=1)
        servers = [self.server("twins", port) for _ in range(2)]
        self.until(lambda: {self.status(server)[0] for server in servers} == {"ACTIVE", "ERROR"}, "one is ACTIVE, one in ERROR")
        self.until(lambda: self.network.get_port(port).device_id == "", "its port is unbound")
        winner = next(server for server in servers if self.status(server)[0] == "ACTIVE")
        self.nova("DELETE", f"/servers/{winner}/os-interface/{port}")
        self.until(lambda: not self.nova("GET", f"/servers/{winner}/os-interface")["interfaceAttachments"], "it is detached")
        self.nova("POST", f"/servers/{winner}/os-interface", {"interfaceAttachment": {"port_id": port}})
        self.until(lambda: self.network.get_port(port).device_id == winner, "its port is bound again")

    def test_a_port_that_is_bound_refuses_another_server(self):
        _, port = self.running("bound")
        body = {"server": {"name": "bound", "imageRef": self.image, "flavorRef": self.flavor, "networks": [{"port": port}]}}
        self.nova("POST", "/servers", body, 409)

    def test_an_image_has_its_properties_at_once_and_its_server_can_go_nowhere(self):
        server, _ = self.running("imaged")
        self.act(server, "pause")
        self.reaches(server, "PAUSED")
        self.knobs(snapshot_s=2)
        image = self.act(server, "createImage", name="imaged", metadata={"hibernate_cycle": "c1"})["image_id"]
        self.assertEqual(self.images.get_image(image).properties["hibernate_cycle"], "c1")
        self.assertTrue(self.status(server)[1].startswith("image_"))
        self.act(server, "createImage", 409, name="again")
        self.act(server, "unpause", 409)
        self.until(lambda: self.images.get_image(image).status == "active", "the image is active")
        self.reaches(server, "PAUSED")

    def test_what_is_off_or_locked_can_be_imaged_but_not_paused(self):
        server, _ = self.running("locked")
        self.act(server, "os-stop")
        self.reaches(server, "SHUTOFF")
        self.act(server, "pause", 409)
        self.act(server, "lock")
        image = self.act(server, "createImage", name="locked")["image_id"]
        self.until(lambda: self.images.get_image(image).status == "active", "the image is active")
        self.nova("DELETE", f"/servers/{server}", status=409)

    def test_keys_of_metadata_have_no_slash(self):
        server, _ = self.running("marked", metadata={"hibernate.sh:cycle": "c1"})
        self.nova("POST", f"/servers/{server}/metadata", {"metadata": {"hibernate.sh/cycle": "c1"}}, 400)

    def test_a_port_survives_its_server(self):
        server, port = self.running("gone")
        self.nova("DELETE", f"/servers/{server}")
        self.until(lambda: self.network.get_port(port).device_id == "", "the port is free")
        again = self.server("gone", port)
        self.reaches(again, "ACTIVE")


if __name__ == "__main__":
    unittest.main()
