"""The simulator refuses what EC2 refuses, seen through boto3. Run by `cargo test`, or by hand with the simulator's own Python:

    python -m unittest test_ec2sim
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError

import ec2limits

HERE = Path(__file__).parent
KEY, SECRET, ACCOUNT = "AKIATESTTESTTESTTEST", "secret", "100000000009"
SECONDS = 0.5


class Simulator:
    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.log = Path(self.folder.name, "calls.jsonl")
        port_file = Path(self.folder.name, "port")
        times = [f"--{name}={SECONDS}" for name in ("start", "stop", "terminate")]
        command = [sys.executable, HERE / "ec2sim.py", "--port-file", port_file, "--log", self.log, *times]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.time() + 60
        while not port_file.exists():
            if time.time() > deadline or self.process.poll() is not None:
                raise RuntimeError("the simulator does not start")
            time.sleep(0.05)
        self.url = "http://127.0.0.1:" + port_file.read_text()
        self.world("POST", "keys", {"access_key_id": KEY, "secret_access_key": SECRET, "account": ACCOUNT})

    def world(self, method: str, path: str, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/_world/{path}", data, method=method)) as answer:
            text = answer.read().decode()
        return [json.loads(line) for line in text.splitlines()] if path == "calls" else json.loads(text)

    def client(self, key=KEY, secret=SECRET, region="us-east-1", service="ec2"):
        once = Config(retries={"total_max_attempts": 1})
        keys = {"aws_access_key_id": key, "aws_secret_access_key": secret}
        return boto3.client(service, region_name=region, endpoint_url=self.url, config=once, **keys)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


class Ec2(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sim = Simulator()
        cls.ec2 = cls.sim.client()

    @classmethod
    def tearDownClass(cls):
        cls.sim.stop()

    def setUp(self):
        self.infra = "t-" + self._testMethodName.replace("_", "-")[:40]
        self.sim.world("DELETE", "faults")
        self.sim.world("DELETE", "calls")

    def tearDown(self):
        self.sim.world("DELETE", f"instances?tag=kubernetes.io/cluster/{self.infra}")

    def make(self, count=3, **more):
        wanted = [{"name": f"m{number}", "state": "running", **more} for number in range(count)]
        body = {"account": ACCOUNT, "region": "us-east-1", "infra_id": self.infra, "instances": wanted}
        return [row["id"] for row in self.sim.world("POST", "instances", body)["instances"]]

    def states(self, ids):
        answer = self.ec2.describe_instances(InstanceIds=ids)
        found = {i["InstanceId"]: i["State"]["Name"] for r in answer["Reservations"] for i in r["Instances"]}
        return [found[instance_id] for instance_id in ids]

    def settle(self, ids, state):
        deadline = time.time() + 10
        while set(self.states(ids)) != {state}:
            self.assertLess(time.time(), deadline, f"not {state}: {self.states(ids)}")
            time.sleep(0.05)

    def refused(self, code, call, *args, **kwargs):
        with self.assertRaises(ClientError) as caught:
            call(*args, **kwargs)
        self.assertEqual(caught.exception.response["Error"]["Code"], code)
        return caught.exception.response

    def test_requests_and_instances_are_limited(self):
        ids = self.make(2)
        began, refused = time.time(), 0
        for _ in range(10):
            try:
                self.ec2.start_instances(InstanceIds=ids)
            except ClientError as error:
                self.assertEqual(error.response["Error"]["Code"], "RequestLimitExceeded")
                refused += 1
        self.assertGreaterEqual(refused, 5 - 2 * (time.time() - began))
        time.sleep(1)
        self.ec2.start_instances(InstanceIds=ids)
        limits = ec2limits.Limits()
        self.assertTrue(limits.admits("1", "r", "StopInstances", 600))
        limits.moved("1", "r", "StopInstances", 600)
        self.assertFalse(limits.admits("1", "r", "StopInstances", 600))
        self.assertTrue(limits.admits("1", "s", "StopInstances", 600))
        self.sim.world("PATCH", "settings", {"limits": 0})
        for _ in range(10):
            self.ec2.start_instances(InstanceIds=ids)
        self.sim.world("PATCH", "settings", {"limits": 1})

    def test_transitions_take_time(self):
        ids = self.make()
        began = time.time()
        answer = self.ec2.stop_instances(InstanceIds=ids)["StoppingInstances"]
        self.assertEqual([(a["PreviousState"]["Name"], a["CurrentState"]["Name"]) for a in answer], [("running", "stopping")] * 3)
        self.assertEqual(self.states(ids), ["stopping"] * 3)
        self.settle(ids, "stopped")
        self.assertGreaterEqual(time.time() - began, SECONDS)
        self.ec2.start_instances(InstanceIds=ids)
        self.assertEqual(self.states(ids), ["pending"] * 3)
        self.settle(ids, "running")

    def test_times_can_change_while_running(self):
        ids = self.make(1)
        self.sim.world("PATCH", "settings", {"stop": 0})
        self.ec2.stop_instances(InstanceIds=ids)
        self.assertEqual(self.states(ids), ["stopped"])
        self.sim.world("PATCH", "settings", {"stop": SECONDS})

    def test_launch_time_is_renewed_by_a_start(self):
        (one,) = self.make(1, state="stopped")
        launched = lambda: self.ec2.describe_instances(InstanceIds=[one])["Reservations"][0]["Instances"][0]["LaunchTime"]
        before = launched()
        time.sleep(1.1)
        self.ec2.start_instances(InstanceIds=[one])
        self.assertGreater(launched(), before)

    def test_an_instance_may_stop_again_after_a_start_that_was_accepted(self):
        one, other = self.make(2, state="stopped")
        why = "Client.InternalError: Client error on launch"
        self.sim.world("POST", f"instances/{one}", {"stops_again": why})
        found = lambda: self.ec2.describe_instances(InstanceIds=[one])["Reservations"][0]["Instances"][0]
        before = found()["LaunchTime"]
        time.sleep(1.1)
        self.ec2.start_instances(InstanceIds=[one, other])
        self.assertEqual(self.states([one, other]), ["pending"] * 2)
        self.settle([other], "running")
        self.settle([one], "stopped")
        self.assertEqual(found()["StateReason"], {"Code": "Client.InternalError", "Message": why})
        self.assertGreater(found()["LaunchTime"], before)
        self.sim.world("POST", f"instances/{one}", {"stops_again": None})
        self.ec2.start_instances(InstanceIds=[one])
        self.settle([one], "running")
        self.ec2.stop_instances(InstanceIds=[one])
        self.settle([one], "stopped")
        self.assertEqual(found()["StateReason"]["Code"], "Client.UserInitiatedShutdown")

    def test_one_instance_may_be_refused_with_any_code(self):
        one, other = self.make(2)
        words = {"code": "ACodeOfNextYear", "status": 409, "message": "Not today."}
        self.sim.world("POST", "faults", {"action": "StopInstances", "instance": one, **words})
        answer = self.refused("ACodeOfNextYear", self.ec2.stop_instances, InstanceIds=[one, other])
        self.assertEqual((answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Message"]), (409, "Not today."))
        self.ec2.stop_instances(InstanceIds=[other])

    def test_a_state_that_does_not_allow_it_refuses_the_batch_and_names_the_instance(self):
        up, stopping = self.make(2)
        self.sim.world("POST", f"instances/{stopping}", {"state": "stopping"})
        answer = self.refused("IncorrectInstanceState", self.ec2.start_instances, InstanceIds=[up, stopping])
        self.assertIn(f"'{stopping}'", answer["Error"]["Message"])
        self.sim.world("POST", f"instances/{stopping}", {"state": "pending"})
        self.refused("IncorrectInstanceState", self.ec2.stop_instances, InstanceIds=[up, stopping])
        self.assertEqual(self.states([up]), ["running"], "the batch was checked before anything moved")

    def test_nothing_revives_a_terminated_instance(self):
        ids = self.make(1)
        self.ec2.terminate_instances(InstanceIds=ids)
        self.assertEqual(self.states(ids), ["shutting-down"])
        self.settle(ids, "terminated")
        self.refused("IncorrectInstanceState", self.ec2.start_instances, InstanceIds=ids)
        self.refused("IncorrectInstanceState", self.ec2.stop_instances, InstanceIds=ids)

    def test_doing_it_twice_is_no_error(self):
        ids = self.make(1)
        self.ec2.start_instances(InstanceIds=ids)
        self.assertEqual(self.states(ids), ["running"])
        for _ in range(2):
            self.ec2.stop_instances(InstanceIds=ids)
        self.settle(ids, "stopped")

    def test_one_time_spot_instances_cannot_be_stopped(self):
        spot, other = self.make(1, spot="one-time") + self.make(1)
        answer = self.refused("UnsupportedOperation", self.ec2.stop_instances, InstanceIds=[other, spot])
        self.assertIn(f"'{spot}'", answer["Error"]["Message"])
        self.assertEqual(self.states([other]), ["running"])
        (found,) = self.ec2.describe_instances(Filters=[{"Name": "instance-lifecycle", "Values": ["spot"]}])["Reservations"]
        self.assertTrue(found["Instances"][0]["SpotInstanceRequestId"].startswith("sir-"))
        (persistent,) = self.make(1, spot="persistent")
        self.ec2.stop_instances(InstanceIds=[persistent])

    def test_protection(self):
        free, kept = self.make(2)
        self.sim.world("POST", f"instances/{kept}", {"protected": True, "termination_protected": True})
        self.assertIn(kept, self.refused("OperationNotPermitted", self.ec2.stop_instances, InstanceIds=[free, kept])["Error"]["Message"])
        self.refused("OperationNotPermitted", self.ec2.terminate_instances, InstanceIds=[free, kept])
        self.assertEqual(self.states([free, kept]), ["running", "running"])
        self.ec2.modify_instance_attribute(InstanceId=kept, DisableApiStop={"Value": False})
        self.ec2.stop_instances(InstanceIds=[kept])

    def test_unknown_and_malformed_ids(self):
        (one,) = self.make(1)
        self.refused("InvalidInstanceID.NotFound", self.ec2.stop_instances, InstanceIds=[one, "i-0123456789abcdef0"])
        self.refused("InvalidInstanceID.Malformed", self.ec2.stop_instances, InstanceIds=["demo"])
        self.assertEqual(self.states([one]), ["running"])

    def test_filters(self):
        self.make(2)
        tag = f"tag:kubernetes.io/cluster/{self.infra}"
        count = lambda *filters: sum(len(r["Instances"]) for r in self.ec2.describe_instances(Filters=list(filters))["Reservations"])
        self.assertEqual(count({"Name": tag, "Values": ["owned"]}), 2)
        self.assertEqual(count({"Name": tag, "Values": ["shared"]}), 0)
        self.assertEqual(count({"Name": tag, "Values": ["owned"]}, {"Name": "instance-state-name", "Values": ["stopped"]}), 0)
        self.refused("InvalidParameterValue", self.ec2.describe_instances, Filters=[{"Name": "color", "Values": ["red"]}])

    def test_many_tag_keys_in_one_filter(self):
        others = [f"{self.infra}-{number}" for number in range(199)]
        for infra in (others[1], others[17]):
            body = {"account": ACCOUNT, "region": "us-east-1", "infra_id": infra, "instances": [{"name": "m"}] * 7}
            self.sim.world("POST", "instances", body)
        self.make(2, tags={f"kubernetes.io/cluster/{others[1]}": "shared"})
        keys = [f"kubernetes.io/cluster/{infra}" for infra in (self.infra, *others)]

        def found(*values):
            filters = [{"Name": "tag-key", "Values": list(values)}]
            pages = self.ec2.get_paginator("describe_instances").paginate(Filters=filters, PaginationConfig={"PageSize": 5})
            return [[i["InstanceId"] for r in page["Reservations"] for i in r["Instances"]] for page in pages]

        self.assertEqual([len(page) for page in found(*keys)], [5, 5, 5, 1])
        self.assertEqual(len(set(sum(found(*keys), []))), 16, "no instance twice")
        self.assertEqual(sum(len(page) for page in found(keys[0])), 2, "a key is not taken for the beginning of another")
        self.assertEqual(sum(len(page) for page in found(keys[2])), 9, "the value does not count")
        self.assertEqual(sum(len(page) for page in found(keys[0] + "-1*")), 16)
        self.assertEqual(sum(len(page) for page in found(keys[0] + "-1\\*")), 0)
        self.refused("FilterLimitExceeded", self.ec2.describe_instances, Filters=[{"Name": "tag-key", "Values": [*keys, "x"]}])
        for infra in (others[1], others[17]):
            self.sim.world("DELETE", f"instances?tag=kubernetes.io/cluster/{infra}")

    def test_spot_requests_say_their_type(self):
        once, always = self.make(1, spot="one-time") + self.make(1, spot="persistent")
        instances = self.ec2.describe_instances(InstanceIds=[once, always])["Reservations"]
        requests = {i["InstanceId"]: i["SpotInstanceRequestId"] for r in instances for i in r["Instances"]}
        types = lambda **how: {r["InstanceId"]: r["Type"] for r in self.ec2.describe_spot_instance_requests(**how)["SpotInstanceRequests"]}
        both = [{"Name": "spot-instance-request-id", "Values": [*requests.values(), "sir-00000000"]}]
        self.assertEqual(types(Filters=both), {once: "one-time", always: "persistent"})
        self.assertEqual(types(SpotInstanceRequestIds=[requests[always]]), {always: "persistent"})
        self.refused("InvalidSpotInstanceRequestID.NotFound", self.ec2.describe_spot_instance_requests, SpotInstanceRequestIds=["sir-00000000"])

    def test_pages_count_instances(self):
        ids = self.make(12)
        tag = [{"Name": f"tag:kubernetes.io/cluster/{self.infra}", "Values": ["owned"]}]
        pages = list(self.ec2.get_paginator("describe_instances").paginate(Filters=tag, PaginationConfig={"PageSize": 5}))
        found = [[i["InstanceId"] for r in page["Reservations"] for i in r["Instances"]] for page in pages]
        self.assertEqual([len(page) for page in found], [5, 5, 2])
        self.assertEqual(sorted(sum(found, [])), sorted(ids))
        self.refused("InvalidParameterCombination", self.ec2.describe_instances, InstanceIds=ids, MaxResults=5)
        self.refused("InvalidParameterValue", self.ec2.describe_instances, MaxResults=4)
        self.refused("InvalidNextToken", self.ec2.describe_instances, NextToken="nonsense")

    def test_pages_without_asking(self):
        self.make(7)
        self.sim.world("PATCH", "settings", {"page_limit": 3})
        try:
            pages = list(self.ec2.get_paginator("describe_instances").paginate())
        finally:
            self.sim.world("PATCH", "settings", {"page_limit": 1000})
        self.assertGreaterEqual(len(pages), 3)

    def test_credentials(self):
        for client in (self.sim.client(key="AKIANOBODYNOBODYNOBO"), self.sim.client(secret="wrong"), self.sim.client(region="us-nowhere-1")):
            answer = self.refused("AuthFailure", client.describe_instances)
            self.assertEqual(answer["ResponseMetadata"]["HTTPStatusCode"], 401)

    def test_a_key_may_be_denied_actions(self):
        (one,) = self.make(1)
        key = {"access_key_id": "AKIADENIEDDENIEDDENI", "secret_access_key": "s", "account": ACCOUNT, "denied": ["StopInstances"]}
        self.sim.world("POST", "keys", key)
        client = self.sim.client(key["access_key_id"], "s")
        self.assertEqual(self.refused("UnauthorizedOperation", client.stop_instances, InstanceIds=[one])["ResponseMetadata"]["HTTPStatusCode"], 403)
        client.describe_instances(InstanceIds=[one])

    def test_accounts_and_regions_do_not_see_each_other(self):
        (one,) = self.make(1)
        self.sim.world("POST", "keys", {"access_key_id": "AKIAOTHEROTHEROTHERO", "secret_access_key": "s", "account": "100000000008"})
        self.refused("InvalidInstanceID.NotFound", self.sim.client("AKIAOTHEROTHEROTHERO", "s").describe_instances, InstanceIds=[one])
        self.refused("InvalidInstanceID.NotFound", self.sim.client(region="eu-west-1").describe_instances, InstanceIds=[one])

    def test_roles(self):
        arn = "arn:aws:iam::100000000007:role/hibernate"
        self.sim.world("POST", "roles", {"arn": arn, "external_id": "right"})
        sts = self.sim.client(service="sts")
        assume = lambda **more: sts.assume_role(RoleArn=arn, RoleSessionName="test", **more)
        self.refused("AccessDenied", assume)
        self.refused("AccessDenied", assume, ExternalId="wrong")
        keys = assume(ExternalId="right")["Credentials"]
        self.sim.client(keys["AccessKeyId"], keys["SecretAccessKey"]).describe_instances()

    def test_faults(self):
        one, two = self.make(2)
        fault = lambda **more: self.sim.world("POST", "faults", more)
        fault(action="StopInstances", code="RequestLimitExceeded", status=503, count=1)
        self.refused("RequestLimitExceeded", self.ec2.stop_instances, InstanceIds=[one])
        fault(action="StopInstances", instance=two, code="InsufficientInstanceCapacity", status=500)
        self.assertIn(two, self.refused("InsufficientInstanceCapacity", self.ec2.stop_instances, InstanceIds=[one, two])["Error"]["Message"])
        self.ec2.stop_instances(InstanceIds=[one])
        self.assertEqual(self.states([two]), ["running"])
        self.assertEqual([f["hits"] for f in self.sim.world("GET", "faults")], [1, 1])

    def test_a_lost_answer(self):
        ids = self.make(1)
        self.sim.world("POST", "faults", {"action": "StopInstances", "cut": True, "after": True, "count": 1})
        with self.assertRaises((ConnectionClosedError, EndpointConnectionError)):
            self.ec2.stop_instances(InstanceIds=ids)
        self.assertEqual(self.states(ids), ["stopping"])

    def test_a_slow_answer(self):
        self.sim.world("POST", "faults", {"action": "DescribeInstances", "delay": 0.6})
        began = time.time()
        self.ec2.describe_instances()
        self.assertGreaterEqual(time.time() - began, 0.6)

    def test_the_log_has_every_call(self):
        one, two = self.make(1) + self.make(1, state="stopped")
        self.ec2.stop_instances(InstanceIds=[one, two])
        self.refused("InvalidInstanceID.Malformed", self.ec2.stop_instances, InstanceIds=["demo"])
        stopped, malformed = self.sim.world("GET", "calls")
        self.assertEqual((stopped["action"], stopped["instances"], stopped["moved"]), ("StopInstances", [one, two], [one]))
        self.assertEqual((stopped["region"], stopped["access_key"], stopped["account"], stopped["status"]), ("us-east-1", KEY, ACCOUNT, 200))
        self.assertIn("Boto3", stopped["user_agent"])
        self.assertLessEqual(stopped["start"], stopped["end"])
        self.assertEqual((malformed["status"], malformed["error"]), (400, "InvalidInstanceID.Malformed"))
        self.assertIn(json.dumps(stopped), self.sim.log.read_text())


if __name__ == "__main__":
    unittest.main()
