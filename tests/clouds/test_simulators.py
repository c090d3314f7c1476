"""The simulators of GCP, Azure and IBM Cloud, as the vendors' own SDKs see them.

Each SDK is unmodified but for the address: it lists over pages, stops, starts, awaits an operation and sees each class of
errors. `SIMULATORS` has the URLs, by platform.
"""

import json
import os
import time
import unittest
import urllib.parse
import urllib.request

URLS = json.loads(os.environ["SIMULATORS"])


def call(method, url, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, method=method)) as answer:
        return json.load(answer)


class Cloud(unittest.TestCase):
    platform = ""

    @classmethod
    def setUpClass(cls):
        if not cls.platform:
            raise unittest.SkipTest("what all clouds share")
        cls.url = URLS[cls.platform]
        cls.control = cls.url + "/_simulator/"
        cls.credentials = call("GET", cls.control + "credentials")
        call("POST", cls.control + "settings", {"page": 2, "transition_ms": 1500})

    def setUp(self):
        call("DELETE", self.control + "rules")
        names = [f"{self.id().rsplit('.', 1)[1].replace('_', '-')}-{n}" for n in range(5)]
        machines = [{"name": n, "id": "id-" + n, "owner": "sdk", "group": "sdk-rg", "zone": "abc"[i % 3]} for i, n in enumerate(names)]
        call("POST", self.control + "machines", machines)
        self.names = names

    def give_up(self, machine, code):
        effect = {"given-up": {"code": code, "message": "no room here"}}
        call("POST", self.control + "rules", {"call": "start", "machine": machine, "effect": effect})

    def fail(self, name, status, code):
        effect = {"status": {"status": status, "code": code, "message": "as asked", "retry_after": 1}}
        call("POST", self.control + "rules", {"call": name, "times": 1, "effect": effect})

    def eventually(self, probe):
        for _ in range(100):
            found = probe()
            if found:
                return found
            time.sleep(0.1)
        raise AssertionError("it does not become so")


class Gcp(Cloud):
    platform = "gcp"

    def setUp(self):
        super().setUp()
        import google.auth.jwt
        import google_auth_httplib2
        import httplib2
        from googleapiclient import discovery, discovery_cache

        # The description that the SDK ships.
        self.document = discovery_cache.get_static_doc("compute", "v1")
        document = dict(json.loads(self.document), rootUrl=self.url + "/", mtlsRootUrl=self.url + "/")
        self.schemas = document["schemas"]
        audience = "https://compute.googleapis.com/"
        self.own = google.auth.jwt.Credentials.from_service_account_info(self.credentials["gcp"], audience=audience)
        http = google_auth_httplib2.AuthorizedHttp(self.own, http=httplib2.Http())
        self.compute = discovery.build_from_document(document, http=http)
        self.instances = self.compute.instances()

    def list(self, **more):
        found, request = [], self.instances.aggregatedList(project="simulated", filter=f'name eq "({self.names[0][:-2]})-.*"', **more)
        pages = 0
        while request is not None:
            answer = request.execute()
            self.conforms("InstanceAggregatedList", answer)
            found += [i for scope in answer["items"].values() for i in scope.get("instances", [])]
            request, pages = self.instances.aggregatedList_next(request, answer), pages + 1
        return sorted(found, key=lambda i: i["name"]), pages

    def conforms(self, schema, value):
        """Every field of an answer is in its description, with one of the values there."""
        known = self.schemas[schema]
        for key, inner in value.items():
            of = known.get("properties", {}).get(key) or known.get("additionalProperties")
            self.assertIsNotNone(of, f"{schema}.{key}")
            for item in inner if isinstance(inner, list) else [inner]:
                of_item = of.get("items", of)
                if "$ref" in of_item:
                    self.conforms(of_item["$ref"], item)
                elif "additionalProperties" in of_item and "$ref" in of_item["additionalProperties"]:
                    for each in item.values():
                        self.conforms(of_item["additionalProperties"]["$ref"], each)
                elif "enum" in of_item:
                    self.assertIn(item, of_item["enum"], f"{schema}.{key}")

    def at(self, machine):
        return {"project": "simulated", "zone": machine["zone"].rsplit("/", 1)[1]}

    def wait(self, machine, operation):
        operations = self.compute.zoneOperations()
        ask = lambda: operations.get(operation=operation["name"], **self.at(machine)).execute()
        return self.eventually(lambda: (lambda found: found if found["status"] == "DONE" else None)(ask()))

    def test_gcp_pages_fields_and_states(self):
        found, pages = self.list()
        self.assertEqual(([i["name"] for i in found], pages), (self.names, 3))
        fields = "items/*/instances(name,zone,status),items/*/warning,nextPageToken,unreachables"
        found, pages = self.list(fields=fields)
        self.assertEqual((sorted(found[0]), pages), (["name", "status", "zone"], 3))
        machine = found[0]
        stopping = self.instances.stop(instance=machine["name"], **self.at(machine)).execute()
        self.conforms("Operation", stopping)
        self.assertNotIn("error", self.wait(machine, stopping))
        self.assertEqual(self.list()[0][0]["status"], "TERMINATED")
        starting = self.instances.start(instance=machine["name"], **self.at(machine)).execute()
        self.assertNotIn("error", self.wait(machine, starting))
        self.assertEqual(self.list()[0][0]["status"], "RUNNING")

    def test_gcp_no_room(self):
        machine = self.list()[0][0]
        self.wait(machine, self.instances.stop(instance=machine["name"], **self.at(machine)).execute())
        self.give_up(machine["name"], "ZONE_RESOURCE_POOL_EXHAUSTED")
        failed = self.wait(machine, self.instances.start(instance=machine["name"], **self.at(machine)).execute())
        self.conforms("Operation", failed)
        self.assertEqual(failed["error"]["errors"][0]["code"], "ZONE_RESOURCE_POOL_EXHAUSTED")
        self.assertEqual(self.list()[0][0]["status"], "TERMINATED")

    def test_gcp_errors(self):
        from googleapiclient.errors import HttpError

        machine = self.list()[0][0]
        for name, status, code in [("stop", 403, "rateLimitExceeded"), ("stop", 503, "backendError"), ("stop", 404, "notFound")]:
            self.fail(name, status, code)
            with self.assertRaises(HttpError) as error:
                self.instances.stop(instance=machine["name"], **self.at(machine)).execute()
            self.assertEqual((error.exception.status_code, error.exception.error_details[0]["reason"]), (status, code))
        with self.assertRaises(TypeError):
            self.instances.stop(instance=machine["name"], returnPartialSuccess=True, **self.at(machine))
        with self.assertRaises(HttpError) as error:
            self.instances.stop(instance="nothing", **self.at(machine)).execute()
        self.assertEqual(error.exception.status_code, 404)


class Azure(Cloud):
    platform = "azure"

    def setUp(self):
        super().setUp()
        from azure.core.credentials import AccessToken, AccessTokenInfo
        from azure.mgmt.compute import ComputeManagementClient

        known = self.credentials["azure"]
        form = {"grant_type": "client_credentials", "client_id": known["client"], "client_secret": known["secret"]}
        form["scope"] = "https://management.azure.com/.default"
        data = urllib.parse.urlencode(form).encode()
        with urllib.request.urlopen(f"{self.url}/{known['tenant']}/oauth2/v2.0/token", data) as answer:
            granted = json.load(answer)

        class Token:
            def get_token(self, *_, **__):
                return AccessToken(granted["access_token"], int(time.time()) + granted["expires_in"])

            def get_token_info(self, *_, **__):
                return AccessTokenInfo(granted["access_token"], int(time.time()) + granted["expires_in"])

        client = ComputeManagementClient(Token(), known["subscription"], base_url=self.url, retry_total=0)
        self.machines = client.virtual_machines
        self.plain = {"enforce_https": False, "polling_interval": 0.2}

    def power(self, name):
        all_machines = self.machines.list_all(status_only="true", enforce_https=False)
        found = {m.name: [s.code for s in m.properties.instance_view.statuses] for m in all_machines}
        return found[name][-1], len(found)

    def test_azure_pages_and_states(self):
        name = self.names[0]
        code, count = self.power(name)
        self.assertEqual(code, "PowerState/running")
        self.assertGreaterEqual(count, 5, "over pages of two")
        self.machines.begin_deallocate("SDK-rg", name, **self.plain).result()
        self.assertEqual(self.power(name)[0], "PowerState/deallocated")
        view = self.machines.instance_view("sdk-rg", name, enforce_https=False)
        self.assertEqual([s.code for s in view.statuses][-1], "PowerState/deallocated")
        self.machines.begin_start("sdk-rg", name, **self.plain).result()
        self.assertEqual(self.power(name)[0], "PowerState/running")

    def test_azure_no_room(self):
        from azure.core.exceptions import HttpResponseError

        name = self.names[0]
        self.machines.begin_deallocate("sdk-rg", name, **self.plain).result()
        self.give_up(name, "AllocationFailed")
        with self.assertRaises(HttpResponseError) as error:
            self.machines.begin_start("sdk-rg", name, **self.plain).result()
        self.assertEqual(error.exception.error.code, "AllocationFailed")
        self.assertEqual(self.power(name)[0], "PowerState/deallocated")

    def test_azure_errors(self):
        from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError

        for status, code, kind in [
            (403, "AuthorizationFailed", HttpResponseError),
            (429, "OperationNotAllowed", HttpResponseError),
            (503, "ServerTimeout", HttpResponseError),
            (401, "InvalidAuthenticationToken", ClientAuthenticationError),
        ]:
            self.fail("start", status, code)
            with self.assertRaises(kind) as error:
                self.machines.begin_start("sdk-rg", self.names[0], **self.plain)
            self.assertEqual((error.exception.status_code, error.exception.error.code), (status, code))
        with self.assertRaises(ResourceNotFoundError):
            self.machines.begin_start("sdk-rg", "nothing", **self.plain)


class Ibm(Cloud):
    platform = "ibmcloud"

    def setUp(self):
        super().setUp()
        from ibm_cloud_sdk_core.authenticators import IAMAuthenticator
        from ibm_vpc import VpcV1

        self.vpc = VpcV1(version="2026-11-01", authenticator=IAMAuthenticator(self.credentials["ibm"], url=self.url))
        self.vpc.set_service_url(self.url + "/v1")
        region = self.vpc.get_region("eu-de").get_result()
        self.assertEqual(region["endpoint"], self.url)

    def list(self):
        from ibm_vpc.vpc_v1 import InstancesPager

        found = InstancesPager(client=self.vpc, limit=2).get_all()
        return {i["name"]: i for i in found}

    def wait(self, name, status):
        return self.eventually(lambda: (lambda found: found if found["status"] == status else None)(self.list()[name]))

    def test_ibm_pages_and_states(self):
        name = self.names[0]
        machine = self.list()[name]
        self.assertEqual((machine["status"], machine["startable"], machine["status_reasons"]), ("running", True, []))
        action = self.vpc.create_instance_action(machine["id"], "stop").get_result()
        self.assertEqual((action["type"], action["status"]), ("stop", "pending"))
        self.wait(name, "stopped")
        self.vpc.create_instance_action(machine["id"], "start")
        self.wait(name, "running")

    def test_ibm_queues(self):
        name = self.names[0]
        machine = self.list()[name]
        for action in ["stop", "start", "stop"]:
            self.vpc.create_instance_action(machine["id"], action)
        seen = {self.wait(name, status)["status"] for status in ["stopping", "starting", "stopping", "stopped"]}
        self.assertEqual(seen, {"stopping", "starting", "stopped"})

    def test_ibm_no_room(self):
        name = self.names[0]
        machine = self.list()[name]
        self.vpc.create_instance_action(machine["id"], "stop")
        self.wait(name, "stopped")
        self.give_up(name, "cannot_start_capacity")
        self.vpc.create_instance_action(machine["id"], "start")
        found = self.eventually(lambda: self.list()[name]["status_reasons"])
        self.assertEqual(found[0]["code"], "cannot_start_capacity")

    def test_ibm_errors(self):
        from ibm_cloud_sdk_core import ApiException

        machine = self.list()[self.names[0]]
        for status, code in [(403, "forbidden"), (404, "not_found"), (409, "instance_not_ready"), (500, "internal_error")]:
            self.fail("stop", status, code)
            with self.assertRaises(ApiException) as error:
                self.vpc.create_instance_action(machine["id"], "stop")
            self.assertEqual((error.exception.status_code, error.exception.message), (status, "as asked"))


if __name__ == "__main__":
    unittest.main()
