"""The EC2 simulator of the test world: moto with EC2's own rules (ec2model), access keys (ec2access), faults and a log.

    python ec2sim.py --log FILE [--port-file FILE [--port N] | --inherited] [--key ID SECRET ACCOUNT] [--start S] [--stop S] [--terminate S]

It listens on 127.0.0.1 only. AWS calls (EC2, and STS AssumeRole) come in at `/`; the world steers it below `/_world/`:

    GET    /_world/instances            every instance, with account, region, state and since when
    POST   /_world/instances            create: {"account", "region", "infra_id", "instances": [{"name", "role", ...}]}
    POST   /_world/instances/ID         {"state": ...} moves it at once (no rules); {"protected": bool} stop protection;
                                        {"termination_protected": bool}; {"stops_again": "StateReason" or null} each
                                        start of it is accepted, and it stops again instead of running
    DELETE /_world/instances?tag=KEY    forgets instances with this tag
    GET    /_world/settings, PATCH      seconds of start, stop, terminate; page_limit; limits: 0 turns EC2's token buckets off
    POST   /_world/keys                 {"access_key_id", "secret_access_key", "account", "denied": [actions]}
    POST   /_world/roles                {"arn", "external_id"}
    GET    /_world/faults, POST, DELETE faults, see `Fault`
    GET    /_world/calls, DELETE        the log of every AWS call, as JSON lines
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import os
import re
import socket
import sys
import threading
import time
import urllib.parse
import uuid
from pathlib import Path
from xml.sax.saxutils import escape

# Stock moto loads 1,301 machine images for 145 MB that nobody here asks for. Read before moto is imported.
EMPTY = Path(__file__).with_name("no-images.json")
if not EMPTY.exists():
    EMPTY.write_text("[]")
os.environ["MOTO_AMIS_PATH"] = str(EMPTY)

from moto.backends import get_backend  # noqa: E402
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: E402
from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: E402

import ec2access as access  # noqa: E402
import ec2limits  # noqa: E402
import ec2model as model  # noqa: E402

MOTO = DomainDispatcherApplication(create_backend_app)
ANSWERED_BY_US = "application/json"


@dataclasses.dataclass
class Fault:
    """One injected fault: which calls it meets, and what happens to them. Absent conditions match everything."""

    id: str = ""
    action: str | None = None
    instance: str | None = None  # only calls that name this instance
    access_key: str | None = None
    region: str | None = None
    user_agent: str | None = None  # a part of it
    skip: int = 0  # let this many matching calls pass first
    count: int | None = None  # then meet this many; None: all
    delay: float = 0.0  # seconds before anything else
    code: str | None = None  # error code to answer; None: the delay is all
    status: int = 400
    message: str = "Injected by the test world{instance}"  # {instance} becomes ": i-..." (or nothing)
    names_instance: bool = True  # whether {instance} is filled
    cut: bool = False  # close the connection instead of answering
    after: bool = False  # carry the call out first, then answer the fault: the caller loses the answer
    hits: int = 0

    def meets(self, call: "Call") -> bool:
        conditions = (
            self.action in (None, call.action),
            self.instance is None or self.instance in call.instances,
            self.access_key in (None, call.access_key),
            self.region in (None, call.region),
            self.user_agent is None or self.user_agent in call.user_agent,
            self.count != 0,
        )
        if not all(conditions):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.count is not None:
            self.count -= 1
        self.hits += 1
        return True

    def text(self, call: "Call") -> str:
        named = self.instance or (call.instances[0] if call.instances else "")
        return self.message.replace("{instance}", f": {named}" if named and self.names_instance else "")


@dataclasses.dataclass
class Call:
    """One AWS call as the log keeps it. Times are seconds since 1970."""

    start: float
    end: float = 0.0
    action: str = ""
    instances: list[str] = dataclasses.field(default_factory=list)
    region: str = ""
    access_key: str = ""
    account: str = ""
    user_agent: str = ""
    status: int = 0
    error: str | None = None
    moved: list[str] = dataclasses.field(default_factory=list)  # those that this call really started, stopped, ...


class Log:
    """Every AWS call, in memory until reset and in a file for ever."""

    def __init__(self, path: Path) -> None:
        self.calls: list[str] = []
        self.file = path.open("a", buffering=1)
        self.lock = threading.Lock()

    def write(self, call: Call) -> None:
        line = json.dumps(dataclasses.asdict(call))
        with self.lock:
            self.calls.append(line)
            self.file.write(line + "\n")

    def lines(self) -> str:
        with self.lock:
            return "".join(line + "\n" for line in self.calls)

    def reset(self) -> None:
        with self.lock:
            self.calls.clear()


LIMITS = ec2limits.Limits()
FAULTS: list[Fault] = []
FAULTS_LOCK = threading.Lock()
MOVED = re.compile(r"<item>(.*?)</item>", re.S)


class Simulator:
    """The WSGI application."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def __call__(self, env, start_response):
        body = env["wsgi.input"].read(int(env.get("CONTENT_LENGTH") or 0))
        if env.get("PATH_INFO", "").startswith("/_world/"):
            status, content, text = steer(self, env, body)
            start_response(f"{status} World", [("Content-Type", content), ("Content-Length", str(len(text)))])
            return [text]
        call = self.describe(env, body)
        try:
            status, headers, text = self.answer(call, env, body)
        finally:
            call.end = time.time() + model.SETTINGS["shift"]
            self.log.write(call)
        start_response(f"{status} EC2", headers)
        return [text]

    @staticmethod
    def describe(env, body: bytes) -> Call:
        form = urllib.parse.parse_qs((body.decode("utf-8", "replace") or env.get("QUERY_STRING", "")))
        access_key, region, _ = access.peek(env.get("HTTP_AUTHORIZATION", ""))
        agent = " ".join(filter(None, (env.get("HTTP_USER_AGENT"), env.get("HTTP_X_AMZ_USER_AGENT"))))
        ids = [values[0] for name, values in form.items() if name.startswith("InstanceId.")]
        return Call(time.time() + model.SETTINGS["shift"], 0.0, form.get("Action", [""])[0], ids, region, access_key, "", agent)

    def answer(self, call: Call, env, body: bytes):
        with FAULTS_LOCK:
            met = [fault for fault in FAULTS if fault.meets(call)]
        for fault in met:
            time.sleep(fault.delay)
        fault = next((fault for fault in met if fault.code or fault.cut), None)
        if fault is None:
            return self.carry_out(call, env, body)
        if fault.after:
            self.carry_out(call, env, body)
        if fault.cut:
            call.status, call.error = 0, "connection cut"
            env["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionResetError("cut by a fault")
        return refuse(call, fault.status, fault.code, fault.text(call))

    @staticmethod
    def carry_out(call: Call, env, body: bytes):
        try:
            caller = access.authenticate(env, body)
            call.account = caller.key.account
            if caller.region not in get_backend("ec2")[caller.key.account]:
                raise access.Refused(401, "AuthFailure", "Credential should be scoped to a valid region.")
            access.authorize(caller, call.action)
            if model.SETTINGS["limits"] and not LIMITS.admits(call.account, call.region, call.action, len(call.instances)):
                raise access.Refused(503, "RequestLimitExceeded", "Request limit exceeded.")
            role = assumed(call, body)
        except access.Refused as refused:
            return refuse(call, refused.status, refused.code, refused.message)
        env["wsgi.input"] = io.BytesIO(body)
        env["HTTP_X_MOTO_ACCOUNT_ID"] = caller.key.account
        seen = {}

        def start_response(status, headers, _exc=None):
            seen["status"], seen["headers"] = int(status.split()[0]), headers

        with model.LOCK:
            text = b"".join(MOTO(env, start_response))
        call.status = seen["status"]
        error = re.search(rb"<Code>([^<]+)</Code>", text) if call.status >= 400 else None
        call.error = error[1].decode() if error else None
        if role and call.status == 200:
            admit(role, text)
        call.moved = moved(text)
        if call.status == 200:
            LIMITS.moved(call.account, call.region, call.action, len(call.instances))
        return call.status, seen["headers"], text


def moved(text: bytes) -> list[str]:
    """The instances whose state this answer changed."""
    if b"<previousState>" not in text:
        return []
    rows = MOVED.findall(text.decode())
    changed = [row for row in rows if len(set(re.findall(r"<name>([^<]+)</name>", row))) == 2]
    return [re.search(r"<instanceId>([^<]+)</instanceId>", row)[1] for row in changed]


def assumed(call: Call, body: bytes) -> access.Role | None:
    if call.action != "AssumeRole":
        return None
    form = urllib.parse.parse_qs(body.decode())
    return access.assume(form.get("RoleArn", [""])[0], form.get("ExternalId", [None])[0])


def admit(role: access.Role, text: bytes) -> None:
    """Makes the keys that moto's STS handed out known."""
    field = {name: re.search(f"<{name}>([^<]+)</{name}>".encode(), text)[1].decode() for name in ("AccessKeyId", "SecretAccessKey")}
    access.KEYS[field["AccessKeyId"]] = access.Key(
        field["AccessKeyId"], field["SecretAccessKey"], role.account, role.denied
    )


def refuse(call: Call, status: int, code: str, message: str):
    call.status, call.error = status, code
    error = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    if call.action == "AssumeRole":  # STS words its errors in another form than EC2
        text = f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error><RequestId>{uuid.uuid4()}</RequestId></ErrorResponse>"
    else:
        text = f"<Response><Errors><Error>{error}</Error></Errors><RequestID>{uuid.uuid4()}</RequestID></Response>"
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
    return status, [("Content-Type", "text/xml;charset=UTF-8"), ("Content-Length", str(len(text)))], text


# Steering: one function per path and method.


def instance_row(instance) -> dict:
    return {
        "id": instance.id,
        "account": instance.ec2_backend.account_id,
        "region": instance.ec2_backend.region_name,
        "zone": instance.availability_zone,
        "state": instance.state,
        "since": instance.state_since,
        "launch_time": instance.launch_time.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "private_dns": instance.private_dns_name,
        "private_ip": instance.private_ip,
        "lifecycle": instance.lifecycle,
        "tags": {tag["key"]: tag["value"] for tag in instance.get_tags()},
    }


def list_instances(_sim, _query, _data):
    with model.LOCK:
        rows = [instance_row(i) for known in model._by_id.values() for i in known.values()]
    return {"now": time.time(), "instances": rows}


COUNTER = iter(range(1 << 16))


def create_instances(_sim, _query, data):
    """One reservation per instance, so that paging has something to split; private addresses are unique in the world."""
    rows = []
    with model.LOCK:
        backend = get_backend("ec2")[data["account"]][data["region"]]
        for wanted in data["instances"]:
            tags = {"Name": wanted["name"], f"kubernetes.io/cluster/{data['infra_id']}": "owned", **wanted.get("tags", {})}
            spot = wanted.get("spot")
            model._request.spot_type = spot
            reservation = backend.run_instances(
                "ami-0c0ffee0000000000",
                1,
                None,
                [],
                instance_type=wanted.get("type", "m6i.xlarge"),
                is_instance_type_default=False,
                region_name=data["region"],
                placement=None,
                tags={"instance": tags},
                instance_market_options="spot" if spot else None,
                block_device_mappings=[],
            )
            (instance,) = reservation.instances
            number = next(COUNTER)
            instance.nics[0].private_ip_address = f"10.{number >> 14}.{number >> 7 & 127}.{(number & 127) + 10}"
            if state := wanted.get("state", "running"):
                model.set_state(instance, state, wanted.get("since"))
            rows.append(instance_row(instance))
    return {"now": time.time(), "instances": rows}


def change_instance(_sim, _query, data, instance_id):
    with model.LOCK:
        instance = next((known[instance_id] for known in model._by_id.values() if instance_id in known), None)
        if instance is None:
            raise KeyError(f"no instance {instance_id}")
        if "protected" in data:
            instance.disable_api_stop = data["protected"]
        if "termination_protected" in data:
            instance.disable_api_termination = data["termination_protected"]
        if "stops_again" in data:
            instance.stops_again = data["stops_again"]
        if "state" in data:
            if data["state"] == "running":
                instance.launch_time = model.shifted()
            model.set_state(instance, data["state"], data.get("since"))
        return instance_row(instance)


def forget_instances(_sim, query, _data):
    tag = query["tag"][0]
    forgotten = []
    with model.LOCK:
        for (account, region), known in model._by_id.items():
            backend = get_backend("ec2")[account][region]
            for instance_id in [i.id for i in known.values() if tag in backend.tags.get(i.id, {})]:
                del known[instance_id]
                backend.tags.pop(instance_id, None)
                forgotten.append(instance_id)
            for reservation in list(backend.reservations.values()):
                reservation.instances = [i for i in reservation.instances if i.id not in forgotten]
                if not reservation.instances:
                    del backend.reservations[reservation.id]
    return {"forgotten": forgotten}


def settings(_sim, _query, data):
    unknown = set(data or {}) - set(model.SETTINGS)
    if unknown:
        raise ValueError(f"unknown settings {sorted(unknown)}; known: {sorted(model.SETTINGS)}")
    model.SETTINGS.update(data or {})
    return model.SETTINGS


def add_key(_sim, _query, data):
    key = access.Key(**data)
    access.KEYS[key.access_key_id] = key
    return {}


def add_role(_sim, _query, data):
    role = access.Role(**data)
    access.ROLES[role.arn] = role
    return {}


def list_faults(_sim, _query, _data):
    with FAULTS_LOCK:
        return [dataclasses.asdict(fault) for fault in FAULTS]


def add_fault(_sim, _query, data):
    fault = Fault(**{"id": uuid.uuid4().hex[:8], **data})
    with FAULTS_LOCK:
        FAULTS.append(fault)
    return dataclasses.asdict(fault)


def drop_faults(_sim, query, _data):
    wanted = query.get("id", [None])[0]
    with FAULTS_LOCK:
        FAULTS[:] = [fault for fault in FAULTS if wanted and fault.id != wanted]
    return {}


def read_calls(sim, _query, _data):
    return sim.log.lines()


def reset_calls(sim, _query, _data):
    sim.log.reset()
    return {}


ROUTES = [
    ("GET", r"/_world/instances", list_instances),
    ("POST", r"/_world/instances", create_instances),
    ("DELETE", r"/_world/instances", forget_instances),
    ("POST", r"/_world/instances/(i-[0-9a-f]+)", change_instance),
    ("GET", r"/_world/settings", settings),
    ("PATCH", r"/_world/settings", settings),
    ("POST", r"/_world/keys", add_key),
    ("POST", r"/_world/roles", add_role),
    ("GET", r"/_world/faults", list_faults),
    ("POST", r"/_world/faults", add_fault),
    ("DELETE", r"/_world/faults", drop_faults),
    ("GET", r"/_world/calls", read_calls),
    ("DELETE", r"/_world/calls", reset_calls),
]


def steer(sim: Simulator, env, body: bytes) -> tuple[int, str, bytes]:
    query = urllib.parse.parse_qs(env.get("QUERY_STRING", ""))
    for method, pattern, function in ROUTES:
        found = re.fullmatch(pattern, env["PATH_INFO"])
        if method != env["REQUEST_METHOD"] or not found:
            continue
        try:
            answer = function(sim, query, json.loads(body) if body else None, *found.groups())
        except (KeyError, TypeError, ValueError) as error:
            return 400, "text/plain", f"{type(error).__name__}: {error}".encode()
        if isinstance(answer, str):
            return 200, "application/jsonl", answer.encode()
        return 200, "application/json", json.dumps(answer).encode()
    return 404, "text/plain", f"nothing at {env['REQUEST_METHOD']} {env['PATH_INFO']}".encode()


class Quiet(WSGIRequestHandler):
    """Calls are in our own log. Keep-alive, because real clients use it."""

    protocol_version = "HTTP/1.1"

    def log_request(self, *_args) -> None:
        pass

    def connection_dropped(self, error, environ=None) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--port-file", type=Path, help="where to write the port")
    parser.add_argument("--inherited", action="store_true", help="standard input is the listening socket")
    parser.add_argument("--key", nargs=3, metavar=("ID", "SECRET", "ACCOUNT"), help="an access key to begin with")
    parser.add_argument("--log", type=Path, required=True)
    for name in ("start", "stop", "terminate"):
        parser.add_argument(f"--{name}", type=float, default=model.SETTINGS[name], help="seconds")
    options = parser.parse_args()
    model.SETTINGS.update(start=options.start, stop=options.stop, terminate=options.terminate)
    model.install()
    if options.key:
        access.KEYS[options.key[0]] = access.Key(*options.key)
    simulator = Simulator(Log(options.log))
    inherited = sys.stdin.fileno() if options.inherited else None
    server = make_server("127.0.0.1", options.port, simulator, threaded=True, request_handler=Quiet, fd=inherited)
    if options.port_file:
        ready = options.port_file.with_suffix(".tmp")
        ready.write_text(str(server.server_port))
        ready.rename(options.port_file)
    server.serve_forever()


if __name__ == "__main__":
    main()
